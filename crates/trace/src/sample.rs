//! Samples of the blocks of a trace, by a hash of where they are.
//!
//! Of a block in the sample all references are (SHARDS; Waldspurger et al., FAST 2015), so that figures of the sample,
//! divided by its rate, estimate those of the trace. A cache of the rate's share of the size behaves on the sample as one
//! of the whole size does on the trace (Waldspurger et al., USENIX ATC 2017).

use std::ops::Range;

use crate::keys::mix;

/// Distinguishes the hash from others of the same keys.
const SEED: u64 = 0x7361_6d70_6c65_0001;

/// A sample of blocks.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    rate: f64,
    threshold: u64,
    extent_blocks: u64,
}

impl Sample {
    /// About `rate` of all blocks, above 0 and at most 1; aligned extents of `extent_blocks` are in it or not.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn new(rate: f64, extent_blocks: u64) -> Sample {
        let threshold = if rate >= 1.0 { u64::MAX } else { (rate * u64::MAX as f64) as u64 };
        Sample { rate, threshold, extent_blocks: extent_blocks.max(1) }
    }

    /// The share of all blocks that it has, about.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether it has the block of a key ([`crate::block_key`]).
    #[must_use]
    pub fn has(&self, key: u64) -> bool {
        mix((key / self.extent_blocks) ^ SEED) <= self.threshold
    }

    /// The parts of a range of keys that it has.
    pub fn parts(&self, keys: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let (sample, mut at) = (*self, keys.start);
        std::iter::from_fn(move || {
            let next = |at: u64| (at / sample.extent_blocks + 1) * sample.extent_blocks;
            while at < keys.end && !sample.has(at) {
                at = next(at).min(keys.end);
            }
            let begin = at;
            while at < keys.end && sample.has(at) {
                at = next(at).min(keys.end);
            }
            (begin < at).then_some(begin..at)
        })
    }

    /// A count of the trace, from one of the sample.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn whole(&self, count: u64) -> u64 {
        if self.rate >= 1.0 { count } else { (count as f64 / self.rate).round() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_about_its_share_of_extents_and_all_of_each() {
        let sample = Sample::new(0.1, 64);
        let parts: Vec<Range<u64>> = sample.parts(10..640_000).collect();
        let blocks: u64 = parts.iter().map(|part| part.end - part.start).sum();
        assert!((58_000..70_000).contains(&blocks), "{blocks}");
        for part in &parts {
            assert!(part.start.is_multiple_of(64) && part.end.is_multiple_of(64), "{part:?}");
            assert!(part.clone().all(|key| sample.has(key)));
        }
        let whole = sample.whole(blocks).abs_diff(640_000);
        assert!(whole < 64_000, "{whole}");
        assert!(Sample::new(1.0, 1).parts(3..9).eq(std::iter::once(3..9)));
        assert_eq!(Sample::new(1.0, 1).whole(7), 7);
    }
}
