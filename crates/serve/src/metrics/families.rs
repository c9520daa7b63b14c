//! Families of metrics: a name, its meaning, and a value for each set of labels.

use std::collections::BTreeMap;

use esker_base::latency::Latency;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Result, TextEncoder};

/// The families of an answer, by name. One without a value is not there.
#[derive(Default)]
pub struct Families(BTreeMap<&'static str, MetricFamily>);

/// A name, its meaning, and the names of its labels.
pub(crate) type About<const N: usize> = (&'static str, &'static str, [&'static str; N]);

/// A type that can be the value of a metric.
pub(crate) trait Value {
    fn value(self) -> f64;
}

impl Value for u64 {
    fn value(self) -> f64 {
        self as f64
    }
}

impl Value for u32 {
    fn value(self) -> f64 {
        f64::from(self)
    }
}

impl Value for usize {
    fn value(self) -> f64 {
        self as f64
    }
}

impl Value for f64 {
    fn value(self) -> f64 {
        self
    }
}

impl Value for bool {
    fn value(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// Nanoseconds as the seconds of a metric.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Families {
    /// A count that only grows.
    pub(crate) fn counter(&mut self, name: &'static str, help: &'static str, value: impl Value) {
        self.counters((name, help, []), [([], value)]);
    }

    /// Counts that only grow, by labels.
    pub(crate) fn counters<const N: usize, V: Value>(
        &mut self,
        about: About<N>,
        values: impl IntoIterator<Item = ([String; N], V)>,
    ) {
        for (labels, value) in values {
            let mut counter = Counter::default();
            counter.set_value(value.value());
            let metric = self.metric(&about, MetricType::COUNTER, labels);
            metric.set_counter(counter);
        }
    }

    /// A figure of this moment.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Value) {
        self.gauges((name, help, []), [([], value)]);
    }

    /// Figures of this moment, by labels.
    pub(crate) fn gauges<const N: usize, V: Value>(
        &mut self,
        about: About<N>,
        values: impl IntoIterator<Item = ([String; N], V)>,
    ) {
        for (labels, value) in values {
            let mut gauge = Gauge::default();
            gauge.set_value(value.value());
            let metric = self.metric(&about, MetricType::GAUGE, labels);
            metric.set_gauge(gauge);
        }
    }

    /// Histograms, by labels.
    pub(crate) fn histograms<'a, const N: usize>(
        &mut self,
        about: About<N>,
        values: impl IntoIterator<Item = ([String; N], &'a Latency)>,
    ) {
        for (labels, latency) in values {
            let mut seen = 0;
            let mut cumulative = Vec::new();
            // A bucket for each power of two is enough here.
            for (end, count) in latency.octaves() {
                seen += count;
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(end.as_secs_f64());
                bucket.set_cumulative_count(seen);
                cumulative.push(bucket);
            }
            // The last one has no end.
            cumulative.pop();
            let mut histogram = Histogram::default();
            histogram.set_bucket(cumulative);
            histogram.set_sample_count(seen);
            histogram.set_sample_sum(latency.sum.as_secs_f64());
            self.metric(&about, MetricType::HISTOGRAM, labels).set_histogram(histogram);
        }
    }

    fn metric<const N: usize>(
        &mut self,
        (name, help, names): &About<N>,
        kind: MetricType,
        values: [String; N],
    ) -> &mut Metric {
        let family = self.0.entry(name).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name((*name).to_owned());
            family.set_help((*help).to_owned());
            family.set_field_type(kind);
            family
        });
        let labels = names.iter().zip(values).map(|(name, value)| {
            let mut label = LabelPair::default();
            label.set_name((*name).to_owned());
            label.set_value(value);
            label
        });
        let metrics = family.mut_metric();
        metrics.push(Metric::from_label(labels.collect()));
        metrics.last_mut().expect("it was pushed")
    }

    /// All of them as Prometheus reads them (text format 0.0.4).
    pub(crate) fn text(self) -> Result<String> {
        TextEncoder::new().encode_to_string(&self.0.into_values().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use esker_base::latency;

    use super::*;

    #[test]
    fn label_value_ends_neither_itself_nor_its_line() {
        for (value, shown) in [
            ("/dev/sda", "/dev/sda"),
            ("a\"} 7\nforged 1", "a\\\"} 7\\nforged 1"),
            ("back\\slash", "back\\\\slash"),
        ] {
            let mut families = Families::default();
            families.gauges(("one", "One", ["name"]), [([value.to_owned()], 1u64)]);
            let text = families.text().unwrap();
            assert!(text.contains(&format!("one{{name=\"{shown}\"}} 1\n")), "{text}");
            assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 1, "{text}");
        }
    }

    #[test]
    fn families_of_one_name_are_one_and_empty_ones_are_left_out() {
        let mut families = Families::default();
        families.counters(("a_total", "A", ["of"]), [(["x".to_owned()], 1u64)]);
        families.counter("b_total", "B", 2u64);
        families.counters(("a_total", "A", ["of"]), [(["y".to_owned()], 3u64)]);
        families.counters(("c_total", "C", ["of"]), Vec::<([String; 1], u64)>::new());
        let text = "# HELP a_total A\n# TYPE a_total counter\na_total{of=\"x\"} 1\na_total{of=\"y\"} 3\n\
                    # HELP b_total B\n# TYPE b_total counter\nb_total 2\n";
        assert_eq!(families.text().unwrap(), text);
    }

    #[test]
    fn buckets_add_up_and_the_last_is_open() {
        let mut families = Families::default();
        let histogram = latency::Histogram::default();
        for us in [1, 1, 700, 100_000_000] {
            histogram.add(Duration::from_micros(us));
        }
        families.histograms(("h_seconds", "H", []), [([], &histogram.snapshot())]);
        let text = families.text().unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        // Powers of two from 256 ns on: two times are in the third bucket, one in the thirteenth, one is beyond the last.
        let seen = |octave: i32| [0, 2, 3][usize::from(octave > 1) + usize::from(octave > 11)];
        let bucket = |octave: i32| {
            let end = 256e-9 * 2f64.powi(octave);
            format!("h_seconds_bucket{{le=\"{end}\"}} {}", seen(octave))
        };
        let rest =
            ["h_seconds_bucket{le=\"+Inf\"} 4", "h_seconds_sum 100.000702", "h_seconds_count 4"];
        let expected: Vec<String> = (0..28).map(bucket).chain(rest.map(str::to_owned)).collect();
        assert_eq!(samples, expected);
    }
}
