//! Measurements of threads, and how they are put together.
//!
//! A few threads share the histograms of a whole run ([`Tally`], three significant figures: within 0.1 % of any value)
//! and those of the current interval ([`IntervalTally`], two significant figures: within 1 %), which the driver takes
//! away at every tick.

use hdrhistogram::{Counter, Histogram};

use crate::result::{Latency, Quantile};

/// Points of a latency curve per factor of ten of "one operation in so many".
const POINTS_PER_DECADE: i32 = 10;

/// Latencies that were measured, within 0.1 %.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(histogram(3))
    }
}

impl Latencies {
    /// Adds one, in nanoseconds.
    pub fn record(&mut self, latency_ns: u64) {
        record(&mut self.0, latency_ns);
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Latencies) {
        add(&mut self.0, &other.0);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The arithmetic mean in nanoseconds; 0 where there are none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    /// The least latency, in nanoseconds, that a share of them (0 to 1) does not exceed; 0 where there are none.
    #[must_use]
    pub fn at_ns(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share).min(self.0.max())
    }

    /// The share (0 to 1) that took no longer than so many nanoseconds; 0 where there are none.
    #[must_use]
    pub fn share_within(&self, latency_ns: u64) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.quantile_below(latency_ns) }
    }

    /// How they are distributed; none where there are none.
    #[must_use]
    pub fn summary(&self) -> Option<Latency> {
        latency(&self.0)
    }
}

/// One kind of operation, measured by some threads or, merged, by all.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) errors: u64,
    pub(crate) not_found: u64,
    pub(crate) wrong_values: u64,
    pub(crate) rows: u64,
    pub(crate) latency_ns: Histogram<u64>,
    /// From the intended start; empty without a fixed rate.
    pub(crate) intended_latency_ns: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            errors: 0,
            not_found: 0,
            wrong_values: 0,
            rows: 0,
            latency_ns: histogram(3),
            intended_latency_ns: histogram(3),
        }
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.errors += other.errors;
        self.not_found += other.not_found;
        self.wrong_values += other.wrong_values;
        self.rows += other.rows;
        add(&mut self.latency_ns, &other.latency_ns);
        add(&mut self.intended_latency_ns, &other.intended_latency_ns);
    }
}

/// All kinds of operations during one interval.
#[derive(Clone, Debug)]
pub(crate) struct IntervalTally {
    pub(crate) errors: u64,
    pub(crate) latency_ns: Histogram<u32>,
}

impl IntervalTally {
    pub(crate) fn new() -> IntervalTally {
        IntervalTally { errors: 0, latency_ns: histogram(2) }
    }

    /// Moves the figures of `self` into `sum`.
    pub(crate) fn drain_into(&mut self, sum: &mut IntervalTally) {
        sum.errors += std::mem::take(&mut self.errors);
        add(&mut sum.latency_ns, &self.latency_ns);
        self.latency_ns.reset();
    }
}

/// Records a latency; a clock too coarse to see it counts as one nanosecond.
pub(crate) fn record<C: Counter>(histogram: &mut Histogram<C>, latency_ns: u64) {
    let recorded = histogram.record(latency_ns.max(1));
    recorded.expect("a resizing histogram holds every 64-bit number");
}

/// The summary of a histogram; none when it is empty.
pub(crate) fn latency(histogram: &Histogram<u64>) -> Option<Latency> {
    if histogram.is_empty() {
        return None;
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile).min(histogram.max());
    let one_in = (0..).map(|k| 10f64.powf(f64::from(k) / f64::from(POINTS_PER_DECADE)));
    // The last point is the first that only the slowest operation exceeds.
    let last = histogram.len() as f64 * 10f64.powf(1.0 / f64::from(POINTS_PER_DECADE));
    Some(Latency {
        count: histogram.len(),
        mean_ns: histogram.mean(),
        min_ns: histogram.min(),
        p50_ns: at(0.5),
        p95_ns: at(0.95),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: histogram.max(),
        by_percentile: one_in
            .take_while(|&one_in| one_in < last)
            .map(|one_in| Quantile {
                percentile: 100.0 * (1.0 - 1.0 / one_in),
                one_in,
                latency_ns: at(1.0 - 1.0 / one_in),
            })
            .collect(),
    })
}

