//! Blocks evicted lately, and how often each was used: less than two bytes a block.
//!
//! Called by [`super::blend`]. A block is remembered by eleven bits of its hash, in the bucket
//! that other bits name. Another block with the same bits is taken for it, once in 227 times at
//! most, which costs a wrong guess and nothing else.
//!
//! Invariants:
//! 1. A bucket has nine entries of fourteen bits, the one remembered last in its lowest bits. An entry
//!    without a mark is empty, and none behind it has one.
//! 2. No two entries of a bucket have the same mark.

use super::hash;

const ENTRIES: u32 = 9;
const ENTRY_BITS: u32 = 14;
const MARK_BITS: u32 = 11;
const ENTRY: u128 = (1 << ENTRY_BITS) - 1;
const MARK: u128 = (1 << MARK_BITS) - 1;
/// All entries of a bucket.
const ALL: u128 = (1 << (ENTRIES * ENTRY_BITS)) - 1;

/// Uses that can be told apart, and one more.
pub const USES: u8 = 8;

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
        let mark = (u128::from(hashed & 0xffff) * MARK) >> 16;
        (usize::try_from(bucket).unwrap_or(0), mark + 1)
    }

    /// Whether `key` is remembered.
    #[must_use]
    pub fn knows(&self, key: u64) -> bool {
        let (bucket, mark) = self.place(key);
        find(self.buckets[bucket], mark).is_some()
    }

    /// Forgets `key` if it is remembered, and returns how often it was used.
    #[inline]
    pub fn take(&mut self, key: u64) -> Option<u8> {
        let (bucket, mark) = self.place(key);
        let bucket = &mut self.buckets[bucket];
        let shift = find(*bucket, mark)?;
        let entry = *bucket >> shift & ENTRY;
        let newer = (1 << shift) - 1;
        *bucket = *bucket & newer | *bucket >> ENTRY_BITS & !newer;
        u8::try_from(entry >> MARK_BITS).ok()
    }

    /// Remembers `key`, which was used so often, and forgets the entry of its bucket that was
    /// remembered longest ago.
    #[inline]
    pub fn remember(&mut self, key: u64, uses: u8) {
        let (bucket, mark) = self.place(key);
        let bucket = &mut self.buckets[bucket];
        let shift = find(*bucket, mark).unwrap_or((ENTRIES - 1) * ENTRY_BITS);
        let newer = *bucket & ((1 << shift) - 1);
        let older = *bucket >> shift >> ENTRY_BITS << ENTRY_BITS << shift;
        let entry = mark | u128::from(uses % USES) << MARK_BITS;
        *bucket = (older | newer << ENTRY_BITS | entry) & ALL;
    }

    /// Returns the memory on the heap, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

/// Where in `bucket` the entry with `mark` begins, in bits.
#[inline]
fn find(bucket: u128, mark: u128) -> Option<u32> {
    (0..ENTRIES).map(|entry| entry * ENTRY_BITS).find(|shift| bucket >> shift & MARK == mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn uses(key: u64) -> u8 {
        u8::try_from(key % 8).unwrap()
    }

    #[test]
    fn keys_remembered_lately_are_recalled() {
        let mut recall = Recall::new(1_000);
        let mut rng = Rng::new(1);
        let mut right = 0;
        for key in 0..20_000u64 {
            recall.remember(key, uses(key));
            let old = key.saturating_sub(rng.below(400));
            if let Some(known) = recall.take(old) {
                right += u64::from(known == uses(old));
                recall.remember(old, known);
            }
        }
        assert!(right > 18_500, "{right}");
        let strangers = (1 << 40..(1 << 40) + 10_000).filter(|&key| recall.take(key).is_some());
        let strangers = strangers.count();
        assert!(strangers < 50, "{strangers} of 10000 were taken for others");
    }

    #[test]
    fn taken_key_is_forgotten() {
        let mut recall = Recall::new(100);
        recall.remember(7, 1);
        assert_eq!((recall.take(7), recall.take(7)), (Some(1), None));
        recall.remember(7, 1);
        recall.remember(7, 7);
        assert_eq!((recall.take(7), recall.take(7)), (Some(7), None));
    }

    #[test]
    fn bucket_is_a_queue() {
        let mut recall = Recall::new(ENTRIES);
        assert_eq!(recall.buckets.len(), 1);
        let mut oracle: Vec<u64> = Vec::new(); // the newest last
        let mut rng = Rng::new(3);
        for _ in 0..5_000 {
            let key = rng.below(14);
            if rng.chance(1, 3) {
                let known = oracle.contains(&key).then(|| uses(key));
                assert_eq!(recall.take(key), known, "{key} of {oracle:?}");
                oracle.retain(|&other| other != key);
            } else {
                recall.remember(key, uses(key));
                oracle.retain(|&other| other != key);
                oracle.push(key);
                if oracle.len() > ENTRIES as usize {
                    oracle.remove(0);
                }
            }
            assert!((0..14).all(|key| recall.knows(key) == oracle.contains(&key)), "{oracle:?}");
        }
    }
}
