//! A miniature cache: a policy, and the blocks of a sample that it holds.
//!
//! Called by [`super::adaptive`]. Sampling by a hash of the key keeps every reference to a block or none. So
//! a cache of a hundredth of the size that sees a hundredth of the blocks misses about as often as the whole
//! (Waldspurger and others, FAST 2015 and ATC 2017).
//!
//! Invariants:
//! 1. Slots below `used` hold a mark, and the table names each of them once.
//! 2. No place between the home of a mark and its own is empty.

use super::blend::{Blend, Rule};
use super::list::Small;
use super::{Access, Policy, Slots};

/// Slots at most.
pub(super) const SLOTS: u64 = 1_024;
/// No slot.
const NONE: u16 = u16::MAX;

/// A small cache with one rule. Blocks are known by 32 bits of their hash.
#[derive(Debug)]
pub(super) struct Miniature {
    policy: Blend<Small>,
    marks: Box<[u32]>,
    used: u32,
    /// Slots by the home of their mark, with linear probing.
    table: Box<[u16]>,
}

struct Marks<'a>(&'a [u32]);

impl Slots for Marks<'_> {
    fn key(&self, slot: u32) -> u64 {
        u64::from(self.0[slot as usize])
    }
}

impl Miniature {
    pub(super) fn new(slots: u32, rule: Rule) -> Miniature {
        let places = (slots as usize * 2).next_power_of_two();
        Miniature {
            policy: Blend::new(slots, rule),
            marks: vec![0; slots as usize].into_boxed_slice(),
            used: 0,
            table: vec![NONE; places].into_boxed_slice(),
        }
    }

    /// The place of `mark`, or the empty one where it belongs.
    fn place(&self, mark: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = mark as usize & mask;
        while self.table[place] != NONE && self.marks[usize::from(self.table[place])] != mark {
            place = (place + 1) & mask;
        }
        place
    }

    /// Frees `hole`, and moves back the entries that it pushed away from home.
    fn close(&mut self, mut hole: usize) {
        let mask = self.table.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let slot = self.table[place];
            if slot == NONE {
                break;
            }
            let home = self.marks[usize::from(slot)] as usize & mask;
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.table[hole] = slot;
                hole = place;
            }
        }
        self.table[hole] = NONE;
    }

    /// A block of the sample was referenced; whether it was there.
    pub(super) fn refer(&mut self, mark: u32, access: Access) -> bool {
        let place = self.place(mark);
        let slot = self.table[place];
        if slot != NONE {
            self.policy.hit(u32::from(slot), u64::from(mark), access);
            return true;
        }
        let slot = if self.used < self.policy.capacity() {
            self.used += 1;
            self.used - 1
        } else {
            let marks = Marks(&self.marks);
            let Some(slot) = self.policy.evict(u64::from(mark), &marks) else { return false };
            self.close(self.place(self.marks[slot as usize]));
            slot
        };
        self.marks[slot as usize] = mark;
        let place = self.place(mark);
        self.table[place] = u16::try_from(slot).unwrap_or(NONE);
        self.policy.insert(slot, u64::from(mark), access);
        false
    }

    /// Goes by another rule from now on.
    pub(super) fn set_rule(&mut self, rule: Rule) {
        self.policy.set_rule(rule);
    }

    /// The rule that it goes by.
    #[cfg(test)]
    pub(super) fn rule(&self) -> Rule {
        self.policy.rule()
    }

    /// How many slots it has.
    pub(super) fn capacity(&self) -> u32 {
        self.policy.capacity()
    }

    /// Returns the memory on the heap, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let outside = size_of_val(&*self.marks) + size_of_val(&*self.table);
        outside + self.policy.memory_bytes() - size_of::<Blend<Small>>()
    }
}
