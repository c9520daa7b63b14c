//! The workloads of a benchmark, as they run.

use esker_bench::{Phase, Progress, Report, RunResult};
use esker_report::{Page, Subject, Unit};
use parking_lot::Mutex;

/// Runs of a benchmark: those that have ended, and the one that goes on.
pub struct Runs(Mutex<Known>);

struct Known {
    /// Grows with each change.
    version: u64,
    /// The runs that have ended.
    report: Report,
    /// The one that goes on.
    now: Option<RunResult>,
    /// The present activity, as a sentence.
    doing: String,
}

impl Runs {
    /// A report in the making, without a run yet.
    #[must_use]
    pub fn of(report: &Report) -> Runs {
        let doing = "The first run is about to begin.".to_owned();
        Runs(Mutex::new(Known { version: 1, report: report.clone(), now: None, doing }))
    }

    /// A run goes on; worth its cost while a page is open.
    pub fn follow(&self, progress: &Progress<'_>) {
        let (doing, now) = (doing(progress), progress.so_far());
        self.change(|known| {
            known.doing = doing;
            known.now = Some(now);
        });
    }

    /// A run has ended.
    pub fn ran(&self, run: &RunResult) {
        self.change(|known| {
            known.doing = format!("{} has ended.", named(&run.workload.name));
            known.now = None;
            known.report.runs.push(run.clone());
        });
    }

    /// Something goes on that is no run.
    pub fn say(&self, doing: &str) {
        self.change(|known| known.doing = doing.to_owned());
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.0.lock();
        change(&mut known);
        known.version += 1;
    }
}

impl Subject for Runs {
    fn title(&self) -> String {
        self.0.lock().report.title.clone()
    }

    fn now(&self, since: u64) -> Option<(u64, Page)> {
        let known = self.0.lock();
        let version = known.version;
        if version == since {
            return None;
        }
        let (mut report, now, doing) =
            (known.report.clone(), known.now.clone(), known.doing.clone());
        drop(known);
        let goes_on = now.is_some();
        report.runs.extend(now);
        let mut page = report.page();
        page.headline = doing;
        if goes_on {
            // Its section is the last, where readers look.
            page.sections.rotate_right(1);
        }
        Some((version, page))
    }
}

fn named(workload: &str) -> String {
    match workload {
        "load" => "The load".to_owned(),
        name => format!("Workload {name}"),
    }
}

fn doing(progress: &Progress<'_>) -> String {
    let name = named(progress.workload);
    let percent = progress.fraction * 100.0;
    match progress.phase {
        Phase::WarmUp => format!("{name} warms up: {percent:.0} %."),
        Phase::Measure => {
            let rate = Unit::Count.show(progress.ops_per_s);
            format!("{name} runs at {rate} operations a second: {percent:.0} % are done.")
        }
        Phase::Sync => format!("{name} has ended, and what it wrote becomes durable."),
    }
}
