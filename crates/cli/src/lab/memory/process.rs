//! One process tree within bounds: `esker run` with a program, or the program in a cgroup that swaps.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use esker_base::units::parse_bytes;
use esker_base::{Clock, Nanos, files, thread};
use esker_lab::LabError;
use esker_lab::memory::bench::{Ended, RunFigures};

use super::watch::{Cut, Pool, Watch, kill_all};
use crate::lab::programs::{Run, wrong};

const PAGE_MIB: f64 = 4096.0 / 1048576.0;
const MIB: f64 = 1048576.0;
/// Processes that are left this long after the program are killed: the pager ends by itself.
const FAREWELL: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(2);
/// The end of a program's error output that a failure shows, in bytes.
const TAIL: usize = 1200;

/// A run to be started.
pub(super) struct Start<'a> {
    /// Its name in failures.
    pub(super) name: &'a str,
    /// The program and its arguments.
    pub(super) line: Vec<OsString>,
    /// `esker run` and its arguments; empty where the program runs by itself.
    pub(super) prefix: Vec<OsString>,
    pub(super) memory: &'a Path,
    pub(super) cpu: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) patience: Duration,
    pub(super) pool: Option<Pool>,
}

/// A run that goes on.
pub(super) struct Process {
    name: String,
    child: Child,
    output: Option<std::thread::JoinHandle<std::io::Result<Vec<u8>>>>,
    errors: PathBuf,
    watch: Option<Watch>,
    memory: PathBuf,
    cpu: PathBuf,
    clock: Clock,
    began: Nanos,
    kills: u64,
    swapped_in: u64,
    is_paged: bool,
}

/// A run's output where it completed; its own failure, or the machine's.
pub(super) enum Completed {
    Yes { sample: RunFigures, output: Vec<u8> },
    No(Ended),
}

