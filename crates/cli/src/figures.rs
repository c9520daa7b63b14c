//! Numbers for people, and tables of them within 100 columns.

use std::fmt::Write as _;

pub(crate) use esker_base::units::{bound, grouped};
use esker_bench::RunResult;
use esker_report::text;

/// A count or a rate in three digits: `1.23 M`, `456 k`, `78`.
pub(crate) fn short(number: f64) -> String {
    const UNITS: [&str; 4] = ["", " k", " M", " G"];
    let (mut value, mut unit) = (number, 0);
    // Rounding must not make 999.6 k of 1000 k.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 && value.fract() == 0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// Microseconds from nanoseconds, with the digits that matter.
pub(crate) fn micros(ns: f64) -> String {
    let us = ns / 1e3;
    match us {
        us if us < 9.995 => format!("{us:.2}"),
        us if us < 99.95 => format!("{us:.1}"),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^53
        us => grouped(us.round() as u64),
    }
}

/// The cells of a head.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Columns as wide as their widest cell: the first `words` to the left, numbers to the right.
pub(crate) fn align(rows: &[Vec<String>], words: usize) -> String {
    text::aligned("", rows, |column| column < words)
}

/// Text after a `label`, in lines that fit, the others indented.
pub(crate) fn wrapped(label: &str, indent: usize, text: &str) -> String {
    text::wrapped(&format!("{label:<indent$}"), &" ".repeat(indent), text)
}

/// Throughput and latency of runs: a line for each kind of operation, and a second one for
/// latencies from the intended start where the rate was fixed.
pub(crate) fn runs_table(runs: &[RunResult]) -> String {
    let header = [
        "workload",
        "operation",
        "share",
        "ops/s",
        "p50 µs",
        "p95 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for run in runs {
        for (index, operation) in run.by_operation.iter().enumerate() {
            let first = index == 0;
            let share = run.workload.proportion(operation.operation) * 100.0;
            let measured = [
                (operation.operation.name(), operation.latency.as_ref()),
                ("  intended", operation.intended_latency.as_ref()),
            ];
            for (label, latency) in measured {
                let is_intended = label != operation.operation.name();
                if is_intended && latency.is_none() {
                    continue;
                }
                let when = |wanted: bool, text: String| if wanted { text } else { String::new() };
                let mut row = vec![
                    when(first && !is_intended, run.workload.name.clone()),
                    label.to_owned(),
                    when(!is_intended, format!("{share:.0} %")),
                    when(first && !is_intended, short(run.ops_per_s)),
                ];
                row.extend(match latency {
                    Some(l) => [l.p50_ns, l.p95_ns, l.p99_ns, l.p999_ns, l.max_ns]
                        .map(|ns| micros(ns as f64)),
                    None => std::array::from_fn(|_| "-".to_owned()),
                });
                rows.push(row);
            }
        }
    }
    align(&rows, 2)
}

/// Remarks that a reader of the table must not miss.
pub(crate) fn remarks(runs: &[RunResult]) -> String {
    let mut text = String::new();
    for run in runs {
        let counted = [
            (run.wrong_values, "operations returned something else than was written"),
            (run.errors, "operations failed"),
            (run.not_found, "reads or scans found nothing"),
            (
                run.unstarted_operations,
                "operations of the fixed rate never started: the store was too slow",
            ),
        ];
        for (count, what) in counted.iter().filter(|(count, _)| *count > 0) {
            let _ = writeln!(text, "{}: {} {what}", run.workload.name, grouped(*count));
        }
        if run.interrupted {
            let _ = writeln!(text, "{}: ended early", run.workload.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let numbers = [0.0, 7.0, 7.126, 999.4, 999.6, 12_345.0, 999_600.0, 1_234_567.0, 5e12];
        let expected = ["0", "7", "7.13", "999", "1.00 k", "12.3 k", "1.00 M", "1.23 M", "5000 G"];
        assert_eq!(numbers.map(short), expected);
        let spans = [10.0, 9_994.0, 9_996.0, 123_456.0, 1_234_567.0];
        assert_eq!(spans.map(micros), ["0.01", "9.99", "10.0", "123", "1,235"]);
    }

    #[test]
    fn long_text_is_broken_between_words_and_indented() {
        let text = wrapped("a: ", 3, &"word ".repeat(30));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("a: word") && lines[1].starts_with("   word"), "{text}");
        assert!(lines[0].len() <= text::WIDTH && lines[0].len() > text::WIDTH - 5, "{text}");
    }

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [vec!["a".to_owned(), "10".into()], vec!["bcd".to_owned(), "5".into()]];
        assert_eq!(align(&rows, 1), "a    10\nbcd   5\n");
    }
}
