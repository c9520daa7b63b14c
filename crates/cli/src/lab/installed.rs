//! `esker lab host-ssd --real`: runs the ways and DuckDB, each in a process of its own, within bounds.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::{human_bytes, to_u64};
use esker_lab::LabError;
use esker_lab::host_ssd::installed::{InstalledOptions, Query, Sample, Trial, Way, WayBench};
use esker_pager::PAGE;

use super::bounds::{Bounds, write_file};
use super::experiment::failed;
use super::side;
use crate::args::HostSsdArgs;
use crate::failure::{Failure, Result};
use crate::signals;

const SCRIPT: &str = include_str!("../../assets/duckdb.py");
/// Prints how many pages DuckDB takes before it has a table.
const IDLE: &str =
    "import duckdb; duckdb.connect(); print(open('/proc/self/statm').read().split()[1])";
/// Bytes of memory for a row, so that the table is about four times the memory.
const MEMORY_PER_ROW: u64 = 40;
/// Beside the budget: threads, rings, and the kernel's part of a process.
const BESIDE: u64 = 4 << 20;
/// Of the table, for page tables and the pager's state.
const OF_TABLE: u64 = 128;
/// Bytes of the swap file and of the pager's file, in multiples of the memory: DuckDB takes more than its table.
const FILE_TO_MEMORY: u64 = 8;
/// Of these the pager's file may reach beyond the written bytes, as programs reserve more than they use.
const RESERVE_TO_MEMORY: u64 = 32;
/// A run that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(600);
const KILLED: &str =
    "the kernel killed it for want of memory: run it again when the drive is less busy";
const STEP: Duration = Duration::from_millis(5);

