//! How long things take: [`Histogram`] counts, and [`Latency`] is what it has counted.
//!
//! Four buckets for each power of two keep a percentile within a quarter of its value. The first bucket ends at 256 ns, and
//! the last one, from 51.5 s on, is open.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::units::{to_nanos, to_u64, to_usize};

/// Buckets of a histogram.
pub const BUCKETS: usize = 112;
/// The first bucket ends here.
const FIRST_NS: u64 = 256;

/// Counts that any thread adds to and reads.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    match (ns / FIRST_NS).checked_ilog2() {
        None => 0,
        Some(octave) => {
            let quarter = (ns >> (octave + 6)) & 3;
            (4 * to_usize(octave.into()) + to_usize(quarter) + 1).min(BUCKETS - 1)
        }
    }
}

impl Histogram {
    /// Counts a time.
    pub fn add(&self, time: Duration) {
        let ns = to_nanos(time);
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts a time in a histogram that no other thread adds to: cheaper, without an atomic operation that waits.
    pub fn add_alone(&self, time: Duration) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        let ns = to_nanos(time);
        add(&self.counts[bucket(ns)], 1);
        add(&self.sum_ns, ns);
    }

    /// All that was counted.
    #[must_use]
    pub fn snapshot(&self) -> Latency {
        self.read(|counter| counter.load(Ordering::Relaxed))
    }

    /// All that was counted; it begins anew.
    #[must_use]
    pub fn take(&self) -> Latency {
        self.read(|counter| counter.swap(0, Ordering::Relaxed))
    }

    fn read(&self, get: fn(&AtomicU64) -> u64) -> Latency {
        Latency {
            counts: self.counts.iter().map(get).collect(),
            sum: Duration::from_nanos(get(&self.sum_ns)),
        }
    }
}

/// The counts of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many were in each bucket; bucket `n` ends before [`Latency::bucket_end`].
    pub counts: Vec<u64>,
    /// All of them together.
    pub sum: Duration,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: vec![0; BUCKETS], sum: Duration::ZERO }
    }
}

impl Latency {
    /// Where a bucket ends.
    #[must_use]
    pub fn bucket_end(bucket: usize) -> Duration {
        let (octave, quarter) = (bucket / 4, bucket % 4);
        let start = FIRST_NS << octave;
        Duration::from_nanos(start + start / 4 * to_u64(quarter))
    }

    /// Where the last bucket begins, which has no end.
    #[must_use]
    pub fn open_from() -> Duration {
        Latency::bucket_end(BUCKETS - 2)
    }

    /// Adds those of another one.
    pub fn add(&mut self, other: &Latency) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The end of the bucket below which `share` (0 to 1) of them are; zero when there were none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a share of a count
    pub fn percentile(&self, share: f64) -> Duration {
        let wanted = self.count() as f64 * share;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= wanted {
                return Latency::bucket_end(bucket);
            }
        }
        Duration::ZERO
    }

    /// One bucket for each power of two: its end, and how many are in it; the last one is open.
    pub fn octaves(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let (first, rest) =
            self.counts.split_first().map_or((0, &[][..]), |(one, all)| (*one, all));
        let ends = (1..).map(|octave| Latency::bucket_end(4 * octave));
        let octaves = ends.zip(rest.chunks(4).map(|quarters| quarters.iter().sum()));
        std::iter::once((Latency::bucket_end(0), first)).chain(octaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn a_time_is_counted_in_the_bucket_that_ends_after_it() {
        for ns in
            [0, 1, 255, 256, 319, 320, 511, 512, 4_000, 1_000_000, 999_999_999, 20_000_000_000]
        {
            let histogram = Histogram::default();
            let time = Duration::from_nanos(ns);
            (0..2).for_each(|_| histogram.add(time));
            histogram.add_alone(time);
            let found = histogram.snapshot();
            let bucket = found.counts.iter().position(|count| *count == 3).unwrap();
            assert!(time < Latency::bucket_end(bucket), "{ns} ns in bucket {bucket}");
            assert!(bucket == 0 || time >= Latency::bucket_end(bucket - 1), "{ns} ns in {bucket}");
            assert_eq!((found.count(), found.sum), (3, 3 * time));
        }
        let histogram = Histogram::default();
        histogram.add(Duration::from_secs(1 << 30));
        assert_eq!(histogram.snapshot().counts[BUCKETS - 1], 1);
        assert!(histogram.snapshot().percentile(0.5) > Latency::open_from());
    }

    /// Beside the times themselves, sorted.
    #[test]
    fn percentiles_are_within_a_quarter() {
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let histogram = Histogram::default();
            let mut times: Vec<u64> = (0..1 + rng.below(500))
                .map(|_| {
                    let bits = 9 + rng.below(24);
                    256 + rng.below(1 << bits)
                })
                .collect();
            times.iter().for_each(|ns| histogram.add(Duration::from_nanos(*ns)));
            times.sort_unstable();
            let found = histogram.snapshot();
            for permille in [1, 100, 500, 900, 990, 999, 1000] {
                let at = (times.len() * permille).div_ceil(1000).max(1) - 1;
                let (exact, got) = (times[at], found.percentile(permille as f64 / 1000.0));
                let got = u64::try_from(got.as_nanos()).unwrap();
                assert!(exact < got && got <= exact + exact / 4 + 1, "{permille}: {exact} {got}");
            }
        }
        assert_eq!(Latency::default().percentile(0.5), Duration::ZERO);
    }

    #[test]
    fn what_is_taken_begins_anew_and_sums_are_of_both() {
        let histogram = Histogram::default();
        histogram.add(Duration::from_micros(10));
        let mut sum = histogram.take();
        assert_eq!(histogram.snapshot(), Latency::default());
        histogram.add(Duration::from_millis(5));
        sum.add(&histogram.take());
        assert_eq!((sum.count(), sum.sum), (2, Duration::from_micros(5010)));
    }

    #[test]
    fn no_thread_loses_a_time() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let histogram = &histogram;
                scope.spawn(move || {
                    (0..10_000).for_each(|n| histogram.add(Duration::from_nanos(n * (thread + 1))));
                });
            }
        });
        assert_eq!(histogram.snapshot().count(), 40_000);
    }

    #[test]
    fn octaves_have_all_and_end_where_powers_of_two_do() {
        let histogram = Histogram::default();
        for ns in [100, 300, 500, 511, 512, 2_000_000] {
            histogram.add(Duration::from_nanos(ns));
        }
        let octaves: Vec<(u128, u64)> =
            histogram.snapshot().octaves().map(|(end, count)| (end.as_nanos(), count)).collect();
        assert_eq!(octaves[..3], [(256, 1), (512, 3), (1024, 1)]);
        assert!(octaves.iter().all(|(end, _)| end.is_power_of_two()));
        assert_eq!(octaves.iter().map(|(_, count)| count).sum::<u64>(), 6);
    }
}
