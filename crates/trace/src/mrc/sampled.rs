//! The curve of LRU from a sample of constant size.
//!
//! SHARDS (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST
//! 2015): a block is in the sample when the hash of its key is below a threshold, so that all or none
//! of its references are; distances within the sample, divided by the sampling rate, estimate those
//! of the trace. When the sample has too many blocks, the threshold falls. The difference between the expected number
//! of references and the sampled one is added at distance zero (the paper's SHARDS-adj).
//!
//! The error comes from several samples with hashes of their own, taken at once: they are independent
//! estimates, whose mean is the curve and whose spread gives Student's interval around it. It is the error
//! of sampling alone.

use std::collections::BinaryHeap;

use esker_base::units::to_usize;

use crate::keys::mix;
use crate::mrc::Point;
use crate::reuse::ReuseDistances;

/// How many samples are taken.
pub const REPLICAS: usize = 5;

/// The 97.5th percentile of Student's distribution with `REPLICAS - 1` degrees of freedom.
const STUDENT: f64 = 2.776;

/// The hashes that are compared with a threshold are below this.
const HASHES: u64 = 1 << 40;

/// Parts of a power of two that distances are told apart by: 1.6 %.
const PARTS: u32 = 6;

/// The curve of LRU from samples.
#[derive(Clone, Debug)]
pub struct SampledLru {
    samples: Vec<Sample>,
    references: u64,
}

impl SampledLru {
    /// Samples of at most `blocks` blocks each, chosen by hashes from `seed`.
    #[must_use]
    pub fn new(blocks: usize, seed: u64) -> SampledLru {
        let sample =
            |index: usize| Sample::new(blocks.max(1), mix(seed.wrapping_add(index as u64)));
        SampledLru { samples: (0..REPLICAS).map(sample).collect(), references: 0 }
    }

    /// Takes a reference in.
    pub fn reference(&mut self, key: u64) {
        self.references += 1;
        for sample in &mut self.samples {
            sample.reference(key);
        }
    }

    /// About how many different blocks were referred to.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn blocks(&self) -> u64 {
        let sum: f64 = self
            .samples
            .iter()
            .map(|sample| sample.distances.blocks() as f64 / sample.rate())
            .sum();
        (sum / REPLICAS as f64).round() as u64
    }

    /// The lowest of the samples' rates.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.samples.iter().map(Sample::rate).fold(1.0, f64::min)
    }

    /// The curve at `sizes`, with its error.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn curve(&self, sizes: &[u64]) -> Vec<Point> {
        let point = |&blocks: &u64| {
            let ratios: Vec<f64> =
                self.samples.iter().map(|s| s.miss_ratio(blocks, self.references)).collect();
            let mean = ratios.iter().sum::<f64>() / REPLICAS as f64;
            let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
            let deviation = (squares / (REPLICAS - 1) as f64).sqrt();
            Point {
                blocks,
                miss_ratio: mean,
                error: STUDENT * deviation / (REPLICAS as f64).sqrt(),
            }
        };
        sizes.iter().map(point).collect()
    }
}

#[derive(Clone, Debug)]
struct Sample {
    limit: usize,
    seed: u64,
    /// Keys whose hash is below it are in the sample.
    threshold: u64,
    distances: ReuseDistances,
    /// The sampled blocks, the highest hash first.
    by_hash: BinaryHeap<(u64, u64)>,
    /// How many references of the trace each bucket of distances stands for.
    histogram: Vec<f64>,
    /// How many the sampled references stand for in all.
    weight: f64,
}

