//! Commands of volumes: how many, how long they took, and in which stage the time went. Sees `types`.
//!
//! A command is timed from its submission to its completion. Stages overlap where commands do: a frame of the write
//! buffer counts once for each batch of changes in it, a leaf of the map once for all reads that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::latency::{Histogram, Latency};
use esker_base::sync::Mutex;
use esker_base::units::to_u64;
use esker_device::{DeviceError, Op, OpKind};

use crate::types::id::VolumeId;

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
