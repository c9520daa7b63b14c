//! Figures over time: panels below each other that share the time axis and a cursor.

use serde::{Deserialize, Serialize};

use super::axis::Axis;

/// Panels that share their x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panels {
    /// The shared axis.
    pub x: Axis,
    /// From the top.
    pub panels: Vec<Panel>,
}

/// A figure, or several of one unit, over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The axis.
    pub y: Axis,
    /// Where the points are. Steps need one more, where the last one ends.
    pub at: Vec<f64>,
    /// The lines.
    pub lines: Vec<Line>,
    /// Pairs of lines between which the panel is shaded.
    pub bands: Vec<(usize, usize)>,
    /// Stretches that are shaded.
    pub spans: Vec<Span>,
    /// The name of these stretches; empty without.
    pub spans_name: String,
}

/// A line of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// A value for each point; none where there is none.
    pub values: Vec<Option<f64>>,
    /// Whether each value holds until the next point, rather than being met by a slope.
    pub is_step: bool,
    /// The colour, counted from zero; the line's place among its panel's where none is given.
    pub colour: Option<usize>,
}

/// A stretch of the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl Panels {
    /// One panel.
    #[must_use]
    pub fn one(x: Axis, panel: Panel) -> Panels {
        Panels { x, panels: vec![panel] }
    }
}

impl Panel {
    /// A panel with points at `at`.
    #[must_use]
    pub fn new(y: Axis, at: Vec<f64>, lines: Vec<Line>) -> Panel {
        let (bands, spans, spans_name) = (Vec::new(), Vec::new(), String::new());
        Panel { y, at, lines, bands, spans, spans_name }
    }

    /// Shades stretches, which have a name in the legend.
    #[must_use]
    pub fn shade(self, name: impl Into<String>, spans: Vec<Span>) -> Panel {
        Panel { spans_name: name.into(), spans, ..self }
    }
}

impl Line {
    /// A line whose points are met by slopes.
    #[must_use]
    pub fn slope(name: impl Into<String>, values: Vec<Option<f64>>) -> Line {
        Line { name: name.into(), values, is_step: false, colour: None }
    }

    /// A line that is level from each point to the next.
    #[must_use]
    pub fn step(name: impl Into<String>, values: Vec<Option<f64>>) -> Line {
        Line { is_step: true, ..Line::slope(name, values) }
    }
}
