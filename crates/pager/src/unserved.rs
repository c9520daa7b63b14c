//! Programs that do not load the pager's library, and so do not introduce themselves.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use crate::trap::Call;

/// Entries of a process's auxiliary vector, of `linux/auxvec.h`.
const AT_BASE: u64 = 7;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;

/// Names a program in a process, and in children that it forks: the bytes that the kernel gives to each one at random.
pub(crate) type ProgramId = u128;

/// Part of a process's auxiliary vector.
struct Auxiliary(Vec<u8>);

impl Auxiliary {
    fn of(thread: u32) -> Option<Auxiliary> {
        Some(Auxiliary(fs::read(format!("/proc/{thread}/auxv")).ok()?))
    }

    fn entry(&self, name: u64) -> Option<u64> {
        let word = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
        let pairs = self.0.as_chunks::<16>().0;
        let found = pairs.iter().find(|pair| word(&pair[..8]) == Some(name))?;
        word(&found[8..])
    }
}

/// The program of a thread.
pub(crate) fn program_of(thread: u32) -> Option<ProgramId> {
    let at = Auxiliary::of(thread)?.entry(AT_RANDOM)?;
    let mut bytes = [0; 16];
    let memory = fs::File::open(format!("/proc/{thread}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(u128::from_ne_bytes(bytes))
}

/// A thread whose program is to be served.
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) program: ProgramId,
    /// It is a forked child, which has the library.
    pub(crate) is_child: bool,
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

    /// Whether a thread's program does not load the library itself: it loads none, or its environment does not name this one, or
    /// the kernel has given it privileges of a file.
    pub(crate) fn has(&self, thread: u32) -> bool {
        let Some(auxiliary) = Auxiliary::of(thread) else { return false };
        let is_named = || {
            let environment = fs::read(format!("/proc/{thread}/environ")).unwrap_or_default();
            let mut values = environment.split(|byte| *byte == 0).filter_map(|line| {
                Some(String::from_utf8_lossy(line.strip_prefix(b"LD_PRELOAD=")?).into_owned())
            });
            values.any(|names| names.split([':', ' ']).any(|name| Path::new(name) == self.library))
        };
        let loads = auxiliary.entry(AT_BASE).is_some_and(|base| base > 0);
        !(loads && auxiliary.entry(AT_SECURE) == Some(0) && is_named())
    }

    /// Has the program of a call's thread served; the call is made again then. Else it goes on as it is. False: it cannot be.
    pub(crate) fn serve(&self, call: Call, program: ProgramId, is_child: bool) -> bool {
        self.jobs.send(Job { call, program, is_child }).is_ok()
    }
}
