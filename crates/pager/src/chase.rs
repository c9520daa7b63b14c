//! The thread that follows a snapshot's walk through its pointers, and has pages brought in before
//! the process faults on them.
//!
//! A forked child that saves its parent's content is one thread that waits for one read at a time, in no order.
//! This thread sees its faults, learns where they come from, and keeps the device busy. It
//! reads the child's memory as a debugger would. A page that leaves in between makes it fault as
//! the child would, and the pager's thread serves it; so it holds no lock while it reads, and ends before that
//! thread does.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Nanos};

use crate::engine::SpaceId;
use crate::raw;
use crate::shared::Shared;
use crate::types::{PAGE, page_of};
use crate::walk::{LEARNED_FROM, Memory, Near, Walk, Want, learn};

/// How long it waits for reads and faults while it follows a walk.
const GLANCE: Duration = Duration::from_micros(250);
/// How long it waits for a walk to be seen.
const LOOK: Duration = Duration::from_millis(4);
/// How long it waits for a snapshot, unless it is told of one.
const REST: Duration = Duration::from_secs(5);
/// Of a snapshot's life, at most this part is spent on learning, after the first times.
const LEARNING: u32 = 8;
/// So many times.
const FIRST: u32 = 4;
/// Pages that are looked at, and brought in, while the engine is locked.
const AT_ONCE: usize = 256;
/// Pages whose states are looked at meanwhile.
const STATES: usize = 512;
/// Most ranges of one call of `process_vm_readv`.
const RANGES: usize = 1024;

/// State of a snapshot's walk.
struct Chased {
    space: SpaceId,
    pid: u32,
    /// Faults that were seen.
    seen: u64,
    walk: Option<Walk>,
    /// Faults to learn from.
    faults: Vec<usize>,
    since: Nanos,
    learning: Duration,
    tries: u32,
}

struct Chaser {
    shared: Arc<Shared>,
    clock: Clock,
    chased: Option<Chased>,
}

/// Starts the thread.
pub(crate) fn spawn(shared: Arc<Shared>) -> std::io::Result<std::thread::JoinHandle<()>> {
    let run = move || {
        // SAFETY: takes no arguments.
        let thread = unsafe { raw::call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0);
        shared.engine.lock().walker = u32::try_from(thread).unwrap_or(0);
        let mut chaser = Chaser { shared: shared.clone(), clock: Clock::real(), chased: None };
        while !shared.has_stopped_chasing() {
            let span = chaser.turn();
            shared.rest(span);
        }
    };
    esker_base::thread::spawn("pager-chase", run)
}

impl Chaser {
    /// Does the work that is due, and says how long to wait then.
    fn turn(&mut self) -> Duration {
        let (newest, has_any) = {
            let engine = self.shared.turn();
            (engine.newest_snapshot(), engine.has_snapshot())
        };
        let Some((space, pid)) = newest else {
            self.chased = None;
            return if has_any { LOOK } else { REST };
        };
        let now = self.clock.now();
        let mut chased = match self.chased.take() {
            Some(chased) if chased.space == space => chased,
            _ => {
                let (faults, learning) = (Vec::new(), Duration::ZERO);
                Chased { space, pid, seen: 0, walk: None, faults, since: now, learning, tries: 0 }
            }
        };
        let span = self.chase(&mut chased, now);
        self.chased = Some(chased);
        span
    }

    fn chase(&self, chased: &mut Chased, now: Nanos) -> Duration {
        let Some(mut view) = View::of(&self.shared, chased.space, chased.pid) else { return LOOK };
        let news = view.news(&mut chased.seen);
        if let Some(walk) = &mut chased.walk {
            for addr in news {
                walk.fault(addr);
            }
            if let Some(strange) = walk.failed() {
                chased.faults = strange;
                chased.walk = None;
                return LOOK;
            }
            walk.go_on(&mut view);
            return if walk.is_idle() { GLANCE * 2 } else { GLANCE };
        }
        chased.faults.extend(news);
        let surplus = chased.faults.len().saturating_sub(LEARNED_FROM);
        chased.faults.drain(..surplus);
        let age = now.since(chased.since);
        let is_tired = chased.tries >= FIRST && age < chased.learning * LEARNING;
        if chased.faults.len() < LEARNED_FROM || is_tired {
            return LOOK;
        }
        let shape = learn(&mut view, &chased.faults);
        chased.learning += self.clock.now().since(now);
        chased.tries += 1;
        chased.faults.clear();
        let Some(shape) = shape else { return LOOK };
        let since = view.news(&mut chased.seen);
        chased.walk = Some(Walk::new(shape, view.window, &since));
        Duration::ZERO
    }
}

