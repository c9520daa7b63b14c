//! System calls that change a program's memory: what the pager does before, instead of, or after the kernel.
//!
//! Memory that becomes writable outside the region becomes an area, before a thread can touch it: the helper maps it, in the
//! program's memory, and the program's thread gets the result. The helper unmaps areas too, and the pager forgets
//! their pages when it has.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use super::Engine;
use super::pending::{Held, SpaceId};
use crate::pages::{self, DIRTY, State};
use crate::protocol::HelperOrder;
use crate::space::Space;
use crate::trap::{Call, Reply, Traps};
use crate::types::{PAGE, page_of};
use crate::uffd::Message;
use crate::unserved::{Job, ProgramId, Unserved, program_of};

/// Programs that are remembered after they were made to be served.
const MOST_INJECTED: usize = 4096;
/// Mappings from this size on become areas, in bytes.
const LEAST: usize = 16 << 10;
/// A reservation of which a part becomes memory becomes an area up to the next multiple of so many bytes.
const AHEAD: usize = 1 << 20;
/// Mappings with one of these flags are the kernel's.
const FOREIGN: c_int =
    libc::MAP_SHARED | libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_LOCKED;
/// `MADV_DONTNEED_LOCKED`, `MADV_COLLAPSE` and `MADV_GUARD_INSTALL` of `asm-generic/mman-common.h`.
const DONTNEED_LOCKED: c_int = 24;
const COLLAPSE: c_int = 25;
const GUARD_INSTALL: c_int = 102;
/// Advice by which content is lost.
const DROPPING: [c_int; 5] =
    [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE, DONTNEED_LOCKED, GUARD_INSTALL];

impl Engine {
    /// Takes the calls of programs from here.
    pub(crate) fn set_traps(&mut self, traps: Arc<Traps>, unserved: Option<Unserved>) {
        (self.calls.traps, self.calls.unserved) = (Some(traps), unserved);
    }

    /// Where calls come from.
    pub(crate) fn traps(&self) -> Option<&Traps> {
        self.calls.traps.as_deref()
    }

    /// A thread's program is served, or cannot be.
    pub(crate) fn injected(&mut self, job: &Job, is_served: bool) {
        let calls = &mut self.calls;
        calls.injecting.remove(&job.call.thread);
        let known = if is_served { &mut calls.injected } else { &mut calls.failed };
        if known.len() >= MOST_INJECTED {
            known.clear();
        }
        if is_served || !job.is_child {
            known.insert(job.program);
        } else {
            self.lose(job.program);
        }
    }

    /// Calls of a child that has not introduced itself go on.
    fn lose(&mut self, program: ProgramId) {
        let its = |space: &&mut Space| space.link.is_none() && space.runs == Some(program);
        self.spaces.values_mut().filter(its).for_each(|space| space.is_lost = true);
    }

    /// Holds a call again whose program is served meanwhile. False: it is not.
    pub(crate) fn hold_if_known(&mut self, call: &Call) -> bool {
        let is_known = self.caller(call.thread).is_some();
        if is_known {
            self.calls.injecting.remove(&call.thread);
            self.calls.held.push(Held::new(*call));
        }
        is_known
    }

    /// Has a program served that has not introduced itself. False: that cannot be done.
    fn inject(&mut self, call: Call, program: ProgramId, is_child: bool) -> bool {
        let calls = &mut self.calls;
        let Some(unserved) = &calls.unserved else { return false };
        let did = unserved.serve(call, program, is_child);
        if did {
            calls.injecting.insert(call.thread);
        }
        did
    }

    /// Makes areas of the memory that the program of a thread has.
    pub(crate) fn adopt_all(&mut self, thread: u32, memory: &[(usize, usize)]) {
        let Some(id) = self.caller(thread) else { return };
        memory.iter().for_each(|&(addr, size)| self.adopt(id, addr, size, false));
    }

