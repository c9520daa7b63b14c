//! Counters of the work that a device has carried. Every layer of a stack adds its own section.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{DeviceError, Geometry, Op, OpKind};

/// Operations and bytes of one device since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// The device's name.
    pub name: String,
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Completed flushes.
    pub flushes: u64,
    /// Completed discards and write-zeroes commands.
    pub discards: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Bytes written by the host.
    pub written_bytes: u64,
    /// Bytes discarded or zeroed by the host.
    pub discarded_bytes: u64,
    /// Bytes written to the medium under the host's; equal where the device cannot tell.
    pub media_written_bytes: u64,
    /// Commands that ended in an error.
    pub errors: u64,
    /// The devices this one stands on.
    pub below: Vec<DeviceStats>,
}

/// The counters behind [`DeviceStats`], shared by the queue pairs of a device.
#[derive(Debug, Default)]
pub struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    discarded_bytes: AtomicU64,
    errors: AtomicU64,
}

impl Counters {
    /// Counts one finished command.
    pub fn count(&self, op: &Op, geometry: &Geometry, result: &Result<(), DeviceError>) {
        let (_, bytes) = op.range(geometry.lba_size);
        self.count_kind(op.kind(), bytes, result.is_ok());
    }

    /// Counts one finished command of so many bytes.
    pub fn count_kind(&self, kind: OpKind, bytes: u64, is_done: bool) {
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        if !is_done {
            return add(&self.errors, 1);
        }
        match kind {
            OpKind::Read => {
                add(&self.reads, 1);
                add(&self.read_bytes, bytes);
            }
            OpKind::Write => {
                add(&self.writes, 1);
                add(&self.written_bytes, bytes);
            }
            OpKind::Flush => add(&self.flushes, 1),
            OpKind::Open => {}
            OpKind::Discard | OpKind::WriteZeroes => {
                add(&self.discards, 1);
                add(&self.discarded_bytes, bytes);
            }
        }
    }

    /// The figures now, for the device called `name`.
    #[must_use]
    pub fn snapshot(&self, name: &str) -> DeviceStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceStats {
            name: name.to_owned(),
            reads: get(&self.reads),
            writes: get(&self.writes),
            flushes: get(&self.flushes),
            discards: get(&self.discards),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            discarded_bytes: get(&self.discarded_bytes),
            media_written_bytes: get(&self.written_bytes),
            errors: get(&self.errors),
            below: Vec::new(),
        }
    }
}
