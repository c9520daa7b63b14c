//! Promises to a lane, as seen from outside: a file of acknowledgements for each lane, and
//! when the parent saw it grow.
//!
//! Invariant: an acknowledgement counts as given when the parent saw it in the file, which is
//! later than when it was given: the parent never thinks a write older than it is.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::{Clock, Nanos};

const ENTRY: usize = 9;
/// How often the parent looks.
const INTERVAL: Duration = Duration::from_millis(2);

/// An entry of the file: write `n` was acknowledged, or a sync that covers it.
pub(crate) fn entry(synced: bool, n: u64) -> [u8; ENTRY] {
    let mut entry = [u8::from(synced); ENTRY];
    entry[1..].copy_from_slice(&n.to_le_bytes());
    entry
}

/// In the child: the last acknowledged write of each lane.
#[derive(Default)]
pub(crate) struct Acknowledged([AtomicU64; 2]);

impl Acknowledged {
    pub(crate) fn set(&self, lane: u64, n: u64) {
        self.0[usize::try_from(lane).unwrap()].store(n, Ordering::Release);
    }

    /// Those of the other lanes, now; zero for the lane itself.
    pub(crate) fn of_others(&self, lane: u64) -> [u64; 2] {
        let mut all = [0, 1].map(|other: usize| self.0[other].load(Ordering::Acquire));
        all[usize::try_from(lane).unwrap()] = 0;
        all
    }
}

/// Acknowledgements that the parent has heard of one lane in the life of one child.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The last write acknowledged.
    pub(crate) last: u64,
    /// The last write covered by a sync.
    pub(crate) synced: u64,
    /// Writes and how long before the kill, at least, each was acknowledged; both ascending and
    /// descending.
    pub(crate) ages: Vec<(u64, Duration)>,
}

/// Watches the files of a child.
pub(crate) struct Watch {
    clock: Clock,
    paths: Vec<PathBuf>,
    /// For each file, when it was seen to have how many entries.
    seen: Vec<Vec<(Nanos, usize)>>,
    end: Nanos,
}

impl Watch {
    pub(crate) fn start(paths: Vec<PathBuf>) -> Watch {
        Watch { clock: Clock::real(), seen: vec![Vec::new(); paths.len()], paths, end: Nanos(0) }
    }

    /// Watches for `life`; if `busy`, counted from the first entry.
    pub(crate) fn run(&mut self, life: Duration, busy: bool) {
        let mut began = self.clock.now();
        let mut is_idle = busy;
        while is_idle || self.clock.now().since(began) < life {
            self.look();
            if is_idle && self.seen.iter().all(|seen| !seen.is_empty()) {
                (began, is_idle) = (self.clock.now(), false);
            }
            self.clock.sleep(INTERVAL);
        }
    }

    fn look(&mut self) {
        for (path, seen) in self.paths.iter().zip(&mut self.seen) {
            let size = std::fs::metadata(path).unwrap().len();
            let entries = usize::try_from(size).unwrap() / ENTRY;
            if seen.last().map_or(0, |&(_, entries)| entries) < entries {
                seen.push((self.clock.now(), entries));
            }
        }
    }

    /// The moment before the kill.
    pub(crate) fn note_end(&mut self) {
        self.end = self.clock.now();
    }

    /// Returns the acknowledgements heard of each lane. The child is dead.
    pub(crate) fn finish(self) -> Vec<Heard> {
        let lanes = self.paths.iter().zip(&self.seen);
        lanes
            .map(|(path, seen)| {
                let bytes = std::fs::read(path).unwrap();
                let entries: Vec<(bool, u64)> = bytes
                    .chunks_exact(ENTRY)
                    .map(|entry| {
                        let n = entry[1..].try_into().expect("eight bytes");
                        (entry[0] == 1, u64::from_le_bytes(n))
                    })
                    .collect();
                let synced = entries.iter().rev().find(|(synced, _)| *synced);
                Heard {
                    last: entries.last().map_or(0, |(_, n)| *n),
                    synced: synced.map_or(0, |(_, n)| *n),
                    ages: seen
                        .iter()
                        .map(|&(when, count)| (entries[count - 1].1, self.end.since(when)))
                        .collect(),
                }
            })
            .collect()
    }
}
