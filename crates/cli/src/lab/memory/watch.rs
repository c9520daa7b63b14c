//! The watch over a run: its memory every few milliseconds, its deadline, and the limit that zram's pool leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_base::{Clock, files, thread};
use rustix::process::{Pid, Signal, kill_process};

use crate::signals;

/// How often is looked.
const STEP: Duration = Duration::from_millis(10);
/// A limit that has moved by less is left, in bytes.
const MOVED: u64 = 256 << 10;
/// How far the limit goes below what is used where it cannot go farther, in bytes.
const DOWN: u64 = 1 << 20;
/// A program has at least so much beside zram's pool, in bytes.
const LEAST: u64 = 8 << 20;
/// How often processes are killed until none is left, with a step between.
const KILLS: usize = 1000;

/// Why a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// It took too long.
    Late,
    /// Compressed memory left no room.
    Full,
    /// A signal came.
    Interrupted,
}

/// The figures that a watch has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The most bytes: anonymous, shared and of the kernel, and zram's pool.
    pub(super) memory: u64,
    /// The most bytes of mapped files.
    pub(super) mapped: u64,
    /// Why it was ended, if it was.
    pub(super) cut: Option<Cut>,
}

/// Compressed memory that counts as a run's own.
pub(super) struct Pool {
    /// Its statistics (Documentation/admin-guide/blockdev/zram.rst).
    pub(super) statistics: PathBuf,
    /// Bytes of program and pool together.
    pub(super) limit: u64,
}

/// A watch that goes on.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Seen>,
}

impl Watch {
    /// Watches the processes of a memory cgroup. They are killed when the time is over, the pool leaves no room, or a
    /// signal has come.
    pub(super) fn start(
        cgroup: &Path,
        patience: Duration,
        pool: Option<Pool>,
    ) -> std::io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, cgroup) = (Arc::clone(&stop), cgroup.to_owned());
        let thread = thread::spawn("lab-watch", move || {
            let clock = Clock::real();
            let end = clock.now() + patience;
            let (mut seen, mut set) = (Seen::default(), u64::MAX);
            while !stopped.load(Ordering::Relaxed) && seen.cut.is_none() {
                let mut look = Look::take(&cgroup);
                if let Some(pool) = &pool {
                    look.memory += pool_bytes(&pool.statistics);
                    seen.cut = lower(&cgroup, pool, &mut set);
                }
                seen.memory = seen.memory.max(look.memory);
                seen.mapped = seen.mapped.max(look.mapped);
                if signals::have_come() {
                    seen.cut = Some(Cut::Interrupted);
                } else if clock.now() > end {
                    seen.cut = Some(Cut::Late);
                }
                clock.sleep(STEP);
            }
            if seen.cut.is_some() {
                kill_all(&cgroup, &clock);
            }
            seen
        })?;
        Ok(Watch { stop, thread })
    }

    /// Ends it.
    pub(super) fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The memory of a cgroup at a moment.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    memory: u64,
    mapped: u64,
}

impl Look {
    fn take(cgroup: &Path) -> Look {
        let statistics = fs::read_to_string(cgroup.join("memory.stat")).unwrap_or_default();
        Look::of(&statistics, number(&cgroup.join("memory.kmem.usage_in_bytes")))
    }

    /// From memory.stat, in which a page that several processes share is counted once.
    fn of(statistics: &str, kernel: u64) -> Look {
        let field = |name: &str| {
            let line =
                statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        Look { memory: field("rss") + field("shmem") + kernel, mapped: field("mapped_file") }
    }
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Bytes that zram has taken: the third field, mem_used_total.
fn pool_bytes(statistics: &Path) -> u64 {
    let text = fs::read_to_string(statistics).unwrap_or_default();
    text.split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Lowers the limit by what the pool has taken. The kernel refuses a limit that it cannot reach at once: then it goes a
/// step below what is used, and the next look goes on.
fn lower(cgroup: &Path, pool: &Pool, set: &mut u64) -> Option<Cut> {
    let left = pool.limit.saturating_sub(pool_bytes(&pool.statistics));
    if left < LEAST {
        return Some(Cut::Full);
    }
    if left.abs_diff(*set) < MOVED {
        return None;
    }
    let used = number(&cgroup.join("memory.usage_in_bytes"));
    for bytes in [left, left.max(used.saturating_sub(DOWN))] {
        if files::write(&cgroup.join("memory.limit_in_bytes"), bytes.to_string()).is_ok() {
            *set = bytes;
            break;
        }
    }
    None
}

/// Kills all processes of a cgroup, those that they start meanwhile included.
pub(super) fn kill_all(cgroup: &Path, clock: &Clock) {
    for _ in 0..KILLS {
        let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        if list.is_empty() {
            return;
        }
        for pid in list.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            // It may have ended this moment.
            let _ = kill_process(pid, Signal::KILL);
        }
        clock.sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_anonymous_shared_and_of_the_kernel() {
        let text = "cache 900\nrss 4096\nrss_huge 77\nshmem 512\nmapped_file 300\ntotal_rss 5\n";
        assert_eq!(Look::of(text, 10), Look { memory: 4096 + 512 + 10, mapped: 300 });
    }

    #[test]
    fn limit_goes_down_as_the_pool_grows_until_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let statistics = folder.path().join("mm_stat");
        let pool = Pool { statistics: statistics.clone(), limit: 64 << 20 };
        let mut set = u64::MAX;
        let mut with = |used: u64| {
            fs::write(&statistics, format!("1 2 {used} 0 5 0 0 0 0\n")).unwrap();
            let cut = lower(folder.path(), &pool, &mut set);
            (cut, number(&folder.path().join("memory.limit_in_bytes")) >> 20)
        };
        assert_eq!(with(0), (None, 64));
        assert_eq!(with(100 << 10), (None, 64));
        assert_eq!(with(24 << 20), (None, 40));
        assert_eq!(with(57 << 20), (Some(Cut::Full), 40));
    }
}
