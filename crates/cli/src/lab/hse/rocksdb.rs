//! RocksDB for the study: `bench-compare phases` on the striped drives, attached, with ext4 and a bound of memory.
//!
//! Invariants
//! 1. The program ends, and its file system is unmounted, before the drives are detached.
//! 2. A process of its own clears away when this one is killed ([`Groups`]).

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::ValueEnum;
use esker_attach::{Attachment, Options};
use esker_base::files;
use esker_base::units::human_bytes;
use esker_bench::{RunResult, Workload};
use esker_lab::LabError;
use esker_lab::hse::{Peer, PeerSetup};
use serde::Deserialize;

use crate::args::HseArgs;
use crate::failure::Result;
use crate::lab::bounds::cgroups;
use crate::lab::groups::Groups;
use crate::lab::programs::{Run, call, folder, missing_for_file_systems, runs, within, wrong};

const NAME: &str = "RocksDB";
/// Beside the memory of the engine: the program itself, and buffers of compactions, which depend on the sizes of files. With
/// 64 MiB the kernel killed it in small studies.
const BESIDE: u64 = 160 << 20;
/// For each client: its stack, its histograms, what the allocator keeps for its thread.
const OF_CLIENT: u64 = 512 << 10;
const BUILD: &str = "build it with compare/run --smoke";

/// The program and the places for its file systems.
pub(super) struct Rocksdb {
    program: PathBuf,
    engine: String,
    run: PathBuf,
    groups: Groups,
    /// Those that were started, so that each has folders of its own.
    started: u32,
}

/// The missing needs, each with its cure.
pub(super) fn missing(program: &Path) -> Vec<String> {
    let mut missing = missing_for_file_systems();
    if !runs(program, &["phases", "--help"]) {
        let name = program.display();
        missing.push(format!("{name} is no bench-compare that knows phases: {BUILD}"));
    }
    missing
}

impl Rocksdb {
    /// Prepares folders and cgroups.
    pub(super) fn new(args: &HseArgs, program: &Path) -> Run<Rocksdb> {
        let run = folder(&std::env::temp_dir().join(format!("esker-hse-{}", std::process::id())))?;
        let memory = cgroups().map_err(|why| wrong("cgroups", why))?;
        let groups = Groups::new(&memory, &run)?;
        let engine = args.rocksdb_as.to_possible_value();
        let engine = engine.map(|one| one.get_name().to_owned()).unwrap_or_default();
        Ok(Rocksdb { program: program.to_owned(), engine, run, groups, started: 0 })
    }

    /// Starts it on a device.
    pub(super) fn start(&mut self, setup: &PeerSetup<'_>) -> Run<Box<dyn Peer>> {
        self.started += 1;
        let mounted = Mounted::make(&self.run, self.started, setup)?;
        let memory = setup.options.memory_bytes();
        let beside = BESIDE + esker_base::units::to_u64(setup.options.threads) * OF_CLIENT;
        let procs = self.groups.node(0, memory + beside)?;
        let mut command = within(&procs, &self.program);
        command.args(["phases", "--engine", &self.engine, "--dir"]).arg(mounted.files.join("db"));
        for (flag, value) in [
            ("--records", setup.options.records),
            ("--memory", memory),
            ("--threads", esker_base::units::to_u64(setup.options.threads)),
            ("--seed", setup.seed),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        let log = self.run.join(format!("log-{}", self.started));
        let program = Program::start(&mut command, &log)?;
        let mut running = Running { program, mounted, description: String::new() };
        running.description = match running.program.hear()? {
            Answer::Opened { description } => format!(
                "{description}; {} of memory with the page cache, and {} for program and clients; ext4",
                human_bytes(memory),
                human_bytes(beside)
            ),
            other => return Err(unexpected(&other)),
        };
        Ok(Box::new(running))
    }

    /// Clears away.
    pub(super) fn end(mut self, has_failed: bool) -> Result {
        let ended = self.groups.end();
        if !has_failed {
            // Logs of a failure stay.
            let _ = fs::remove_dir_all(&self.run);
        }
        ended
    }
}

/// Answers of the program, a line of JSON each.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Opened { description: String },
    Ran(Box<RunResult>),
    Settled {},
    Failed { why: String },
}

