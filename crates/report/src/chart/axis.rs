//! Axes, and how lines are told apart.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// How an axis runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By factors of ten, with a label at each.
    Log,
    /// By factors of two; for sizes in bytes.
    Log2,
    /// By "one in so many", labelled as the percentile that is: 2 is 50 %, 10 is 90 %, 100 is 99 %.
    Percentile,
}

/// The range of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Range {
    /// From zero to a little above the greatest.
    #[default]
    Zero,
    /// From the least to the greatest.
    Data,
    /// From one to another.
    Fixed(f64, f64),
}

/// An axis: a name, a unit, and how it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The name of the measured quantity.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// How it runs.
    pub scale: Scale,
    /// The range; logarithmic axes reach over their data unless this is fixed.
    pub range: Range,
}

impl Axis {
    /// An axis that runs evenly from zero.
    #[must_use]
    pub fn linear(name: impl Into<String>, unit: Unit) -> Axis {
        Axis { name: name.into(), unit, scale: Scale::Linear, range: Range::Zero }
    }

    /// An axis by factors of ten.
    #[must_use]
    pub fn log(name: impl Into<String>, unit: Unit) -> Axis {
        Axis { scale: Scale::Log, range: Range::Data, ..Axis::linear(name, unit) }
    }

    /// Sizes in bytes by factors of two.
    #[must_use]
    pub fn sizes(name: impl Into<String>) -> Axis {
        Axis { scale: Scale::Log2, range: Range::Data, ..Axis::linear(name, Unit::Bytes) }
    }

    /// Latencies in nanoseconds by factors of ten.
    #[must_use]
    pub fn latency_ns(name: impl Into<String>) -> Axis {
        Axis::log(name, Unit::Nanoseconds)
    }

    /// Seconds.
    #[must_use]
    pub fn seconds() -> Axis {
        Axis { range: Range::Data, ..Axis::linear("time", Unit::Seconds) }
    }

    /// The same axis over another range.
    #[must_use]
    pub fn over(self, range: Range) -> Axis {
        Axis { range, ..self }
    }
}

/// The number of line styles: six colours, each with three dashes.
pub(crate) const COLOURS: usize = 6;

/// The dashes of a series: none for the first six, and other ones for each six after them.
pub(crate) fn dashes(index: usize) -> &'static str {
    ["", "8 4", "2 3"][index / COLOURS % 3]
}