impl Process {
    /// Starts it, in the work folder, with its output kept.
    pub(super) fn start(start: Start<'_>) -> Run<Process> {
        let failed = |error: std::io::Error| wrong(start.name, error);
        let errors = start.folder.join("errors");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && echo $$ > \"$1\" && shift && exec \"$@\""]);
        command.arg(start.memory.join("cgroup.procs")).arg(start.cpu.join("cgroup.procs"));
        command.args(&start.prefix).args(&start.line);
        command.current_dir(start.folder).env("LC_ALL", "C.UTF-8").env("POLARS_MAX_THREADS", "2");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(files::create(&errors).map_err(failed)?).process_group(0);
        files::write(&start.cpu.join("cpuacct.usage"), "0").map_err(failed)?;
        let (kills, swapped_in) = (kills(start.memory), swapped_in());
        let watch = Watch::start(start.memory, start.patience, start.pool).map_err(failed)?;
        let clock = Clock::real();
        let began = clock.now();
        let mut child = command.spawn().map_err(failed)?;
        let mut pipe = child.stdout.take();
        let output = thread::spawn("lab-output", move || {
            let mut text = Vec::new();
            pipe.as_mut().map_or(Ok(0), |pipe| pipe.read_to_end(&mut text)).map(|_| text)
        });
        Ok(Process {
            name: start.name.to_owned(),
            child,
            output: Some(output.map_err(failed)?),
            errors,
            watch: Some(watch),
            memory: start.memory.to_owned(),
            cpu: start.cpu.to_owned(),
            clock,
            began,
            kills,
            swapped_in,
            is_paged: !start.prefix.is_empty(),
        })
    }

    /// Whether it has not ended.
    pub(super) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Waits for its end.
    pub(super) fn end(mut self) -> Run<Completed> {
        let failed = |error: std::io::Error| wrong(&self.name, error);
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                break status;
            }
            self.clock.sleep(STEP);
        };
        let wall_s = self.clock.now().since(self.began).as_secs_f64();
        let end = self.clock.now() + FAREWELL;
        let processes = self.memory.join("cgroup.procs");
        while fs::read_to_string(&processes).is_ok_and(|list| !list.is_empty()) {
            if self.clock.now() > end {
                kill_all(&self.memory, &self.clock);
            }
            self.clock.sleep(STEP);
        }
        let seen = self.watch.take().map(Watch::end).unwrap_or_default();
        let output = self.output.take().map_or(Ok(Ok(Vec::new())), std::thread::JoinHandle::join);
        let output = output.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let output = output.map_err(failed)?;
        let bad_end = match seen.cut {
            Some(Cut::Interrupted) => return Err(LabError::Interrupted),
            Some(Cut::Late) => Some(Ended::Hung(wall_s)),
            Some(Cut::Full) => Some(Ended::Full(wall_s)),
            None if kills(&self.memory) > self.kills => Some(Ended::Killed(wall_s)),
            None if !status.success() => Some(Ended::Failed(self.failure(status))),
            None => None,
        };
        if let Some(ended) = bad_end {
            return Ok(Completed::No(ended));
        }
        let cpu_ns = fs::read_to_string(self.cpu.join("cpuacct.usage")).map_err(failed)?;
        let cpu_ns: f64 = cpu_ns.trim().parse().map_err(|error| wrong(&self.name, error))?;
        #[allow(clippy::cast_precision_loss)] // bytes of memory
        let mib = |bytes: u64| bytes as f64 / MIB;
        let sample = RunFigures {
            wall_s,
            cpu_s: cpu_ns / 1e9,
            read_mib: self.read_mib()?,
            peak_mib: mib(seen.memory),
            mapped_mib: mib(seen.mapped),
            ..RunFigures::default()
        };
        Ok(Completed::Yes { sample, output })
    }

    /// Ends it: its work went wrong, perhaps since the kernel has killed one of its processes.
    pub(super) fn abandon(mut self, why: &str) -> Run<Ended> {
        let wall_s = self.clock.now().since(self.began).as_secs_f64();
        let was_killed = kills(&self.memory) > self.kills;
        kill_all(&self.memory, &self.clock);
        match self.watch.take().and_then(|watch| watch.end().cut) {
            Some(Cut::Interrupted) => Err(LabError::Interrupted),
            Some(Cut::Late) => Ok(Ended::Hung(wall_s)),
            Some(Cut::Full) => Ok(Ended::Full(wall_s)),
            None if was_killed => Ok(Ended::Killed(wall_s)),
            None => Ok(Ended::Failed(why.to_owned())),
        }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.errors).unwrap_or_default()).into_owned()
    }

    fn failure(&self, status: ExitStatus) -> String {
        let said = self.said();
        let from = said.len().saturating_sub(TAIL);
        let tail: String =
            said.char_indices().filter(|(at, _)| *at >= from).map(|(_, c)| c).collect();
        let how = status.signal().map_or(format!("{status}"), |signal| format!("signal {signal}"));
        format!("{how}; {}", tail.trim())
    }

    #[allow(clippy::cast_precision_loss)] // pages
    fn read_mib(&self) -> Run<f64> {
        if !self.is_paged {
            return Ok((swapped_in() - self.swapped_in) as f64 * PAGE_MIB);
        }
        let said = self.said();
        read_by_pager(&said)
            .ok_or_else(|| wrong(&self.name, format!("esker run gave no summary: {said}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only after a failure is anything left.
        if let Some(watch) = self.watch.take() {
            kill_all(&self.memory, &self.clock);
            watch.end();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many processes the kernel has killed in a cgroup for want of memory.
fn kills(memory: &Path) -> u64 {
    let text = fs::read_to_string(memory.join("memory.oom_control")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
}

/// Pages that were swapped in since the machine started.
fn swapped_in() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("pswpin ")?.parse().ok()).unwrap_or(0)
}

/// MiB that a pager has read, from its summary: a page for each fault that neither made a page nor found one, and what was
/// read ahead.
#[allow(clippy::cast_precision_loss)] // counts for people
fn read_by_pager(said: &str) -> Option<f64> {
    let last = |part: &str| said.lines().rev().find(|line| line.contains(part));
    let faults = last(" faults, ")?;
    let (_, made) = faults.split_once('(')?;
    let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    let all = number(faults.strip_prefix("esker: ")?)?;
    // New pages, and those that were found in memory: as they are, or compressed.
    let without = made.split(", ").map(number).sum::<Option<u64>>()?;
    let (_, ahead) = last(" read ahead")?.split_once("; ")?;
    let (ahead, _) = ahead.split_once(" read ahead")?;
    let ahead = parse_bytes(&ahead.replace(' ', "")).ok()?;
    Some(all.saturating_sub(without) as f64 * PAGE_MIB + ahead as f64 / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_pager_are_its_waits_and_what_it_read_ahead() {
        let said = "warning: x\nesker: 1000 faults, 90.0 % without a read (300 new pages, 100 just evicted or read \
                    ahead, 88 compressed)\nesker: 5.00 MiB evicted, 1.00 MiB written, 0 B all zeroes; 2.50 MiB read ahead, 2.00 MiB \
                    used, 0 B wasted\n";
        assert!((read_by_pager(said).unwrap() - (512.0 * PAGE_MIB + 2.5)).abs() < 1e-9);
        assert_eq!(read_by_pager("esker: no device"), None);
    }
}
