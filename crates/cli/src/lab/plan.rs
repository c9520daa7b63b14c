//! `esker lab plan`: reads a plan, keeps its results in a folder, and reports.

use std::fs;
use std::path::{Path, PathBuf};

use esker_base::units::human_bytes;
use esker_base::{ErrorKind, files};
use esker_lab::LabError;
use esker_lab::plan::{Expected, Listed, Plan, Processors, Progress, Shelf, Surroundings};

use super::experiment::failed;
use esker_report::{Page, Section};

use crate::args::PlanArgs;
use crate::failure::{Failure, Result};
use crate::host;
use crate::output::Outputs;
use crate::progress::Watch;

/// Of the machine's memory, the part that runs may take: three quarters.
const MEMORY: (u64, u64) = (3, 4);
/// Where the machine does not tell of its memory.
const LEAST_MEMORY: u64 = 1 << 30;
/// Programs of one version, but of different commits, do not share results.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), ", commit ", env!("ESKER_COMMIT"));

/// Runs a plan.
pub(crate) fn run(args: &PlanArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
    let text = fs::read_to_string(&args.file).map_err(|error| {
        Failure::file(&args.file, &error, "name a plan, as docs/plan.md has them")
    })?;
    let surroundings = Surroundings {
        version: VERSION,
        threads: args.threads.unwrap_or_else(host::cores),
        memory_bytes: host::memory_bytes().unwrap_or(LEAST_MEMORY) / MEMORY.1 * MEMORY.0,
        variable: &|name| std::env::var(name).ok(),
        processors: || {
            let (busy_ns, all_ns) = host::processors_ns()?;
            Some(Processors { busy_ns, all_ns })
        },
    };
    let folder = args.file.parent().unwrap_or(Path::new("."));
    let name = args.file.display().to_string();
    let plan = Plan::read(&name, &text, folder, &surroundings).map_err(failed)?;
    let results = args.results.clone().unwrap_or_else(|| {
        let mut name = args.file.clone().into_os_string();
        name.push(".results");
        name.into()
    });
    let mut shelf = Folder(results);
    if args.dry_run {
        let expected = plan.list(&mut shelf, &surroundings).map_err(failed)?;
        outputs.say(&listed(&expected))?;
        return outputs.finish(&list(&expected, None)?, "");
    }
    files::create_dir_all(&shelf.0).map_err(|error| {
        Failure::file(&shelf.0, &error, "name a folder that can be written with --results")
    })?;
    let environment = host::environment();
    let watch = Watch::start()?;
    let follow = |progress: &Progress<'_>| {
        watch.bar.step(progress.done, progress.count, progress.run);
        watch.interrupt.flow()
    };
    let report = plan.run(&mut shelf, &surroundings, follow);
    watch.bar.end();
    if matches!(report, Err(LabError::Interrupted)) {
        let expected = plan.list(&mut shelf, &surroundings).map_err(failed)?;
        say_interrupted(&expected, &outputs)?;
        let kept = format!("runs are kept in {}; run the plan again to go on", shelf.0.display());
        return watch.interrupt.outcome(&kept);
    }
    let mut report = report.map_err(failed)?;
    report.environment = environment;
    report.command = host::command_line();
    let figures = serde_json::to_value(&report).map_err(no_form)?;
    let page = report.page();
    outputs.say(&page.text())?;
    outputs.finish(&figures, &page.html())
}

/// Says and writes which runs of an interrupted plan are through.
fn say_interrupted(expected: &Expected, outputs: &Outputs) -> Result {
    let through = expected.runs.iter().filter(|one| one.is_kept).count();
    let state = format!("Interrupted: {through} of {} runs are through.", expected.runs.len());
    outputs.say(&format!("{}{state}\n", listed(expected)))?;
    let mut page = Page::new("A plan", state.clone());
    let mut section = Section::new("Runs");
    let line =
        |one: &Listed| format!("{}: {}", one.name, if one.is_kept { "through" } else { "to run" });
    section.list(expected.runs.iter().map(line));
    page.sections.push(section);
    page.environment = host::environment();
    page.command = host::command_line();
    outputs.finish(&list(expected, Some(state))?, &page.html())
}

/// The runs of a plan, of which some are not made yet.
fn list(expected: &Expected, interrupted: Option<String>) -> Result<serde_json::Value> {
    let mut list = serde_json::to_value(expected).map_err(no_form)?;
    list["format"] = "esker-plan-list/1".into();
    list["interrupted"] = interrupted.into();
    Ok(list)
}

fn no_form(error: serde_json::Error) -> Failure {
    Failure::new(ErrorKind::Io, format!("the figures have no JSON form: {error}"))
}

/// The runs of a plan, for a terminal.
fn listed(expected: &Expected) -> String {
    let mut text = String::new();
    for one in &expected.runs {
        let state = if one.is_kept { "kept" } else { "to run" };
        let clock = if one.is_virtual { "virtual time" } else { "one by one" };
        text.push_str(&format!(
            "{state:<7} {clock:<13} about {:>6.1} s, {:>10} of memory at most  {}\n",
            one.takes_s,
            human_bytes(one.memory_bytes),
            one.name
        ));
    }
    for remark in &expected.remarks {
        text.push_str(&format!("note: {remark}\n"));
    }
    let left = expected.runs.iter().filter(|one| !one.is_kept).count();
    text.push_str(&format!("{left} to run, about {:.0} s in all: an estimate\n", expected.takes_s));
    text
}

/// Results as files of a folder: `KEY.json`.
struct Folder(PathBuf);

impl Folder {
    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }

    fn refused(path: &Path, error: &std::io::Error, advice: &str) -> LabError {
        LabError::Kept {
            place: path.display().to_string(),
            why: format!("{error}; {advice}"),
            kind: ErrorKind::from(error),
        }
    }
}

impl Shelf for Folder {
    fn get(&mut self, key: &str) -> std::result::Result<Option<String>, LabError> {
        let path = self.path(key);
        match fs::read(&path) {
            // A file that is no text is no result, and said to be none.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Folder::refused(&path, &error, "name another folder with --results")),
        }
    }

    fn put(&mut self, key: &str, document: &str) -> std::result::Result<(), LabError> {
        let path = self.path(key);
        let advice = "name a folder that can be written with --results";
        let written = tempfile::NamedTempFile::new_in(&self.0).and_then(|mut file| {
            std::io::Write::write_all(&mut file, document.as_bytes())?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        });
        written.map_err(|error| Folder::refused(&path, &error, advice))
    }

    fn place(&self, key: &str) -> String {
        self.path(key).display().to_string()
    }
}