/// The memory of a snapshot.
struct View<'a> {
    shared: &'a Shared,
    space: SpaceId,
    pid: u32,
    base: usize,
    /// Pages that have been used.
    used: usize,
    window: usize,
}

impl View<'_> {
    fn of(shared: &Shared, space: SpaceId, pid: u32) -> Option<View<'_>> {
        let engine = shared.turn();
        let window = engine.window();
        let it = engine.spaces.get(&space)?;
        let (base, used) = (it.base, it.pages.used());
        (window > 0).then_some(View { shared, space, pid, base, used, window })
    }

    /// The faults since so many, as far as they are remembered.
    fn news(&self, seen: &mut u64) -> Vec<usize> {
        let engine = self.shared.turn();
        let Some(space) = engine.spaces.get(&self.space) else { return Vec::new() };
        let new = usize::try_from(space.trailed - *seen).unwrap_or(usize::MAX);
        *seen = space.trailed;
        let known = space.trail.len().saturating_sub(new);
        space.trail.iter().skip(known).copied().collect()
    }
}

impl Memory for View<'_> {
    fn region(&self) -> std::ops::Range<usize> {
        self.base + crate::protocol::FIRST_PAGE as usize * PAGE..self.base + self.used * PAGE
    }

    fn fetch(&mut self, wants: &[Want]) -> Vec<Near> {
        let (region, mut near) = (self.region(), Vec::with_capacity(wants.len()));
        let mut has_commands = false;
        for wants in wants.chunks(AT_ONCE) {
            let mut engine = self.shared.turn();
            near.extend(wants.iter().map(|want| {
                if !region.contains(&want.addr) {
                    return Near::Never;
                }
                let page = page_of((want.addr - self.base) / PAGE);
                engine.fetch(self.space, page, want.is_leaf)
            }));
            has_commands |= !engine.commands.is_empty();
        }
        if has_commands {
            self.shared.wake();
        }
        near
    }

    fn is_here(&mut self, addrs: &[usize]) -> Vec<bool> {
        let (region, mut here) = (self.region(), Vec::with_capacity(addrs.len()));
        for addrs in addrs.chunks(STATES) {
            let engine = self.shared.turn();
            let Some(space) = engine.spaces.get(&self.space) else {
                return vec![false; addrs.len()];
            };
            here.extend(addrs.iter().map(|addr| {
                region.contains(addr) && space.is_resident(page_of((addr - self.base) / PAGE))
            }));
        }
        here
    }

    fn read(&mut self, ranges: &[(usize, usize)], to: &mut Vec<u8>) -> usize {
        let mut all = 0;
        for ranges in ranges.chunks(RANGES) {
            let total: usize = ranges.iter().map(|(_, size)| size).sum();
            to.resize(all + total, 0);
            let local = [to[all..].as_mut_ptr().expose_provenance(), total];
            let remote = ranges.as_ptr().expose_provenance();
            let local = local.as_ptr().expose_provenance();
            let args = [self.pid as usize, local, 1, remote, ranges.len(), 0];
            // SAFETY: a pair of two `usize` is an `iovec`; the local one is writable memory of `to`.
            let size = unsafe { raw::call(libc::SYS_process_vm_readv, args) }.unwrap_or(0);
            all += size;
            if size < total {
                break;
            }
        }
        to.truncate(all);
        all
    }

    fn scan(&mut self, each: &mut dyn FnMut(usize, &[u64])) {
        let (mut bytes, mut words) = (Vec::new(), Vec::new());
        for first in (0..self.used).step_by(STATES) {
            if self.shared.has_stopped_chasing() {
                return;
            }
            let ranges = {
                let engine = self.shared.turn();
                let Some(space) = engine.spaces.get(&self.space) else { return };
                space.resident_ranges(first, (first + STATES).min(self.used))
            };
            bytes.clear();
            let total: usize = ranges.iter().map(|(_, size)| size).sum();
            if self.read(&ranges, &mut bytes) < total {
                continue;
            }
            let mut rest = &bytes[..];
            for (addr, size) in ranges {
                let (now, later) = rest.split_at(size);
                rest = later;
                words.clear();
                words.extend(now.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
                each(addr, &words);
            }
        }
    }
}
