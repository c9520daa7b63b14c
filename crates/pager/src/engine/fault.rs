//! A page is missing, or protected against the write of its thread.

#![allow(unsafe_code)]

use esker_base::units::to_u64;

use super::pending::{Answer, HEAT, SpaceId};
use super::{Engine, ZEROES};
use crate::pages::{self, DIRTY, INHERITED, State};
use crate::predict::Ahead;
use crate::raw::Errno;
use crate::types::{PAGE, Page, page_of};

impl Engine {
    /// Handles a fault, and keeps it if it cannot be handled now. `protected`: the page is there and may not be
    /// written.
    pub(crate) fn take_fault(&mut self, id: SpaceId, page: Page, write: bool, protected: bool) {
        if self.fault(id, page, write, protected) == Answer::Later {
            self.waiting.push_back((id, page, write));
        }
    }

    pub(crate) fn fault(
        &mut self,
        id: SpaceId,
        page: Page,
        write: bool,
        protected: bool,
    ) -> Answer {
        let Some(space) = self.spaces.get_mut(&id) else { return Answer::Done };
        let state = space.pages.state(page);
        match state {
            State::Resident => return self.fault_on_resident(id, page, protected),
            State::Leaving => {
                if let Some(batch) = &mut space.batch {
                    batch.missed = true;
                }
                return Answer::Coming;
            }
            State::Poisoned => {
                let addr = space.addr(page);
                if space.uffd.poison(addr, PAGE).is_err() {
                    space.uffd.wake(addr, PAGE);
                }
                return Answer::Done;
            }
            State::Zero | State::Staged | State::Out | State::Reading | State::Marked => {}
        }
        let answer = match state {
            State::Reading => self.fault_on_reading(id, page, write),
            _ if !self.has_room(1) => return Answer::Later,
            State::Zero => self.fault_on_zero(id, page, write),
            State::Staged => self.fault_on_staged(id, page, write),
            State::Marked => self.fault_on_mark(id, page, write),
            _ => self.fault_on_out(id, page, write),
        };
        if answer != Answer::Later {
            self.stats.faults += 1;
            if let Some(space) = self.spaces.get_mut(&id) {
                space.heat += HEAT;
            }
            self.predict(id, page);
        }
        answer
    }

    fn fault_on_resident(&mut self, id: SpaceId, page: Page, protected: bool) -> Answer {
        let space = self.spaces.get_mut(&id).expect("it faulted");
        let addr = space.addr(page);
        if protected {
            if !space.pages.has(page, DIRTY) {
                // Before it can be written.
                space.pages.add(page, DIRTY);
                self.slots.release(space.pages.place(page));
                space.pages.set_place(page, pages::NONE);
                self.stats.write_faults += 1;
            }
            return match space.uffd.unprotect(addr, PAGE) {
                Err(Errno(libc::EAGAIN)) => Answer::Later,
                _ => Answer::Done,
            };
        }
        // Another thread's fault has brought it in, or the program has dropped it without a word.
        let zeroes = self.zeroes.as_ptr().addr();
        // SAFETY: the zeroes are this process's, and not paged.
        let (bytes, error) = unsafe { space.uffd.copy(addr, zeroes, PAGE, false) };
        match error {
            Some(Errno(libc::EAGAIN)) => return Answer::Later,
            Some(_) => space.uffd.wake(addr, PAGE),
            None => {}
        }
        if bytes > 0 {
            self.stats.vanished_pages += 1;
            self.slots.release(space.pages.place(page));
            space.pages.set_place(page, pages::NONE);
            space.pages.add(page, DIRTY);
        }
        Answer::Done
    }

    /// A page that never had content gets zeroes; so do its neighbours, where a stream goes on.
    fn fault_on_zero(&mut self, id: SpaceId, page: Page, write: bool) -> Answer {
        let zeroes = self.zeroes.as_ptr().addr();
        let space = self.spaces.get_mut(&id).expect("it faulted");
        // SAFETY: the zeroes are this process's, and not paged.
        let (done, error) = unsafe { Engine::install(space, page, zeroes, 1, !write) };
        if error == Some(Errno(libc::EAGAIN)) {
            return Answer::Later;
        }
        if done > 0 {
            Engine::arrive(space, page, pages::NONE, if write { DIRTY } else { 0 });
        }
        self.stats.zero_faults += 1;
        Answer::Done
    }

