//! A report as plain text, 100 columns wide.

use std::fmt::Write as _;

use esker_base::units::human_bytes;

use crate::result::{Latency, Report, RunResult, Series};
use crate::store::Unit;
use crate::zipf::floor;

const HEADER: [&str; 10] = [
    "workload",
    "ops",
    "ops/s",
    "latency in µs",
    "mean",
    "p50",
    "p95",
    "p99",
    "p99.9",
    "max",
];

impl Report {
    /// The table of all runs: one line for each kind of operation, a second one for latencies from
    /// the intended start under a fixed rate; then remarks on what a reader must not miss.
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
        let mut text = align(&rows);
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
            push(format!("{name}, intended"), Some(intended));
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

/// What a reader of a run's figures has to know besides.
pub(crate) fn remarks_of(run: &RunResult) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut count = |n: u64, what: &str| {
        if n > 0 {
            remarks.push(format!("{} {what}", grouped(n)));
        }
    };
    count(
        run.wrong_values,
        "operations returned something else than was written",
    );
    count(run.errors, "operations failed");
    count(run.not_found, "reads or scans found nothing");
    count(
        run.unstarted_operations,
        "operations that the target rate asked for never started: the store was too slow",
    );
    if run.interrupted {
        remarks.push("ended early".to_owned());
    }
    let user = run.user_bytes_written;
    for series in &run.series {
        if let Some(line) = increase(series, run.operations, user) {
            remarks.push(line);
        }
    }
    remarks
}

/// A counter's increase, in total and against what the user did.
fn increase(series: &Series, operations: u64, user_bytes: u64) -> Option<String> {
    let increase = series.increase().filter(|&n| n > 0.0)?;
    let each = increase / operations.max(1) as f64;
    let name = &series.name;
    Some(match series.unit {
        Unit::Bytes => {
            let mut line = format!("{name} {}", human_bytes(floor(increase)));
            let _ = write!(line, ", {each:.0} B per operation");
            if user_bytes > 0 {
                let _ = write!(
                    line,
                    ", {:.2} x user bytes written",
                    increase / user_bytes as f64
                );
            }
            line
        }
        Unit::Nanoseconds => format!(
            "{name} {:.3} s, {:.2} µs per operation",
            increase / 1e9,
            each / 1e3
        ),
        Unit::Count | Unit::Ratio => format!(
            "{name} {}, {each:.4} per operation",
            grouped(floor(increase))
        ),
    })
}

/// Microseconds from nanoseconds, with as many digits as matter.
pub(crate) fn micros(ns: f64) -> String {
    let us = ns / 1e3;
    if us < 10.0 {
        format!("{us:.2}")
    } else if us < 1_000.0 {
        format!("{us:.1}")
    } else {
        grouped(floor(us.round()))
    }
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns as wide as their widest cell; words to the left, numbers to the right.
fn align(rows: &[[String; 10]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 10] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = match column {
                0 | 3 => write!(line, "{gap}{cell:<width$}"),
                _ => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
