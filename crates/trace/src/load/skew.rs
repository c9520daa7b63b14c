//! Which pages are asked for: a power law over ranks, and a scattering of the ranks over pages.

use esker_base::Rng;

use crate::keys::mix;

/// Ranks from 0, the most popular one, with a density that falls as `(rank + 1)^-theta`: the
/// continuous power law, drawn by its inverse.
#[derive(Clone, Debug)]
pub(super) struct Skew {
    pages: u64,
    theta: f64,
}

impl Skew {
    pub(super) fn new(pages: u64, theta: f64) -> Skew {
        Skew { pages, theta }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn rank(&self, rng: &mut Rng) -> u64 {
        let (last, exponent) = ((self.pages + 1) as f64, 1.0 - self.theta);
        let u = rng.unit();
        let place = if exponent.abs() < 1e-9 {
            last.powf(u)
        } else {
            (1.0 + u * (last.powf(exponent) - 1.0)).powf(1.0 / exponent)
        };
        (place as u64).saturating_sub(1).min(self.pages - 1)
    }
}

/// A permutation of the numbers below `pages`: four rounds of a Feistel network over the next power
/// of four, repeated until the result is in range.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    pages: u64,
    half_bits: u32,
    seed: u64,
}

impl Scatter {
    pub(super) fn new(pages: u64, seed: u64) -> Scatter {
        let bits = u64::BITS - pages.saturating_sub(1).leading_zeros();
        Scatter { pages, half_bits: bits.div_ceil(2).max(1), seed }
    }

    pub(super) fn page(&self, rank: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut number = rank;
        loop {
            let (mut high, mut low) = (number >> self.half_bits, number & mask);
            for round in 0..4 {
                let mixed = mix(low ^ self.seed.wrapping_add(round << 56)) & mask;
                (high, low) = (low, high ^ mixed);
            }
            number = high << self.half_bits | low;
            if number < self.pages {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scatter_is_a_permutation() {
        for pages in [1, 2, 3, 1000, 4096, 5000] {
            let scatter = Scatter::new(pages, 7);
            let mut seen = vec![false; usize::try_from(pages).unwrap()];
            for rank in 0..pages {
                let page = usize::try_from(scatter.page(rank)).unwrap();
                assert!(!std::mem::replace(&mut seen[page], true), "{page} of {pages} twice");
            }
        }
    }

    #[test]
    fn popular_ranks_get_the_share_of_the_law() {
        for theta in [0.5, 0.8, 1.0, 1.2] {
            let (skew, mut rng) = (Skew::new(100_000, theta), Rng::new(3));
            let draws: u32 = 100_000;
            let low = (0..draws).filter(|_| skew.rank(&mut rng) < 1000).count();
            // The mass below x of the density y^-theta on 1..=100,001.
            let mass = |x: f64| {
                if theta == 1.0 { x.ln() } else { (x.powf(1.0 - theta) - 1.0) / (1.0 - theta) }
            };
            let expected = mass(1001.0) / mass(100_001.0);
            #[allow(clippy::cast_precision_loss)]
            let found = low as f64 / f64::from(draws);
            assert!((found - expected).abs() < 0.01, "{theta}: {found}, not {expected}");
        }
    }
}
