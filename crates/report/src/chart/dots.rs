//! Dot plots: a row for each case, a lane for each series, the published figure as a hollow mark.

use serde::{Deserialize, Serialize};

use super::axis::Axis;

/// A dot plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dots {
    /// The axis along which dots lie.
    pub axis: Axis,
    /// The names of the series.
    pub series: Vec<String>,
    /// The rows, from the top.
    pub rows: Vec<DotRow>,
    /// The meaning of a hollow mark.
    pub hollow: String,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DotRow {
    /// Its name.
    pub name: String,
    /// Its dots, each on a lane of its own.
    pub dots: Vec<Dot>,
}

/// A figure, and the published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dot {
    /// The series, counted from zero.
    pub series: usize,
    /// The figure.
    pub value: f64,
    /// The published figure; none for nothing.
    pub published: Option<f64>,
    /// A remark on the dot, after the figure: "not steady".
    pub remark: String,
}

impl Dots {
    /// A dot plot whose hollow marks are published figures.
    #[must_use]
    pub fn new<S: Into<String>>(
        axis: Axis,
        series: impl IntoIterator<Item = S>,
        rows: Vec<DotRow>,
    ) -> Dots {
        let series = series.into_iter().map(Into::into).collect();
        Dots { axis, series, rows, hollow: "published".to_owned() }
    }

    /// Whether any figure has a published one beside it.
    pub(crate) fn has_hollow(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.dots).any(|dot| dot.published.is_some())
    }
}

impl Dot {
    /// A figure of a series.
    #[must_use]
    pub fn new(series: usize, value: f64) -> Dot {
        Dot { series, value, published: None, remark: String::new() }
    }

    /// The same with a published figure beside it.
    #[must_use]
    pub fn beside(self, published: Option<f64>) -> Dot {
        Dot { published, ..self }
    }
}
