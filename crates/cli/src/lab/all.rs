//! `esker lab all`: every experiment in a process of its own, and one report of them.
//!
//! Invariants
//! 1. An experiment's result is kept with its command and this program's version; it is run again when either is
//!    another one.
//! 2. An experiment that cannot be run here, or that failed, is named, with the reason, on the terminal and in the
//!    report; the others go on.
//! 3. A signal ends the one that runs, which writes what it has measured; no process is left.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use esker_base::{Clock, ErrorKind, files, thread};
use esker_lab::fdp::Fdp;
use esker_lab::flash_cache::FlashCache;
use esker_lab::host_ssd::HostSsd;
use esker_lab::hse::Hse;
use esker_lab::memory::Memory;
use esker_lab::pooled::Pooled;
use esker_lab::{About, Study};
use esker_report::{Book, Outcome, Page, Section, Table, Verdict};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::memory;
use crate::args::AllArgs;
use crate::failure::{Failure, Result};
use crate::host;
use crate::output::print;
use crate::signals::Interrupt;
use crate::stderr::{self, tell};

/// The JSON's format; changes when the JSON does.
const FORMAT: &str = "esker-lab-all/1";

/// An experiment as it is run here, with the options of a quick run and of a full one.
struct Experiment {
    about: About,
    quick: &'static [&'static str],
    full: &'static [&'static str],
}

const EXPERIMENTS: [Experiment; 6] = [
    Experiment { about: Hse::ABOUT, quick: &["--quick"], full: &[] },
    Experiment { about: Fdp::ABOUT, quick: &["--drive", "8GiB", "--no-worth"], full: &["--full"] },
    Experiment { about: HostSsd::ABOUT, quick: &["--reads", "50k", "--lookups", "50k"], full: &[] },
    Experiment { about: FlashCache::ABOUT, quick: &["--transactions", "100k"], full: &[] },
    Experiment { about: Pooled::ABOUT, quick: &["--quick"], full: &[] },
    Experiment { about: Memory::ABOUT, quick: &["--quick"], full: &[] },
];

/// The record that is kept of an experiment that is through.
#[derive(Serialize, Deserialize)]
struct Done {
    command: Vec<String>,
    version: String,
    seconds: f64,
}

/// How an experiment ended.
enum Ended {
    Through {
        seconds: f64,
        figures: Value,
        page: Box<Page>,
    },
    Skipped(String),
    Failed(String),
    /// The user wanted no more of it.
    Interrupted(String),
}

/// Runs them.
pub(crate) fn run(args: &AllArgs) -> Result {
    if let Some(wrong) =
        args.only.iter().find(|name| !EXPERIMENTS.iter().any(|one| one.about.name == **name))
    {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|one| one.about.name).collect();
        return Err(Failure::usage(format!(
            "there is no '{wrong}': there are {}",
            names.join(", ")
        )));
    }
    let chosen = |one: &&Experiment| {
        args.only.is_empty() || args.only.iter().any(|name| name == one.about.name)
    };
    let chosen: Vec<&Experiment> = EXPERIMENTS.iter().filter(chosen).collect();
    files::create_dir_all(&args.dir)
        .map_err(|error| Failure::file(&args.dir, &error, "name a directory that can be made"))?;
    let minutes =
        |one: &&Experiment| if args.full { one.about.minutes.1 } else { one.about.minutes.0 };
    let all: u32 = chosen.iter().map(minutes).sum();
    tell!(
        "{} experiments at {} scale, some {all} minutes on two processors; results in {}",
        chosen.len(),
        if args.full { "full" } else { "quick" },
        args.dir.display()
    );
    let interrupt = Interrupt::catch()?;
    let mut ended = Vec::new();
    for one in &chosen {
        if interrupt.has_come() {
            ended.push((*one, Ended::Interrupted("it was not begun".to_owned())));
        } else {
            ended.push((*one, experiment(one, args, &interrupt)?));
        }
    }
    write(args, &ended)?;
    interrupt.outcome("experiments that are through are kept; run the same line again to go on")?;
    let failed = ended.iter().find_map(|(_, ended)| match ended {
        Ended::Failed(why) => Some(why.clone()),
        _ => None,
    });
    failed.map_or(Ok(()), |why| Err(Failure::new(ErrorKind::Io, why)))
}

/// The path of something that is kept of an experiment.
fn kept(args: &AllArgs, name: &str, what: &str) -> PathBuf {
    args.dir.join(format!("{name}.{what}"))
}

