//! The most that a cache of records can catch: the requests for the records asked for most.

use esker_bench::key::fnv64;
use esker_bench::zipf::Zipfian;

/// How many ranks the laboratory's scattered zipfian law draws from (docs/bench.md).
const RANKS: u64 = 10_000_000_000;
/// Ranks are placed one by one up to so many times the records; the rest, a sixth or so of all
/// requests, is spread over the records evenly, as its hashes are.
const PLACED: u64 = 2;

/// How a data set is asked for.
pub(crate) struct Popularity {
    /// The share of requests that the first so many records get, the most popular first.
    shares: Vec<f64>,
}

impl Popularity {
    /// Of `records` records under the scattered zipfian law of skew `theta`.
    pub(crate) fn new(records: u64, theta: f64) -> Popularity {
        let law = Zipfian::new(RANKS, theta);
        let placed = (PLACED * records).min(RANKS);
        let mut shares = vec![0.0; esker_base::units::to_usize(records)];
        let mut left = 1.0;
        for rank in 0..placed {
            let share = law.probability(rank);
            shares[esker_base::units::to_usize(fnv64(rank) % records)] += share;
            left -= share;
        }
        let each = left / records as f64;
        shares.sort_by(|a, b| f64::total_cmp(b, a));
        let mut sum = 0.0;
        for share in &mut shares {
            sum += *share + each;
            *share = sum;
        }
        Popularity { shares }
    }

    /// The share of requests that a cache of `records` records can catch at most.
    pub(crate) fn caught(&self, records: u64) -> f64 {
        let last = usize::try_from(records).unwrap_or(usize::MAX).min(self.shares.len());
        last.checked_sub(1).map_or(0.0, |last| self.shares[last].min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_room_catches_more_up_to_everything() {
        let popularity = Popularity::new(10_000, 0.99);
        assert_eq!(popularity.caught(0), 0.0);
        let caught = [1, 100, 2_500, 9_999].map(|records| popularity.caught(records));
        assert!(caught.is_sorted_by(|a, b| a < b), "{caught:?}");
        assert!((popularity.caught(10_000) - 1.0).abs() < 1e-9);
        assert_eq!(popularity.caught(20_000), popularity.caught(10_000));
    }

    /// Bound: 5 standard deviations of a binomial of 200,000.
    #[test]
    fn hits_of_drawn_requests_match_the_computed_share() {
        let (records, drawn, room) = (5_000u64, 200_000u32, 500u64);
        let law = Zipfian::new(RANKS, 0.99);
        let mut rng = esker_base::Rng::new(7);
        let mut requests = vec![0u32; 5_000];
        for _ in 0..drawn {
            let at = fnv64(law.sample(&mut rng)) % records;
            requests[usize::try_from(at).unwrap()] += 1;
        }
        let mut shares = vec![0.0; 5_000];
        for rank in 0..PLACED * records {
            shares[usize::try_from(fnv64(rank) % records).unwrap()] += law.probability(rank);
        }
        let mut most: Vec<usize> = (0..5_000).collect();
        most.sort_by(|a, b| f64::total_cmp(&shares[*b], &shares[*a]));
        let hits: u32 = most[..500].iter().map(|at| requests[*at]).sum();
        let p = Popularity::new(records, 0.99).caught(room);
        let n = f64::from(drawn);
        let difference = (f64::from(hits) - n * p).abs();
        assert!(difference < 5.0 * (n * p * (1.0 - p)).sqrt(), "{hits} of {n} at {p}");
    }
}
