//! A chart of any kind.

use serde::{Deserialize, Serialize};

use super::bars::{Bars, HeatMap};
use super::curves::Curves;
use super::dots::Dots;
use super::panels::Panels;

/// A chart, with the title that states its message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The message of the chart, as a sentence.
    pub title: String,
    /// The note needed to read it; empty for nothing.
    pub note: String,
    /// The kind of chart, with its data.
    pub kind: Kind,
    /// The command that made it, where that is not the page's.
    pub command: Option<String>,
}

/// The kind of chart, with its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

    /// Sets the note needed to read it.
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

impl From<Panels> for Kind {
    fn from(panels: Panels) -> Kind {
        Kind::Panels(panels)
    }
}

impl From<Curves> for Kind {
    fn from(curves: Curves) -> Kind {
        Kind::Curves(curves)
    }
}

impl From<Dots> for Kind {
    fn from(dots: Dots) -> Kind {
        Kind::Dots(dots)
    }
}

impl From<Bars> for Kind {
    fn from(bars: Bars) -> Kind {
        Kind::Bars(bars)
    }
}

impl From<HeatMap> for Kind {
    fn from(map: HeatMap) -> Kind {
        Kind::HeatMap(map)
    }
}
