//! Requests of programs.

#![allow(unsafe_code)]

use esker_base::units::{to_u64, to_usize};

use super::Engine;
use super::pending::{Pending, SpaceId};
use crate::pages::{self, DIRTY, State};
use crate::protocol::{self, ANSWER_WORDS, Request, op};
use crate::raw::Errno;
use crate::types::{PAGE, Page, page_of};

type Outcome = Result<u64, i32>;

/// So many pages of each process's reservations are not counted when another process reserves: allocators reserve more than
/// a small program uses.
const UNCOUNTED: usize = (64 << 20) / PAGE;

impl Engine {
    /// A forked child's helper asks by which token it introduces itself.
    pub(crate) fn give_token(&mut self, id: SpaceId) {
        let token = self.spaces.get(&id).map_or(0, |space| space.token);
        self.answer_at(id, protocol::JOIN, 0, token);
    }

    /// Answers a doorbell whose request is not read.
    fn answer_at(&mut self, id: SpaceId, doorbell: Page, status: u64, value: u64) {
        let mut answer = Box::new([0; ANSWER_WORDS]);
        (answer[0], answer[1]) = (status, value);
        let request = Request::default();
        self.requests.push(Pending { space: id, doorbell, answer: Some(answer), request });
        self.answer_requests();
    }

