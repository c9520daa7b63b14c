//! Blocks evicted lately, when each was last used and how often: less than two bytes a block.
//!
//! Called by [`super::blend`]. A block is remembered by eight bits of its hash, in the bucket
//! that other bits name. Another block with the same bits is taken for it, once in 28 times at
//! most, which costs a wrong guess and nothing else.
//!
//! Invariants:
//! 1. A bucket has nine entries of fourteen bits; one without a mark is empty.
//! 2. No two entries of a bucket have the same mark.

use super::hash;

const ENTRIES: u32 = 9;
const ENTRY_BITS: u32 = 14;
const MARK_BITS: u32 = 8;
const ENTRY: u128 = (1 << ENTRY_BITS) - 1;
const MARK: u128 = (1 << MARK_BITS) - 1;

/// Epochs that can be told apart.
pub const EPOCHS: u8 = 8;
/// Uses that can be told apart, and one more.
pub const USES: u8 = 8;

/// Facts known of a block beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The epoch of its last use, below [`EPOCHS`].
    pub epoch: u8,
    /// How often it was used again, below [`USES`].
    pub uses: u8,
}

/// Blocks that are gone.
#[derive(Debug)]
pub struct Recall {
    buckets: Box<[u128]>,
}

impl Recall {
    /// Room for about `capacity` blocks.
    #[must_use]
    pub fn new(capacity: u32) -> Recall {
        let buckets = capacity.div_ceil(ENTRIES).max(1);
        Recall { buckets: vec![0; buckets as usize].into_boxed_slice() }
    }

    /// The bucket of `key`, and its mark, which is not 0.
    #[inline]
    fn place(&self, key: u64) -> (usize, u128) {
        let hashed = hash(key);
        let bucket = (u128::from(hashed) * self.buckets.len() as u128) >> 64;
        let mark = ((hashed & 0xffff) * 255) >> 16;
        (usize::try_from(bucket).unwrap_or(0), u128::from(mark) + 1)
    }

    /// Whether `key` is remembered.
    #[must_use]
    pub fn knows(&self, key: u64) -> bool {
        let (bucket, mark) = self.place(key);
        let bucket = self.buckets[bucket];
        (0..ENTRIES).any(|entry| bucket >> (entry * ENTRY_BITS) & MARK == mark)
    }

    /// Forgets `key` if it is remembered, and returns its past.
    #[inline]
    pub fn take(&mut self, key: u64) -> Option<Past> {
        let (bucket, mark) = self.place(key);
        let bucket = &mut self.buckets[bucket];
        for entry in 0..ENTRIES {
            let content = *bucket >> (entry * ENTRY_BITS) & ENTRY;
            if content & MARK == mark {
                *bucket &= !(ENTRY << (entry * ENTRY_BITS));
                return Some(past(content));
            }
        }
        None
    }

    /// Remembers `key` instead of the entry of its bucket that was used least lately, as seen from
    /// the epoch `now`.
    #[inline]
    pub fn remember(&mut self, key: u64, known: Past, now: u8) {
        let (bucket, mark) = self.place(key);
        let bucket = &mut self.buckets[bucket];
        let (mut place, mut oldest) = (0, 0);
        for entry in 0..ENTRIES {
            let content = *bucket >> (entry * ENTRY_BITS) & ENTRY;
            if content & MARK == mark {
                place = entry;
                break;
            }
            let age = now.wrapping_sub(past(content).epoch) % EPOCHS;
            let age = if content == 0 { EPOCHS } else { age };
            if age >= oldest {
                (place, oldest) = (entry, age);
            }
        }
        let rest = u128::from(known.uses % USES) << 3 | u128::from(known.epoch % EPOCHS);
        *bucket &= !(ENTRY << (place * ENTRY_BITS));
        *bucket |= (mark | rest << MARK_BITS) << (place * ENTRY_BITS);
    }

    /// Returns the memory on the heap, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // masked to three bits
fn past(content: u128) -> Past {
    let bits = (content >> MARK_BITS) as u8;
    Past { epoch: bits % EPOCHS, uses: bits >> 3 & (USES - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn keys_remembered_lately_are_recalled() {
        let mut recall = Recall::new(1_000);
        let mut rng = Rng::new(1);
        let known = |key: u64| {
            let (epoch, uses) = (key / 250 % 8, key % 8);
            Past { epoch: u8::try_from(epoch).unwrap(), uses: u8::try_from(uses).unwrap() }
        };
        let mut right = 0;
        for key in 0..20_000u64 {
            let now = known(key).epoch;
            recall.remember(key, known(key), now);
            let old = key.saturating_sub(rng.below(400));
            if let Some(past) = recall.take(old) {
                right += u64::from(past == known(old));
                recall.remember(old, past, now);
            }
        }
        assert!(right > 18_500, "{right}");
        let strangers = (1 << 40..(1 << 40) + 10_000).filter(|&key| recall.take(key).is_some());
        let strangers = strangers.count();
        assert!(strangers < 400, "{strangers} of 10000 were taken for others");
    }

    #[test]
    fn taken_key_is_forgotten() {
        let mut recall = Recall::new(100);
        let (first, second) = (Past { epoch: 3, uses: 1 }, Past { epoch: 4, uses: 7 });
        recall.remember(7, first, 5);
        assert_eq!((recall.take(7), recall.take(7)), (Some(first), None));
        recall.remember(7, first, 5);
        recall.remember(7, second, 5);
        assert_eq!((recall.take(7), recall.take(7)), (Some(second), None));
    }
}
