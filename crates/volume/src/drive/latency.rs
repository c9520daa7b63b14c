//! How long a drive's commands take, and which drives are slow beside the others: counted in histograms, judged once a
//! second of the pool's clock.
//!
//! Reads, writes, and writes with FUA, each small or large, are counted apart: a drive with a copy of the write buffer has
//! other commands than one without.
//!
//! Invariants
//! 1. A drive is judged by drives of its role, never by itself, and only where both have enough samples.
//! 2. It takes [`SLOW_AFTER`] slow windows in a row to be suspected, and [`WELL_AFTER`] others to be trusted again.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::latency::{Histogram, Latency};
use esker_base::units::to_nanos;
use esker_device::Op;

/// A window is this long.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// Windows in a row after which a slow drive is suspected.
const SLOW_AFTER: u32 = 3;
/// Windows in a row after which a suspected drive is trusted again.
const WELL_AFTER: u32 = 10;
/// A drive is slow whose median is so many times that of its peers, and at least [`SLOW_FLOOR_NS`].
const SLOW_TIMES: u64 = 4;
const SLOW_FLOOR_NS: u64 = 100_000;
/// A window with fewer samples tells nothing.
const SAMPLES_MIN: u64 = 8;

/// Kinds of commands that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoKind(u8);

const KINDS: usize = 6;
/// Commands of more bytes are large.
const SMALL_BYTES: usize = 64 << 10;

impl IoKind {
    /// That of a command, if it is counted.
    pub(crate) fn of(op: &Op) -> Option<IoKind> {
        let kind = match op {
            Op::Read { .. } => 0,
            Op::Write { fua: false, .. } => 2,
            Op::Write { fua: true, .. } => 4,
            _ => return None,
        };
        Some(IoKind(kind + u8::from(op.buf_len() > SMALL_BYTES)))
    }
}

/// Percentiles of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) samples: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

impl From<Latency> for Percentiles {
    fn from(latency: Latency) -> Percentiles {
        let ns = |share| to_nanos(latency.percentile(share));
        Percentiles { samples: latency.count(), p50_ns: ns(0.5), p99_ns: ns(0.99) }
    }
}

/// A drive's latencies.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    counts: [Histogram; KINDS],
    /// Of the last window that told something: p50 and p99 of each kind, in nanoseconds.
    last: [[AtomicU64; 2]; KINDS],
    slow_windows: AtomicU32,
    well_windows: AtomicU32,
    is_slow: AtomicBool,
}

impl Latencies {
    pub(crate) fn record(&self, kind: IoKind, span: Duration) {
        self.counts[usize::from(kind.0)].add(span);
    }

    /// Whether the drive has been slow beside its peers for seconds.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Acquire)
    }

    /// Median and 99th percentile of small reads, then of small writes to the write buffer or, where there are none, of
    /// others, in nanoseconds.
    pub(crate) fn last(&self) -> [u64; 4] {
        let get = |kind: usize| self.last[kind].each_ref().map(|ns| ns.load(Ordering::Relaxed));
        let writes = [4, 2, 5, 3].map(get).into_iter().find(|[p50, _]| *p50 > 0);
        let ([r50, r99], [w50, w99]) = (get(0), writes.unwrap_or_default());
        [r50, r99, w50, w99]
    }

    fn judge(&self, is_slow: bool) {
        if is_slow {
            self.well_windows.store(0, Ordering::Relaxed);
            if self.slow_windows.fetch_add(1, Ordering::Relaxed) + 1 >= SLOW_AFTER {
                self.is_slow.store(true, Ordering::Release);
            }
        } else {
            self.slow_windows.store(0, Ordering::Relaxed);
            if self.well_windows.fetch_add(1, Ordering::Relaxed) + 1 >= WELL_AFTER {
                self.is_slow.store(false, Ordering::Release);
            }
        }
    }
}

/// Ends a window of drives of one role: judges each by the others. Returns the middle one of their 99th percentiles of
/// reads, if there were enough reads to tell.
pub(crate) fn end_window(drives: &[&Latencies]) -> Option<u64> {
    let windows: Vec<[Percentiles; KINDS]> =
        drives.iter().map(|drive| drive.counts.each_ref().map(|one| one.take().into())).collect();
    for (at, drive) in drives.iter().enumerate() {
        let mut verdicts = [None; KINDS];
        for kind in 0..KINDS {
            let own = windows[at][kind];
            if own.samples < SAMPLES_MIN {
                continue;
            }
            drive.last[kind][0].store(own.p50_ns, Ordering::Relaxed);
            drive.last[kind][1].store(own.p99_ns, Ordering::Relaxed);
            let peers = (0..drives.len()).filter(|other| *other != at);
            let peers = peers.map(|other| windows[other][kind]);
            let peers = peers.filter(|peer| peer.samples >= SAMPLES_MIN);
            verdicts[kind] = middle(peers.map(|peer| peer.p50_ns).collect())
                .map(|peers| own.p50_ns >= (SLOW_TIMES * peers).max(SLOW_FLOOR_NS));
        }
        if verdicts.iter().any(Option::is_some) {
            drive.judge(verdicts.contains(&Some(true)));
        }
    }
    let reads = windows.iter().map(|window| window[0]);
    middle(reads.filter(|reads| reads.samples >= SAMPLES_MIN).map(|reads| reads.p99_ns).collect())
}

fn middle(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(drive: &Latencies, us: u64, count: u32) {
        for _ in 0..count {
            drive.record(IoKind(0), Duration::from_micros(us));
        }
    }

    #[test]
    fn drive_is_suspected_after_three_slow_windows_and_trusted_after_ten_others() {
        let drives: Vec<Latencies> = (0..4).map(|_| Latencies::default()).collect();
        let drives: Vec<&Latencies> = drives.iter().collect();
        let window = |slow_us| {
            drives[1..].iter().for_each(|drive| feed(drive, 80, 50));
            feed(drives[0], slow_us, 20);
            end_window(&drives)
        };
        for number in 0..4 {
            let bound = window(900).unwrap();
            assert!((80_000..110_000).contains(&bound), "{bound}: the slow one does not move it");
            assert_eq!(drives[0].is_slow(), number >= 2);
        }
        assert!(drives[1..].iter().all(|drive| !drive.is_slow()));
        for number in 0..10 {
            assert!(drives[0].is_slow(), "{number}");
            window(90);
        }
        assert!(!drives[0].is_slow());
    }

    #[test]
    fn windows_with_few_samples_tell_nothing() {
        let drives: Vec<Latencies> = (0..2).map(|_| Latencies::default()).collect();
        for _ in 0..5 {
            feed(&drives[0], 90_000, 7);
            feed(&drives[1], 80, 100);
            assert!(end_window(&[&drives[0], &drives[1]]).is_some());
        }
        assert!(!drives[0].is_slow());
    }
}
