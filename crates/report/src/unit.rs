//! How figures are written: with the digits that matter and their unit. `assets/charts.js` writes the same.

use serde::{Deserialize, Serialize};

/// The unit of an axis or of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number with up to three digits after the point.
    Plain,
    /// A number of things: `1.2 k`.
    Count,
    /// Things a second: `1.2 k/s`.
    Rate,
    /// Bytes: `1.5 MiB`.
    Bytes,
    /// Bytes a second: `1.5 MiB/s`.
    BytesRate,
    /// Nanoseconds, shown as ns, µs, ms or s.
    Nanoseconds,
    /// Seconds.
    Seconds,
    /// A share, from 0 to 100.
    Percent,
    /// A ratio with two decimals: `1.84`.
    Factor,
    /// A ratio with three decimals: `1.004`.
    FineFactor,
}

impl Unit {
    /// A figure with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Plain => plain(value, 3),
            Unit::Count => steps(value, &["", " k", " M", " G", " T"], 1000.0),
            Unit::Rate => steps(value, &["/s", " k/s", " M/s", " G/s", " T/s"], 1000.0),
            Unit::Bytes => steps(value, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024.0),
            Unit::BytesRate => {
                steps(value, &[" B/s", " KiB/s", " MiB/s", " GiB/s", " TiB/s"], 1024.0)
            }
            Unit::Nanoseconds if value >= 1e9 => format!("{} s", digits(value / 1e9)),
            Unit::Nanoseconds => steps(value, &[" ns", " µs", " ms"], 1000.0),
            Unit::Seconds => format!("{} s", plain(value, 3)),
            Unit::Percent => format!("{} %", plain(value, 1)),
            Unit::Factor => format!("{value:.2}"),
            Unit::FineFactor => format!("{value:.3}"),
        }
    }

    /// Returns the text in the head of a column of bare numbers, after the name of the figure.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Unit::Plain | Unit::Count | Unit::Factor | Unit::FineFactor => "",
            Unit::Rate => " (per second)",
            Unit::Bytes => " (bytes)",
            Unit::BytesRate => " (bytes per second)",
            Unit::Nanoseconds => " (ns)",
            Unit::Seconds => " (s)",
            Unit::Percent => " (%)",
        }
    }
}

/// A value in the largest step in which it is 1 at least, in three digits.
fn steps(value: f64, units: &[&str], base: f64) -> String {
    let (mut rest, mut unit) = (value.abs(), 0);
    // Rounding must not make 999.6 k of 1000 k.
    while rest >= base * 0.9995 && unit + 1 < units.len() {
        rest /= base;
        unit += 1;
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}{}", digits(rest), units[unit])
}

/// Three digits, or all of those before the point, without zeroes at the end.
fn digits(value: f64) -> String {
    plain(
        value,
        if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        },
    )
}

/// So many decimals at most, none of them a zero at the end; commas between thousands.
fn plain(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let sign = if value < 0.0 && text.contains(|c| ('1'..='9').contains(&c)) { "-" } else { "" };
    let whole = grouped(whole);
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_the_digits_that_matter() {
        let shown = [
            (Unit::Plain, 1234.5678, "1,234.568"),
            (Unit::Plain, -0.0001, "0"),
            (Unit::Count, 999_600.0, "1 M"),
            (Unit::Count, 1_234.0, "1.23 k"),
            (Unit::Rate, 52_340.0, "52.3 k/s"),
            (Unit::Bytes, 1023.0, "1,023 B"),
            (Unit::Bytes, 1536.0, "1.5 KiB"),
            (Unit::BytesRate, 0.0, "0 B/s"),
            (Unit::Nanoseconds, 850.0, "850 ns"),
            (Unit::Nanoseconds, 71_900.0, "71.9 µs"),
            (Unit::Nanoseconds, 2.5e9, "2.5 s"),
            (Unit::Percent, 12.34, "12.3 %"),
            (Unit::Percent, -40.0, "-40 %"),
            (Unit::Factor, 1.8399, "1.84"),
            (Unit::Seconds, 0.25, "0.25 s"),
        ];
        for (unit, value, text) in shown {
            assert_eq!(unit.show(value), text, "{unit:?} {value}");
        }
    }
}
