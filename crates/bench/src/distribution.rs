//! Which record a request asks for, by the names of YCSB (Cooper et al., SoCC 2010).

use esker_base::Rng;
use serde::{Deserialize, Serialize};

use crate::key::fnv64;
use crate::zipf::Zipfian;

/// A distribution of requests over records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Every record alike.
    Uniform,
    /// Record 0 most, record 1 next: popular records are neighbours in insertion order.
    Zipfian {
        /// The skew, between 0 and 1; YCSB's is 0.99.
        theta: f64,
    },
    /// Zipfian popularity scattered over all records, as in YCSB when its request
    /// distribution is `zipfian`. A rank among ten billion is drawn, hashed with
    /// [`fnv64`], and taken modulo the number of records.
    ScrambledZipfian {
        /// The skew, between 0 and 1; YCSB's is 0.99.
        theta: f64,
    },
    /// The newest record most, the one before it next.
    Latest {
        /// The skew, between 0 and 1; YCSB's is 0.99.
        theta: f64,
    },
}

impl Distribution {
    /// The skew, where there is one.
    #[must_use]
    pub fn theta(&self) -> Option<f64> {
        match *self {
            Distribution::Uniform => None,
            Distribution::Zipfian { theta }
            | Distribution::ScrambledZipfian { theta }
            | Distribution::Latest { theta } => Some(theta),
        }
    }
}

/// Ranks of the scrambled zipfian distribution. So many that adding records does not change which
/// are popular.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// Chooses records for one thread.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Zipfian(Zipfian),
    Scrambled { ranks: Zipfian, modulus: u64 },
    Latest(Zipfian),
}

impl KeyChooser {
    /// A chooser over `records` records, of which a run will insert about `inserts` more.
    ///
    /// As in YCSB, the scrambled zipfian distribution spreads over the records to come as well
    /// and draws again when it hits one that is not there yet; so the popular records stay the
    /// same while the data grow. Expected inserts count up to nine times the records, so that one
    /// draw in ten hits.
    ///
    /// # Panics
    /// If the skew is not between 0 and 1.
    #[must_use]
    pub fn new(distribution: Distribution, records: u64, inserts: u64) -> KeyChooser {
        let present = records.max(1);
        let law = match distribution {
            Distribution::Uniform => Law::Uniform,
            Distribution::Zipfian { theta } => Law::Zipfian(Zipfian::new(present, theta)),
            Distribution::ScrambledZipfian { theta } => Law::Scrambled {
                ranks: Zipfian::new(SCRAMBLED_RANKS, theta),
                modulus: present.saturating_add(inserts.min(present.saturating_mul(9))),
            },
            Distribution::Latest { theta } => Law::Latest(Zipfian::new(present, theta)),
        };
        KeyChooser { law }
    }

    /// A record among the `records` that are there now.
    ///
    /// # Panics
    /// If `records` is zero.
    pub fn choose(&mut self, records: u64, rng: &mut Rng) -> u64 {
        match &mut self.law {
            Law::Uniform => rng.below(records),
            Law::Zipfian(zipfian) => {
                zipfian.grow(records);
                zipfian.sample(rng)
            }
            Law::Scrambled { ranks, modulus } => {
                assert!(records > 0, "no record to choose");
                // Records beyond the expected ones are not chosen; nor are those still missing.
                loop {
                    let number = fnv64(ranks.sample(rng)) % *modulus;
                    if number < records {
                        return number;
                    }
                }
            }
            Law::Latest(zipfian) => {
                zipfian.grow(records);
                records - 1 - zipfian.sample(rng)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THETA: f64 = 0.99;
    const ALL: [Distribution; 4] = [
        Distribution::Uniform,
        Distribution::Zipfian { theta: THETA },
        Distribution::ScrambledZipfian { theta: THETA },
        Distribution::Latest { theta: THETA },
    ];

    fn counts(distribution: Distribution, records: u64, draws: u32, seed: u64) -> Vec<u32> {
        let mut chooser = KeyChooser::new(distribution, records, 0);
        let mut rng = Rng::new(seed);
        let mut counts = vec![0; usize::try_from(records).unwrap()];
        for _ in 0..draws {
            counts[usize::try_from(chooser.choose(records, &mut rng)).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn a_seed_gives_the_same_requests() {
        for distribution in ALL {
            assert_eq!(counts(distribution, 500, 5_000, 1), counts(distribution, 500, 5_000, 1));
            assert_ne!(counts(distribution, 500, 5_000, 1), counts(distribution, 500, 5_000, 2));
        }
    }

    /// Bound: the 99.9th percentile of chi-square with 99 degrees of freedom is 148.2.
    #[test]
    fn uniform_requests_are_uniform() {
        let chi_square: f64 = counts(Distribution::Uniform, 100, 100_000, 9)
            .iter()
            .map(|&n| (f64::from(n) - 1_000.0).powi(2) / 1_000.0)
            .sum();
        assert!(chi_square < 148.2, "chi-square {chi_square}");
    }

    /// The expected probability of a record is the sum over the 100,000 most popular ranks that
    /// hash to it, plus its share of the rest. Bound: 5 standard deviations plus 3 % (the rest
    /// is spread by the hash, not exactly evenly), for the ten most popular records.
    #[test]
    fn scrambled_requests_have_the_popularity_of_their_ranks() {
        let (records, draws, head) = (1_000u64, 1_000_000u32, 100_000u64);
        let ranks = Zipfian::new(SCRAMBLED_RANKS, THETA);
        let mut expected = vec![0.0; 1_000];
        let mut mass = 0.0;
        for rank in 0..head {
            let p = ranks.probability(rank);
            expected[usize::try_from(fnv64(rank) % records).unwrap()] += p;
            mass += p;
        }
        for p in &mut expected {
            *p += (1.0 - mass) / 1_000.0;
        }
        let got = counts(ALL[2], records, draws, 77);
        // Where YCSB 0.17 puts its four most popular ranks of a thousand records.
        assert_eq!([0, 1, 2, 3].map(|rank| fnv64(rank) % records), [211, 620, 393, 802]);
        for rank in 0..10 {
            let at = usize::try_from(fnv64(rank) % records).unwrap();
            let (n, p) = (f64::from(draws), expected[at]);
            let bound = 5.0 * (n * p).sqrt() + 0.03 * n * p;
            let difference = (f64::from(got[at]) - n * p).abs();
            assert!(difference < bound, "rank {rank}: {} of {}", got[at], n * p);
        }
    }

    #[test]
    fn latest_is_zipfian_counted_from_the_newest_record() {
        let mut latest = KeyChooser::new(ALL[3], 50, 0);
        let mut zipfian = KeyChooser::new(ALL[1], 50, 0);
        let (mut a, mut b) = (Rng::new(6), Rng::new(6));
        for records in (50..5_000).step_by(7) {
            let newest = records - 1;
            let expected = newest - zipfian.choose(records, &mut b);
            assert_eq!(latest.choose(records, &mut a), expected);
        }
    }

    #[test]
    fn only_records_that_are_there_are_chosen() {
        for distribution in ALL {
            let mut chooser = KeyChooser::new(distribution, 1, 200);
            let mut rng = Rng::new(8);
            for records in 1..300 {
                assert!((0..20).all(|_| chooser.choose(records, &mut rng) < records));
            }
        }
    }
}