fn unexpected(answer: &Answer) -> LabError {
    let why = match answer {
        Answer::Failed { why } => why.clone(),
        Answer::Opened { .. } => "it has been opened twice".to_owned(),
        Answer::Ran(run) => format!("it has run {} unasked", run.workload.name),
        Answer::Settled {} => "it is at rest unasked".to_owned(),
    };
    wrong(NAME, why)
}

/// The process; killed when dropped before its end.
struct Program {
    child: Child,
    /// Lines to it; none once it is asked to end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Program {
    fn start(command: &mut Command, log: &Path) -> Run<Program> {
        let failed = |error: std::io::Error| wrong(NAME, error);
        let errors: File = files::create(log).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(failed)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let Some(from) = from else { return Err(wrong(NAME, "it has no standard output")) };
        Ok(Program { child, to, from: BufReader::new(from), log: log.to_owned() })
    }

    /// Asks for a phase, and waits for its answer.
    fn ask(&mut self, line: &str) -> Run<Answer> {
        // A program that has ended says why in its answer, or does not answer.
        if let Some(to) = &mut self.to {
            let _ = to.write_all(format!("{line}\n").as_bytes());
        }
        self.hear()
    }

    fn hear(&mut self) -> Run<Answer> {
        let mut line = String::new();
        let count = self.from.read_line(&mut line).map_err(|error| wrong(NAME, error))?;
        if count > 0 {
            return answer(&line);
        }
        let status = self.child.wait().map_err(|error| wrong(NAME, error))?;
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let said = said.trim();
        Err(wrong(NAME, format!("it has ended ({status}): {said}; log {}", self.log.display())))
    }

    /// Ends it in order.
    fn end(&mut self) -> Run {
        drop(self.to.take());
        let status = self.child.wait().map_err(|error| wrong(NAME, error))?;
        if status.success() { Ok(()) } else { Err(wrong(NAME, status)) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After a failure nothing is left behind; a process that has ended already is no failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(line: &str) -> Run<Answer> {
    serde_json::from_str(line).map_err(|error| {
        wrong(NAME, format!("its answer makes no sense ({error}): {BUILD} from this commit"))
    })
}

/// An attached device with a mounted file system.
struct Mounted {
    attachment: Attachment,
    files: PathBuf,
    /// As in `/sys/block`.
    block: String,
    is_mounted: bool,
}

impl Mounted {
    fn make(run: &Path, number: u32, setup: &PeerSetup<'_>) -> Run<Mounted> {
        let at = folder(&run.join(format!("at-{number}")))?;
        let files = folder(&run.join(format!("files-{number}")))?;
        let options = Options { loop_device: true, ..Options::default() };
        let attachment = Attachment::start(setup.device.clone(), &at, &options);
        let attachment = attachment.map_err(|error| wrong("attach", error))?;
        let path = attachment.loop_path().map(Path::to_owned);
        let path = path.ok_or_else(|| wrong("attach", "there is no loop device"))?;
        let block = path.display().to_string().trim_start_matches("/dev/").to_owned();
        let mut mounted = Mounted { attachment, files, block, is_mounted: false };
        // All of its tables are written at once, so that nothing is left to be written beside a phase.
        let now = "lazy_itable_init=0,lazy_journal_init=0";
        call("mkfs.ext4", Command::new("mkfs.ext4").args(["-q", "-F", "-E", now]).arg(&path))?;
        let mut mount = Command::new("mount");
        call("mount", mount.args(["-o", "noatime,discard"]).arg(&path).arg(&mounted.files))?;
        mounted.is_mounted = true;
        Ok(mounted)
    }

    /// Unmounts and detaches it.
    fn end(&mut self) -> Run {
        call("umount", Command::new("umount").arg(&self.files))?;
        self.is_mounted = false;
        self.attachment.stop().map_err(|error| wrong("detach", error))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            // Another error is under way, and told.
            let _ = call("umount", Command::new("umount").arg(&self.files));
        }
    }
}

/// The program on its file system; dropped in this order.
struct Running {
    program: Program,
    mounted: Mounted,
    description: String,
}

impl Running {
    fn ran(&mut self, line: &str) -> Run<RunResult> {
        match self.program.ask(line)? {
            Answer::Ran(run) => Ok(*run),
            other => Err(unexpected(&other)),
        }
    }
}

impl Peer for Running {
    fn description(&self) -> String {
        self.description.clone()
    }

    fn load(&mut self) -> Run<RunResult> {
        self.ran("load")
    }

    fn run(&mut self, workload: &Workload, operations: u64) -> Run<RunResult> {
        self.ran(&format!("{} {operations}", workload.name))
    }

    fn settle(&mut self) -> Run {
        match self.program.ask("settle")? {
            Answer::Settled {} => {}
            other => return Err(unexpected(&other)),
        }
        // The page cache may still have some of it.
        call("sync", Command::new("sync").arg("-f").arg(&self.mounted.files)).map(|_| ())
    }

    fn busy_ns(&self) -> Option<u64> {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.mounted.block)).ok()?;
        busy_ns(&stat)
    }