    /// A thread reads its doorbell.
    pub(crate) fn ring(&mut self, id: SpaceId, doorbell: Page) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        if space.memory.is_none() {
            // A child of a raw `clone`: nobody has introduced it.
            self.answer_at(id, doorbell, u64::from(libc::ENOTCONN.unsigned_abs()), 0);
            return;
        }
        let mut bytes = [0u8; size_of::<Request>()];
        if space.read(space.request_addr(doorbell), &mut bytes) < bytes.len() {
            return;
        }
        let word =
            |n: usize| u64::from_ne_bytes(bytes[n * 8..][..8].try_into().expect("eight bytes"));
        let request = Request { serial: word(0), op: word(1), a: word(2), b: word(3) };
        let known = &mut space.serials[doorbell as usize];
        if *known == request.serial {
            // It was interrupted, and is answered or will be.
            if !self.is_pending(id, doorbell) {
                let space = &self.spaces[&id];
                space.uffd.wake(space.addr(doorbell), PAGE);
            }
            return;
        }
        *known = request.serial;
        self.requests.push(Pending { space: id, doorbell, answer: None, request });
        self.answer_requests();
    }

    fn is_pending(&self, id: SpaceId, doorbell: Page) -> bool {
        self.requests.iter().any(|it| it.space == id && it.doorbell == doorbell)
    }

    /// Answers the requests that can be answered.
    pub(super) fn answer_requests(&mut self) -> bool {
        let mut did = false;
        for mut pending in std::mem::take(&mut self.requests) {
            if pending.answer.is_none() {
                pending.answer = self.perform(&pending);
            }
            if let Some(answer) = pending.answer.as_deref()
                && self.deliver(pending.space, pending.doorbell, answer)
            {
                did = true;
                continue;
            }
            self.requests.push(pending);
        }
        did
    }

    /// Carries out a request, unless it has to wait.
    fn perform(&mut self, pending: &Pending) -> Option<Box<[u64; ANSWER_WORDS]>> {
        let Request { op, a, b, .. } = pending.request;
        let outcome = match op {
            op::RESERVE => self.reserve(pending.space, to_usize(a), to_usize(b)),
            op::DISCARD => self.discard(pending.space, to_usize(a), to_usize(b))?,
            op::RELEASE => self.release(pending.space, to_usize(a), to_usize(b))?,
            op::EXIT if self.holds(pending.space, a) => return None,
            op::EXIT => Ok(0),
            _ => Err(libc::ENOSYS),
        };
        let mut answer = Box::new([0; ANSWER_WORDS]);
        match outcome {
            Ok(value) => answer[1] = value,
            Err(errno) => answer[0] = u64::try_from(errno).unwrap_or(1),
        }
        Some(answer)
    }

    /// Whether a process that exits has to wait for the owner. A child that shares its memory (`vfork`) has not.
    pub(super) fn holds(&mut self, id: SpaceId, pid: u64) -> bool {
        let is_last = self.spaces.iter().all(|(other, space)| *other == id || space.is_gone());
        let space = self.spaces.get(&id);
        let is_it = space.is_some_and(|it| it.pid() == self.held && it.own_pid == pid);
        self.is_held = is_last && is_it && self.held > 0;
        self.is_held
    }

    /// True when nobody waits for it any more.
    fn deliver(&mut self, id: SpaceId, doorbell: Page, answer: &[u64; ANSWER_WORDS]) -> bool {
        let Some(space) = self.spaces.get(&id) else { return true };
        let source = answer.as_ptr().addr();
        // SAFETY: the answer is a page long, and this process's.
        let (_, error) = unsafe { Engine::install(space, doorbell, source, 1, false) };
        error != Some(Errno(libc::EAGAIN))
    }

    /// Whether a space may reserve so many more pages.
    pub(super) fn may_reserve(&self, id: SpaceId, count: usize) -> bool {
        let most = self.options.slow_bytes / PAGE;
        let counted = |pages: usize| pages.saturating_sub(UNCOUNTED.min(most));
        let others = self.spaces.iter().filter(|(other, it)| **other != id && !it.is_snapshot);
        let others: usize = others.map(|(_, it)| counted(it.reserved())).sum();
        let Some(space) = self.spaces.get(&id) else { return false };
        let all = space.reserved().saturating_add(count);
        all <= most && (space.is_snapshot || others + counted(all) <= most)
    }

    /// Reserves memory; at an address if that is not 0.
    pub(crate) fn reserve(&mut self, id: SpaceId, addr: usize, size: usize) -> Outcome {
        let count = size.div_ceil(PAGE);
        if count == 0 || !self.may_reserve(id, count) {
            return Err(libc::ENOMEM);
        }
        let Some(space) = self.spaces.get_mut(&id) else { return Err(libc::ENOMEM) };
        let count = page_of(count);
        let first = match addr {
            0 => space.ranges.reserve(count).ok_or(libc::ENOMEM)?,
            _ => {
                let page = space.page(addr).ok_or(libc::ENOMEM)?;
                if !space.ranges.reserve_at(page, count) {
                    return Err(libc::ENOMEM);
                }
                page
            }
        };
        Ok(to_u64(space.addr(first)))
    }

    /// Drops the content of whole pages. None: pages of the range are leaving, try again. Their memory stays
    /// mapped; the requester unmaps it.
    pub(crate) fn discard(&mut self, id: SpaceId, addr: usize, size: usize) -> Option<Outcome> {
        let Some(space) = self.spaces.get(&id) else { return Some(Err(libc::EINVAL)) };
        let parts = space.parts(addr, size);
        if parts.is_empty() {
            return Some(Err(libc::EINVAL));
        }
        let used = |&(first, count): &(Page, usize)| {
            let (first, pages) = (first as usize, &space.pages);
            let used = if first < pages.split() { pages.used() } else { pages.used_of_areas() };
            let end = (first + count).min(used);
            (first..end).map(page_of)
        };
        let pages: Vec<Page> = parts.iter().flat_map(used).collect();
        if pages.iter().any(|&page| space.pages.state(page) == State::Leaving) {
            return None;
        }
        for &page in &pages {
            self.discard_page(id, page);
        }
        let space = self.spaces.get_mut(&id).expect("looked up above");
        if space.queue.len() + space.passing.len() > 2 * space.resident + 4096 {
            space.trim_queue();
        }
        if !pages.is_empty() {
            space.uffd.wake(addr, size.next_multiple_of(PAGE));
        }
        Some(Ok(0))
    }

    fn discard_page(&mut self, id: SpaceId, page: Page) {
        let space = self.spaces.get_mut(&id).expect("looked up by the caller");
        let place = space.pages.place(page);
        match space.pages.state(page) {
            State::Zero | State::Staged | State::Poisoned => {}
            State::Resident => {
                if !space.pages.has(page, DIRTY) {
                    self.slots.release(place);
                }
                Engine::depart(space, page);
            }
            State::Out => self.slots.release(place),
            State::Reading => {
                let slot = self.slot_of_read(place, page);
                self.slots.release(slot);
            }
            State::Marked => {
                let slot = self.take_mark(place);
                self.slots.release(slot);
            }
            State::Leaving => unreachable!("looked for by the caller"),
        }
        let space = self.spaces.get_mut(&id).expect("looked up by the caller");
        if !space.barred.is_empty() {
            space.barred.remove(&page);
        }
        space.pages.set(page, State::Zero, pages::NONE);
        space.pages.add(page, pages::DROPPED);
    }

    /// Ends a reservation.
    pub(crate) fn release(&mut self, id: SpaceId, addr: usize, size: usize) -> Option<Outcome> {
        if let Err(errno) = self.discard(id, addr, size)? {
            return Some(Err(errno));
        }
        let space = self.spaces.get_mut(&id).expect("discarded a moment ago");
        let first = space.page(addr).expect("discarded a moment ago");
        let count = page_of(size.div_ceil(PAGE).min(space.pages.len() - first as usize));
        space.ranges.release(first, count);
        // Unmapped by now.
        let used = page_of(space.pages.used());
        (first..used.min(first + count)).for_each(|page| space.pages.clear(page, pages::DROPPED));
        Some(Ok(0))
    }
}
