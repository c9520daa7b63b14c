//! Reports as one self-contained HTML file: a finding, verdicts, tables, charts, and where the figures were taken.
//!
//! A [`Page`] has a title, a headline that states the result, and [`Section`]s; a section has paragraphs, lists,
//! [`Table`]s and [`Chart`]s. Every chart carries the table of its figures, as a folded part of the page and as CSV.
//!
//! | module | content |
//! | --- | --- |
//! | [`page`](mod@page), [`block`] | [`Book`], [`Page`], [`Section`], [`Block`], [`Assumption`] |
//! | [`verdict`] | [`Verdict`]: a figure, what was published, the bound, and the [`Precondition`]s |
//! | [`table`] | [`Table`], [`Cell`]: as markup and as CSV |
//! | [`chart`] | [`Chart`] and its kinds: [`Panels`], [`Curves`], [`Dots`], [`Bars`], [`HeatMap`] |
//! | [`unit`](mod@unit) | [`Unit`]: how figures are written |
//! | [`live`] | [`Subject`]: something that goes on; [`State`]: the answers to a page of it |
//! | [`text`] | a page for a terminal; columns and paragraphs that fit |
//! | `figures` | the table behind each chart |
//! | `svg` | dot plots, drawn without a script |
//! | `markup`, `escape` | a chart within a page; foreign text |
//!
//! Charts over time are drawn by uPlot (MIT), those on logarithmic axes, stacked bars and heat maps by Apache ECharts
//! (Apache-2.0, cut down by `assets/echarts/build`). A page holds only the libraries that its charts need.
//!
//! ```
//! use esker_report::{Axis, Chart, Curve, Curves, Page, Section, Table, Unit, Verdict};
//!
//! let mut page = Page::new("Reads of a drive", "Reads take 72 µs in the median, 12 µs less than published.");
//! let verdict = Verdict::new("median, depth 1", "72 µs").published("84 µs (data sheet)");
//! page.verdicts.push(verdict.wanted("at most 84 µs", true));
//! let mut section = Section::new("Latency");
//! section.text("4 KiB at random, one at a time.");
//! let mut table = Table::new(["depth", "median, µs"]);
//! table.row(["1", "72"]);
//! section.add(table);
//! let axis = Axis::latency_ns("latency");
//! let curve = Curve::line("depth 1", vec![(2.0, 72_000.0), (100.0, 90_000.0)]);
//! section.add(Chart::new("One read in a hundred takes 90 µs", Curves::percentiles(axis, vec![curve])));
//! page.sections.push(section);
//! page.command = "esker lab reads".to_owned();
//! let html = page.html();
//! # assert!(html.contains("72 µs") && html.ends_with("</html>\n"));
//! ```

pub mod block;
pub mod chart;
mod escape;
mod figures;
pub mod live;
mod markup;
pub mod page;
mod svg;
pub mod table;
pub mod text;
pub mod unit;
pub mod verdict;

pub use block::{Assumption, Block, Section};
pub use chart::{
    Axis, Bars, Chart, Curve, Curves, Dot, DotRow, Dots, Draw, HeatMap, Kind, Line, Mark, Panel,
    Panels, Range, Scale, Span,
};
pub use live::{State, Subject};
pub use page::{Book, Page};
pub use table::{Cell, Table};
pub use unit::Unit;
pub use verdict::{Outcome, Precondition, Verdict};
