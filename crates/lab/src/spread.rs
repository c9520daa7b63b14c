//! Figures that were measured several times.

use serde::{Deserialize, Serialize};

/// A median of runs, and between which of them it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// The median of these; none where there are none.
    #[must_use]
    pub fn of(mut runs: Vec<f64>) -> Option<Spread> {
        runs.sort_by(f64::total_cmp);
        let (least, most) = (*runs.first()?, *runs.last()?);
        let middle = runs.len() / 2;
        let median = match runs.len() % 2 {
            1 => runs[middle],
            _ => f64::midpoint(runs[middle - 1], runs[middle]),
        };
        Some(Spread { median, least, most })
    }

    /// All of it, so many times.
    #[must_use]
    pub fn scaled(&self, times: f64) -> Spread {
        let [median, least, most] = [self.median, self.least, self.most].map(|one| one * times);
        Spread { median, least, most }
    }

    /// The median with so many digits, and the range in parentheses where there is one.
    #[must_use]
    pub fn cell(&self, digits: usize) -> String {
        let Spread { median, least, most } = self;
        if least.total_cmp(most).is_eq() {
            return format!("{median:.digits$}");
        }
        format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}