/// The machine, options and bounds of the runs.
pub(super) struct Machine<'a> {
    pub(super) args: &'a HostSsdArgs,
    pub(super) options: InstalledOptions,
    pub(super) bounds: Bounds,
    /// Whether the swap file is on, or why it is not.
    swap: Result<(), String>,
    /// This program.
    pub(super) program: PathBuf,
    /// Bytes that DuckDB takes before it has a table, once known.
    idle_bytes: Option<u64>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        args: &'a HostSsdArgs,
        options: InstalledOptions,
    ) -> Result<Option<Machine<'a>>> {
        let Some(dir) = &args.real else { return Ok(None) };
        options.check().map_err(failed)?;
        let memory = options.memory_bytes();
        let needed = options.data_bytes + 2 * FILE_TO_MEMORY * memory;
        let bounds = Bounds::new(dir, "--real", "host-ssd", needed)?;
        let program = std::env::current_exe()?;
        let swap = Ok(());
        let mut machine = Machine { args, options, bounds, swap, program, idle_bytes: None };
        machine.write_files().map_err(|error| {
            Failure::file(machine.bounds.folder(), &error, "name another folder with --real")
        })?;
        machine.swap = machine.bounds.start_swap(&machine.file("swap"));
        Ok(Some(machine))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.bounds.folder().join(name)
    }

    fn write_files(&self) -> io::Result<()> {
        let mut chunk = vec![0; PAGE];
        write_file(&self.file("table"), self.options.data_bytes, |page| {
            side::fill(page, &mut chunk);
            chunk.clone()
        })?;
        let (zeroes, memory) = (vec![0; PAGE], self.options.memory_bytes());
        let pages = write_file(&self.file("pages"), FILE_TO_MEMORY * memory, |_| zeroes.clone())?;
        pages.set_len(RESERVE_TO_MEMORY * memory)?;
        write_file(&self.file("swap"), FILE_TO_MEMORY * memory, |_| zeroes.clone())?;
        Ok(())
    }

    /// Bounds the next run; with a cluster, it swaps.
    fn bound(&self, bytes: u64, cluster: Option<u32>) -> Result<PathBuf, String> {
        if cluster.is_some() {
            self.swap.clone()?;
        }
        self.bounds.bound(bytes, cluster)
    }

    /// Returns the bytes that a run may be charged for.
    fn limit(&self) -> u64 {
        self.options.memory_bytes() + BESIDE + self.options.data_bytes / OF_TABLE
    }

    fn side(&self, way: Way, cgroup: Option<PathBuf>) -> Command {
        let mut command = Command::new(&self.program);
        let name = serde_json::to_value(way).expect("a name");
        command.args(["lab", "host-ssd-side", "--way", name.as_str().unwrap_or_default()]);
        command.arg("--table").arg(self.file("table")).arg("--pages").arg(self.file("pages"));
        let memory = self.options.memory_bytes();
        for (flag, value) in [
            ("--data", self.options.data_bytes),
            ("--memory", memory),
            ("--lookups", self.options.lookups),
            ("--seed", self.options.seed),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        if let Some(umap) = &self.args.umap {
            command.arg("--umap").arg(umap);
        }
        // umap takes its configuration from here, in bytes and in pages.
        let pages = memory / to_u64(PAGE);
        command.env("UMAP_PAGESIZE", PAGE.to_string()).env("UMAP_BUFSIZE", pages.to_string());
        command
    }

    /// Rows of DuckDB's table.
    fn rows(&self) -> u64 {
        self.options.memory_bytes() / MEMORY_PER_ROW
    }

    /// DuckDB's resident memory before it has a table.
    fn idle(&mut self) -> Result<u64, String> {
        if let Some(bytes) = self.idle_bytes {
            return Ok(bytes);
        }
        let output =
            Command::new(&self.args.python).args(["-c", IDLE]).stdin(Stdio::null()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let pages = text.ok().and_then(|text| text.trim().parse::<u64>().ok());
        let pages = pages.ok_or_else(|| {
            format!(
                "{} has no DuckDB: `python3 -m venv v && v/bin/pip install duckdb`, and --python v/bin/python",
                self.args.python.display()
            )
        })?;
        let bytes = pages * to_u64(PAGE);
        self.idle_bytes = Some(bytes);
        Ok(bytes)
    }
}

impl WayBench for Machine<'_> {
    fn way(&mut self, way: Way) -> Result<Trial<Sample>, LabError> {
        let cluster = match way {
            Way::Swap0 => Some(0),
            Way::Swap3 => Some(3),
            _ => None,
        };
        let cgroup = match self.bound(self.limit(), cluster) {
            Ok(cgroup) => Some(cgroup),
            // These keep to their budget by themselves.
            Err(_) if matches!(way, Way::Plain | Way::Signal | Way::Handler) => None,
            Err(why) => return Ok(Trial::Skipped(why)),
        };
        let output = run(way.name(), cluster.is_some(), &mut self.side(way, cgroup))?;
        let Some(output) = output else { return Ok(Trial::Skipped(KILLED.to_owned())) };
        let wrong = |why: String| LabError::Way { way: way.name().to_owned(), why };
        // A library that is measured may have its own to say before.
        let said = String::from_utf8_lossy(&output.stdout);
        let trial = serde_json::from_str(said.trim_end().lines().last().unwrap_or_default())
            .map_err(|error| wrong(format!("what it says makes no sense: {error}")))?;
        let Trial::Ran(mut sample) = trial else { return Ok(trial) };
        #[allow(clippy::cast_precision_loss)] // MiB for people
        let peak = self.bounds.peak().map(|bytes| bytes as f64 / f64::from(1 << 20));
        sample.peak_mib = peak;
        Ok(Trial::Ran(sample))
    }

    fn queries(&mut self, is_paged: bool) -> Result<Trial<Vec<Query>>, LabError> {
        let idle = match self.idle() {
            Ok(idle) => idle,
            Err(why) => return Ok(Trial::Skipped(why)),
        };
        let memory = self.options.memory_bytes();
        let mut command = if is_paged {
            let mut command = Command::new(&self.program);
            command.args(["run", "--quiet", "--memory"]).arg(human_bytes(memory).replace(' ', ""));
            command.arg("--swap").arg(self.file("pages")).arg("--");
            command
        } else {
            let cgroup = match self.bound(memory + idle, Some(0)) {
                Ok(cgroup) => cgroup,
                Err(why) => return Ok(Trial::Skipped(why)),
            };
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$ > \"$0/cgroup.procs\"; exec \"$@\""]).arg(cgroup);
            command
        };
        command.arg(&self.args.python).args(["-c", SCRIPT]).arg(self.rows().to_string());
        let Some(output) = run("DuckDB", !is_paged, &mut command)? else {
            return Ok(Trial::Skipped(KILLED.to_owned()));
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let query = |line: &str| {
            let mut parts = line.split('\t');
            let (name, seconds, answer) = (parts.next()?, parts.next()?, parts.next()?);
            let (name, answer) = (name.to_owned(), answer.to_owned());
            Some(Query { name, seconds: seconds.parse().ok()?, answer })
        };
        Ok(Trial::Ran(text.lines().filter_map(query).collect()))
    }
}

/// Runs a command to its end. Where the kernel `swaps`, it may kill it when drives are so busy that no page is out in time:
/// there is no output then.
fn run(what: &str, swaps: bool, command: &mut Command) -> Result<Option<Output>, LabError> {
    let wrong = |why: String| LabError::Way { way: what.to_owned(), why };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
    let clock = Clock::real();
    let began = clock.now();
    let is_late = || clock.now().since(began) > PATIENCE;
    // Its output fits into its pipes.
    while child.try_wait().map_err(|error| wrong(error.to_string()))?.is_none() {
        if is_late() || signals::have_come() {
            let _ = child.kill();
        }
        clock.sleep(STEP);
    }
    let output = child.wait_with_output().map_err(|error| wrong(error.to_string()))?;
    if output.status.success() {
        return Ok(Some(output));
    }
    let is_killed = output.status.signal() == Some(rustix::process::Signal::KILL.as_raw());
    if swaps && is_killed && !is_late() && !signals::have_come() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(wrong(format!("{}: {}", output.status, said.trim())))
}