fn experiment(one: &Experiment, args: &AllArgs, interrupt: &Interrupt) -> Result<Ended> {
    if let Some(why) = missing(one) {
        tell!("SKIPPED: {}: {why}", one.about.name);
        return Ok(Ended::Skipped(why));
    }
    let command = command(one, args);
    if let Some(done) = found(one, args, &command).filter(|_| !args.again) {
        tell!("{}: through already", one.about.name);
        return Ok(done);
    }
    let line = format!("esker {}", command.join(" "));
    tell!("{}: {line}", one.about.name);
    let clock = Clock::real();
    let began = clock.now();
    let output = run_to_end(&command, interrupt)?;
    if interrupt.has_come() && !output.status.success() {
        let text = kept(args, one.about.name, "txt");
        save(&text, &String::from_utf8_lossy(&output.stdout))?;
        let why = match output.stdout.is_empty() {
            true => "nothing was measured until then".to_owned(),
            false => format!("what it had measured until then is in {}", text.display()),
        };
        tell!("INTERRUPTED: {}: {why}", one.about.name);
        return Ok(Ended::Interrupted(why));
    }
    if !output.status.success() {
        let status = output.status;
        let why = format!("`{line}` ended with {status}; mend that, and run this again to go on");
        tell!("FAILED: {}: {why}", one.about.name);
        return Ok(Ended::Failed(why));
    }
    let seconds = clock.now().since(began).as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some((_, why)) = text.lines().find_map(|line| line.split_once("SKIPPED, ALL OF IT: ")) {
        tell!("SKIPPED: {}: {why}", one.about.name);
        return Ok(Ended::Skipped(why.to_owned()));
    }
    save(&kept(args, one.about.name, "txt"), &text)?;
    let done = Done { command: command.clone(), version: version(), seconds };
    save(&kept(args, one.about.name, "done"), &serde_json::to_string(&done).unwrap_or_default())?;
    found(one, args, &command).ok_or_else(|| {
        Failure::new(
            ErrorKind::Corrupt,
            format!("`{line}` left no figures in {}", args.dir.display()),
        )
    })
}

/// How often is looked for the end of an experiment, and for a signal.
const STEP: Duration = Duration::from_millis(50);

