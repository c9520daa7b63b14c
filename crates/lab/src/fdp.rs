//! Savings of data placement when several stores share a drive. The stores are four Aerospike instances as in Micron's
//! experiment (March 2024), the circular writers of its simplest form, or Esker's engine.
//!
//! | module | content |
//! | --- | --- |
//! | [`sink`] | [`Sink`](sink::Sink), [`Drive`](sink::Drive): where stores write: a model that counts, or devices |
//! | [`circular`], [`store`], [`keys`] | the stores |
//! | [`writer`], [`turns`] | several stores on one drive, each at its rate |
//! | `options` | the extent of the experiment |
//! | [`own`] | stores of one's own, in place of the published ones |
//! | [`configuration`] | everything that a factor depends on |
//! | [`measure`](mod@measure), [`course`] | one run, until it is steady |
//! | [`engine`] | four KVDBs on one drive |
//! | `emulated` | a drive that stores the data |
//! | [`network`] | the same over NVMe/TCP |
//! | [`on_device`], `named` | the stores on a device that the caller names |
//! | [`worth`] | drive life and capacity |
//! | [`report`], `table`, `rows`, `html` | the results |
//! | `plan`, `jobs` | which runs there are, and several of them at a time |
//!
//! Runs are independent of each other, so they are divided among threads; the result of each is the same however many
//! threads there are.

pub mod circular;
pub mod configuration;
pub mod course;
mod emulated;
pub mod engine;
mod html;
mod in_turn;
mod jobs;
pub mod keys;
pub mod measure;
mod named;
pub mod network;
pub mod on_device;
mod options;
pub mod own;
mod plan;
pub mod report;
mod rows;
pub mod sink;
pub mod store;
mod table;
#[cfg(test)]
mod tests;
pub mod turns;
pub mod worth;
pub mod writer;

use esker_flash::Profile;
use esker_report::{Page, Verdict};

use crate::LabError;
use crate::study::{About, Follow, Study};
use engine::EngineRun;
use jobs::{Job, Outcome};
use named::NamedDevice;
use options::ABOUT;
pub use options::FdpOptions;
use plan::Planned;
pub use report::FdpFigures;
use report::{Chapter, Derived, Run};
use worth::{Endurance, Search, Worth};

/// The study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fdp;

impl Study for Fdp {
    const ABOUT: About = ABOUT;

    type Options = FdpOptions;
    type Machine<'a> = Option<NamedDevice>;
    type Figures = FdpFigures;

    /// Which options make sense depends on the device: [`Fdp::run`] checks them before anything else.
    fn check(_: &FdpOptions) -> Result<(), LabError> {
        Ok(())
    }

    /// Without a device the stores run on models.
    fn run(
        options: &FdpOptions,
        device: &mut Option<NamedDevice>,
        follow: &mut Follow<'_>,
    ) -> Result<FdpFigures, LabError> {
        match device {
            None => on_models(options, follow),
            Some(device) => on_device::run(device, options, follow),
        }
    }

    fn verdicts(figures: &FdpFigures) -> Vec<Verdict> {
        figures.verdicts()
    }

    fn document(figures: &FdpFigures) -> Page {
        figures.document()
    }
}