    /// Whether a process is left whose calls are followed.
    pub(crate) fn has_callers(&self) -> bool {
        self.traps().is_some_and(|traps| !traps.is_over())
    }

    /// A program makes a call. False: no process is left that could.
    pub(crate) fn hold_call(&mut self) -> bool {
        let Some(traps) = &self.calls.traps else { return false };
        let (call, has_callers) = traps.next();
        self.calls.held.extend(call.map(Held::new));
        has_callers
    }

    /// Answers the calls that can be answered. Says whether there were any.
    pub(super) fn answer_calls(&mut self) -> bool {
        let mut did = false;
        for mut held in std::mem::take(&mut self.calls.held) {
            let Some(traps) = self.calls.traps.clone() else { break };
            if held.has_waited && held.ordered.is_none() && !traps.is_waiting(&held.call) {
                // Its thread has ended, and another one may have its number.
                continue;
            }
            match self.try_call(&mut held) {
                Some(reply) => {
                    did = true;
                    traps.reply(&held.call, reply);
                }
                None => {
                    held.has_waited = true;
                    self.calls.held.push(held);
                }
            }
        }
        did
    }

    /// The space of a thread.
    fn caller(&mut self, thread: u32) -> Option<SpaceId> {
        let is_its = |space: &Space| space.link.as_ref().is_some_and(|link| link.has(thread));
        let known = self.calls.threads.get(&thread);
        if let Some(&id) = known
            && self.spaces.get(&id).is_some_and(is_its)
        {
            return Some(id);
        }
        self.calls.threads.remove(&thread);
        let (&id, _) = self.spaces.iter().find(|(_, space)| is_its(space))?;
        self.calls.threads.insert(thread, id);
        Some(id)
    }

    /// A call of a process that has not introduced itself. None: it is about to, perhaps.
    fn on_unknown(&mut self, held: &mut Held) -> Option<Reply> {
        let thread = held.call.thread;
        if self.calls.injecting.contains(&thread) {
            return Some(Reply::Go);
        }
        held.runs = held.runs.or_else(|| program_of(thread));
        let Some(program) = held.runs else { return Some(Reply::Go) };
        let now = self.clock.now();
        let its = |space: &&Space| space.runs == Some(program);
        if self.spaces.values().any(|space| its(&space)) {
            // A forked child.
            if self.calls.injected.contains(&program) && self.inject(held.call, program, true) {
                return Some(Reply::Elsewhere);
            }
            let may_come =
                |space: &Space| space.link.is_none() && !space.is_lost && space.is_young(now);
            if self.spaces.values().filter(its).any(may_come) {
                return None;
            }
            self.lose(program);
            return Some(Reply::Go);
        }
        let is_unserved = self.calls.unserved.as_ref().is_some_and(|unserved| unserved.has(thread));
        let is_new = is_unserved && !self.calls.failed.contains(&program);
        if is_new && self.inject(held.call, program, false) {
            return Some(Reply::Elsewhere);
        }
        Some(Reply::Go)
    }

