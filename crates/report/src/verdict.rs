//! Figures beside published ones and goals, and whether the run can say anything about them.
//!
//! Invariants
//! 1. A verdict with a precondition that does not hold is [`Outcome::NotComparable`], whatever the figure is.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A figure beside one that was published, or that is to be reached.
///
/// ```
/// use esker_report::{Outcome, Precondition, Verdict};
///
/// let verdict = Verdict::new("load: bytes to capacity for each byte of the user's", "0.00")
///     .published("1.49 (Micron, for HSE)")
///     .wanted("at most 1.49", true)
///     .requires(Precondition::new("data that has aged to capacity", "none", false));
/// assert_eq!(verdict.outcome, Outcome::NotComparable);
/// assert_eq!(verdict.why(), ["needs data that has aged to capacity; here: none"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The name of the figure.
    pub figure: String,
    /// The published figure with its source; empty where none was published.
    pub published: String,
    /// The bound that it has to keep; empty for a figure that is shown and not judged.
    pub wanted: String,
    /// Esker's figure, with its spread where it was measured several times.
    pub measured: String,
    /// The fairest figure to hold it against, where that is not the published one; empty for none.
    pub baseline: String,
    /// The conditions under which the figure says something.
    pub preconditions: Vec<Precondition>,
    /// Whether it is reached.
    pub outcome: Outcome,
}

/// A condition that a run has to meet before its figure says something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precondition {
    /// The condition, as the object of "needs".
    pub needs: String,
    /// The state of the run.
    pub found: String,
    /// Whether the run meets it.
    pub holds: bool,
}

/// Whether a figure is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is.
    Reached,
    /// It is in some of the cases.
    Partly,
    /// It is not.
    Missed,
    /// The run says nothing about it: a precondition does not hold.
    NotComparable,
    /// It is shown and not judged.
    #[default]
    Shown,
}

impl Outcome {
    const JUDGED: [Outcome; 4] =
        [Outcome::Reached, Outcome::Partly, Outcome::Missed, Outcome::NotComparable];

    /// Reached or missed.
    #[must_use]
    pub fn of(is_reached: bool) -> Outcome {
        if is_reached { Outcome::Reached } else { Outcome::Missed }
    }

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Reached => "reached",
            Outcome::Partly => "partly",
            Outcome::Missed => "missed",
            Outcome::NotComparable => "not comparable",
            Outcome::Shown => "shown",
        }
    }
}

impl Precondition {
    /// A condition, the state of the run, and whether it meets the condition.
    #[must_use]
    pub fn new(needs: impl Into<String>, found: impl Into<String>, holds: bool) -> Precondition {
        Precondition { needs: needs.into(), found: found.into(), holds }
    }
}

impl Verdict {
    /// A figure that is shown and not judged.
    #[must_use]
    pub fn new(figure: impl Into<String>, measured: impl Into<String>) -> Verdict {
        Verdict { figure: figure.into(), measured: measured.into(), ..Verdict::default() }
    }

    /// The same with the published figure, which names its source.
    #[must_use]
    pub fn published(self, published: impl Into<String>) -> Verdict {
        Verdict { published: published.into(), ..self }
    }

    /// The same with the bound that it has to keep.
    #[must_use]
    pub fn wanted(self, wanted: impl Into<String>, is_reached: bool) -> Verdict {
        self.judged(wanted, Outcome::of(is_reached))
    }

    /// The same where some cases may keep the bound and others not.
    #[must_use]
    pub fn judged(self, wanted: impl Into<String>, outcome: Outcome) -> Verdict {
        Verdict { wanted: wanted.into(), outcome, ..self }.settled()
    }

    /// The same with the fairest figure to hold it against.
    #[must_use]
    pub fn baseline(self, baseline: impl Into<String>) -> Verdict {
        Verdict { baseline: baseline.into(), ..self }
    }

    /// The same with a condition.
    #[must_use]
    pub fn requires(mut self, condition: Precondition) -> Verdict {
        self.preconditions.push(condition);
        self.settled()
    }

    /// The conditions that do not hold, each in words.
    #[must_use]
    pub fn why(&self) -> Vec<String> {
        let broken = self.preconditions.iter().filter(|one| !one.holds);
        broken.map(|one| format!("needs {}; here: {}", one.needs, one.found)).collect()
    }

    /// The verdict for a terminal, with a line for each part that there is.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{:<14}  {}\n", self.outcome.name(), self.figure);
        let parts = [
            ("published", &self.published),
            ("wanted", &self.wanted),
            ("Esker", &self.measured),
            ("baseline", &self.baseline),
        ];
        for (label, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "{:16}{label}: {value}", "");
        }
        for why in self.why() {
            let _ = writeln!(text, "{:16}{why}", "");
        }
        text
    }

    /// How many verdicts have each outcome, in words: `3 reached, 1 missed, 2 not comparable`.
    #[must_use]
    pub fn tally<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> String {
        let verdicts: Vec<&Verdict> = verdicts.into_iter().collect();
        let words = Outcome::JUDGED.into_iter().filter_map(|outcome| {
            let count = verdicts.iter().filter(|one| one.outcome == outcome).count();
            (count > 0 || outcome == Outcome::Reached)
                .then(|| format!("{count} {}", outcome.name()))
        });
        words.collect::<Vec<_>>().join(", ")
    }

    fn settled(mut self) -> Verdict {
        if self.preconditions.iter().any(|one| !one.holds) {
            self.outcome = Outcome::NotComparable;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        Verdict::new("rate", "2.1 times").published("2.0 times (source)")
    }

    #[test]
    fn a_broken_condition_outweighs_the_figure_in_either_order() {
        let broken = || Precondition::new("idle processors", "95 % busy", false);
        for is_reached in [true, false] {
            let before = verdict().requires(broken()).wanted("at least 2", is_reached);
            let after = verdict().wanted("at least 2", is_reached).requires(broken());
            assert_eq!(before, after);
            assert_eq!(after.outcome, Outcome::NotComparable);
        }
        let kept = Precondition::new("idle processors", "10 % busy", true);
        let verdict = verdict().requires(kept).wanted("at least 2", true);
        assert_eq!(verdict.outcome, Outcome::Reached);
        assert!(verdict.why().is_empty());
    }

    #[test]
    fn the_text_has_the_parts_that_there_are() {
        assert_eq!(
            verdict().text(),
            "shown           rate\n                published: 2.0 times (source)\n                Esker: 2.1 times\n"
        );
        let broken = Precondition::new("three rounds", "1", false);
        let text = verdict().wanted("at least 2", true).requires(broken).text();
        assert!(text.starts_with("not comparable  rate\n"), "{text}");
        assert!(text.ends_with("needs three rounds; here: 1\n"), "{text}");
    }

    #[test]
    fn a_tally_names_each_outcome_that_there_is() {
        let reached = verdict().wanted("at least 2", true);
        let missed = verdict().wanted("at least 3", false);
        assert_eq!(Verdict::tally([&reached, &missed, &reached]), "2 reached, 1 missed");
        assert_eq!(Verdict::tally([]), "0 reached");
        assert_eq!(Verdict::tally([&verdict()]), "0 reached");
    }
}
