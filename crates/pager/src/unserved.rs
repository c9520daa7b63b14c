//! Programs that do not load the pager's library, and so do not introduce themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use crate::trap::Call;

/// Entries of a process's auxiliary vector, of `linux/auxvec.h`.
const AT_BASE: u64 = 7;
const AT_SECURE: u64 = 23;
const AT_SYSINFO_EHDR: u64 = 33;

/// Names a program in a process: another one that the process runs later has another number.
pub(crate) type ProgramId = u64;

/// The program of a thread, if it does not load the library itself: it loads none, or its environment does not name this one, or
/// the kernel has given it privileges of a file.
fn program_without(library: &Path, thread: u32) -> Option<ProgramId> {
    let bytes = fs::read(format!("/proc/{thread}/auxv")).ok()?;
    let words: Vec<u64> =
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let entry = |name| {
        let pairs = words.as_chunks::<2>().0;
        pairs.iter().find(|[key, _]| *key == name).map(|[_, value]| *value)
    };
    let is_named = || {
        let environment = fs::read(format!("/proc/{thread}/environ")).unwrap_or_default();
        let mut values = environment.split(|byte| *byte == 0).filter_map(|line| {
            Some(String::from_utf8_lossy(line.strip_prefix(b"LD_PRELOAD=")?).into_owned())
        });
        values.any(|names| names.split([':', ' ']).any(|name| Path::new(name) == library))
    };
    let loads = entry(AT_BASE)? > 0 && entry(AT_SECURE) == Some(0) && is_named();
    // The kernel puts these pages anywhere at each exec.
    entry(AT_SYSINFO_EHDR).filter(|at| *at > 0 && !loads)
}

/// A thread whose program is to be served.
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) program: ProgramId,
}

/// Where such programs go.
pub(crate) struct Unserved {
    jobs: Sender<Job>,
    library: PathBuf,
}

impl Unserved {
    /// They go to the receiver of these jobs, which puts the library into them.
    pub(crate) fn new(jobs: Sender<Job>, library: PathBuf) -> Unserved {
        Unserved { jobs, library }
    }

    /// The program of a thread, if it is such a one.
    pub(crate) fn program(&self, thread: u32) -> Option<ProgramId> {
        program_without(&self.library, thread)
    }

    /// Has the program of a call's thread served; the call is made again then. Else it goes on as it is.
    pub(crate) fn serve(&self, call: Call, program: ProgramId) {
        // The thread ends with this process alone.
        let _ = self.jobs.send(Job { call, program });
    }
}
