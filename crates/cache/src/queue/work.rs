//! A command of the host: the blocks that it touches, the commands that it sends to the devices, and its end.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use esker_base::units::to_u64;
use esker_device::{Command, Completion, Op, OpKind, Tag};

use super::{Io, Pump, Side, Work};
use crate::CacheError;
use crate::counts::add;
use crate::omf::BLOCK;

impl Pump {
    /// Sends a command to a device.
    pub(super) fn send(&mut self, side: Side, io: Io, op: Op) {
        let (_, bytes) = op.range(512);
        let is_write = matches!(op, Op::Write { .. });
        let counter = match (side, is_write) {
            (Side::Flash, true) => &self.counts.flash_written_bytes,
            (Side::Flash, false) => &self.counts.flash_read_bytes,
            (Side::Origin, true) => &self.counts.origin_written_bytes,
            (Side::Origin, false) => &self.counts.origin_read_bytes,
        };
        if matches!(op, Op::Read { .. } | Op::Write { .. }) {
            add(counter, bytes);
        }
        let tag = Tag(to_u64(self.ios.insert(io)));
        let queue = match side {
            Side::Origin => &mut self.to_origin,
            Side::Flash => &mut self.to_flash,
        };
        queue.push_back(Command { tag, op });
    }

    /// The command is done: its completion can be handed out.
    pub(super) fn complete(&mut self, work: usize) {
        let Work { tag, kind, size, buf, error, .. } = self.works.remove(work);
        let count = |counter: &AtomicU64, n: u64| add(counter, n);
        let counts = &self.counts;
        if error.is_some() {
            count(&counts.errors, 1);
        } else {
            match kind {
                OpKind::Read => {
                    count(&counts.reads, 1);
                    count(&counts.read_bytes, size);
                }
                OpKind::Write => {
                    count(&counts.writes, 1);
                    count(&counts.written_bytes, size);
                }
                OpKind::Flush | OpKind::Open => count(&counts.flushes, 1),
                OpKind::Discard | OpKind::WriteZeroes => {
                    count(&counts.discards, 1);
                    count(&counts.discarded_bytes, size);
                }
            }
        }
        let result = error.map_or(Ok(()), Err);
        self.done.push(Completion { tag, result, buf });
    }

    /// Notes that a command failed.
    pub(super) fn fail(&mut self, work: usize, error: CacheError) {
        let Work { kind, lba, size, .. } = self.works[work];
        let error = self.shared.as_device_error(error, kind, lba, size);
        self.works[work].error.get_or_insert(error);
    }

    /// The bytes of the origin that a command is about.
    pub(super) fn bytes(&self, work: usize) -> Range<u64> {
        self.works[work].offset..self.works[work].end()
    }

    /// The blocks that a command touches: the first, and the one behind the last.
    pub(super) fn blocks_of(&self, work: usize) -> Range<u64> {
        let work = &self.works[work];
        work.offset / BLOCK..work.end().div_ceil(BLOCK)
    }

    /// The part of `block` that a command covers, in bytes from the device's start.
    pub(super) fn part(&self, work: usize, block: u64) -> Range<u64> {
        let work = &self.works[work];
        work.offset.max(block * BLOCK)..work.end().min((block + 1) * BLOCK)
    }
}
