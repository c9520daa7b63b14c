//! Whether a figure is reached.

use esker_report::Outcome as Shown;
use serde::{Deserialize, Serialize};

/// Whether a figure is reached, where a run may say nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is.
    Reached,
    /// It is in some of the cases.
    Partly,
    /// It is not, in a run that says something about it.
    Missed,
    /// The run says nothing about it: processors decided, say.
    NotComparable,
}

impl Outcome {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Reached => "reached",
            Outcome::Partly => "partly",
            Outcome::Missed => "missed",
            Outcome::NotComparable => "not comparable",
        }
    }

    /// As a page shows it.
    #[must_use]
    pub(crate) fn shown(self) -> Shown {
        match self {
            Outcome::Reached => Shown::Reached,
            Outcome::Partly => Shown::Partly,
            Outcome::Missed => Shown::Missed,
            Outcome::NotComparable => Shown::Shown,
        }
    }
}