    /// Carries on with a call. None: it has to wait.
    fn try_call(&mut self, held: &mut Held) -> Option<Reply> {
        let Call { thread, number, args, .. } = held.call;
        if let Some(id) = held.ordered {
            // A space that is gone has no thread that waits.
            let Some(space) = self.spaces.get_mut(&id) else { return Some(Reply::Go) };
            let result = space.result.take()?;
            space.is_calling = false;
            held.ordered = None;
            return self.finish(id, held, result);
        }
        if number == libc::SYS_exit_group {
            return self.on_exit(thread);
        }
        let Some(id) = self.caller(thread) else { return self.on_unknown(held) };
        let space = self.spaces.get(&id)?;
        if space.is_calling {
            // The change under way has to be known first.
            return None;
        }
        let [a, b, c, d, e, _] = args;
        let is_paged = |addr: usize, size: usize| !space.parts(addr, size.max(1)).is_empty();
        match number {
            libc::SYS_mlock | libc::SYS_mlock2 => {
                let (from, size) = (a / PAGE * PAGE, b.saturating_add(a % PAGE));
                return Some(if is_paged(from, size) {
                    Reply::error(libc::ENOMEM)
                } else {
                    Reply::Go
                });
            }
            libc::SYS_mlockall => return Some(Reply::error(libc::ENOMEM)),
            // It names a process, which may be the caller.
            libc::SYS_process_madvise if DROPPING.contains(&int(d)) => {
                return Some(Reply::error(libc::EPERM));
            }
            libc::SYS_process_madvise => return Some(Reply::Go),
            libc::SYS_brk => return self.on_break(id, held),
            libc::SYS_mmap => return self.on_map(id, held),
            _ => {}
        }
        if !a.is_multiple_of(PAGE) || a.checked_add(b).is_none() {
            // The kernel says so, and changes nothing.
            return Some(Reply::Go);
        }
        match number {
            libc::SYS_munmap if space.overlaps_region(a, b) => Some(Reply::error(libc::EINVAL)),
            libc::SYS_munmap if is_paged(a, b) || space.has_stack(a, b) => {
                self.order_call(id, held, number, args)
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => Some(self.on_protect(id, a, b, int(c))),
            libc::SYS_madvise if is_paged(a, b) => self.on_advice(id, held),
            libc::SYS_mremap => {
                let is_fixed = int(d) & libc::MREMAP_FIXED != 0;
                // Small memory may have become large.
                let may_grow = c >= LEAST && c > b;
                if is_paged(a, b) || is_fixed && is_paged(e, c) || may_grow {
                    self.on_remap(id, held)
                } else {
                    Some(Reply::Go)
                }
            }
            _ => Some(Reply::Go),
        }
    }

    /// Has the helper make a call, if it has nothing else to do; the call waits either way.
    fn order_call(
        &mut self,
        id: SpaceId,
        held: &mut Held,
        number: i64,
        args: [usize; 6],
    ) -> Option<Reply> {
        let space = self.spaces.get_mut(&id)?;
        if space.batch.is_some() || space.is_emptying || space.is_calling || space.is_over {
            return None;
        }
        space.is_calling = true;
        held.ordered = Some(id);
        space.order_call(&HelperOrder::call(number, args));
        None
    }

    /// The helper has made a call. While it did nothing has left, so nothing has to wait.
    fn finish(&mut self, id: SpaceId, held: &mut Held, result: i64) -> Option<Reply> {
        let [a, b, _, flags, ..] = held.call.args;
        let value = usize::try_from(result).unwrap_or(0);
        match held.call.number {
            _ if result < 0 => {}
            libc::SYS_munmap => self.forget(id, a, b),
            libc::SYS_mmap => {
                self.forget(id, value, b);
                if int(flags) & libc::MAP_STACK != 0 {
                    self.spaces.get_mut(&id)?.stacks.insert(value, value.saturating_add(b));
                } else if is_wanted(held.call.args) {
                    // Where nothing was, no other thread can have been.
                    self.adopt(id, value, b, int(flags) & libc::MAP_FIXED == 0);
                }
            }
            libc::SYS_mremap => self.has_moved(id, held, value),
            libc::SYS_brk => {
                let space = self.spaces.get_mut(&id)?;
                let before = std::mem::replace(&mut space.heap_end, value);
                if before == 0 {
                    // That was the question where it is.
                    return self.on_break(id, held);
                }
                let (from, to) = (whole(before), whole(value));
                if value == a && from < to {
                    self.adopt(id, from, to - from, true);
                } else if value == a && to < from {
                    self.forget(id, to, from - to);
                }
            }
            _ => {}
        }
        Some(Reply::Result(result))
    }

    /// Memory has been resized, and is at `value`. Its areas have moved with it.
    fn has_moved(&mut self, id: SpaceId, held: &Held, value: usize) {
        let args = held.call.args;
        let (from, size, new_size) = (args[0], whole(args[1]), whole(args[2]));
        if new_size < size {
            self.forget(id, from + new_size, size - new_size);
        }
        if value != from {
            // These replace other memory, too.
            for &(addr, size) in &held.unpaged {
                let skipped = addr - from;
                self.forget(id, value + skipped, size.min(new_size.saturating_sub(skipped)));
            }
        }
        if new_size <= size {
            return;
        }
        self.forget(id, value + size, new_size - size);
        let Some(link) = self.spaces.get(&id).and_then(|space| space.link.as_ref()) else { return };
        for (addr, size) in link.private_memory(value, new_size, PAGE) {
            self.adopt(id, addr, size, false);
        }
    }

    /// The process whose exit is held waits until it may. A child that shares its memory (`vfork`) does not.
    fn on_exit(&mut self, thread: u32) -> Option<Reply> {
        let is_its =
            || std::fs::exists(format!("/proc/{}/task/{thread}", self.held)).unwrap_or(false);
        if self.held == 0 || !is_its() {
            return Some(Reply::Go);
        }
        let Some(id) = self.caller(thread) else { return Some(Reply::Go) };
        let own_pid = self.spaces.get(&id)?.own_pid;
        if self.holds(id, own_pid) { None } else { Some(Reply::Go) }
    }

    fn on_map(&mut self, id: SpaceId, held: &mut Held) -> Option<Reply> {
        let mut args = held.call.args;
        let [addr, size, _, flags, ..] = args;
        let Some(size) = size.checked_next_multiple_of(PAGE).filter(|size| *size > 0) else {
            return Some(Reply::Go);
        };
        let space = self.spaces.get(&id)?;
        let flags = int(flags);
        let is_anonymous = flags & libc::MAP_ANONYMOUS != 0;
        let is_fixed = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
        let is_place = addr.is_multiple_of(PAGE) && addr.checked_add(size).is_some();
        let mut replaces = false;
        if is_fixed && is_place {
            if space.overlaps_region(addr, size) {
                return Some(Reply::error(libc::EINVAL));
            }
            replaces = !space.areas.within(addr, size).is_empty() || space.has_stack(addr, size);
            if replaces && !is_anonymous {
                // The helper has not the file.
                self.drop_content(id, addr, size)?;
                self.forget(id, addr, size);
                return Some(Reply::Go);
            }
        }
        let is_wanted = is_wanted(args);
        let is_stack = is_anonymous && flags & libc::MAP_STACK != 0;
        if is_wanted && !self.may_reserve(id, size / PAGE) {
            return Some(Reply::error(libc::ENOMEM));
        }
        if !(is_wanted || is_stack || replaces) {
            return Some(Reply::Go);
        }
        if is_wanted {
            // Pages come by faults.
            args[3] &= !crate::raw::flag(libc::MAP_POPULATE);
        }
        self.order_call(id, held, libc::SYS_mmap, args)
    }

    /// Memory that becomes writable becomes an area, before it does.
    fn on_protect(&mut self, id: SpaceId, addr: usize, size: usize, access: c_int) -> Reply {
        let Some(space) = self.spaces.get(&id) else { return Reply::Go };
        let Some(size) = size.checked_next_multiple_of(PAGE) else { return Reply::Go };
        if !is_data(access) || space.gaps(addr, size).is_empty() || space.has_stack(addr, 1) {
            return Reply::Go;
        }
        let Some(link) = &space.link else { return Reply::Go };
        let mut wanted = Vec::new();
        // Some allocators have their reservations become memory page by page.
        for (addr, size) in link.private_memory(addr, size, AHEAD) {
            let has_neighbour = addr > 0 && space.areas.page(addr - 1).is_some();
            let is_worth = |(_, size): &(usize, usize)| *size >= LEAST || has_neighbour;
            wanted.extend(space.gaps(addr, size).into_iter().filter(is_worth));
        }
        if !self.may_reserve(id, wanted.iter().map(|(_, size)| size / PAGE).sum()) {
            return Reply::error(libc::ENOMEM);
        }
        wanted.into_iter().for_each(|(addr, size)| self.adopt(id, addr, size, false));
        Reply::Go
    }

    fn on_advice(&mut self, id: SpaceId, held: &mut Held) -> Option<Reply> {
        let [addr, size, advice, ..] = held.call.args;
        let space = self.spaces.get_mut(&id)?;
        let end = addr.saturating_add(size);
        match int(advice) {
            libc::MADV_FREE => {
                self.drop_content(id, addr, size)?;
                let args = [addr, size, crate::raw::flag(libc::MADV_DONTNEED), 0, 0, 0];
                self.order_call(id, held, libc::SYS_madvise, args)
            }
            advice if DROPPING.contains(&advice) => {
                self.drop_content(id, addr, size).map(|()| Reply::Go)
            }
            libc::MADV_HUGEPAGE => Some(Reply::Result(0)),
            COLLAPSE | libc::MADV_WIPEONFORK => Some(Reply::error(libc::EINVAL)),
            libc::MADV_DONTFORK => {
                space.unforked.insert(addr, end);
                Some(Reply::Go)
            }
            libc::MADV_DOFORK => {
                space.unforked.retain(|from, to| *to <= addr || *from >= end);
                Some(Reply::Go)
            }
            _ => Some(Reply::Go),
        }
    }

    /// Part of an area is resized, and may move.
    fn on_remap(&mut self, id: SpaceId, held: &mut Held) -> Option<Reply> {
        let [addr, size, new_size, flags, to, _] = held.call.args;
        let (Some(size), Some(new_size)) =
            (size.checked_next_multiple_of(PAGE), new_size.checked_next_multiple_of(PAGE))
        else {
            return Some(Reply::error(libc::EINVAL));
        };
        if int(flags) & libc::MREMAP_DONTUNMAP != 0 || size == 0 || new_size == 0 {
            return Some(Reply::error(libc::EINVAL));
        }
        let space = self.spaces.get(&id)?;
        let is_fixed = int(flags) & libc::MREMAP_FIXED != 0;
        let is_place = to.is_multiple_of(PAGE) && to.checked_add(new_size).is_some();
        let is_wrong = is_fixed && (!is_place || space.overlaps_region(to, new_size));
        if is_wrong || space.overlaps_region(addr, size) {
            return Some(Reply::error(libc::EINVAL));
        }
        if !self.may_reserve(id, new_size.saturating_sub(size) / PAGE) {
            return Some(Reply::error(libc::ENOMEM));
        }
        held.unpaged = space.areas.gaps(addr, size);
        self.order_call(id, held, libc::SYS_mremap, held.call.args)
    }

    fn on_break(&mut self, id: SpaceId, held: &mut Held) -> Option<Reply> {
        let wanted = held.call.args[0];
        let space = self.spaces.get(&id)?;
        let end = space.heap_end;
        if wanted == 0 || wanted.checked_next_multiple_of(PAGE).is_none() {
            return Some(Reply::Go);
        }
        if end == 0 {
            return self.order_call(id, held, libc::SYS_brk, [0; 6]);
        }
        let more = whole(wanted).saturating_sub(whole(end)) / PAGE;
        if !self.may_reserve(id, more) {
            // The break stays where it is: so the kernel says that there is no memory.
            return Some(Reply::Result(i64::try_from(end).unwrap_or(0)));
        }
        self.order_call(id, held, libc::SYS_brk, held.call.args)
    }

    /// Drops the content of what is paged of a range. None: pages of it are leaving, try again.
    fn drop_content(&mut self, id: SpaceId, addr: usize, size: usize) -> Option<()> {
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        // Nothing of it may be paged.
        self.discard(id, addr, size).map(drop)
    }

    /// Memory that the kernel has unmapped is no area any more. No page of it may be leaving.
    fn forget(&mut self, id: SpaceId, addr: usize, size: usize) {
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        let end = addr.saturating_add(size);
        let parts = match self.spaces.get_mut(&id) {
            Some(space) => {
                let stays = |from: &usize, to: &mut usize| *to <= addr || *from >= end;
                space.stacks.retain(stays);
                space.unforked.retain(stays);
                space.areas.within(addr, size)
            }
            None => return,
        };
        for (addr, first, count) in parts {
            let is_dropped = self.discard(id, addr, count as usize * PAGE).is_some();
            debug_assert!(is_dropped, "no page leaves while a call is under way");
            let Some(space) = self.spaces.get_mut(&id) else { return };
            let used = page_of(space.pages.used_of_areas());
            (first..(first + count).min(used))
                .for_each(|page| space.pages.clear(page, pages::DROPPED));
        }
        if let Some(space) = self.spaces.get_mut(&id) {
            space.areas.remove(addr, size);
        }
    }

    /// Makes areas of those parts of a range that are none yet. Unless it is fresh, it may have pages already.
    fn adopt(&mut self, id: SpaceId, addr: usize, size: usize, is_fresh: bool) {
        let Some(space) = self.spaces.get(&id) else { return };
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        for (addr, size) in space.gaps(addr, size) {
            if !self.may_reserve(id, size / PAGE) {
                continue;
            }
            let Some(space) = self.spaces.get_mut(&id) else { return };
            let count = page_of(size / PAGE);
            // Memory of another kind stays the kernel's.
            if space.uffd.register(addr, size).is_err() {
                continue;
            }
            let Some(first) = space.areas.add(addr, count) else { continue };
            let present = if is_fresh { Vec::new() } else { space.present(addr, count as usize) };
            for page in present {
                debug_assert_eq!(space.pages.state(first + page), State::Zero);
                Engine::arrive(space, first + page, pages::NONE, DIRTY);
            }
        }
    }

    /// A mapping has moved.
    pub(super) fn moved(&mut self, id: SpaceId, message: &Message) {
        let &Message::Remap { from, to, size } = message else { return };
        // Memory that lay there is replaced.
        self.forget(id, to, size);
        if let Some(space) = self.spaces.get_mut(&id) {
            space.areas.relocate(from, to, size);
        }
    }

    /// Faults at addresses that are none of the pager's: memory that was unmapped, or is about to be, reads as zeroes. Says
    /// whether there were any.
    pub(super) fn settle_strays(&mut self) -> bool {
        let strays = std::mem::take(&mut self.strays);
        let before = strays.len();
        for (id, addr) in strays {
            let Some(space) = self.spaces.get(&id) else { continue };
            if space.page(addr).is_some() {
                space.uffd.wake(addr, PAGE);
                continue;
            }
            let zeroes = self.zeroes.as_ptr().addr();
            // SAFETY: the zeroes are this process's, and not paged.
            match unsafe { space.uffd.copy(addr, zeroes, PAGE, false) } {
                (_, Some(crate::raw::Errno(libc::EAGAIN))) => self.strays.push((id, addr)),
                (_, Some(_)) => space.uffd.wake(addr, PAGE),
                (_, None) => {}
            }
        }
        self.strays.len() < before
    }
}

/// The low half of an argument, which is all that the kernel looks at.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // as said
fn int(arg: usize) -> c_int {
    arg as u32 as c_int
}

/// Whether a mapping, by its arguments, becomes an area.
fn is_wanted([_, size, access, flags, ..]: [usize; 6]) -> bool {
    let flags = int(flags);
    let is_memory = flags & libc::MAP_ANONYMOUS != 0 && flags & FOREIGN == 0;
    is_memory && is_data(int(access)) && size >= LEAST
}

/// Whether memory with this access is data: code that is written as it runs stays where it is.
fn is_data(access: c_int) -> bool {
    access & libc::PROT_WRITE != 0 && access & libc::PROT_EXEC == 0
}

/// An address, or the next one at which a page begins.
fn whole(addr: usize) -> usize {
    addr.next_multiple_of(PAGE)
}
