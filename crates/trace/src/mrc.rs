//! Miss-ratio curves: the misses of a cache of any size.
//!
//! | curve | method | memory |
//! | --- | --- | --- |
//! | [`ExactLru`] | all reuse distances (Mattson et al., 1970) | some 40 bytes a block |
//! | [`SampledLru`] | SHARDS of fixed size (Waldspurger et al., FAST 2015) | constant |
//! | [`belady`] | the optimum with the future known (Belady, 1966), size by size | 12 bytes a reference |
//!
//! Sizes are counts of blocks; references are to keys as [`crate::block_refs`] gives them. Reads and
//! writes count alike: a cache that allocates on both.

mod sampled;

use esker_base::units::{to_u64, to_usize};
use serde::Serialize;

use crate::memory::{Memory, Short};
use crate::reuse::ReuseDistances;

pub use sampled::{REPLICAS, SampledLru};

/// Misses of a cache of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The cache's size in blocks.
    pub blocks: u64,
    /// Misses by references.
    pub miss_ratio: f64,
    /// Half the width of the interval that holds the true ratio in 95 of 100 cases; zero when the
    /// ratio is exact.
    pub error: f64,
}

/// The exact curve of LRU.
#[derive(Clone, Debug, Default)]
pub struct ExactLru {
    distances: ReuseDistances,
    /// How many references had each distance.
    histogram: Vec<u64>,
    references: u64,
}

impl ExactLru {
    /// Takes a reference in.
    pub fn reference(&mut self, key: u64) {
        self.references += 1;
        if let Some(distance) = self.distances.reference(key) {
            let at = to_usize(distance);
            if at >= self.histogram.len() {
                self.histogram.resize(at + 1, 0);
            }
            self.histogram[at] += 1;
        }
    }

    /// Makes room for `more` references.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn reserve(&mut self, more: usize, memory: Memory) -> Result<(), Short> {
        self.distances.reserve(more, memory)?;
        let distances = self.distances.blocks().saturating_add(more);
        let more = distances.saturating_sub(self.histogram.len());
        memory.reserve(&mut self.histogram, more)
    }

    /// How many different blocks were referred to.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        to_u64(self.distances.blocks())
    }

    /// The curve at `sizes`, which rise.
    #[must_use]
    pub fn curve(&self, sizes: &[u64]) -> Vec<Point> {
        let (mut hits, mut at) = (0, 0);
        let mut points = Vec::new();
        for &blocks in sizes {
            while to_u64(at) < blocks && at < self.histogram.len() {
                hits += self.histogram[at];
                at += 1;
            }
            points.push(Point {
                blocks,
                miss_ratio: ratio(self.references - hits, self.references),
                error: 0.0,
            });
        }
        points
    }
}

#[allow(clippy::cast_precision_loss)] // a ratio for people
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// `count` sizes from 1/1000 of `blocks`, or a few, up to all of them, in equal ratios.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn sizes(blocks: u64, count: u32) -> Vec<u64> {
    let largest = blocks.max(1) as f64;
    let smallest = (largest / 1000.0).max(1.0);
    let steps = f64::from(count.max(2) - 1);
    let mut sizes: Vec<u64> = (0..count.max(2))
        .map(|step| (smallest * (largest / smallest).powf(f64::from(step) / steps)).round() as u64)
        .collect();
    if let Some(last) = sizes.last_mut() {
        *last = blocks.max(1);
    }
    sizes.dedup();
    sizes
}

/// The end of all references.
const NEVER: u32 = u32::MAX;

