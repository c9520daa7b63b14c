//! Commands of volumes: how many, how long they took, and in which stage the time went. Sees `types`.
//!
//! A command is timed from its submission to its completion. Stages overlap where commands do: a frame of the write
//! buffer counts once for each batch of changes in it, a leaf of the map once for all reads that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::sync::Mutex;
use esker_base::units::{to_u64, to_usize};
use esker_device::{DeviceError, Op, OpKind};

use crate::types::id::VolumeId;

/// Buckets of a histogram: four for each power of two, from 256 ns on; the last one is open.
pub const BUCKETS: usize = 112;
/// The first bucket ends here.
const FIRST_NS: u64 = 256;

/// Where the time of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Waits because the volume's limits say so.
    Limit,
    /// Waits until the write buffer has room, or the pool has.
    Buffer,
    /// Makes records durable in the write buffer.
    Log,
    /// Reads a leaf of the map that is not in memory.
    Map,
    /// Reads segments, verifies, and computes from parities.
    Drive,
}

impl Stage {
    /// All stages.
    pub const ALL: [Stage; 5] = [Stage::Limit, Stage::Buffer, Stage::Log, Stage::Map, Stage::Drive];

    /// As metrics call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Limit => "limit",
            Stage::Buffer => "buffer",
            Stage::Log => "log",
            Stage::Map => "map",
            Stage::Drive => "drive",
        }
    }
}

/// A histogram of latencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many were in each bucket; bucket `n` ends before [`Latency::bucket_end`].
    pub counts: Vec<u64>,
    /// All of them together.
    pub sum: Duration,
}

impl Latency {
    /// Where a bucket ends.
    #[must_use]
    pub fn bucket_end(bucket: usize) -> Duration {
        let (octave, quarter) = (bucket / 4, bucket % 4);
        let start = FIRST_NS << octave;
        Duration::from_nanos(start + start / 4 * to_u64(quarter))
    }

    fn add(&mut self, other: &Latency) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The end of the bucket below which `share` of them are; zero when there were none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a share of a count
    pub fn percentile(&self, share: f64) -> Duration {
        let wanted = self.count() as f64 * share;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= wanted {
                return Latency::bucket_end(bucket);
            }
        }
        Duration::ZERO
    }
}

#[derive(Debug)]
struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = match (ns / FIRST_NS).checked_ilog2() {
            None => 0,
            Some(octave) => {
                let quarter = (ns >> (octave + 6)) & 3;
                (4 * to_usize(octave.into()) + to_usize(quarter) + 1).min(BUCKETS - 1)
            }
        };
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Latency {
        Latency {
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)),
        }
    }
}

/// Commands of a volume since the pool was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStats {
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Discards and zeroes.
    pub discards: u64,
    /// Commands that failed.
    pub errors: u64,
    /// How long reads took.
    pub read_latency: Latency,
    /// How long writes, discards and zeroes took.
    pub write_latency: Latency,
    /// How long commands, or batches of them, were in each stage, in the order of [`Stage::ALL`].
    pub stages: Vec<(Stage, Latency)>,
}

impl VolumeStats {
    /// Adds the commands of another volume.
    pub fn add(&mut self, other: &VolumeStats) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.discards += other.discards;
        self.errors += other.errors;
        self.read_latency.add(&other.read_latency);
        self.write_latency.add(&other.write_latency);
        for ((_, stage), (_, more)) in self.stages.iter_mut().zip(&other.stages) {
            stage.add(more);
        }
    }
}

/// The counters of a volume.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    discards: AtomicU64,
    errors: AtomicU64,
    read_latency: Histogram,
    write_latency: Histogram,
    stages: [Histogram; Stage::ALL.len()],
}

impl Tally {
    /// A command ended that took so long.
    pub(crate) fn end(&self, kind: OpKind, time: Duration) {
        match kind {
            OpKind::Read => self.read_latency.add(time),
            OpKind::Write | OpKind::Discard | OpKind::WriteZeroes => self.write_latency.add(time),
            _ => {}
        }
    }

    /// So much time went by in a stage.
    pub(crate) fn spend(&self, stage: Stage, time: Duration) {
        self.stages[stage as usize].add(time);
    }

    /// The bytes that a command moved, or that it failed.
    pub(crate) fn count(&self, op: &Op, result: &Result<(), DeviceError>) {
        let add = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        match (op, result) {
            (_, Err(_)) => add(&self.errors, 1),
            (Op::Read { buf, .. }, _) => {
                add(&self.read_bytes, to_u64(buf.len()));
                add(&self.reads, 1)
            }
            (Op::Write { buf, .. }, _) => {
                add(&self.written_bytes, to_u64(buf.len()));
                add(&self.writes, 1)
            }
            (Op::Discard { .. } | Op::WriteZeroes { .. }, _) => add(&self.discards, 1),
            _ => 0,
        };
    }

    fn snapshot(&self) -> VolumeStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stages = Stage::ALL.into_iter().zip(self.stages.iter().map(Histogram::snapshot));
        VolumeStats {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
            discards: get(&self.discards),
            errors: get(&self.errors),
            read_latency: self.read_latency.snapshot(),
            write_latency: self.write_latency.snapshot(),
            stages: stages.collect(),
        }
    }
}

/// The counters of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<BTreeMap<VolumeId, Arc<Tally>>>);

impl Tallies {
    pub(crate) fn of(&self, volume: VolumeId) -> Arc<Tally> {
        self.0.lock().entry(volume).or_default().clone()
    }

    pub(crate) fn snapshot(&self, volume: VolumeId) -> VolumeStats {
        self.of(volume).snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_counted_in_the_bucket_that_ends_after_it() {
        for ns in
            [0, 1, 255, 256, 319, 320, 511, 512, 4_000, 1_000_000, 999_999_999, 20_000_000_000]
        {
            let histogram = Histogram::default();
            let time = Duration::from_nanos(ns);
            (0..3).for_each(|_| histogram.add(time));
            let found = histogram.snapshot();
            let bucket = found.counts.iter().position(|count| *count == 3).unwrap();
            assert!(time < Latency::bucket_end(bucket), "{ns} ns in bucket {bucket}");
            assert!(bucket == 0 || time >= Latency::bucket_end(bucket - 1), "{ns} ns in {bucket}");
            assert_eq!((found.count(), found.sum), (3, 3 * time));
        }
        let histogram = Histogram::default();
        histogram.add(Duration::from_secs(1 << 30));
        assert_eq!(histogram.snapshot().counts[BUCKETS - 1], 1);
    }

    #[test]
    fn percentile_is_the_end_of_its_bucket() {
        let histogram = Histogram::default();
        (0..99).for_each(|_| histogram.add(Duration::from_micros(10)));
        histogram.add(Duration::from_millis(5));
        let latency = histogram.snapshot();
        assert!(latency.percentile(0.5) < Duration::from_micros(13));
        assert!(latency.percentile(0.999) > Duration::from_millis(5));
        assert_eq!(Histogram::default().snapshot().percentile(0.5), Duration::ZERO);
    }
}
