//! Spaces begin, fork and end.

#![allow(unsafe_code)]

use super::{Engine, SpaceId};
use crate::pages::{self, DIRTY, INHERITED, QUEUED, State};
use crate::protocol::{AGENT, FIRST_PAGE, GUARD};
use crate::space::{Reach, Space};
use crate::staging::{self, Entry};
use crate::types::{CHUNK, PAGE, Page, page_of};
use crate::uffd::{Message, Uffd};

impl Engine {
    /// Adds a space: a region of `size` bytes at `base`, registered with `uffd`.
    pub(crate) fn add_space(
        &mut self,
        uffd: Uffd,
        reach: Reach,
        pid: u32,
        region: (usize, usize),
        requests: usize,
    ) -> SpaceId {
        let (base, size) = region;
        let pages = pages::Pages::new(size / PAGE);
        let most = page_of(self.most_ahead * CHUNK / 2).max(u32::from(self.most_ahead > 0));
        let mut space = Space::new(uffd, reach, base, pages, most);
        (space.pid, space.requests) = (pid, requests);
        space.born = self.clock.now();
        self.insert(space)
    }

    fn insert(&mut self, space: Space) -> SpaceId {
        let id = self.next_space;
        self.spaces.insert(id, space);
        let mut others = (1..).map(|n| id.wrapping_add(n));
        let free = others.find(|other| !self.spaces.contains_key(other));
        self.next_space = free.expect("fewer than 2^32 processes");
        id
    }

    /// Bytes of address space for a region, so that `slow_bytes` fit although ranges come and go.
    pub(crate) fn region_size(&self) -> usize {
        (self.options.slow_bytes * 2).next_multiple_of(2 << 20) + FIRST_PAGE as usize * PAGE
    }

    /// Handles a message of a space's descriptor. A fork gives a new space.
    pub(crate) fn told(&mut self, id: SpaceId, message: Message) -> Option<SpaceId> {
        let (addr, write, protected, thread) = match message {
            Message::Fork(uffd) => return self.fork(id, uffd),
            Message::Other(_) => return None,
            Message::Fault { addr, write, protected, thread } => (addr, write, protected, thread),
        };
        let space = self.spaces.get_mut(&id)?;
        if space.pid == 0 && thread != self.walker {
            space.belongs_to(process_of(thread).unwrap_or(0));
        }
        let page = space.page(addr)?;
        match page {
            GUARD => {
                let zeroes = self.zeroes.as_ptr().addr();
                // SAFETY: the zeroes are this process's, and not paged.
                let _ = unsafe { Engine::install(space, page, zeroes, 1, false) };
            }
            AGENT..FIRST_PAGE => self.ring(id, page),
            _ => {
                if space.is_snapshot && !protected && thread != self.walker {
                    space.note(addr);
                }
                self.take_fault(id, page, write, protected);
            }
        }
        None
    }

    /// A process has forked. The child has its parent's content, and shares slots and staged
    /// copies.
    fn fork(&mut self, id: SpaceId, uffd: Uffd) -> Option<SpaceId> {
        let parent = self.spaces.get(&id)?;
        let mut child = Space::new(uffd, Reach::Process, parent.base, parent.pages.fork(), 0);
        child.streams = parent.streams.clone();
        child.ranges = parent.ranges.clone();
        child.requests = parent.requests;
        child.is_snapshot = true;
        child.born = self.clock.now();
        let child_id = self.next_space;
        let used = child.pages.used();
        for page in (0..used).map(page_of) {
            child.pages.clear(page, QUEUED);
            let place = child.pages.place(page);
            // The child's page may or may not be mapped while its parent's is leaving; either way
            // its content is where the copy is, and a write to a mapped one is a fault.
            let (state, place) = match child.pages.state(page) {
                State::Zero | State::Poisoned => continue,
                State::Resident => {
                    self.inherit(&mut child, page, place);
                    continue;
                }
                State::Leaving if child.pages.has(page, pages::AHEAD) => {
                    (if place == pages::NONE { State::Zero } else { State::Out }, place)
                }
                State::Leaving | State::Staged => {
                    let (chunk, index) = staging::at(place);
                    let entry = Entry { space: child_id, page, index };
                    self.staging.chunks[chunk].entries.push(entry);
                    child.pages.set(page, State::Staged, place);
                    continue;
                }
                State::Out => (State::Out, place),
                State::Reading => (State::Out, self.slot_of_read(place, page)),
                State::Marked => (State::Out, self.slot_of_mark(place)),
            };
            self.slots.refer(place);
            child.pages.set(page, state, place);
        }
        Some(self.insert(child))
    }

    fn inherit(&mut self, child: &mut Space, page: Page, slot: u32) {
        let is_dirty = child.pages.has(page, DIRTY);
        if !is_dirty {
            self.slots.refer(slot);
        }
        let flags = INHERITED | if is_dirty { DIRTY } else { 0 };
        Engine::arrive(child, page, slot, flags);
        child.inherited += 1;
    }

    fn slot_of_mark(&self, number: u32) -> u32 {
        let found = self.marks.iter().find(|(other, _)| *other == number);
        found.expect("a marked page has a mark").1.slot
    }

    /// Forgets spaces whose memory is gone.
    pub(super) fn bury(&mut self) {
        let gone = self.spaces.iter().filter(|(_, space)| space.is_gone()).map(|(id, _)| *id);
        for id in gone.collect::<Vec<_>>() {
            self.remove(id);
        }
        // A program that has put itself into the background: the former snapshot is the program.
        if self.spaces.values().all(|space| space.is_snapshot)
            && let Some(space) = self.spaces.values_mut().next()
        {
            space.is_snapshot = false;
        }
    }

    /// Forgets a space: its slots are free if nobody else refers to them.
    pub(crate) fn remove(&mut self, id: SpaceId) {
        let Some(space) = self.spaces.remove(&id) else { return };
        for page in (0..space.pages.used()).map(page_of) {
            let place = space.pages.place(page);
            match space.pages.state(page) {
                State::Zero | State::Staged | State::Poisoned => {}
                State::Resident if space.pages.has(page, DIRTY) => {}
                State::Leaving if !space.pages.has(page, pages::AHEAD) => {}
                State::Resident | State::Leaving | State::Out => self.slots.release(place),
                State::Reading => {
                    let slot = self.slot_of_read(place, page);
                    self.slots.release(slot);
                }
                State::Marked => {
                    let slot = self.take_mark(place);
                    self.slots.release(slot);
                }
            }
        }
        if let Some(chunk) = space.batch.and_then(|batch| batch.chunk) {
            self.staging.chunks[chunk].leaving = false;
        }
        self.waiting.retain(|(space, ..)| *space != id);
    }
}

/// The process of a thread.
fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
