//! Hashing of block keys, and dense numbers for them.
//!
//! The hash is a fixed mixing function, the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same on every machine, so
//! that samples chosen by it are reproducible.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;

use crate::memory::{Memory, Short};

/// Mixes all bits of a number into all bits of the result, one to one.
#[must_use]
pub fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes `u64` keys with [`mix`].
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHasher;

/// The state of [`KeyHasher`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Mixed(u64);

impl BuildHasher for KeyHasher {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(0)
    }
}

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = mix(self.0 ^ u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = mix(self.0 ^ key);
    }
}

/// Numbers keys from 0 in the order in which they appear.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    numbers: HashMap<u64, u32, KeyHasher>,
}

impl Numbering {
    /// The number of `key`, and whether it is new.
    ///
    /// # Panics
    /// With 2^32 different keys: 16 TiB of blocks, whose numbers take more memory than is sane.
    pub fn number(&mut self, key: u64) -> (u32, bool) {
        let next = u32::try_from(self.numbers.len()).expect("fewer than 2^32 different blocks");
        let number = *self.numbers.entry(key).or_insert(next);
        (number, number == next)
    }

    /// Makes room for `more` keys.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn reserve(&mut self, more: usize, memory: Memory) -> Result<(), Short> {
        memory.reserve_keys(&mut self.numbers, more)
    }

    /// How many different keys there were.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbered_as_they_appear() {
        let mut numbering = Numbering::default();
        let numbers = [7u64, 9, 7, 1 << 60, 9].map(|key| numbering.number(key));
        assert_eq!(numbers, [(0, true), (1, true), (0, false), (2, true), (1, false)]);
        assert_eq!(numbering.len(), 3);
    }

    #[test]
    fn neighbours_are_mixed_apart() {
        let ones: u32 = (0..1000u64).map(|key| (mix(key) ^ mix(key + 1)).count_ones()).sum();
        assert!((30_000..34_000).contains(&ones), "{ones}");
    }
}
