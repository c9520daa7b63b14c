//! Curves over any axis, logarithmic ones too.

use serde::{Deserialize, Serialize};

use super::axis::{Axis, Range, Scale};
use crate::unit::Unit;

/// Curves in one plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Values of x that are marked.
    pub marks: Vec<Mark>,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// From point to point.
    Line,
    /// The same, dashed.
    Dashed,
    /// From point to point, with the points themselves.
    Points,
    /// Level until the next point.
    Step,
    /// The points only: nothing is known between them.
    Marks,
    /// Hollow points only: published figures.
    Hollow,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its points, by rising x.
    pub points: Vec<(f64, f64)>,
    /// The least and the greatest value at each point, between which is shaded; empty for nothing.
    pub band: Vec<(f64, f64)>,
    /// How it is drawn.
    pub draw: Draw,
    /// The colour, counted from zero; the curve's place among its chart's where none is given.
    pub colour: Option<usize>,
}

/// A value of x that is marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// The name of the mark, with its figure: it stands in the legend.
    pub name: String,
}

impl Curve {
    /// A line from point to point.
    #[must_use]
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Curve {
        Curve::new(name, Draw::Line, points)
    }

    /// A curve that is drawn in some way.
    #[must_use]
    pub fn new(name: impl Into<String>, draw: Draw, points: Vec<(f64, f64)>) -> Curve {
        Curve { name: name.into(), points, band: Vec::new(), draw, colour: None }
    }
}

impl Curves {
    /// Curves without marks.
    #[must_use]
    pub fn new(x: Axis, y: Axis, curves: Vec<Curve>) -> Curves {
        Curves { x, y, curves, marks: Vec::new() }
    }

    /// Latency by percentile: a point's x is "one operation in so many took longer than y".
    #[must_use]
    pub fn percentiles(y: Axis, curves: Vec<Curve>) -> Curves {
        let x = Axis {
            name: "share of operations that took no longer".to_owned(),
            unit: Unit::Plain,
            scale: Scale::Percentile,
            range: Range::Data,
        };
        Curves::new(x, y, curves)
    }

    /// A miss-ratio curve: a point's x is a size in bytes, y the misses in percent.
    #[must_use]
    pub fn miss_ratio(curves: Vec<Curve>, marks: Vec<Mark>) -> Curves {
        let y = Axis::linear("misses, of all references", Unit::Percent);
        let y = y.over(Range::Fixed(0.0, 100.0));
        Curves { x: Axis::sizes("size of the cache"), y, curves, marks }
    }

    /// A cumulative distribution: a point's y is the share, in percent, of values not greater than x.
    #[must_use]
    pub fn cumulative(x: Axis, share: impl Into<String>, curves: Vec<Curve>) -> Curves {
        let y = Axis::linear(share, Unit::Percent).over(Range::Fixed(0.0, 100.0));
        Curves::new(x, y, curves)
    }
}
