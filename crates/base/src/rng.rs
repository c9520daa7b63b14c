//! Random numbers from a seed: the same seed gives the same sequence on every machine and in
//! every release (xoshiro256++ of Blackman and Vigna, seeded through SplitMix64).

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded pseudo-random number generator; not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The next 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, uniform up to a bias of `bound / 2^64` (Lemire's multiply-shift).
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        let wide = u128::from(self.u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the high half of a 128-bit product")
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit an f64 exactly
    pub fn unit(&mut self) -> f64 {
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `numerator / denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let first: Vec<u64> = (0..4)
            .map({
                let mut r = Rng::new(7);
                move |_| r.u64()
            })
            .collect();
        let again: Vec<u64> = (0..4)
            .map({
                let mut r = Rng::new(7);
                move |_| r.u64()
            })
            .collect();
        assert_eq!(first, again);
        assert_ne!(Rng::new(8).u64(), first[0]);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[usize::try_from(rng.below(10)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