    pub(super) fn fault_on_staged(&mut self, id: SpaceId, page: Page, write: bool) -> Answer {
        let space = self.spaces.get_mut(&id).expect("it faulted");
        let (chunk, index) = Engine::staged_at(space.pages.place(page));
        let chunk = &self.staging.chunks[chunk];
        // A page that is not written yet stays dirty.
        let slot = chunk.slots[index];
        let is_clean = !write && (index >= chunk.dirty || !chunk.writing);
        // SAFETY: the chunk's memory does not move, and is in use (staging, invariant 1).
        let (done, error) =
            unsafe { Engine::install(space, page, chunk.memory + index * PAGE, 1, is_clean) };
        if error == Some(Errno(libc::EAGAIN)) {
            return Answer::Later;
        }
        if done > 0 {
            if is_clean {
                self.slots.refer(slot);
                Engine::arrive(space, page, slot, 0);
            } else {
                Engine::arrive(space, page, pages::NONE, DIRTY);
            }
        }
        self.stats.staged_hits += 1;
        self.shares.note_staged();
        Answer::Done
    }

    fn fault_on_mark(&mut self, id: SpaceId, page: Page, write: bool) -> Answer {
        let space = self.spaces.get_mut(&id).expect("it faulted");
        let number = space.pages.place(page);
        let at = self.marks.iter().position(|(other, _)| *other == number);
        let (_, mark) = &self.marks[at.expect("a marked page has a mark")];
        let source = mark.buf.as_ptr().addr();
        // SAFETY: the mark's buffer is this process's, and not paged.
        let (done, error) = unsafe { Engine::install(space, page, source, 1, !write) };
        if error == Some(Errno(libc::EAGAIN)) {
            return Answer::Later;
        }
        self.stats.ahead_used += to_u64(mark.count);
        let slot = self.take_mark(number);
        let space = self.spaces.get_mut(&id).expect("it faulted");
        space.streams.learn(true);
        if done == 0 {
            self.slots.release(slot);
        } else if write {
            self.slots.release(slot);
            Engine::arrive(space, page, pages::NONE, DIRTY);
        } else {
            Engine::arrive(space, page, slot, 0);
        }
        self.stats.staged_hits += 1;
        Answer::Done
    }

    /// Asks the predictor for the next pages, and gets them.
    fn predict(&mut self, id: SpaceId, page: Page) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        let Some(ahead) = space.streams.observe(page) else { return };
        if ahead.delta == 1 {
            self.fill_ahead(id, ahead);
        }
        self.read_ahead(id, ahead);
    }

    /// Pages without content right ahead of a stream get zeroes, if they are reserved: a program that fills fresh
    /// memory in order faults once for many pages. If they stay as they are, they cost no write.
    fn fill_ahead(&mut self, id: SpaceId, ahead: Ahead) {
        let Ok(first) = Page::try_from(ahead.first) else { return };
        let room = self.limit.saturating_sub(self.held());
        let space = self.spaces.get_mut(&id).expect("it faulted");
        let most = (ahead.count as usize).min(ZEROES).min(room / 4);
        let end = (first as usize + most).min(space.pages.len());
        let is_fresh = |page: &usize| {
            let page = page_of(*page);
            space.pages.state(page) == State::Zero && !space.pages.has(page, pages::DROPPED)
        };
        let count = (first as usize..end).take_while(is_fresh).count();
        let is_area = first as usize >= space.pages.split();
        // An area is reserved as a whole, and ends where its row does.
        let count =
            if is_area && space.areas.addr(first).is_none() { 0 } else { space.row(first, count) };
        if count == 0 || !is_area && !space.ranges.contains(first, page_of(count)) {
            return;
        }
        let zeroes = self.zeroes.as_ptr().addr();
        // SAFETY: the zeroes are this process's, and not paged.
        let (done, _) = unsafe { Engine::install(space, first, zeroes, count, false) };
        for page in (first..).take(done) {
            Engine::arrive(space, page, pages::NONE, DIRTY);
        }
    }

    /// A page leaves memory, as far as it is counted.
    pub(super) fn depart(space: &mut crate::space::Space, page: Page) {
        space.resident -= 1;
        if space.pages.has(page, INHERITED) {
            space.pages.clear(page, INHERITED);
            space.inherited -= 1;
        }
    }
}