/// The least miss ratio of a cache of `blocks` blocks for references to the dense numbers `references`
/// ([`crate::keys::Numbering`]). On a miss it gives up the block that is needed last. The block that is missed is
/// always taken in.
///
/// # Panics
/// With 2^32 - 1 references or more.
#[must_use]
pub fn belady(references: &[u32], blocks: u64) -> f64 {
    assert!(references.len() < to_usize(u64::from(NEVER)), "fewer than 2^32 - 1 references");
    let known = references.iter().max().map_or(0, |&most| to_usize(u64::from(most)) + 1);
    let mut seen = vec![NEVER; known];
    let mut next = vec![NEVER; references.len()];
    for (at, &block) in references.iter().enumerate().rev() {
        let block = to_usize(u64::from(block));
        next[at] = std::mem::replace(&mut seen[block], u32::try_from(at).expect("checked"));
    }
    // When each cached block is needed next; of one that is not cached, nothing.
    let mut needed: Vec<Option<u32>> = vec![None; known];
    // Every block as often as it was referred to: only the entry that agrees with `needed` counts.
    let mut latest = std::collections::BinaryHeap::new();
    let (mut cached, mut misses) = (0u64, 0u64);
    for (&block, &next) in references.iter().zip(&next) {
        let slot = to_usize(u64::from(block));
        if needed[slot].is_none() {
            misses += 1;
            if blocks == 0 {
                continue;
            }
            if cached == blocks {
                while let Some((when, victim)) = latest.pop() {
                    let victim: u32 = victim;
                    let victim = to_usize(u64::from(victim));
                    if needed[victim] == Some(when) {
                        needed[victim] = None;
                        break;
                    }
                }
            } else {
                cached += 1;
            }
        }
        needed[slot] = Some(next);
        latest.push((next, block));
    }
    ratio(misses, to_u64(references.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    fn references(count: usize) -> Vec<u32> {
        let mut rng = Rng::new(3);
        (0..count)
            .map(|at| {
                let skewed = rng.below(400).min(rng.below(400)).min(rng.below(400));
                let number = if rng.chance(1, 4) { to_u64(at) % 500 } else { skewed };
                u32::try_from(number).unwrap()
            })
            .collect()
    }

    /// A cache as a list, the victim chosen by looking at everything.
    fn plain(references: &[u32], blocks: usize, optimal: bool) -> f64 {
        let mut cache: Vec<u32> = Vec::new();
        let mut misses = 0;
        for (at, &block) in references.iter().enumerate() {
            match cache.iter().position(|&other| other == block) {
                Some(found) => drop(cache.remove(found)),
                None => {
                    misses += 1;
                    if cache.len() == blocks {
                        let rest = &references[at..];
                        let when =
                            |&b: &u32| rest.iter().position(|&r| r == b).unwrap_or(usize::MAX);
                        let last = (0..cache.len()).max_by_key(|&i| when(&cache[i])).unwrap();
                        cache.remove(if optimal { last } else { 0 });
                    }
                }
            }
            cache.push(block);
        }
        ratio(misses, to_u64(references.len()))
    }

    #[test]
    fn curves_are_those_of_caches_that_were_run() {
        let references = references(3000);
        let mut lru = ExactLru::default();
        references.iter().for_each(|&block| lru.reference(u64::from(block)));
        let sizes = [1, 7, 50, 200, 499, 500, 10_000];
        for point in lru.curve(&sizes) {
            let expected = plain(&references, to_usize(point.blocks), false);
            assert!((point.miss_ratio - expected).abs() < 1e-12, "{point:?}, not {expected}");
            let optimum = belady(&references, point.blocks);
            let expected = plain(&references, to_usize(point.blocks), true);
            assert!((optimum - expected).abs() < 1e-12, "{optimum}, not {expected}: {point:?}");
            assert!(optimum <= point.miss_ratio);
        }
        assert!((belady(&references, 0) - 1.0).abs() < 1e-12);
        assert!(belady(&[], 4).abs() < 1e-12);
    }

    #[test]
    fn sizes_rise_to_all_blocks() {
        for blocks in [0, 1, 2, 17, 1000, 1 << 40] {
            let sizes = sizes(blocks, 30);
            assert!(sizes.is_sorted_by(|a, b| a < b) && sizes[0] > 0, "{sizes:?}");
            assert_eq!(*sizes.last().unwrap(), blocks.max(1));
        }
        assert_eq!(sizes(1 << 30, 30).len(), 30);
    }
}
