//! Reuse distances: how many other blocks were referred to since a block was last.
//!
//! An LRU cache of `n` blocks hits exactly the references whose distance is below `n` (Mattson et
//! al., IBM Systems Journal 1970). The blocks stand on a line in the order of their last references,
//! and a Fenwick tree counts those behind a place: a logarithmic number of steps for a reference.
//!
//! Invariants
//! 1. A block is marked on the line at the place of its last reference and nowhere else.
//! 2. The line is at least half empty after it was drawn anew, so that this costs a constant share.

use hashbrown::HashMap;

use crate::keys::KeyHasher;
use crate::memory::{Memory, Short};
use esker_base::units::to_usize;

/// The shortest line.
const SHORTEST: usize = 1 << 12;

/// The owner of a place that has none any more. No block has this key: devices have 20 bits.
const NOBODY: u64 = u64::MAX;

/// Reuse distances of a stream of references.
#[derive(Clone, Debug)]
pub struct ReuseDistances {
    places: HashMap<u64, u32, KeyHasher>,
    owners: Vec<u64>,
    /// A Fenwick tree of the marks; node `i` (from 1) counts the `i & -i` places up to `i`.
    tree: Vec<u32>,
}

impl Default for ReuseDistances {
    fn default() -> ReuseDistances {
        let places = HashMap::with_hasher(KeyHasher);
        ReuseDistances { places, owners: Vec::new(), tree: vec![0; SHORTEST + 1] }
    }
}

impl ReuseDistances {
    /// Refers to a block: the number of different blocks referred to since its last reference, or
    /// `None` for the first one.
    ///
    /// # Panics
    /// With more than 2^31 blocks.
    pub fn reference(&mut self, key: u64) -> Option<u64> {
        if self.owners.len() + 1 == self.tree.len() {
            self.draw_anew();
        }
        let here = u32::try_from(self.owners.len()).expect("fewer than 2^32 places");
        let before = self.places.insert(key, here);
        let distance = before.map(|place| {
            let marked = u64::from(self.up_to(place));
            self.add(place, false);
            self.owners[to_usize(u64::from(place))] = NOBODY;
            // The block itself is in both counts.
            u64::try_from(self.places.len()).expect("a count") - marked
        });
        self.owners.push(key);
        self.add(here, true);
        distance
    }

    /// Makes room for `more` references.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn reserve(&mut self, more: usize, memory: Memory) -> Result<(), Short> {
        memory.reserve_keys(&mut self.places, more)?;
        // The line is drawn anew when it is full, for twice the blocks that there are then.
        let line = (2 * self.places.len().saturating_add(more)).max(SHORTEST) + 1;
        let more = line.saturating_sub(self.tree.len());
        memory.reserve(&mut self.tree, more)?;
        let more = line.max(self.tree.len()).saturating_sub(self.owners.len());
        memory.reserve(&mut self.owners, more)
    }

    /// Forgets a block, as if it had never been referred to.
    pub fn forget(&mut self, key: u64) {
        if let Some(place) = self.places.remove(&key) {
            self.add(place, false);
            self.owners[to_usize(u64::from(place))] = NOBODY;
        }
    }

    /// How many blocks are on the line.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.places.len()
    }

    /// How many marks there are up to and with a place.
    fn up_to(&self, place: u32) -> u32 {
        let (mut node, mut sum) = (to_usize(u64::from(place)) + 1, 0);
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum
    }

    fn add(&mut self, place: u32, mark: bool) {
        let mut node = to_usize(u64::from(place)) + 1;
        while node < self.tree.len() {
            let count = &mut self.tree[node];
            *count = if mark { *count + 1 } else { *count - 1 };
            node += node & node.wrapping_neg();
        }
    }

    /// Moves the marks together, on a line of twice their number.
    fn draw_anew(&mut self) {
        self.owners.retain(|&owner| owner != NOBODY);
        for (place, owner) in (0u32..).zip(&self.owners) {
            *self.places.get_mut(owner).expect("an owner has a place") = place;
        }
        let marks = self.owners.len();
        let places = (2 * marks).max(SHORTEST);
        assert!(u32::try_from(places).is_ok(), "more than 2^31 blocks");
        self.tree.clear();
        self.tree.resize(places + 1, 0);
        for node in 1..=places {
            if node <= marks {
                self.tree[node] += 1;
            }
            let above = node + (node & node.wrapping_neg());
            if above <= places {
                self.tree[above] += self.tree[node];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    /// The stack itself, the most recent block first.
    fn plain(stack: &mut Vec<u64>, key: u64) -> Option<u64> {
        let found = stack.iter().position(|&other| other == key);
        if let Some(at) = found {
            stack.remove(at);
        }
        stack.insert(0, key);
        found.map(|at| at as u64)
    }

    #[test]
    fn distances_are_those_of_the_stack() {
        let mut rng = Rng::new(5);
        let (mut distances, mut stack) = (ReuseDistances::default(), Vec::new());
        for step in 0..40_000u64 {
            let key = if rng.chance(1, 3) { rng.below(300) } else { step / 7 % 2000 };
            if rng.chance(1, 50) {
                distances.forget(key);
                stack.retain(|&other| other != key);
                continue;
            }
            assert_eq!(distances.reference(key), plain(&mut stack, key), "step {step}");
            assert_eq!(distances.blocks(), stack.len());
        }
    }
}