fn histogram<C: Counter>(significant_figures: u8) -> Histogram<C> {
    let mut histogram = Histogram::new(significant_figures).expect("between 0 and 5 figures");
    histogram.auto(true);
    histogram
}

fn add<C: Counter>(sum: &mut Histogram<C>, other: &Histogram<C>) {
    sum.add(other).expect("a resizing histogram holds every other");
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    /// Bound: three significant figures, so 0.1 %, against the sorted values themselves.
    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let mut rng = Rng::new(1);
        let (mut one, mut other) = (Tally::new(), Tally::new());
        let mut values: Vec<u64> = (0..50_000).map(|_| 1 << rng.below(30)).collect();
        for value in &mut values {
            *value += rng.below(*value);
            let tally = if rng.chance(1, 3) { &mut one } else { &mut other };
            record(&mut tally.latency_ns, *value);
        }
        values.sort_unstable();
        one.merge(&other);
        let latency = latency(&one.latency_ns).unwrap();
        let close =
            |got: u64, expected: u64| got.abs_diff(expected) as f64 <= expected as f64 / 1e3;
        assert_eq!(latency.count, 50_000);
        assert!(close(latency.p50_ns, values[24_999]));
        assert!(close(latency.p95_ns, values[47_499]));
        assert!(close(latency.p99_ns, values[49_499]));
        assert!(close(latency.p999_ns, values[49_949]));
        assert!(close(latency.max_ns, values[49_999]));
        assert!(close(latency.min_ns, values[0]));
        let mean = values.iter().sum::<u64>() as f64 / 5e4;
        assert!((latency.mean_ns / mean - 1.0).abs() < 1e-3);
    }

    #[test]
    fn the_latency_curve_rises_from_the_fastest_to_the_slowest() {
        let mut histogram = histogram(3);
        assert_eq!(latency(&histogram), None);
        record(&mut histogram, 0);
        let single = latency(&histogram).unwrap();
        assert_eq!((single.min_ns, single.max_ns, single.p50_ns), (1, 1, 1));
        assert_eq!(single.by_percentile.len(), 1);
        for value in 1..=1_000u64 {
            record(&mut histogram, value * 100);
        }
        let curve = latency(&histogram).unwrap().by_percentile;
        assert!(curve.is_sorted_by(|a, b| a.one_in < b.one_in && a.latency_ns <= b.latency_ns));
        assert_eq!(curve.last().unwrap().latency_ns, histogram.max());
        let p90 = &curve[10];
        assert!((p90.percentile - 90.0).abs() < 1e-9 && (p90.one_in - 10.0).abs() < 1e-9);
    }

    #[test]
    fn shares_and_latencies_are_each_others_inverse() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.count(), latencies.at_ns(0.5)), (0, 0));
        assert_eq!(latencies.share_within(1_000).to_bits(), 0f64.to_bits());
        (1..=100u64).for_each(|value| latencies.record(value * 10));
        assert_eq!((latencies.count(), latencies.at_ns(0.8)), (100, 800));
        for (within_ns, share) in [(9, 0.0), (10, 0.01), (805, 0.8), (5_000, 1.0)] {
            let seen = latencies.share_within(within_ns);
            assert!((seen - share).abs() < 1e-9, "{within_ns}: {seen}");
        }
        assert!((latencies.mean_ns() - 505.0).abs() < 1.0);
    }

    #[test]
    fn an_interval_is_taken_once() {
        let (mut slot, mut sum) = (IntervalTally::new(), IntervalTally::new());
        record(&mut slot.latency_ns, 5_000);
        slot.errors = 2;
        slot.drain_into(&mut sum);
        slot.drain_into(&mut sum);
        assert_eq!((sum.errors, sum.latency_ns.len()), (2, 1));
    }
}
