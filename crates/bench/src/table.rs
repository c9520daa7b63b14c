//! A report as plain text, within 100 columns up to 100 million operations a run.

use std::fmt::Write as _;

use esker_base::units::{grouped, human_bytes};
use esker_report::text::aligned;

use crate::result::{Latency, Report, RunResult, Series};
use crate::store::Unit;
use crate::zipf::floor;

const HEADER: [&str; 10] =
    ["workload", "ops", "ops/s", "latency, µs", "mean", "p50", "p95", "p99", "p99.9", "max"];

impl Report {
    /// The table of all runs: one line for each kind of operation, a second one for latencies from
    /// the intended start under a fixed rate; then remarks that a reader must not miss.
    #[must_use]
    pub fn table(&self) -> String {
        let mut rows = vec![HEADER.map(str::to_owned)];
        let mut remarks = String::new();
        for run in &self.runs {
            rows.extend(rows_of(run));
            for remark in remarks_of(run) {
                let _ = writeln!(remarks, "{}: {remark}", run.workload.name);
            }
        }
        let mut text = aligned("", &rows, |column| matches!(column, 0 | 3));
        if !remarks.is_empty() {
            text.push('\n');
            text.push_str(&remarks);
        }
        text
    }
}

fn rows_of(run: &RunResult) -> Vec<[String; 10]> {
    let mut rows: Vec<[String; 10]> = Vec::new();
    for operation in &run.by_operation {
        let name = operation.operation.name();
        let mut push = |label: String, latency: Option<&Latency>| {
            let [workload, ops, rate] = if rows.is_empty() {
                let (name, ops) = (run.workload.name.clone(), grouped(run.operations));
                [name, ops, grouped(floor(run.ops_per_s.round()))]
            } else {
                Default::default()
            };
            let [mean, p50, p95, p99, p999, max] = figures(latency);
            rows.push([workload, ops, rate, label, mean, p50, p95, p99, p999, max]);
        };
        push(name.to_owned(), operation.latency.as_ref());
        if let Some(intended) = &operation.intended_latency {
            push("  intended".to_owned(), Some(intended));
        }
    }
    rows
}

/// Mean, p50, p95, p99, p99.9 and max in microseconds.
pub(crate) fn figures(latency: Option<&Latency>) -> [String; 6] {
    let Some(l) = latency else {
        return std::array::from_fn(|_| "-".to_owned());
    };
    let ns = [l.p50_ns, l.p95_ns, l.p99_ns, l.p999_ns, l.max_ns].map(|ns| ns as f64);
    [l.mean_ns, ns[0], ns[1], ns[2], ns[3], ns[4]].map(micros)
}

/// Remarks that a reader of a run's figures needs.
pub(crate) fn remarks_of(run: &RunResult) -> Vec<String> {
    [warnings_of(run), counters_of(run)].concat()
}

/// Failures and shortfalls of a run.
pub(crate) fn warnings_of(run: &RunResult) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut count = |n: u64, what: &str| {
        if n > 0 {
            remarks.push(format!("{} {what}", grouped(n)));
        }
    };
    count(run.wrong_values, "operations returned something else than was written");
    count(run.errors, "operations failed");
    count(run.not_found, "reads or scans found nothing");
    count(
        run.unstarted_operations,
        "operations that the target rate asked for never started: the store was too slow",
    );
    if run.interrupted {
        remarks.push("ended early".to_owned());
    }
    remarks
}

/// Increases of the store's counters during a run.
pub(crate) fn counters_of(run: &RunResult) -> Vec<String> {
    let user = run.user_bytes_written;
    run.series.iter().filter_map(|series| increase(series, run.operations, user)).collect()
}

/// A counter's increase, in total and against the user's operations and bytes.
fn increase(series: &Series, operations: u64, user_bytes: u64) -> Option<String> {
    let increase = series.increase().filter(|&n| n > 0.0)?;
    let each = increase / operations.max(1) as f64;
    let name = &series.name;
    Some(match series.unit {
        Unit::Bytes => {
            let mut line = format!("{name} {}", human_bytes(floor(increase)));
            let _ = write!(line, ", {each:.0} B per operation");
            if user_bytes > 0 {
                let _ = write!(line, ", {:.2} x user bytes written", increase / user_bytes as f64);
            }
            line
        }
        Unit::Nanoseconds => {
            format!("{name} {:.3} s, {:.2} µs per operation", increase / 1e9, each / 1e3)
        }
        Unit::Count | Unit::Ratio => {
            format!("{name} {}, {each:.4} per operation", grouped(floor(increase)))
        }
    })
}

