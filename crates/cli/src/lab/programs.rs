//! Programs that run beside this one: started in a cgroup, their output in a log, waited for and ended.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use esker_base::{Clock, files, thread};
use esker_lab::LabError;
use rustix::process::{Pid, Signal, kill_process};

use super::bounds::cgroups;

/// The result of a part of the study.
pub(super) type Run<T = ()> = Result<T, LabError>;

const STEP: Duration = Duration::from_millis(50);
/// The end of a log that a failure shows, in bytes.
const TAIL: usize = 2000;

/// A failure of a program or a part.
pub(super) fn wrong(name: &str, why: impl std::fmt::Display) -> LabError {
    LabError::Way { way: name.to_owned(), why: why.to_string() }
}

/// A command that enters a cgroup before it becomes the program.
pub(super) fn within(procs: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(program);
    command
}

/// A program that runs until it is ended.
pub(super) struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program whose output goes to a log.
    pub(super) fn start(name: &str, command: &mut Command, log: &Path) -> Run<Server> {
        let failed = |error: std::io::Error| wrong(name, format!("{}: {error}", log.display()));
        let out = files::create(log).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(|error| wrong(name, error))?;
        Ok(Server { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Its process. The shell before it has become it.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub(super) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its output has something.
    pub(super) fn until<T>(
        &mut self,
        patience: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Run<T> {
        let clock = Clock::real();
        let end = clock.now() + patience;
        loop {
            let ended = self.status()?;
            if let Some(found) = find(&self.said()) {
                return Ok(found);
            }
            if let Some(status) = ended {
                return Err(self.failed(&format!("it has ended ({status})")));
            }
            if clock.now() > end {
                return Err(self.failed(&format!("it is not ready after {patience:?}")));
            }
            clock.sleep(STEP);
        }
    }

    /// Waits for its end, which has to be a success.
    pub(super) fn succeed(mut self, patience: Duration) -> Run<String> {
        match self.wait(patience)? {
            Some(status) if status.success() => Ok(self.said()),
            Some(status) => Err(self.failed(&format!("it has failed ({status})"))),
            None => Err(self.failed(&format!("it takes longer than {patience:?}"))),
        }
    }

    /// Asks it to end, and waits; a program that does not end is killed, and an error.
    pub(super) fn end(mut self, patience: Duration) -> Run {
        if self.status()?.is_some() {
            return Err(self.failed("it has ended before it was asked to"));
        }
        self.signal(Signal::TERM);
        match self.wait(patience)? {
            Some(_) => Ok(()),
            None => Err(self.failed(&format!("it does not end within {patience:?}"))),
        }
    }

    /// Kills it (SIGKILL).
    pub(super) fn kill(mut self) -> Run {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(|_| ()).map_err(|error| wrong(&self.name, error))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended this moment.
            let _ = kill_process(pid, signal);
        }
    }

    fn status(&mut self) -> Run<Option<ExitStatus>> {
        self.child.try_wait().map_err(|error| wrong(&self.name, error))
    }

    fn wait(&mut self, patience: Duration) -> Run<Option<ExitStatus>> {
        let clock = Clock::real();
        let end = clock.now() + patience;
        loop {
            match self.status()? {
                None if clock.now() < end => clock.sleep(STEP),
                found => return Ok(found),
            }
        }
    }

    fn failed(&self, what: &str) -> LabError {
        let said = self.said();
        let from = said.len().saturating_sub(TAIL);
        let tail: String =
            said.char_indices().filter(|(at, _)| *at >= from).map(|(_, one)| one).collect();
        wrong(
            &self.name,
            format!("{what}; {} has all that it said, at last:\n{tail}", self.log.display()),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After a failure nothing is left behind. A process that has ended already is no failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does the same with several things at once; the results in their order, or the first failure.
pub(super) fn at_once<T: Send, R: Send>(
    things: impl IntoIterator<Item = T>,
    act: impl Fn(T) -> Run<R> + Sync,
) -> Run<Vec<R>> {
    let act = &act;
    std::thread::scope(|scope| {
        let spawn = |thing| thread::spawn_scoped(scope, "lab-program", move || act(thing));
        let threads: Vec<_> = things.into_iter().map(spawn).collect::<Result<_, _>>()?;
        let joined = threads
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // All of them have ended before the first failure is told.
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Runs a program to its end, and gives its standard output.
pub(super) fn call(name: &str, command: &mut Command) -> Run<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| wrong(name, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Err(wrong(name, format!("{}: {}", output.status, said.join("\n").trim())))
}

/// Makes a folder with those above it.
pub(super) fn folder(path: &Path) -> Run<PathBuf> {
    files::create_dir_all(path).map_err(|error| wrong(&path.display().to_string(), error))?;
    Ok(path.to_owned())
}

/// Writes a file of text.
pub(super) fn write(path: &Path, text: &str) -> Run {
    files::write(path, text).map_err(|error| wrong(&path.display().to_string(), error))
}

/// Whether a program is there, and takes these words.
pub(super) fn runs(program: impl AsRef<OsStr>, words: &[&str]) -> bool {
    let null = Stdio::null;
    let mut command = Command::new(program);
    let run = command.args(words).stdin(null()).stdout(null()).stderr(null()).status();
    run.is_ok_and(|status| status.success())
}

/// The missing needs of attached devices with file systems and of bounded memory, each with its cure.
pub(super) fn missing_for_file_systems() -> Vec<String> {
    let needs = [
        (rustix::process::geteuid().is_root(), "this needs root: run it with sudo"),
        (runs("mkfs.ext4", &["-V"]), "mkfs.ext4 is missing: install e2fsprogs"),
        (
            opens("/dev/fuse").is_ok(),
            "/dev/fuse cannot be opened: load the module fuse, and give the container the device",
        ),
        (
            runs("losetup", &["-a"]),
            "loop devices are not to be had: load the module loop, install util-linux",
        ),
        (
            cgroups().is_ok(),
            "no memory cgroup of version 1 is mounted: `mount -t cgroup -o memory none \
             /sys/fs/cgroup/memory`, where the kernel has it",
        ),
    ];
    let missing = needs.into_iter().filter(|(is_there, _)| !is_there);
    missing.map(|(_, cure)| cure.to_owned()).collect()
}

/// Opens a device for the test whether it can be opened.
fn opens(path: &str) -> Result<File, std::io::Error> {
    File::options().read(true).write(true).open(path)
}
