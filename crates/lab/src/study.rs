//! The shape that all experiments have, and the report that each of them makes.
//!
//! A new study is a module of this crate. Its load on a drive, a model in virtual time included, is that of
//! [`device_load`](crate::device_load). These places name it:
//!
//! | place | entry |
//! | --- | --- |
//! | `src/lib.rs`, `tests/tests/ladder/house.rs` | the module, and its place in the order of imports |
//! | `tests/goldens.rs` | its figures, recorded; its head says how |
//! | in `cli`: `src/args/`, `src/lab.rs`, `src/lab/all.rs` | the arguments, the command, the row among all studies |
//! | in `cli`: `tests/all/mistakes.rs`, `tests/ranges.txt` | its command, and the ranges of its numbers (`ESKER_UPDATE_GOLDEN=1`) |
//! | `docs/README.md`, `tests/report/run` | the figures that it repeats, and its page |

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_report::{Page, Verdict};
use serde::Serialize;

use crate::LabError;
use crate::steps::Progress;

/// Facts about a study that hold for each of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name, as in `esker lab NAME`.
    pub name: &'static str,
    /// The form of its JSON; the number after the slash changes with the form.
    pub format: &'static str,
    /// The published system whose figures it repeats, or the question that it answers.
    pub system: &'static str,
    /// The system's purpose, for a reader who has not heard of it.
    pub purpose: &'static str,
    /// About how many minutes it takes on two processors: a quick run, and a full one.
    pub minutes: (u32, u32),
    /// Programs of other authors without which it cannot be run.
    pub programs: &'static [&'static str],
    /// Whether only root can run it.
    pub needs_root: bool,
}

/// Behind the title of a study that was run at a small scale.
pub(crate) const QUICK: &str = " (quick: too short for figures to be quoted)";

/// Is told how far a study is, and may end it.
pub type Follow<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + 'a;

/// An experiment: from options to figures, and from these to verdicts and to a document.
pub trait Study {
    /// Its facts.
    const ABOUT: About;
    /// The extent of a run.
    type Options;
    /// The seam to the devices or programs that it runs on; `()` for models in virtual time alone.
    type Machine<'a>: ?Sized;
    /// All that is measured, with the options and the assumptions that a reader needs.
    type Figures: Serialize;

    /// Makes sure that the options make a study. It is cheap, and changes nothing.
    ///
    /// # Errors
    /// `Invalid` with the wrong option and its range.
    fn check(options: &Self::Options) -> Result<(), LabError>;

    /// Measures. Where `follow` ends it, the figures are of what was measured until then.
    ///
    /// # Errors
    /// Those of [`check`](Study::check) and of the machine; `Interrupted` where nothing was measured.
    fn run(
        options: &Self::Options,
        machine: &mut Self::Machine<'_>,
        follow: &mut Follow<'_>,
    ) -> Result<Self::Figures, LabError>;

    /// The figures beside published ones and goals.
    fn verdicts(figures: &Self::Figures) -> Vec<Verdict>;

    /// Title, finding, tables, charts and assumptions. Verdicts, the place and the command are added by [`Report::page`].
    fn document(figures: &Self::Figures) -> Page;
}

/// A run of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<S: Study> {
    /// All that was measured.
    pub figures: S::Figures,
    /// The judgement; empty for a run that was interrupted.
    pub verdicts: Vec<Verdict>,
    /// Where it was run: names and values.
    pub environment: BTreeMap<String, String>,
    /// The command that runs it again.
    pub command: String,
    is_interrupted: bool,
}

/// Runs a study.
///
/// # Errors
/// Those of [`Study::run`].
pub fn run<S: Study>(
    options: &S::Options,
    machine: &mut S::Machine<'_>,
    follow: &mut Follow<'_>,
) -> Result<Report<S>, LabError> {
    S::check(options)?;
    let mut is_interrupted = false;
    let figures = S::run(options, machine, &mut |progress| {
        let flow = follow(progress);
        is_interrupted |= flow.is_break();
        flow
    })?;
    let mut report = Report::of(figures);
    if is_interrupted {
        report.verdicts.clear();
    }
    Ok(Report { is_interrupted, ..report })
}

impl<S: Study> Report<S> {
    /// The report of figures that were measured as a whole, wherever that was.
    #[must_use]
    pub fn of(figures: S::Figures) -> Report<S> {
        Report {
            verdicts: S::verdicts(&figures),
            figures,
            environment: BTreeMap::new(),
            command: String::new(),
            is_interrupted: false,
        }
    }

