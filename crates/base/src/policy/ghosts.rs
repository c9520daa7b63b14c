//! Ghosts: keys of blocks that are gone, by 32 bits of their hash, in lists.
//!
//! Called by the policies that remember exactly which blocks they evicted (2Q, ARC, LIRS, S3-FIFO). Two
//! keys that share the 32 bits are taken for one, which costs a wrong guess and nothing else.
//!
//! Invariants:
//! 1. A ghost is on exactly one list and in the table, or free.
//! 2. No two ghosts have the same mark.

use super::hash;
use super::list::{Large, Lists, Node};

/// An empty place of the table.
const EMPTY: u32 = u32::MAX;

/// Up to a fixed number of ghosts on `K` lists.
#[derive(Debug)]
pub struct Ghosts<const K: usize> {
    lists: Lists<Large, K>,
    marks: Box<[u32]>,
    /// Open addressing with linear probing; ghosts by the home of their mark.
    table: Box<[u32]>,
    free: Vec<u32>,
}

impl<const K: usize> Ghosts<K> {
    /// Room for `capacity` ghosts, at least one and at most 2^28.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::within(capacity, Large::LIMIT)
    }

    fn within(capacity: u32, limit: u32) -> Self {
        let capacity = capacity.clamp(1, limit);
        let places = (capacity as usize * 2).next_power_of_two();
        Ghosts {
            lists: Lists::new(capacity),
            marks: vec![0; capacity as usize].into_boxed_slice(),
            table: vec![EMPTY; places].into_boxed_slice(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// How many ghosts are on `list`.
    #[inline]
    #[must_use]
    pub fn len(&self, list: usize) -> u32 {
        self.lists.len(list)
    }

    /// Whether `list` is empty.
    #[must_use]
    pub fn is_empty(&self, list: usize) -> bool {
        self.len(list) == 0
    }

    /// The list of `ghost`.
    #[must_use]
    pub fn list_of(&self, ghost: u32) -> usize {
        self.lists.list_of(ghost)
    }

    /// The oldest ghost of `list`.
    #[must_use]
    pub fn oldest(&self, list: usize) -> Option<u32> {
        self.lists.tail(list)
    }

    /// The ghost of `key`.
    #[inline]
    #[must_use]
    pub fn find(&self, key: u64) -> Option<u32> {
        let mark = mark(key);
        let mask = self.table.len() - 1;
        let mut place = mark as usize & mask;
        loop {
            let ghost = self.table[place];
            if ghost == EMPTY {
                return None;
            }
            if self.marks[ghost as usize] == mark {
                return Some(ghost);
            }
            place = (place + 1) & mask;
        }
    }

    /// Remembers `key`, which is not there, as the newest of `list`; the oldest of that list
    /// goes when there is no room, or of another when the list is empty.
    pub fn remember(&mut self, list: usize, key: u64) -> u32 {
        let ghost = loop {
            if let Some(ghost) = self.free.pop() {
                break ghost;
            }
            let from =
                if self.is_empty(list) { (0..K).find(|&l| !self.is_empty(l)) } else { Some(list) };
            let oldest = from.and_then(|from| self.oldest(from));
            self.forget(oldest.unwrap_or_else(|| unreachable!("ghosts are free or on a list")));
        };
        let mark = mark(key);
        self.marks[ghost as usize] = mark;
        self.lists.push_front(list, ghost);
        let mask = self.table.len() - 1;
        let mut place = mark as usize & mask;
        while self.table[place] != EMPTY {
            place = (place + 1) & mask;
        }
        self.table[place] = ghost;
        ghost
    }

    /// Frees `ghost`, which is one.
    pub fn forget(&mut self, ghost: u32) {
        let mask = self.table.len() - 1;
        let mut hole = self.marks[ghost as usize] as usize & mask;
        while self.table[hole] != ghost {
            hole = (hole + 1) & mask;
        }
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let other = self.table[place];
            if other == EMPTY {
                break;
            }
            let home = self.marks[other as usize] as usize & mask;
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.table[hole] = other;
                hole = place;
            }
        }
        self.table[hole] = EMPTY;
        self.lists.unlink(ghost);
        self.free.push(ghost);
    }

    /// Forgets `key` if it is remembered, and says on which list it was.
    pub fn take(&mut self, key: u64) -> Option<usize> {
        let ghost = self.find(key)?;
        let list = self.list_of(ghost);
        self.forget(ghost);
        Some(list)
    }

    /// Returns the memory on the heap, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let free = self.free.capacity() * size_of::<u32>();
        self.lists.heap_bytes() + size_of_val(&*self.marks) + size_of_val(&*self.table) + free
    }
}

#[allow(clippy::cast_possible_truncation)] // the high half
fn mark(key: u64) -> u32 {
    (hash(key) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn ghosts_are_what_a_list_of_keys_is() {
        against_keys(Ghosts::new(10));
    }

    #[test]
    fn there_is_no_room_beyond_the_limit() {
        against_keys(Ghosts::within(11, 10));
    }

    /// Compares room for ten with lists of keys.
    fn against_keys(mut ghosts: Ghosts<2>) {
        let mut oracle: [Vec<u64>; 2] = Default::default();
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let key = rng.below(30);
            let list = usize::try_from(rng.below(2)).unwrap();
            let expected = oracle.iter().position(|keys| keys.contains(&key));
            assert_eq!(ghosts.find(key).map(|ghost| ghosts.list_of(ghost)), expected);
            if let Some(list) = expected {
                assert_eq!(ghosts.take(key), Some(list));
                oracle[list].retain(|&other| other != key);
            } else {
                if oracle[0].len() + oracle[1].len() == 10 {
                    let from = if oracle[list].is_empty() { 1 - list } else { list };
                    oracle[from].remove(0);
                }
                ghosts.remember(list, key);
                oracle[list].push(key);
            }
            assert!((0..2).all(|list| ghosts.len(list) as usize == oracle[list].len()));
        }
    }
}
