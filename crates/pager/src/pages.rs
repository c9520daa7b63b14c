//! The state of every page of a space: five bytes each.
//!
//! Invariants
//! 1. A page has one state; the state gives the meaning of `place`.
//! 2. `DIRTY` is set before a page may be written. A resident page without it is write-protected.
//! 3. Memory of states is touched only where pages were: both arrays begin as zeroes.

use crate::types::Page;

/// State of a page, and the meaning of its `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Never written, or dropped: reads as zeroes.
    Zero,
    /// In memory. Place: the slot with the same content if it is clean, or none.
    Resident,
    /// The helper is to move or drop it. Place: in the staging area, where its copy is or will be; its slot if it has none.
    Leaving,
    /// Unmapped. Place: in the staging area.
    Staged,
    /// Unmapped. Place: its slot.
    Out,
    /// Unmapped, and being read. Place: the read.
    Reading,
    /// Unmapped; its content is in a small buffer, as a mark that a stream has come so far. Place:
    /// the mark.
    Marked,
    /// Its content is lost.
    Poisoned,
}

const STATES: [State; 8] = [
    State::Zero,
    State::Resident,
    State::Leaving,
    State::Staged,
    State::Out,
    State::Reading,
    State::Marked,
    State::Poisoned,
];

/// No slot.
pub(crate) const NONE: u32 = 0;

/// The page may have been written since it was brought in.
pub(crate) const DIRTY: u8 = 8;
/// The page was brought in ahead of need.
pub(crate) const AHEAD: u8 = 16;
/// The page is in the queue of arrivals.
pub(crate) const QUEUED: u8 = 32;
/// The page came with a fork, and may share its memory with the parent's.
pub(crate) const INHERITED: u8 = 64;

/// The page was dropped, and its memory may be about to be unmapped: nothing may be put there
/// before it is touched.
pub(crate) const DROPPED: u8 = 128;

/// The states of a space's pages.
pub(crate) struct Pages {
    states: Vec<u8>,
    places: Vec<u32>,
    /// Pages from here on were never anything but zero.
    used: usize,
    /// How many pages are in each state, those that were never used left out.
    counts: [usize; 8],
}

impl Pages {
    pub(crate) fn new(count: usize) -> Pages {
        Pages { states: vec![0; count], places: vec![0; count], used: 0, counts: [0; 8] }
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// How many pages have content that is not in memory.
    pub(crate) fn paged(&self) -> usize {
        let counted = [State::Staged, State::Out, State::Reading, State::Marked];
        counted.iter().map(|state| self.counts[*state as usize]).sum()
    }

    pub(crate) fn state(&self, page: Page) -> State {
        STATES[usize::from(self.states[page as usize] & 7)]
    }

    pub(crate) fn has(&self, page: Page, flag: u8) -> bool {
        self.states[page as usize] & flag != 0
    }

    pub(crate) fn place(&self, page: Page) -> u32 {
        self.places[page as usize]
    }

    /// Gives a page a state and a place. Of its flags only `QUEUED` stays.
    pub(crate) fn set(&mut self, page: Page, state: State, place: u32) {
        let index = page as usize;
        self.counts[usize::from(self.states[index] & 7)] -= usize::from(index < self.used);
        if index >= self.used {
            self.counts[State::Zero as usize] += index - self.used;
            self.used = index + 1;
        }
        self.counts[state as usize] += 1;
        self.states[index] = self.states[index] & QUEUED | state as u8;
        self.places[index] = place;
    }

    pub(crate) fn add(&mut self, page: Page, flag: u8) {
        self.states[page as usize] |= flag;
    }

    pub(crate) fn clear(&mut self, page: Page, flag: u8) {
        self.states[page as usize] &= !flag;
    }

    pub(crate) fn set_place(&mut self, page: Page, place: u32) {
        self.places[page as usize] = place;
    }

    /// A copy for a child.
    pub(crate) fn fork(&self) -> Pages {
        let mut copy = Pages::new(self.len());
        copy.states[..self.used].copy_from_slice(&self.states[..self.used]);
        copy.places[..self.used].copy_from_slice(&self.places[..self.used]);
        (copy.used, copy.counts) = (self.used, self.counts);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_state_keeps_the_queue_flag_only() {
        let mut pages = Pages::new(8);
        pages.set(3, State::Resident, 7);
        pages.add(3, DIRTY | AHEAD | QUEUED | INHERITED);
        pages.set(3, State::Leaving, 9);
        assert_eq!((pages.state(3), pages.place(3)), (State::Leaving, 9));
        assert!(pages.has(3, QUEUED) && !pages.has(3, DIRTY | AHEAD | INHERITED));
        assert_eq!(pages.used(), 4);
    }

    #[test]
    fn fork_copies_what_was_used() {
        let mut pages = Pages::new(8);
        pages.set(2, State::Out, 5);
        let child = pages.fork();
        pages.set(2, State::Zero, NONE);
        assert_eq!((child.state(2), child.place(2)), (State::Out, 5));
        assert_eq!((child.len(), child.used(), child.state(7)), (8, 3, State::Zero));
        assert_eq!((child.paged(), pages.paged()), (1, 0));
    }
}
