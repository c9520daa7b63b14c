//! Stacked bars, and heat maps.

use serde::{Deserialize, Serialize};

use super::axis::Axis;
use crate::unit::Unit;

/// Bars that lie, each of them a sum of parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// The axis along which bars lie.
    pub axis: Axis,
    /// The names of the parts.
    pub parts: Vec<String>,
    /// The bars, from the top: a name, and a value for each part.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// A figure for each pair of cases, as the colour of a cell, with the figure in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// The name of the dimension of the columns.
    pub column_name: String,
    /// The columns, from the left.
    pub columns: Vec<String>,
    /// The name of the dimension of the rows.
    pub row_name: String,
    /// The rows, from the top.
    pub rows: Vec<String>,
    /// The name of the figure.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// A figure for each column of each row; none where there is none.
    pub values: Vec<Vec<Option<f64>>>,
}
