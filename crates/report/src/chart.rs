//! Charts: what is drawn, with which axes. Their JSON is what `assets/charts.js` draws from.
//!
//! | kind | for | drawn by |
//! | --- | --- | --- |
//! | [`Panels`] | one or more figures over time, below each other with one cursor | uPlot |
//! | [`Curves`] | latency by percentile, miss-ratio curves, cumulative distributions, any other curve | ECharts |
//! | [`Dots`] | figures of few cases beside published ones | no script |
//! | [`Bars`] | sums of parts | ECharts |
//! | [`HeatMap`] | a figure over two kinds of cases | ECharts |

mod bars;
mod curves;
mod dots;
mod panels;

use serde::Serialize;

pub use bars::{Bars, HeatMap};
pub use curves::{Curve, Curves, Draw, Mark};
pub use dots::{Dot, DotRow, Dots};
pub use panels::{Line, Panel, Panels, Span};

use crate::unit::Unit;

/// A chart, with the title that states what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What is to be seen in it, as a sentence.
    pub title: String,
    /// What has to be known to read it; empty for nothing.
    pub note: String,
    /// What is drawn.
    pub kind: Kind,
    /// The command that made it, where that is not the page's.
    pub command: Option<String>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// Figures over time.
    Panels(Panels),
    /// Curves.
    Curves(Curves),
    /// A dot plot.
    Dots(Dots),
    /// Stacked bars.
    Bars(Bars),
    /// A heat map.
    HeatMap(HeatMap),
}

impl Chart {
    /// A chart.
    #[must_use]
    pub fn new(title: impl Into<String>, kind: impl Into<Kind>) -> Chart {
        Chart { title: title.into(), note: String::new(), kind: kind.into(), command: None }
    }

    /// Says what has to be known to read it.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Chart {
        Chart { note: note.into(), ..self }
    }

    /// Whether Apache ECharts draws it.
    pub(crate) fn needs_echarts(&self) -> bool {
        matches!(self.kind, Kind::Curves(_) | Kind::Bars(_) | Kind::HeatMap(_))
    }

    /// Whether uPlot draws it.
    pub(crate) fn needs_uplot(&self) -> bool {
        matches!(self.kind, Kind::Panels(_))
    }
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

/// What an axis reaches over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// The name of what it measures.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// How it runs.
    pub scale: Scale,
    /// What it reaches over; logarithmic ones reach over their data unless this is fixed.
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
