//! Workloads: mixes of operations, with the presets of YCSB's core package.

use esker_base::Rng;
use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::distribution::Distribution;
use crate::key::{KeyFormat, MAX_ZERO_PADDING};
use crate::operation::OperationKind;
use crate::value::ValueFormat;
use crate::zipf::DEFAULT_THETA;

/// The records a store is loaded with, and the form of all records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// How many records the load inserts.
    pub records: u64,
    /// Keys.
    pub keys: KeyFormat,
    /// Values.
    pub values: ValueFormat,
}

impl Dataset {
    /// # Errors
    /// [`BenchError::Invalid`] for formats no key or value can have.
    pub(crate) fn validate(&self) -> Result<(), BenchError> {
        if self.keys.zero_padding > MAX_ZERO_PADDING {
            return Err(BenchError::invalid(format!(
                "keys padded to {} digits; at most {MAX_ZERO_PADDING} are possible",
                self.keys.zero_padding
            )));
        }
        if self.values.compressible_percent > 100 {
            return Err(BenchError::invalid(format!(
                "{} % of a value cannot be compressible; give 0 to 100",
                self.values.compressible_percent
            )));
        }
        if self.values.bytes() > u64::from(u32::MAX) {
            return Err(BenchError::invalid(format!(
                "values of {} bytes; at most {} are possible",
                self.values.bytes(),
                u32::MAX
            )));
        }
        Ok(())
    }
}

/// A mix of operations over a data set. Proportions add up to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The workload's name in reports.
    pub name: String,
    /// The proportion of reads.
    pub read: f64,
    /// The proportion of updates.
    pub update: f64,
    /// The proportion of inserts.
    pub insert: f64,
    /// The proportion of scans.
    pub scan: f64,
    /// The proportion of read-modify-writes.
    pub read_modify_write: f64,
    /// Which records are asked for.
    pub request: Distribution,
    /// The fewest records a scan asks for.
    pub min_scan_length: u64,
    /// The most records a scan asks for; lengths are uniform between the two.
    pub max_scan_length: u64,
}

impl Workload {
    /// The load: inserts only.
    #[must_use]
    pub fn load() -> Workload {
        Workload {
            name: "load".to_owned(),
            read: 0.0,
            update: 0.0,
            insert: 1.0,
            scan: 0.0,
            read_modify_write: 0.0,
            request: Distribution::Uniform,
            min_scan_length: 1,
            max_scan_length: 100,
        }
    }

    /// YCSB A, update heavy: half reads, half updates, zipfian.
    #[must_use]
    pub fn a() -> Workload {
        Workload { read: 0.5, update: 0.5, ..Workload::zipfian("A") }
    }

    /// YCSB B, read mostly: 95 % reads, 5 % updates, zipfian.
    #[must_use]
    pub fn b() -> Workload {
        Workload { read: 0.95, update: 0.05, ..Workload::zipfian("B") }
    }

    /// YCSB C, read only, zipfian.
    #[must_use]
    pub fn c() -> Workload {
        Workload { read: 1.0, ..Workload::zipfian("C") }
    }

    /// YCSB D, read latest: 95 % reads, 5 % inserts.
    #[must_use]
    pub fn d() -> Workload {
        Workload {
            read: 0.95,
            insert: 0.05,
            request: Distribution::Latest { theta: DEFAULT_THETA },
            ..Workload::zipfian("D")
        }
    }

    /// YCSB E, short ranges: 95 % scans of 1 to 100 records, 5 % inserts, zipfian.
    #[must_use]
    pub fn e() -> Workload {
        Workload { scan: 0.95, insert: 0.05, ..Workload::zipfian("E") }
    }

    /// YCSB F: half reads, half read-modify-writes, zipfian.
    #[must_use]
    pub fn f() -> Workload {
        Workload { read: 0.5, read_modify_write: 0.5, ..Workload::zipfian("F") }
    }

    /// The six workloads of YCSB's core package, A to F.
    #[must_use]
    pub fn core() -> [Workload; 6] {
        [Workload::a(), Workload::b(), Workload::c(), Workload::d(), Workload::e(), Workload::f()]
    }

    /// The preset of this name: `load` or `a` to `f`, in either case.
    #[must_use]
    pub fn preset(name: &str) -> Option<Workload> {
        std::iter::once(Workload::load())
            .chain(Workload::core())
            .find(|workload| workload.name.eq_ignore_ascii_case(name))
    }

    /// The proportion of one kind of operation.
    #[must_use]
    pub fn proportion(&self, kind: OperationKind) -> f64 {
        match kind {
            OperationKind::Read => self.read,
            OperationKind::Update => self.update,
            OperationKind::Insert => self.insert,
            OperationKind::Scan => self.scan,
            OperationKind::ReadModifyWrite => self.read_modify_write,
        }
    }

