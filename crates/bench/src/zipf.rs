//! The zipfian distribution: rank `i` (from 1) of `n` has probability `i^-theta / zeta(n, theta)`.
//!
//! Sampled with the constant-time inversion of Gray et al., "Quickly Generating Billion-Record
//! Synthetic Databases" (SIGMOD 1994), as YCSB does. The two most popular ranks have exactly their
//! probability; the others follow a continuous approximation of the law, which this file also
//! states as a formula ([`Zipfian::probability`]), so that the sampler can be tested against it.
//!
//! Invariants
//! 1. `zeta` is `zeta(items, theta)`, however the number of items was reached.
//! 2. Every sampled rank is below `items`.

use esker_base::Rng;

/// YCSB's skew: the most popular of a million items gets 6.5 % of the requests.
pub const DEFAULT_THETA: f64 = 0.99;

/// How many terms of zeta are summed one by one before the Euler-Maclaurin formula takes over, and
/// up to which growth new terms are added rather than the sum formed again.
const EXACT_TERMS: u64 = 64;

/// The generalised harmonic number: the sum of `i^-theta` for `i` from 1 to `n`.
///
/// Terms past the 64th come from the Euler-Maclaurin formula up to the third derivative, whose
/// remainder there is below 1e-13, so that ten billion items cost no more than a hundred.
#[must_use]
pub fn zeta(n: u64, theta: f64) -> f64 {
    let head = n.min(EXACT_TERMS);
    let exact: f64 = (1..=head).map(|i| (i as f64).powf(-theta)).sum();
    if n <= EXACT_TERMS {
        return exact;
    }
    let (first, last) = (EXACT_TERMS as f64, n as f64);
    let f = |x: f64| x.powf(-theta);
    let f1 = |x: f64| -theta * x.powf(-theta - 1.0);
    let f3 = |x: f64| -theta * (theta + 1.0) * (theta + 2.0) * x.powf(-theta - 3.0);
    let exponent = 1.0 - theta;
    let integral = (last.powf(exponent) - first.powf(exponent)) / exponent;
    exact + integral + (f(last) - f(first)) / 2.0 + (f1(last) - f1(first)) / 12.0
        - (f3(last) - f3(first)) / 720.0
}

/// A sampler of ranks 0 (the most popular) to `items - 1`.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// The distribution over `items` ranks with skew `theta`, which lies between 0 and 1.
    ///
    /// # Panics
    /// If there are no items, or `theta` is out of its range.
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Zipfian {
        assert!(items > 0, "a distribution needs an item");
        assert!(theta > 0.0 && theta < 1.0, "theta {theta} is not between 0 and 1");
        let mut zipfian = Zipfian {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta: zeta(items, theta),
            eta: 0.0,
        };
        zipfian.eta = zipfian.eta();
        zipfian
    }

    /// Extends the distribution to `items` ranks; a smaller number changes nothing.
    pub fn grow(&mut self, items: u64) {
        if items <= self.items {
            return;
        }
        if items - self.items <= EXACT_TERMS {
            let new_terms = self.items + 1..=items;
            self.zeta += new_terms.map(|i| (i as f64).powf(-self.theta)).sum::<f64>();
        } else {
            self.zeta = zeta(items, self.theta);
        }
        self.items = items;
        self.eta = self.eta();
    }

    /// How many ranks there are.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The normalising constant, `zeta(items, theta)`.
    #[must_use]
    pub fn zeta(&self) -> f64 {
        self.zeta
    }

    /// A random rank.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        self.rank(rng.unit())
    }

    /// The rank at `u` of the cumulative distribution, for `u` in `[0, 1)`.
    #[must_use]
    pub fn rank(&self, u: f64) -> u64 {
        let mass = u * self.zeta;
        if mass < 1.0 {
            return 0;
        }
        if mass < self.mass_of_two() {
            return 1.min(self.items - 1);
        }
        let share = (self.eta * u - self.eta + 1.0).powf(self.alpha);
        floor(self.items as f64 * share).min(self.items - 1)
    }

    /// The probability with which [`Zipfian::sample`] returns `rank`: the law of the algorithm
    /// itself, from its inverse. It equals the zipfian law for ranks 0 and 1 and approximates it
    /// for the others.
    #[must_use]
    pub fn probability(&self, rank: u64) -> f64 {
        let below = |rank: u64| match rank {
            0 => 0.0,
            1 => 1.0 / self.zeta,
            _ if rank >= self.items => 1.0,
            _ => {
                let share = rank as f64 / self.items as f64;
                (share.powf(1.0 - self.theta) - 1.0 + self.eta) / self.eta
            }
        };
        below(rank + 1) - below(rank)
    }

    fn mass_of_two(&self) -> f64 {
        1.0 + 0.5f64.powf(self.theta)
    }

    fn eta(&self) -> f64 {
        (1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta))
            / (1.0 - self.mass_of_two() / self.zeta)
    }
}

