//! The state of every page of a space: five bytes each.
//!
//! Invariants
//! 1. A page has one state; the state gives the meaning of `place`.
//! 2. `DIRTY` is set before a page may be written. A resident page without it is write-protected.
//! 3. Memory of states is touched only where pages were: both arrays begin as zeroes.
//!
//! Pages of the region come first. Those of areas, whose numbers begin far behind, are counted by themselves: so nothing
//! walks over the numbers in between.

use crate::types::{Page, page_of};

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
    /// The first page of areas.
    split: usize,
    /// Pages of the region from here on were never anything but zero.
    used: usize,
    /// Pages of areas from here on.
    used_of_areas: usize,
    /// How many pages are in each state, those that were never used left out.
    counts: [usize; 8],
}

impl Pages {
    /// Pages of a region, and of areas.
    pub(crate) fn new(region: usize, areas: usize) -> Pages {
        let count = region + areas;
        let (states, places) = (vec![0; count], vec![0; count]);
        Pages { states, places, split: region, used: 0, used_of_areas: region, counts: [0; 8] }
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// How many pages the region has: the number of the first page of areas.
    pub(crate) fn split(&self) -> usize {
        self.split
    }

    /// Pages of the region from here on were never anything but zero.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Pages of areas from here on.
    pub(crate) fn used_of_areas(&self) -> usize {
        self.used_of_areas
    }

    /// The pages that may be something else than zero.
    pub(crate) fn all_used(&self) -> impl Iterator<Item = Page> + use<> {
        (0..self.used).chain(self.split..self.used_of_areas).map(page_of)
    }

    /// The end of used pages among those that `index` is one of.
    fn used_mut(&mut self, index: usize) -> &mut usize {
        if index < self.split { &mut self.used } else { &mut self.used_of_areas }
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
        let used = self.used_mut(index);
        let before = std::mem::replace(used, (*used).max(index + 1));
        if index < before {
            self.counts[usize::from(self.states[index] & 7)] -= 1;
        } else {
            self.counts[State::Zero as usize] += index - before;
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
        let mut copy = Pages::new(self.split, self.len() - self.split);
        for used in [0..self.used, self.split..self.used_of_areas] {
            copy.states[used.clone()].copy_from_slice(&self.states[used.clone()]);
            copy.places[used.clone()].copy_from_slice(&self.places[used]);
        }
        (copy.used, copy.used_of_areas, copy.counts) = (self.used, self.used_of_areas, self.counts);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_state_keeps_the_queue_flag_only() {
        let mut pages = Pages::new(8, 8);
        pages.set(3, State::Resident, 7);
        pages.add(3, DIRTY | AHEAD | QUEUED | INHERITED);
        pages.set(3, State::Leaving, 9);
        assert_eq!((pages.state(3), pages.place(3)), (State::Leaving, 9));
        assert!(pages.has(3, QUEUED) && !pages.has(3, DIRTY | AHEAD | INHERITED));
        assert_eq!(pages.used(), 4);
    }

    #[test]
    fn fork_copies_what_was_used() {
        let mut pages = Pages::new(8, 8);
        pages.set(2, State::Out, 5);
        pages.set(9, State::Out, 6);
        let child = pages.fork();
        pages.set(2, State::Zero, NONE);
        assert_eq!((child.state(2), child.place(2)), (State::Out, 5));
        assert_eq!((child.state(9), child.place(9)), (State::Out, 6));
        assert_eq!((child.len(), child.used(), child.state(7)), (16, 3, State::Zero));
        assert_eq!((child.paged(), pages.paged()), (2, 1));
        assert_eq!(child.all_used().collect::<Vec<_>>(), [0, 1, 2, 8, 9]);
    }
}