/// Runs a command of this program in a process group of its own, so that a terminal's signals do not end it before its
/// figures are written: it gets the first one from here. However this process ends, it ends too.
fn run_to_end(command: &[String], interrupt: &Interrupt) -> Result<Output> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(command)
        .args(["--bound-to", &std::process::id().to_string()])
        .args(stderr::is_quiet().then_some("--quiet"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()?;
    let mut out = child.stdout.take();
    let reader = thread::spawn("lab-output", move || {
        let mut text = Vec::new();
        let read = out.as_mut().map_or(Ok(0), |out| out.read_to_end(&mut text));
        read.map(|_| text)
    })?;
    let (clock, mut is_told) = (Clock::real(), false);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt.has_come() && !is_told {
            is_told = true;
            // It may have ended this moment.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        clock.sleep(STEP);
    };
    let stdout = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(Output { status, stdout, stderr: Vec::new() })
}

/// Why an experiment cannot be run here, with the cure.
fn missing(one: &Experiment) -> Option<String> {
    if one.about.needs_root && !rustix::process::geteuid().is_root() {
        return Some("it changes this machine (drives, swap): run it as root".to_owned());
    }
    if let Some(why) = (one.about.name == Memory::ABOUT.name).then(memory::refusal).flatten() {
        return Some(why);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let program = one.about.programs.iter().find(|program| !is_there(program))?;
    Some(format!("there is no {program} on this machine: install it"))
}

fn command(one: &Experiment, args: &AllArgs) -> Vec<String> {
    let mut command: Vec<String> = vec!["lab".to_owned(), one.about.name.to_owned()];
    let own = if args.full { one.full } else { one.quick };
    command.extend(own.iter().map(|&word| word.to_owned()));
    if one.about.name == "flash-cache" {
        for trace in &args.traces {
            command.extend(["--traces".to_owned(), trace.display().to_string()]);
        }
    }
    if one.about.name == "pooled" {
        command.extend(["--work".to_owned(), args.dir.join("pooled").display().to_string()]);
    }
    for (flag, what) in [("--json", "json"), ("--report", "html"), ("--page", "page")] {
        command.extend([flag.to_owned(), kept(args, one.about.name, what).display().to_string()]);
    }
    command
}

/// Returns an experiment's kept result, if this program ran it with this command.
fn found(one: &Experiment, args: &AllArgs, command: &[String]) -> Option<Ended> {
    let read = |what: &str| fs::read_to_string(kept(args, one.about.name, what)).ok();
    let done: Done = serde_json::from_str(&read("done")?).ok()?;
    if done.command != command || done.version != version() {
        return None;
    }
    let figures = serde_json::from_str(&read("json")?).ok()?;
    let page = serde_json::from_str(&read("page")?).ok()?;
    Some(Ended::Through { seconds: done.seconds, figures, page })
}

/// This program, with its commit.
fn version() -> String {
    host::environment().remove("esker").unwrap_or_default()
}

fn save(path: &Path, text: &str) -> Result {
    files::write(path, text)
        .map_err(|error| Failure::file(path, &error, "make room, and run the same line again"))
}

/// Binds the chapters, and says where the report lies.
fn write(args: &AllArgs, ended: &[(&Experiment, Ended)]) -> Result {
    let summary = summary(args, ended);
    print(&format!("{}\n\n", summary.headline))?;
    let mut chapters = Vec::new();
    let mut all = Vec::new();
    for (one, ended) in ended {
        match ended {
            Ended::Through { seconds, figures, page } => {
                all.push(
                    json!({ "experiment": one.about.name, "seconds": seconds, "figures": figures }),
                );
                chapters.push((one.about.name.to_owned(), (**page).clone()));
            }
            Ended::Skipped(why) => {
                all.push(json!({ "experiment": one.about.name, "skipped": why }))
            }
            Ended::Failed(why) => all.push(json!({ "experiment": one.about.name, "failed": why })),
            Ended::Interrupted(why) => {
                all.push(json!({ "experiment": one.about.name, "interrupted": why }));
            }
        }
    }
    let value = json!({ "format": FORMAT, "finding": summary.headline, "experiments": all });
    let (html, json) = (args.dir.join("report.html"), args.dir.join("report.json"));
    save(&html, &Book { summary, chapters }.html())?;
    save(&json, &format!("{value:#}\n"))?;
    print(&format!("report: {}\nJSON: {}\n", html.display(), json.display()))
}

fn summary(args: &AllArgs, ended: &[(&Experiment, Ended)]) -> Page {
    let through = ended.iter().filter_map(|(one, ended)| match ended {
        Ended::Through { page, .. } => Some((*one, page)),
        Ended::Skipped(_) | Ended::Failed(_) | Ended::Interrupted(_) => None,
    });
    let through: Vec<_> = through.collect();
    let verdicts = through.iter().flat_map(|(_, page)| &page.verdicts);
    let headline = format!(
        "{} of {} experiments ran. Of {} figures: {}.",
        through.len(),
        ended.len(),
        verdicts.clone().count(),
        Verdict::tally(verdicts)
    );
    let mut page = Page::new("Five published systems and the kernel's swap, and Esker", headline);
    page.about = if args.full {
        "At full scale.".to_owned()
    } else {
        "At quick scale, each experiment once: to see what there is, not to quote.".to_owned()
    };
    let mut section = Section::new("The systems");
    section.pairs(
        ended
            .iter()
            .map(|(one, _)| (one.about.system.to_owned(), one.about.purpose.to_owned()))
            .collect(),
    );
    page.sections.push(section);
    page.sections.push(findings(ended));
    page.environment = host::environment();
    page.command = host::command_line();
    page
}

/// The result of each experiment, with a link to its chapter.
fn findings(ended: &[(&Experiment, Ended)]) -> Section {
    let mut section = Section::new("What was found");
    let head = ["experiment", "reached", "missed", "not comparable", "found"];
    let mut table = Table::new(head).words([0, 4]);
    for (one, ended) in ended {
        let Ended::Through { page, .. } = ended else { continue };
        let count = |outcome| page.verdicts.iter().filter(|one| one.outcome == outcome).count();
        let cells = [
            esker_report::Cell::link(&page.title, one.about.name),
            count(Outcome::Reached).to_string().into(),
            (count(Outcome::Missed) + count(Outcome::Partly)).to_string().into(),
            count(Outcome::NotComparable).to_string().into(),
            page.headline.clone().into(),
        ];
        table.row(cells);
    }
    section.add(table);
    section.list(ended.iter().filter_map(|(one, ended)| match ended {
        Ended::Skipped(why) => Some(format!("Skipped: {}: {why}", one.about.name)),
        Ended::Failed(why) => Some(format!("Failed: {}: {why}", one.about.name)),
        Ended::Interrupted(why) => Some(format!("Interrupted: {}: {why}", one.about.name)),
        Ended::Through { .. } => None,
    }));
    section
}
