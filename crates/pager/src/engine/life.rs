//! Spaces begin, fork and end.

#![allow(unsafe_code)]

use std::time::Duration;

use super::follow::Follower;
use super::{Engine, SpaceId};
use crate::link::Link;
use crate::pages::{self, DIRTY, INHERITED, QUEUED, State};
use crate::protocol::{FIRST_DOORBELL, FIRST_PAGE, GUARD, JOIN, Outcome, WINDOW};
use crate::raw::unguessable;
use crate::space::{Reach, Space};
use crate::staging::{self, Entry};
use crate::types::{CHUNK, PAGE, Page, page_of};
use crate::uffd::{Message, Uffd};

/// So long a helper may take to carry out the last order of a program that has ended.
const LAST: Duration = Duration::from_secs(1);

impl Engine {
    /// Adds a space: a region of `size` bytes at `base`, registered with `uffd`.
    pub(crate) fn add_space(
        &mut self,
        uffd: Uffd,
        reach: Reach,
        region: (usize, usize),
        requests: usize,
    ) -> SpaceId {
        let (base, size) = region;
        let region = size / PAGE;
        // Areas come and go as ranges do.
        let pages = pages::Pages::new(region, region.min(u32::MAX as usize - region));
        let most = page_of(self.most_ahead * CHUNK / 2).max(u32::from(self.most_ahead > 0));
        let mut space = Space::new(uffd, reach, base, pages, most);
        space.requests = requests;
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
            Message::Remap { .. } => {
                self.moved(id, &message);
                return None;
            }
            Message::Other(_) => return None,
            Message::Fault { addr, write, protected, thread } => (addr, write, protected, thread),
        };
        let space = self.spaces.get_mut(&id)?;
        let Some(page) = space.page(addr) else {
            self.strays.push((id, addr / PAGE * PAGE));
            return None;
        };
        match page {
            GUARD | WINDOW..FIRST_PAGE => {
                let zeroes = self.zeroes.as_ptr().addr();
                // SAFETY: the zeroes are this process's, and not paged.
                let _ = unsafe { Engine::install(space, page, zeroes, 1, false) };
            }
            JOIN => self.give_token(id),
            FIRST_DOORBELL..WINDOW => self.ring(id, page),
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
        child.areas = parent.areas.clone();
        child.stacks = parent.stacks.clone();
        child.runs = parent.runs;
        for (&from, &to) in &parent.unforked {
            for (_, first, count) in child.areas.within(from, to - from) {
                for page in first..first + count {
                    child.pages.set(page, State::Zero, pages::NONE);
                }
            }
            child.areas.remove(from, to - from);
        }
        child.requests = parent.requests;
        (child.is_snapshot, child.is_child) = (true, true);
        child.token = unguessable();
        child.heap_end = parent.heap_end;
        child.barred = parent.barred.clone();
        child.born = self.clock.now();
        let child_id = self.next_space;
        for page in child.pages.all_used() {
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
                    if let Some(leads) = self.leads(id, page) {
                        self.followers.push(Follower { space: child_id, ..leads });
                        child.pages.set(page, State::Leaving, place);
                        continue;
                    }
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

    /// The forked child that waits for its helper to come with this token.
    ///
    /// # Errors
    /// None does.
    pub(crate) fn child_of(&self, token: u64) -> Result<SpaceId, &'static str> {
        let waits = |space: &Space| {
            space.is_child && space.token == token && space.memory.is_none() && !space.is_lost
        };
        let found = self.spaces.iter().find(|(_, space)| waits(space));
        found.map(|(id, _)| *id).ok_or("it is no child of a program that is served")
    }

    /// Forgets spaces whose memory is gone.
    pub(super) fn bury(&mut self) {
        let now = self.clock.now();
        let is_at_work = |space: &Space| {
            let is_broken = space.link.as_ref().is_some_and(Link::is_broken);
            !is_broken && space.batch.as_ref().is_some_and(|batch| now.since(batch.since) < LAST)
        };
        let gone = self.spaces.iter().filter(|(_, space)| space.is_over || space.is_gone());
        let gone: Vec<_> = gone.map(|(id, space)| (*id, is_at_work(space))).collect();
        for (id, is_at_work) in gone {
            if is_at_work {
                self.spaces.get_mut(&id).expect("found above").is_over = true;
            } else {
                self.remove(id);
            }
        }
        for space in self.spaces.values_mut() {
            let Some(link) = space.link.as_ref().filter(|link| link.is_broken()) else { continue };
            // The end of a whole container takes a moment.
            if now.since(*space.alone_since.get_or_insert(now)) < LAST || space.is_killed {
                continue;
            }
            link.kill();
            space.is_killed = true;
            self.reports.push(format!(
                "process {}: its helper was killed, and so it is killed too: its memory is not whole",
                link.pid()
            ));
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
        self.lose_followers(id);
        // Pages that are leaving are as if they had stayed.
        self.left(id, Outcome::default());
        let Some(space) = self.spaces.remove(&id) else { return };
        for page in space.pages.all_used() {
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
        self.waiting.retain(|(space, ..)| *space != id);
        self.calls.forget(id);
    }
}