/// Microseconds from nanoseconds, with as many digits as matter; a second and more as seconds.
pub(crate) fn micros(ns: f64) -> String {
    let us = ns / 1e3;
    if us < 10.0 {
        format!("{us:.2}")
    } else if us < 1_000.0 {
        format!("{us:.1}")
    } else if us < 999_999.5 {
        grouped(floor(us.round()))
    } else if us < 99_950_000.0 {
        format!("{:.2} s", us / 1e6)
    } else {
        format!("{:.0} s", us / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{OperationResult, Settings};
    use crate::{Dataset, OperationKind, Workload};

    fn slow_latency() -> Latency {
        Latency {
            count: 1,
            mean_ns: 998_765_432.0,
            min_ns: 1,
            p50_ns: 876_543_210,
            p95_ns: 999_999_400,
            p99_ns: 99_949_999_999,
            p999_ns: 3_600_000_000_000,
            max_ns: 7_200_000_000_000,
            by_percentile: Vec::new(),
        }
    }

    fn run() -> RunResult {
        let operation = |operation, latency: Option<Latency>| OperationResult {
            operation,
            operations: 0,
            errors: 0,
            not_found: 0,
            wrong_values: 0,
            rows: 0,
            intended_latency: latency.clone(),
            latency,
        };
        RunResult {
            workload: Workload::f(),
            settings: Settings {
                threads: 1,
                operations: None,
                time_limit_ns: None,
                target_ops_per_s: Some(9e6),
                warm_up_ns: 0,
                verify: false,
                seed: 0,
            },
            started_unix_ms: 0,
            elapsed_ns: 1,
            operations: 100_000_000,
            ops_per_s: 9_000_000.0,
            errors: 0,
            not_found: 3,
            wrong_values: 0,
            unstarted_operations: 0,
            interrupted: true,
            user_bytes_written: 1_000,
            user_bytes_read: 0,
            sync_ns: 0,
            records_before: 0,
            records_after: 0,
            by_operation: vec![
                operation(OperationKind::Read, None),
                operation(OperationKind::ReadModifyWrite, Some(slow_latency())),
            ],
            intervals: Vec::new(),
            series: Vec::new(),
        }
    }

    #[test]
    fn a_table_of_large_figures_fits_100_columns() {
        let mut report = Report::new("t", Dataset::default());
        report.runs = vec![RunResult { workload: Workload::load(), ..run() }];
        let text = report.table();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?}\n{text}");
        assert!(text.contains("  intended  "));
    }

    #[test]
    fn a_kind_without_operations_has_dashes() {
        let mut report = Report::new("t", Dataset::default());
        report.runs = vec![run()];
        let text = report.table();
        let read = text.lines().nth(1).unwrap();
        let cells: Vec<&str> = read.split_whitespace().skip(3).collect();
        assert_eq!(cells, ["read", "-", "-", "-", "-", "-", "-"]);
        assert!(text.contains("F: 3 reads or scans found nothing\nF: ended early\n"));
        assert!(report.html().contains(">-</td>"));
    }

    #[test]
    fn figures_keep_the_digits_that_matter() {
        let ns = [12.0, 9_994.0, 99_951.0, 999_960.0, 1_234_567.0, 2.5e9, 3.6e12];
        let texts = ns.map(micros);
        let expected = ["0.01", "9.99", "100.0", "1000.0", "1,235", "2.50 s", "3600 s"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_counter_is_set_against_operations_and_user_bytes() {
        let series = |unit, last| Series {
            name: "wal".to_owned(),
            unit,
            counter: true,
            points: [5.0, last].map(|value| crate::result::Point { at_ns: 0, value }).to_vec(),
        };
        let line = increase(&series(Unit::Bytes, 2_005.0), 10, 1_000);
        assert_eq!(
            line.as_deref(),
            Some("wal 1.95 KiB, 200 B per operation, 2.00 x user bytes written")
        );
        let line = increase(&series(Unit::Nanoseconds, 1e9 + 5.0), 1_000, 0);
        assert_eq!(line.as_deref(), Some("wal 1.000 s, 1000.00 µs per operation"));
        assert_eq!(increase(&series(Unit::Count, 5.0), 10, 0), None);
    }
}
