//! System calls that change a program's memory: what the pager does before, instead of, or after the kernel.
//!
//! Memory that becomes writable outside the region becomes an area, before a thread can touch it: the helper maps it, in the
//! program's memory, and the program's thread gets the result. An area's pages are dropped before the kernel unmaps them.

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
use crate::unserved::Unserved;

/// Programs that are remembered after they were made to be served.
const MOST_INJECTED: usize = 4096;
/// Mappings from this size on become areas, in bytes.
const LEAST: usize = 16 << 10;
/// A reservation of which a part becomes memory becomes an area up to the next multiple of so many bytes.
const AHEAD: usize = 1 << 20;
/// Mappings with one of these flags are the kernel's.
const FOREIGN: c_int =
    libc::MAP_SHARED | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_LOCKED;
/// `MADV_DONTNEED_LOCKED` and `MADV_COLLAPSE` of `asm-generic/mman-common.h`.
const DONTNEED_LOCKED: c_int = 24;
const COLLAPSE: c_int = 25;

/// Result of looking for a caller.
enum Caller {
    Known(SpaceId),
    /// A child that has not introduced itself yet, perhaps.
    Unknown,
    /// It is not served.
    Stranger,
}

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
    pub(crate) fn injected(&mut self, thread: u32) {
        self.calls.injecting.remove(&thread);
    }

    /// Holds a call again whose program is served meanwhile. False: it is not.
    pub(crate) fn hold_if_known(&mut self, call: &Call) -> bool {
        let is_known = matches!(self.caller(call.thread), Caller::Known(_));
        if is_known {
            self.injected(call.thread);
            self.calls.held.push(Held { call: *call, ordered: None });
        }
        is_known
    }

    /// Has a program served that loads no libraries. False: it does, or that was tried.
    fn inject(&mut self, call: Call) -> bool {
        let calls = &mut self.calls;
        let Some(unserved) = &calls.unserved else { return false };
        let Some(program) = unserved.program(call.thread) else { return false };
        if calls.injected.get(&call.thread) == Some(&program) {
            return false;
        }
        if calls.injected.len() >= MOST_INJECTED {
            calls.injected.clear();
        }
        calls.injected.insert(call.thread, program);
        calls.injecting.insert(call.thread);
        unserved.serve(call, program);
        true
    }

    /// Makes areas of the memory that the program of a thread has.
    pub(crate) fn adopt_all(&mut self, thread: u32, memory: &[(usize, usize)]) {
        let Caller::Known(id) = self.caller(thread) else { return };
        memory.iter().for_each(|&(addr, size)| self.adopt(id, addr, size));
    }

    /// Whether a process is left whose calls are followed.
    pub(crate) fn has_callers(&self) -> bool {
        self.traps().is_some_and(|traps| !traps.is_over())
    }

    /// A program makes a call.
    pub(crate) fn hold_call(&mut self) {
        let call = self.calls.traps.as_ref().and_then(|traps| traps.receive());
        self.calls.held.extend(call.map(|call| Held { call, ordered: None }));
    }

    /// Answers the calls that can be answered. Says whether there were any.
    pub(super) fn answer_calls(&mut self) -> bool {
        let mut did = false;
        for mut held in std::mem::take(&mut self.calls.held) {
            match self.try_call(&mut held) {
                Some(reply) => {
                    did = true;
                    if let Some(traps) = &self.calls.traps {
                        traps.reply(&held.call, reply);
                    }
                }
                None => self.calls.held.push(held),
            }
        }
        did
    }

    fn caller(&mut self, thread: u32) -> Caller {
        let is_its = |space: &Space| space.link.as_ref().is_some_and(|link| link.has(thread));
        let known = self.calls.threads.get(&thread);
        if let Some(&id) = known
            && self.spaces.get(&id).is_some_and(is_its)
        {
            return Caller::Known(id);
        }
        self.calls.threads.remove(&thread);
        if let Some((&id, _)) = self.spaces.iter().find(|(_, space)| is_its(space)) {
            self.calls.threads.insert(thread, id);
            return Caller::Known(id);
        }
        let now = self.clock.now();
        let may_come =
            |space: &Space| space.is_child && space.link.is_none() && space.is_young(now);
        if thread > 0 && self.spaces.values().any(may_come) {
            Caller::Unknown
        } else {
            Caller::Stranger
        }
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
        if self.calls.injecting.contains(&thread) {
            return Some(Reply::Go);
        }
        let id = match self.caller(thread) {
            Caller::Known(id) => id,
            _ if self.inject(held.call) => return Some(Reply::Elsewhere),
            Caller::Unknown => return None,
            Caller::Stranger => return Some(Reply::Go),
        };
        let [a, b, c, d, ..] = args;
        if matches!(number, libc::SYS_mlock | libc::SYS_mlock2) {
            let (from, size) = (a / PAGE * PAGE, b.saturating_add(a % PAGE));
            let is_paged = !self.spaces.get(&id)?.parts(from, size).is_empty();
            return Some(if is_paged { Reply::error(libc::ENOMEM) } else { Reply::Go });
        }
        if number == libc::SYS_mlockall {
            return Some(Reply::error(libc::ENOMEM));
        }
        let is_range = !matches!(number, libc::SYS_brk | libc::SYS_exit_group);
        if is_range && (!a.is_multiple_of(PAGE) || a.checked_add(b).is_none()) {
            // The kernel says so, and changes nothing.
            return Some(Reply::Go);
        }
        match number {
            libc::SYS_exit_group => self.on_exit(id, thread),
            libc::SYS_mmap => self.on_map(id, held),
            libc::SYS_munmap => self.forget(id, a, b).map(|()| Reply::Go),
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => Some(self.on_protect(id, a, b, int(c))),
            libc::SYS_madvise => self.on_advice(id, held),
            libc::SYS_mremap if self.has_area(id, a, b.max(1)) => self.on_remap(id, held),
            libc::SYS_mremap
                if int(d) & libc::MREMAP_FIXED != 0 && args[4].is_multiple_of(PAGE) =>
            {
                self.forget(id, args[4], c).map(|()| Reply::Go)
            }
            libc::SYS_brk => self.on_break(id, held),
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

    /// The helper has made a call.
    fn finish(&mut self, id: SpaceId, held: &mut Held, result: i64) -> Option<Reply> {
        let [a, b, c, ..] = held.call.args;
        let value = usize::try_from(result).unwrap_or(0);
        match held.call.number {
            _ if result < 0 => {}
            libc::SYS_mmap if int(held.call.args[3]) & libc::MAP_STACK != 0 => {
                self.spaces.get_mut(&id)?.stacks.insert(value, value.saturating_add(b));
            }
            libc::SYS_mmap => self.adopt(id, value, b),
            libc::SYS_mremap => self.adopt(id, value, c),
            libc::SYS_brk => {
                let space = self.spaces.get_mut(&id)?;
                let before = std::mem::replace(&mut space.heap_end, value);
                if before == 0 {
                    // That was the question where it is.
                    return self.on_break(id, held);
                }
                let (from, to) = (whole(before), whole(value));
                if a >= value && from < to {
                    self.adopt(id, from, to - from);
                }
            }
            _ => {}
        }
        Some(Reply::Result(result))
    }

    /// The process whose exit is held waits until it may. A child that shares its memory (`vfork`) does not.
    fn on_exit(&mut self, id: SpaceId, thread: u32) -> Option<Reply> {
        let is_its =
            || std::fs::exists(format!("/proc/{}/task/{thread}", self.held)).unwrap_or(false);
        let is_main = self.held > 0 && self.spaces.get(&id)?.pid() == self.held && is_its();
        let own_pid = self.spaces.get(&id)?.own_pid;
        if is_main && self.holds(id, own_pid) { None } else { Some(Reply::Go) }
    }

    fn on_map(&mut self, id: SpaceId, held: &mut Held) -> Option<Reply> {
        let [addr, size, access, flags, ..] = held.call.args;
        let (access, flags) = (int(access), int(flags));
        let Some(size) = size.checked_next_multiple_of(PAGE).filter(|size| *size > 0) else {
            return Some(Reply::Go);
        };
        if flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0 {
            self.forget(id, addr, size)?;
        }
        if flags & libc::MAP_STACK != 0 {
            // The C library reserves it, and changes its access then.
            return self.order_call(id, held, libc::SYS_mmap, held.call.args);
        }
        let is_wanted = flags & libc::MAP_ANONYMOUS != 0 && flags & FOREIGN == 0;
        if !is_wanted || !is_data(access) || size < LEAST {
            return Some(Reply::Go);
        }
        if !self.may_reserve(id, size / PAGE) {
            return Some(Reply::error(libc::ENOMEM));
        }
        let mut args = held.call.args;
        // Pages come by faults.
        args[3] &= !crate::raw::flag(libc::MAP_POPULATE);
        self.order_call(id, held, libc::SYS_mmap, args)
    }

    /// Memory that becomes writable becomes an area, before it does.
    fn on_protect(&mut self, id: SpaceId, addr: usize, size: usize, access: c_int) -> Reply {
        let Some(space) = self.spaces.get(&id) else { return Reply::Go };
        let Some(size) = size.checked_next_multiple_of(PAGE) else { return Reply::Go };
        if !is_data(access) || space.gaps(addr, size).is_empty() || space.is_stack(addr) {
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
        wanted.into_iter().for_each(|(addr, size)| self.adopt(id, addr, size));
        Reply::Go
    }

    fn on_advice(&mut self, id: SpaceId, held: &mut Held) -> Option<Reply> {
        let [addr, size, advice, ..] = held.call.args;
        if !self.has_area(id, addr, size) {
            return Some(Reply::Go);
        }
        match int(advice) {
            libc::MADV_DONTNEED | libc::MADV_REMOVE | DONTNEED_LOCKED => {
                self.drop_content(id, addr, size).map(|()| Reply::Go)
            }
            libc::MADV_FREE => {
                self.drop_content(id, addr, size)?;
                let args = [addr, size, crate::raw::flag(libc::MADV_DONTNEED), 0, 0, 0];
                self.order_call(id, held, libc::SYS_madvise, args)
            }
            libc::MADV_HUGEPAGE => Some(Reply::Result(0)),
            COLLAPSE | libc::MADV_WIPEONFORK => Some(Reply::error(libc::EINVAL)),
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
        if is_fixed && !to.is_multiple_of(PAGE) {
            return Some(Reply::error(libc::EINVAL));
        }
        if space.overlaps_region(addr, size) || is_fixed && space.overlaps_region(to, new_size) {
            return Some(Reply::error(libc::EINVAL));
        }
        if !self.may_reserve(id, new_size.saturating_sub(size) / PAGE) {
            return Some(Reply::error(libc::ENOMEM));
        }
        if new_size < size {
            self.forget(id, addr + new_size, size - new_size)?;
        }
        if is_fixed {
            self.forget(id, to, new_size)?;
        }
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
        let (from, to) = (whole(wanted), whole(end));
        if from < to {
            self.forget(id, from, to - from)?;
        } else if !self.may_reserve(id, (from - to) / PAGE) {
            // The break stays where it is: so the kernel says that there is no memory.
            return Some(Reply::Result(i64::try_from(end).unwrap_or(0)));
        }
        self.order_call(id, held, libc::SYS_brk, held.call.args)
    }

    fn has_area(&self, id: SpaceId, addr: usize, size: usize) -> bool {
        self.spaces.get(&id).is_some_and(|it| !it.areas.within(addr, size).is_empty())
    }

    /// Drops the content of areas. None: pages of them are leaving, try again.
    fn drop_content(&mut self, id: SpaceId, addr: usize, size: usize) -> Option<()> {
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        let parts = self.spaces.get(&id).map(|space| space.areas.within(addr, size));
        for (addr, _, count) in parts.unwrap_or_default() {
            let _ = self.discard(id, addr, count as usize * PAGE)?;
        }
        Some(())
    }

    /// What the kernel is about to unmap is no area any more. None: pages of it are leaving, try again.
    fn forget(&mut self, id: SpaceId, addr: usize, size: usize) -> Option<()> {
        let space = self.spaces.get_mut(&id)?;
        space.stacks.retain(|from, to| *to <= addr || *from >= addr.saturating_add(size));
        if !self.has_area(id, addr, size.max(1)) {
            return Some(());
        }
        self.drop_content(id, addr, size)?;
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        let space = self.spaces.get_mut(&id)?;
        for (_, first, count) in space.areas.within(addr, size) {
            (first..first + count).for_each(|page| space.pages.clear(page, pages::DROPPED));
        }
        space.areas.remove(addr, size);
        Some(())
    }

    /// Makes areas of those parts of a range that are none yet. Pages that are there already belong to them.
    fn adopt(&mut self, id: SpaceId, addr: usize, size: usize) {
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
            for page in space.present(addr, count as usize) {
                debug_assert_eq!(space.pages.state(first + page), State::Zero);
                Engine::arrive(space, first + page, pages::NONE, DIRTY);
            }
        }
    }

    /// A mapping has moved.
    pub(super) fn moved(&mut self, id: SpaceId, message: &Message) {
        let &Message::Remap { from, to, size } = message else { return };
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

/// Whether memory with this access is data: code that is written as it runs stays where it is.
fn is_data(access: c_int) -> bool {
    access & libc::PROT_WRITE != 0 && access & libc::PROT_EXEC == 0
}

/// An address, or the next one at which a page begins.
fn whole(addr: usize) -> usize {
    addr.next_multiple_of(PAGE)
}