    fn zipfian(name: &str) -> Workload {
        Workload {
            name: name.to_owned(),
            insert: 0.0,
            request: Distribution::ScrambledZipfian { theta: DEFAULT_THETA },
            ..Workload::load()
        }
    }

    /// # Errors
    /// [`BenchError::Invalid`] when the proportions do not add up, a skew is out of range, or
    /// scan lengths are empty.
    pub(crate) fn validate(&self) -> Result<(), BenchError> {
        let invalid =
            |what: String| Err(BenchError::invalid(format!("workload '{}': {what}", self.name)));
        let proportions = OperationKind::ALL.map(|kind| self.proportion(kind));
        if let Some(wrong) = proportions.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return invalid(format!("a proportion of {wrong}; give 0 to 1"));
        }
        let sum: f64 = proportions.iter().sum();
        if (sum - 1.0).abs() > 1e-6 {
            return invalid(format!("the proportions add up to {sum}, not to 1"));
        }
        if let Some(theta) = self.request.theta()
            && !(theta > 0.0 && theta < 1.0)
        {
            return invalid(format!("a skew of {theta}; give one between 0 and 1"));
        }
        if self.min_scan_length == 0 || self.min_scan_length > self.max_scan_length {
            return invalid(format!(
                "scans of {} to {} records; give at least 1, and the smaller number first",
                self.min_scan_length, self.max_scan_length
            ));
        }
        Ok(())
    }
}

/// Draws kinds of operations in their proportions.
#[derive(Clone, Debug)]
pub(crate) struct Mix(Vec<(f64, OperationKind)>);

impl Mix {
    pub(crate) fn new(workload: &Workload) -> Mix {
        let mut upper = 0.0;
        let present =
            OperationKind::ALL.into_iter().filter(|&kind| workload.proportion(kind) > 0.0);
        Mix(present
            .map(|kind| {
                upper += workload.proportion(kind);
                (upper, kind)
            })
            .collect())
    }

    pub(crate) fn choose(&self, rng: &mut Rng) -> OperationKind {
        let (&(_, last), others) = self.0.split_last().expect("a validated workload");
        if others.is_empty() {
            return last;
        }
        let at = rng.unit();
        let chosen = others.iter().find(|(upper, _)| at < *upper);
        chosen.map_or(last, |&(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_those_of_ycsb_core() {
        use OperationKind::{Insert, Read, ReadModifyWrite, Scan, Update};
        let expected = [
            ("A", Read, 0.5, Update, 0.5),
            ("B", Read, 0.95, Update, 0.05),
            ("C", Read, 1.0, Read, 1.0),
            ("D", Read, 0.95, Insert, 0.05),
            ("E", Scan, 0.95, Insert, 0.05),
            ("F", Read, 0.5, ReadModifyWrite, 0.5),
        ];
        for (workload, (name, one, p, other, q)) in Workload::core().into_iter().zip(expected) {
            workload.validate().unwrap();
            assert_eq!(workload.name, name);
            assert_eq!((workload.proportion(one), workload.proportion(other)), (p, q));
            let latest = matches!(workload.request, Distribution::Latest { .. });
            assert_eq!(latest, name == "D");
            assert_eq!(workload.request.theta(), Some(0.99));
            assert_eq!((workload.min_scan_length, workload.max_scan_length), (1, 100));
        }
        assert_eq!(Workload::preset("Load"), Some(Workload::load()));
        assert_eq!(Workload::preset("f").unwrap().name, "F");
        assert_eq!(Workload::preset("g"), None);
    }

    /// Bound: 4 standard deviations of a binomial of 100,000.
    #[test]
    fn a_mix_keeps_its_proportions() {
        let workload = Workload {
            read: 0.6,
            update: 0.0,
            insert: 0.1,
            scan: 0.25,
            read_modify_write: 0.05,
            ..Workload::load()
        };
        let mix = Mix::new(&workload);
        let mut counts = [0u32; 5];
        let mut rng = Rng::new(2);
        for _ in 0..100_000 {
            counts[mix.choose(&mut rng).index()] += 1;
        }
        for kind in OperationKind::ALL {
            let p = workload.proportion(kind);
            let difference = (f64::from(counts[kind.index()]) - 100_000.0 * p).abs();
            assert!(difference <= 4.0 * (100_000.0 * p * (1.0 - p)).sqrt());
        }
    }

    #[test]
    fn impossible_workloads_are_refused_with_a_reason() {
        let refused = |workload: Workload, why: &str| {
            let message = workload.validate().unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        };
        let a = Workload::a;
        refused(Workload { read: 0.4, ..a() }, "add up to 0.9");
        refused(Workload { read: f64::NAN, ..a() }, "a proportion of NaN");
        refused(Workload { read: -0.5, update: 1.5, ..a() }, "a proportion of");
        let request = Distribution::Latest { theta: 1.0 };
        refused(Workload { request, ..a() }, "a skew of 1");
        refused(Workload { min_scan_length: 0, ..a() }, "scans of 0 to 100");
    }
}