    /// The document, with verdicts and the place.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = S::document(&self.figures);
        let judged = match self.verdicts.len() {
            _ if self.is_interrupted => {
                "The study was interrupted: nothing is judged by a part of it.".to_owned()
            }
            0 => String::new(),
            count => format!("Of {count} figures: {}.", Verdict::tally(&self.verdicts)),
        };
        page.headline = format!("{} {judged}", page.headline).trim().to_owned();
        page.verdicts.clone_from(&self.verdicts);
        page.environment.clone_from(&self.environment);
        page.command.clone_from(&self.command);
        page
    }

    /// The report as JSON: the form, title and finding, verdicts, all figures, the place and the command.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        #[derive(Serialize)]
        struct Whole<'a, F> {
            format: &'static str,
            title: String,
            finding: String,
            verdicts: &'a [Verdict],
            #[serde(flatten)]
            figures: &'a F,
            environment: &'a BTreeMap<String, String>,
            command: &'a str,
        }
        let page = self.page();
        let whole = Whole {
            format: S::ABOUT.format,
            title: page.title,
            finding: page.headline,
            verdicts: &self.verdicts,
            figures: &self.figures,
            environment: &self.environment,
            command: &self.command,
        };
        serde_json::to_value(whole).expect("every field has a JSON form")
    }
}

#[cfg(test)]
mod tests {
    use esker_report::Section;

    use super::*;
    use crate::steps::Steps;

    /// Counts to the number that it is told.
    struct Counting;

    #[derive(Serialize)]
    struct Counted {
        counted: u32,
    }

    impl Study for Counting {
        const ABOUT: About = About {
            name: "counting",
            format: "esker-counting/1",
            system: "an abacus",
            purpose: "It counts.",
            minutes: (0, 0),
            programs: &[],
            needs_root: false,
        };

        type Options = u32;
        type Machine<'a> = ();
        type Figures = Counted;

        fn check(options: &u32) -> Result<(), LabError> {
            match options {
                0 => Err(LabError::Invalid("count to 1 at least".to_owned())),
                _ => Ok(()),
            }
        }

        fn run(options: &u32, (): &mut (), follow: &mut Follow<'_>) -> Result<Counted, LabError> {
            let mut steps = Steps::new(follow, *options as usize);
            let mut counted = 0;
            while counted < *options && steps.step("one more").is_ok() {
                counted += 1;
            }
            Ok(Counted { counted })
        }

        fn verdicts(figures: &Counted) -> Vec<Verdict> {
            let found = figures.counted.to_string();
            vec![Verdict::new("count", found).wanted("at least 2", figures.counted >= 2)]
        }

        fn document(figures: &Counted) -> Page {
            let mut page = Page::new("Counting", format!("It counted to {}.", figures.counted));
            page.sections.push(Section::new("Nothing more"));
            page
        }
    }

    fn run(options: u32, most: usize) -> Result<Report<Counting>, LabError> {
        super::run(&options, &mut (), &mut |progress| match progress.done < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    }

    #[test]
    fn a_whole_run_is_judged_and_an_interrupted_one_is_not() {
        let whole = run(3, usize::MAX).ok().unwrap();
        assert_eq!(whole.page().headline, "It counted to 3. Of 1 figures: 1 reached.");
        let part = run(3, 2).ok().unwrap();
        assert!(part.verdicts.is_empty() && part.figures.counted == 2);
        let said = "It counted to 2. The study was interrupted: nothing is judged by a part of it.";
        assert_eq!(part.page().headline, said);
        assert!(matches!(run(0, 0), Err(LabError::Invalid(_))));
    }

    #[test]
    fn json_has_the_figures_beside_the_form_the_finding_and_the_place() {
        let mut report = run(2, usize::MAX).ok().unwrap();
        report.environment.insert("machine".to_owned(), "mine".to_owned());
        report.command = "esker lab counting".to_owned();
        let json = report.json();
        assert_eq!(json["format"], "esker-counting/1");
        assert_eq!(json["counted"], 2);
        assert_eq!(json["finding"], report.page().headline);
        assert_eq!(json["verdicts"][0]["outcome"], "reached");
        assert_eq!(json["environment"]["machine"], "mine");
        assert_eq!(json["command"], "esker lab counting");
    }
}
