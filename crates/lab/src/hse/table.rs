//! The rows of the tables of the report.

use esker_base::units::human_bytes;
use esker_kv::MediaClass;

use super::beside::Beside;
use super::machine::Arm;
use super::phase::{Decider, Phase};
use super::report::{HseFigures, Row};
use crate::Spread;
use crate::text::span;

/// The heads of the tables.
pub(super) const RATES: [&str; 8] = [
    "workload",
    "arm",
    "ops/s",
    "reads, p99.9",
    "processors",
    "busiest class",
    "of its rates",
    "decided",
];
pub(super) const LATENCIES: [&str; 6] = ["workload", "operation", "arm", "mean", "p99", "p99.9"];
pub(super) const BYTES: [&str; 8] = [
    "workload",
    "arm",
    "user",
    "capacity",
    "staging",
    "capacity per byte",
    "media/host",
    "life used, capacity",
];
pub(super) const BESIDE: [&str; 6] =
    ["workload", "Esker", "throughput", "reads, p99.9", "bytes written", "compared"];
pub(super) const STREAMS: [&str; 5] = ["arm", "class", "stream", "written", "read"];

impl HseFigures {
    /// Rates and latencies, in the order of [`RATES`].
    pub(super) fn rate_rows(&self) -> Vec<Vec<String>> {
        self.rows.iter().map(rate_row).collect()
    }

    /// The engine over RocksDB, in the order of [`BESIDE`].
    pub(super) fn beside_rows(&self) -> Vec<Vec<String>> {
        self.beside.iter().map(beside_row).collect()
    }

    /// How RocksDB was opened, if it was.
    pub(super) fn peer(&self) -> Option<&str> {
        let run = self.runs.iter().find(|run| run.arm == Arm::Rocksdb)?;
        run.remarks.first().map(String::as_str)
    }

    /// Latencies of the first round, in the order of [`LATENCIES`].
    pub(super) fn latency_rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (workload, phases) in self.first_rounds() {
            for operation in ["read", "update", "insert", "rmw", "scan"] {
                for (arm, phase) in &phases {
                    let Some(latency) = phase.latency(operation) else { continue };
                    let figures = [latency.mean_us, latency.p99_us, latency.p999_us].map(span);
                    let name = [workload.to_owned(), operation.to_owned(), arm.to_string()];
                    rows.push(name.into_iter().chain(figures).collect());
                }
            }
        }
        rows
    }

    /// Bytes of the first round, in the order of [`BYTES`].
    pub(super) fn byte_rows(&self) -> Vec<Vec<String>> {
        let phases = self.first_rounds();
        let each = phases.iter().flat_map(|(workload, phases)| {
            phases.iter().map(move |(arm, phase)| byte_row(workload, *arm, phase))
        });
        each.collect()
    }

    /// Bytes of the load by stream in the first round, in the order of [`STREAMS`].
    pub(super) fn stream_rows(&self) -> Vec<Vec<String>> {
        let phases = self.first_rounds();
        let Some((_, load)) = phases.first() else { return Vec::new() };
        let each = load.iter().flat_map(|(arm, phase)| {
            phase.streams.iter().map(move |one| {
                vec![
                    arm.to_string(),
                    one.class.to_string(),
                    one.stream.clone(),
                    human_bytes(one.written_bytes),
                    human_bytes(one.read_bytes),
                ]
            })
        });
        each.collect()
    }

    /// Each workload of the first round in both arms.
    pub(super) fn first_rounds(&self) -> Vec<(&str, Vec<(Arm, &Phase)>)> {
        let first: Vec<_> = self.runs.iter().filter(|run| run.round == 0).collect();
        let names = first.first().map_or(&[][..], |run| &run.phases[..]);
        let each = names.iter().enumerate().map(|(index, phase)| {
            let arms = first.iter().filter_map(|run| Some((run.arm, run.phases.get(index)?)));
            let arms = arms.collect();
            (phase.workload.as_str(), arms)
        });
        each.collect()
    }
}

fn rate_row(row: &Row) -> Vec<String> {
    let cell = |spread: &Option<Spread>, of: &dyn Fn(&Spread) -> String| {
        spread.as_ref().map_or_else(String::new, of)
    };
    let percent = |spread: &Spread| format!("{:.0} %", 100.0 * spread.median);
    let rate = |spread: &Spread| {
        let k = |value: f64| value / 1e3;
        let Spread { median, least, most } = spread;
        match least == most {
            true => format!("{:.1} k", k(*median)),
            false => format!("{:.1} k ({:.1} to {:.1})", k(*median), k(*least), k(*most)),
        }
    };
    let tail = |spread: &Spread| span(spread.median);
    let mut deciders: Vec<&str> = row.deciders.iter().map(|one: &Decider| one.name()).collect();
    deciders.dedup();
    vec![
        row.workload.clone(),
        row.arm.to_string(),
        cell(&row.ops_per_s, &rate),
        cell(&row.read_p999_us, &tail),
        cell(&row.processors, &percent),
        cell(&row.busiest_class, &percent),
        cell(&row.of_rates, &percent),
        deciders.join(", "),
    ]
}

fn beside_row(one: &Beside) -> Vec<String> {
    let ratio = |value: Option<f64>| value.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let compared = if one.is_comparable { "yes" } else { "no: processors decided" };
    vec![
        one.workload.clone(),
        one.arm.to_string(),
        ratio(Some(one.throughput)),
        ratio(one.read_p999),
        ratio(one.written),
        compared.to_owned(),
    ]
}

fn byte_row(workload: &str, arm: Arm, phase: &Phase) -> Vec<String> {
    let of = |class| human_bytes(phase.written_bytes(class));
    let capacity = phase.drives.iter().filter(|one| one.class == MediaClass::Capacity);
    let life = capacity.clone().filter_map(|one| one.life_percent).reduce(f64::max);
    let media: Option<u64> = capacity.map(|one| one.media_written_bytes).sum();
    let host = phase.written_bytes(MediaClass::Capacity);
    #[allow(clippy::cast_precision_loss)] // a ratio of byte counts
    let amplification = media.filter(|_| host > 0).map(|media| media as f64 / host as f64);
    let per_byte = phase.per_user_byte(MediaClass::Capacity);
    vec![
        workload.to_owned(),
        arm.to_string(),
        human_bytes(phase.user_bytes),
        of(MediaClass::Capacity),
        of(MediaClass::Staging),
        per_byte.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        amplification.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        life.map_or_else(String::new, |percent| format!("{percent:.3} %")),
    ]
}