impl Sample {
    fn new(limit: usize, seed: u64) -> Sample {
        Sample {
            limit,
            seed,
            threshold: HASHES,
            distances: ReuseDistances::default(),
            by_hash: BinaryHeap::new(),
            histogram: Vec::new(),
            weight: 0.0,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn rate(&self) -> f64 {
        self.threshold as f64 / HASHES as f64
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn reference(&mut self, key: u64) {
        let hash = mix(key ^ self.seed) % HASHES;
        if hash >= self.threshold {
            return;
        }
        let rate = self.rate();
        self.weight += 1.0 / rate;
        let Some(distance) = self.distances.reference(key) else {
            self.by_hash.push((hash, key));
            if self.by_hash.len() > self.limit {
                self.shrink();
            }
            return;
        };
        let bucket = bucket((distance as f64 / rate) as u64);
        if bucket >= self.histogram.len() {
            self.histogram.resize(bucket + 1, 0.0);
        }
        self.histogram[bucket] += 1.0 / rate;
    }

    /// Lowers the threshold to the highest hash in the sample, which leaves it.
    fn shrink(&mut self) {
        let Some(&(highest, _)) = self.by_hash.peek() else { return };
        self.threshold = highest.max(1);
        while let Some(&(hash, key)) = self.by_hash.peek() {
            if hash < self.threshold {
                break;
            }
            self.by_hash.pop();
            self.distances.forget(key);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn miss_ratio(&self, blocks: u64, references: u64) -> f64 {
        if references == 0 {
            return 0.0;
        }
        let within = self.histogram.iter().enumerate().take_while(|(at, _)| highest(*at) < blocks);
        let hits: f64 = within.map(|(_, weight)| weight).sum();
        let lacking = if blocks > 0 { references as f64 - self.weight } else { 0.0 };
        (1.0 - (hits + lacking) / references as f64).clamp(0.0, 1.0)
    }
}

/// The bucket of a distance: exact below 64, then 64 buckets for each power of two.
fn bucket(distance: u64) -> usize {
    let power = u64::BITS - distance.leading_zeros();
    if power <= PARTS {
        return to_usize(distance);
    }
    let shift = power - PARTS - 1;
    let part = distance >> shift;
    to_usize((u64::from(shift) << PARTS) + part)
}

/// The largest distance of a bucket.
fn highest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let one = 1 << PARTS;
    if bucket < 2 * one {
        return bucket;
    }
    let shift = bucket / one - 1;
    let part = bucket % one + one;
    ((part + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::{ExactLru, sizes};
    use esker_base::Rng;

    #[test]
    fn buckets_hold_what_they_say() {
        let mut rng = Rng::new(1);
        for _ in 0..10_000 {
            let distance = rng.u64() >> (20 + rng.below(44));
            let at = bucket(distance);
            assert!(distance <= highest(at), "{distance} in {at}");
            assert!(at == 0 || distance > highest(at - 1), "{distance} in {at}");
        }
        assert_eq!(bucket(63), 63);
        assert_eq!(highest(63), 63);
    }

    /// Skewed references to 100,000 blocks, and a loop over 20,000 now and then.
    fn feed(seed: u64, mut take: impl FnMut(u64)) {
        let mut rng = Rng::new(seed);
        for at in 0..400_000u64 {
            if at % 100_000 < 20_000 {
                take((1 << 30) + at % 20_000);
            } else {
                let skew = rng.unit().powi(4) * 100_000.0;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                take(mix(skew as u64) % (1 << 50));
            }
        }
    }

    #[test]
    fn samples_estimate_the_curve_within_their_error() {
        let (mut exact, mut sampled) = (ExactLru::default(), SampledLru::new(4096, 1));
        feed(9, |key| {
            exact.reference(key);
            sampled.reference(key);
        });
        assert!(sampled.rate() < 0.1, "{}", sampled.rate());
        let blocks = exact.blocks();
        assert!(
            sampled.blocks().abs_diff(blocks) < blocks / 20,
            "{} of {blocks}",
            sampled.blocks()
        );
        let sizes = sizes(blocks, 30);
        let pairs: Vec<_> = exact.curve(&sizes).into_iter().zip(sampled.curve(&sizes)).collect();
        for (exact, sampled) in &pairs {
            let off = (exact.miss_ratio - sampled.miss_ratio).abs();
            assert!(off < 0.03, "{exact:?} {sampled:?}");
            assert!(sampled.error < 0.06, "{sampled:?}");
        }
        let within = pairs.iter().filter(|(exact, sampled)| {
            (exact.miss_ratio - sampled.miss_ratio).abs() <= sampled.error + 0.002
        });
        let within = within.count();
        assert!(within * 10 >= pairs.len() * 8, "{within} of {}: {pairs:?}", pairs.len());
    }

    #[test]
    fn a_sample_that_holds_everything_is_exact() {
        let (mut exact, mut sampled) = (ExactLru::default(), SampledLru::new(100, 2));
        let mut rng = Rng::new(4);
        for _ in 0..5000 {
            let key = rng.below(60).min(rng.below(60));
            exact.reference(key);
            sampled.reference(key);
        }
        let sizes: Vec<u64> = (1..=60).collect();
        assert_eq!(sampled.blocks(), exact.blocks());
        for (exact, sampled) in exact.curve(&sizes).iter().zip(sampled.curve(&sizes)) {
            assert!((exact.miss_ratio - sampled.miss_ratio).abs() < 1e-9, "{exact:?} {sampled:?}");
            assert!(sampled.error < 1e-9);
        }
    }
}
