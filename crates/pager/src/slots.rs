//! Places on the device: the references to each, which are free, and compressed copies of some.
//!
//! A slot holds one page. A fork makes several pages refer to one slot. Slot 0 stands for none, so
//! slot `n` lies at page `n - 1` of the device.

use crate::compressed::Compressed;
use crate::pages::NONE;

/// The slots of a device.
pub(crate) struct Slots {
    /// A slot has at most one for each process of the machine, and those of staged copies.
    references: Vec<u32>,
    free: usize,
    /// Where to look for free slots first.
    next: usize,
    /// Copies of slots that pages refer to.
    pub(crate) compressed: Compressed,
}

impl Slots {
    /// `count` free slots, and memory for copies: so many segments.
    pub(crate) fn new(count: usize, segments: usize) -> Slots {
        let compressed = Compressed::new(segments);
        Slots { references: vec![0; count + 1], free: count, next: 1, compressed }
    }

    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Takes up to `want` free slots in a row: the first row of that length from where the last one ended,
    /// else the longest one that was seen. Each has one reference.
    pub(crate) fn take_run(&mut self, want: usize) -> Option<(u32, usize)> {
        if self.free == 0 || want == 0 {
            return None;
        }
        let (mut best, mut best_length) = (0, 0);
        let count = self.references.len();
        let (mut at, mut looked, mut length) = (self.next, 0, 0);
        while looked < count {
            if at >= count {
                (at, length) = (1, 0);
            }
            if self.references[at] == 0 {
                length += 1;
                if length > best_length {
                    (best, best_length) = (at + 1 - length, length);
                }
                if length == want {
                    break;
                }
            } else {
                length = 0;
                // Looking for more than this costs more than a second write.
                if looked > 64 << 10 && best_length >= want.min(8) {
                    break;
                }
            }
            at += 1;
            looked += 1;
        }
        if best_length == 0 {
            return None;
        }
        self.references[best..best + best_length].fill(1);
        self.free -= best_length;
        self.next = best + best_length;
        Some((u32::try_from(best).ok()?, best_length))
    }

    /// One more page refers to a slot.
    pub(crate) fn refer(&mut self, slot: u32) {
        if slot == NONE {
            return;
        }
        let references = &mut self.references[slot as usize];
        debug_assert!(*references > 0, "slot {slot} is free");
        *references += 1;
    }

    /// Whether more than one page refers to a slot.
    pub(crate) fn is_shared(&self, slot: u32) -> bool {
        self.references[slot as usize] > 1
    }

    /// A page refers to a slot no more.
    pub(crate) fn release(&mut self, slot: u32) {
        if slot == NONE {
            return;
        }
        let references = &mut self.references[slot as usize];
        debug_assert!(*references > 0, "slot {slot} is free");
        *references -= 1;
        if *references == 0 {
            self.free += 1;
            self.compressed.forget(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_contiguous_and_go_round() {
        let mut slots = Slots::new(10, 0);
        assert_eq!(slots.take_run(4), Some((1, 4)));
        assert_eq!(slots.take_run(4), Some((5, 4)));
        slots.release(2);
        slots.release(3);
        assert_eq!(slots.take_run(4), Some((9, 2)));
        assert_eq!(slots.take_run(4), Some((2, 2)));
        assert_eq!(slots.take_run(1), None);
        assert_eq!(slots.free(), 0);
    }

    #[test]
    fn a_shared_slot_is_free_when_nobody_refers_to_it() {
        let mut slots = Slots::new(1, 0);
        let (slot, _) = slots.take_run(1).unwrap();
        slots.refer(slot);
        slots.release(slot);
        assert_eq!(slots.free(), 0);
        slots.release(slot);
        assert_eq!(slots.free(), 1);
        slots.release(NONE);
        assert_eq!(slots.free(), 1);
    }
    #[test]
    fn slot_is_shared_by_more_snapshots_than_16_bits_count() {
        let mut slots = Slots::new(1, 0);
        let (slot, _) = slots.take_run(1).unwrap();
        (0..70_000).for_each(|_| slots.refer(slot));
        (0..70_000).for_each(|_| slots.release(slot));
        assert_eq!(slots.free(), 0);
        slots.release(slot);
        assert_eq!(slots.free(), 1);
    }
}