fn on_models(options: &FdpOptions, follow: &mut Follow<'_>) -> Result<FdpFigures, LabError> {
    options.check()?;
    let planned = plan::chapters(options);
    let mut jobs = Vec::new();
    for chapter in &planned {
        jobs.extend(chapter.runs.iter().map(|planned| Job {
            name: format!("{}: {}", chapter.name, planned.name),
            work: jobs::Work::Measure(&planned.configuration),
        }));
    }
    let is_published = options.own.is_none();
    let with_engine = options.engine && is_published;
    let engine_runs = if with_engine { EngineRun::all(options) } else { Vec::new() };
    let with_worth = options.worth && is_published;
    let searches = if with_worth { plan::searches(options) } else { Vec::new() };
    jobs.extend(engine_runs.iter().map(|run| Job {
        name: format!("{}: {}", engine::CHAPTER, run.name()),
        work: jobs::Work::Engine(run),
    }));
    jobs.extend(searches.iter().map(|search| Job {
        name: format!("spare space: {}", search.name),
        work: jobs::Work::Search(search),
    }));
    let mut outcomes = jobs::run(&jobs, options.threads, follow)?.into_iter();

    let mut chapters = Vec::new();
    for chapter in &planned {
        let runs = chapter.runs.iter().zip(&mut outcomes);
        let runs: Vec<Run> = runs
            .filter_map(|(planned, outcome)| Some(run_of(planned, outcome?.measured())))
            .collect();
        // A mean of all, or none.
        let whole = chapter.mean.iter().filter(|_| runs.len() == chapter.runs.len());
        let derived = whole.map(|(range, published)| mean(&runs[range.clone()], published));
        let derived = derived.collect();
        let notes = chapter.notes.iter().map(|&note| note.to_owned()).collect();
        chapters.push(Chapter { name: chapter.name.to_owned(), notes, runs, derived });
    }
    if !engine_runs.is_empty() {
        let runs = engine_runs.iter().zip(&mut outcomes);
        let runs = runs.filter_map(|(run, outcome)| Some(run.report(outcome?.measured())));
        let runs = runs.collect();
        chapters.push(engine::chapter(runs));
    }
    let worth = if searches.is_empty() {
        None
    } else {
        Some(worth_of(&chapters, &searches, outcomes.flatten().map(Outcome::spare).collect())?)
    };
    let stores = options.own.as_ref().map_or(PUBLISHED_STORES, |own| own.stores.len());
    Ok(FdpFigures { stores, device: None, chapters, worth })
}

fn run_of(planned: &Planned, measured: course::Measured) -> Run {
    Run {
        name: planned.name.clone(),
        assumptions: report::assumptions(&planned.configuration),
        measured,
        published: planned.published.clone(),
    }
}

fn mean(runs: &[Run], published: &report::Published) -> Derived {
    let sum: f64 = runs.iter().map(|run| run.measured.write_amplification).sum();
    #[allow(clippy::cast_precision_loss)] // a handful
    let count = runs.len() as f64;
    Derived {
        name: "alone, mean of the four".to_owned(),
        write_amplification: sum / count,
        published: Some(published.clone()),
    }
}

/// Lives under the chapters' runs of four stores at unequal rates, and the searches' results.
fn worth_of(
    chapters: &[Chapter],
    searches: &[Search],
    spares: Vec<worth::Spare>,
) -> Result<Worth, LabError> {
    let profile = Profile::find(LIFE_PROFILE)?;
    let Some(drive) = profile.ssd() else {
        return Err(LabError::Invalid(format!("{LIFE_PROFILE} is no solid-state drive")));
    };
    let endurance = Endurance {
        capacity_bytes: drive.capacity,
        media_bytes: drive.media_bytes(),
        erasures: drive.rated_erasures,
    };
    let mut assumptions = endurance.assumptions(profile.title);
    if let Some(search) = searches.first() {
        assumptions.push(format!(
            "Spare space: found by halving on a drive of {}, so that both factors are those of \
             that scale; within 1 % of the other's factor counts as the same",
            esker_base::units::human_bytes(search.given.drive.bytes)
        ));
    }
    let mut lives = Vec::new();
    for chapter in chapters {
        let of_interest =
            |run: &&Run| run.name.starts_with("1:2:4:8, ") || run.name.starts_with("KVDBs");
        for run in chapter.runs.iter().filter(of_interest) {
            let name = format!("{}; {}", chapter.name, run.name);
            lives.push(endurance.life(&name, run.measured.write_amplification));
        }
    }
    Ok(Worth { assumptions, lives, spares })
}

/// Stores of the published experiment.
const PUBLISHED_STORES: usize = 4;
/// The drive whose life is derived: that of the published experiment.
const LIFE_PROFILE: &str = "micron-7450";