/// The integer part of a number that is not negative; a number larger than any `u64` saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // that is what it is for
pub(crate) fn floor(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain_sum(n: u64, theta: f64) -> f64 {
        (1..=n).map(|i| (i as f64).powf(-theta)).sum()
    }

    #[test]
    fn zeta_is_the_sum_of_its_terms() {
        for theta in [0.1, 0.5, 0.99] {
            for n in [1, 2, 63, 64, 65, 1_000, 1_000_000] {
                let (got, expected) = (zeta(n, theta), plain_sum(n, theta));
                assert!(
                    (got / expected - 1.0).abs() < 1e-12,
                    "zeta({n}, {theta}) = {got}, the sum is {expected}"
                );
            }
        }
        // By decimal arithmetic with 40 digits. (YCSB's constant for its ten billion items,
        // 26.46902820178302, has the rounding of ten billion additions in it: 1.2e-12.)
        assert!((zeta(10_000_000_000, 0.99) / 26.469_028_201_751_479 - 1.0).abs() < 1e-13);
    }

    #[test]
    fn a_grown_distribution_equals_a_fresh_one() {
        let mut grown = Zipfian::new(1, 0.99);
        let mut rng = Rng::new(11);
        while grown.items() < 200_000 {
            let steps = if rng.chance(1, 8) { 500 } else { 3 };
            grown.grow(grown.items() + 1 + rng.below(steps));
            grown.grow(1);
            let fresh = Zipfian::new(grown.items(), 0.99);
            assert!((grown.zeta() / fresh.zeta() - 1.0).abs() < 1e-9);
            assert_eq!(grown.rank(0.75), fresh.rank(0.75));
        }
    }

    #[test]
    fn one_and_two_items_work() {
        let mut rng = Rng::new(3);
        let (one, two) = (Zipfian::new(1, 0.99), Zipfian::new(2, 0.99));
        assert!((0..1000).all(|_| one.sample(&mut rng) == 0));
        assert!((0..1000).all(|_| two.sample(&mut rng) < 2));
        assert!([0.0, 0.999_999_999_999].iter().all(|&u| two.rank(u) < 2));
    }

    /// Bound: with a million draws the 99.9th percentile of chi-square with 199 degrees of
    /// freedom is 266.4; the seed is fixed, so the test is exact from run to run.
    #[test]
    fn samples_follow_the_law_of_the_algorithm() {
        let zipfian = Zipfian::new(200, 0.99);
        let total: f64 = (0..200).map(|rank| zipfian.probability(rank)).sum();
        assert!((total - 1.0).abs() < 1e-12);
        let draws = 1_000_000u32;
        let mut counts = [0u32; 200];
        let mut rng = Rng::new(42);
        for _ in 0..draws {
            counts[usize::try_from(zipfian.sample(&mut rng)).unwrap()] += 1;
        }
        let chi_square: f64 = (0u64..)
            .zip(counts)
            .map(|(rank, count)| {
                let expected = zipfian.probability(rank) * f64::from(draws);
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum();
        assert!(chi_square < 266.4, "chi-square {chi_square}");
    }

    /// The shares YCSB 0.17's `ZipfianGenerator(0, 999)` gave to some ranks in ten million draws.
    /// Bound: 5 standard deviations of its counts.
    #[test]
    fn the_law_of_the_algorithm_is_that_of_ycsb() {
        let zipfian = Zipfian::new(1_000, 0.99);
        let ycsb = [
            (0, 0.129_396_8),
            (1, 0.065_161_9),
            (2, 0.051_025_2),
            (3, 0.036_389_2),
            (9, 0.013_542_6),
            (99, 0.001_307_7),
            (999, 0.000_130_8),
        ];
        for (rank, share) in ycsb {
            let p = zipfian.probability(rank);
            assert!((share - p).abs() < 5.0 * (p / 1e7).sqrt(), "rank {rank}: {p}, {share}");
        }
    }

    /// Bound: 4 standard deviations, and for the approximated ranks the mass that the continuous
    /// law puts too far forward: it begins at 2 where the sum it stands for begins at 2.5, so at
    /// most the integral of `x^-theta` between the two, over zeta.
    #[test]
    fn the_head_has_the_mass_of_the_zipfian_law() {
        let (items, theta, draws) = (100_000, 0.99, 1_000_000u32);
        let zipfian = Zipfian::new(items, theta);
        let mut rng = Rng::new(5);
        let mut ranks: Vec<u64> = (0..draws).map(|_| zipfian.sample(&mut rng)).collect();
        ranks.sort_unstable();
        let n = f64::from(draws);
        let shift = (2.5f64.powf(1.0 - theta) - 2f64.powf(1.0 - theta)) / (1.0 - theta);
        for head in [1, 2, 3, 10, 100, 1_000, 10_000] {
            let share = ranks.partition_point(|&rank| rank < head) as f64 / n;
            let law = zeta(head, theta) / zeta(items, theta);
            let excess = if head > 2 { shift / zeta(items, theta) } else { 0.0 };
            let noise = 4.0 * (law * (1.0 - law) / n).sqrt();
            let difference = share - law;
            assert!(
                (-noise..noise + excess).contains(&difference),
                "first {head}: {share} of the draws, {law} by the law"
            );
        }
    }
}
