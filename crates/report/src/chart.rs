//! Charts: their data and their axes. `assets/charts.js` draws from their JSON.
//!
//! | kind | for | drawn by |
//! | --- | --- | --- |
//! | [`Panels`] | one or more figures over time, below each other with one cursor | uPlot |
//! | [`Curves`] | latency by percentile, miss-ratio curves, cumulative distributions, any other curve | ECharts |
//! | [`Dots`] | figures of few cases beside published ones | no script |
//! | [`Bars`] | sums of parts | ECharts |
//! | [`HeatMap`] | a figure over two kinds of cases | ECharts |

mod axis;
mod bars;
mod curves;
mod dots;
mod kind;
mod panels;

pub use axis::{Axis, Range, Scale};
pub(crate) use axis::{COLOURS, dashes};
pub use bars::{Bars, HeatMap};
pub use curves::{Curve, Curves, Draw, Mark};
pub use dots::{Dot, DotRow, Dots};
pub use kind::{Chart, Kind};
pub use panels::{Line, Panel, Panels, Span};