    fn close(mut self: Box<Self>) -> Run {
        self.program.end()?;
        self.mounted.end()
    }
}

/// The time with requests under way (Documentation/block/stat.rst: the tenth figure, in milliseconds).
fn busy_ns(stat: &str) -> Option<u64> {
    let ms: u64 = stat.split_whitespace().nth(9)?.parse().ok()?;
    Some(ms * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program, and its log, which is gone after the test.
    fn program(script: &str) -> (Program, tempfile::NamedTempFile) {
        let log = tempfile::NamedTempFile::new().unwrap();
        (Program::start(Command::new("sh").args(["-c", script]), log.path()).unwrap(), log)
    }

    #[test]
    fn program_answers_each_line() {
        let script = "while read -r line; do\n\
            case $line in settle) echo '{\"settled\":{}}';; *) echo '{\"failed\":{\"why\":\"no '\"$line\"'\"}}';; esac\n\
            done";
        let (mut program, _log) = program(script);
        assert!(matches!(program.ask("settle"), Ok(Answer::Settled {})));
        let refused = program.ask("A 5").unwrap();
        assert_eq!(unexpected(&refused).to_string(), "RocksDB: no A 5");
        program.end().unwrap();
    }

    #[test]
    fn program_that_ends_or_talks_nonsense_is_an_error_with_its_words() {
        let why = |script| {
            let (mut program, _log) = program(script);
            program.ask("load").unwrap_err().to_string()
        };
        let ended = why("echo out of memory >&2; exit 3");
        assert!(ended.contains("out of memory") && ended.contains("exit status: 3"), "{ended}");
        let nonsense = why("read -r line; echo '{}'");
        assert!(nonsense.contains("compare/run --smoke"), "{nonsense}");
    }

    #[test]
    fn missing_program_has_a_cure() {
        let missing = missing(Path::new("/nonexistent/bench-compare"));
        assert!(missing.iter().any(|one| one.contains("compare/run --smoke")), "{missing:?}");
        // A program that is there and knows no phases is none, either.
        let other = super::missing(Path::new("false"));
        assert!(other.iter().any(|one| one.starts_with("false is no bench-compare")), "{other:?}");
    }

    #[test]
    fn busy_time_is_the_tenth_figure_of_a_block_device() {
        let stat = "  39 0 1144 60 35 1031 139680 547 0 120 638 5 0 16777224 9 5 20";
        assert_eq!(busy_ns(stat), Some(120_000_000));
        assert_eq!(busy_ns("1 2 3"), None);
    }
}
