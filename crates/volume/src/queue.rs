//! A volume as a device. A command is executed when it is submitted: the reads of a batch together, its writes as one
//! frame of the write buffer. Sees `read`, `write` and what is below.
//!
//! What is acknowledged is durable: a volume has no volatile write cache, and a flush has nothing to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::to_u64;
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount};
use esker_device::{
    Cause, Command, Completion, Counters, Device, DeviceError, DeviceStats, Fact, Geometry,
    Identity, Op, OpKind, QueuePair, Tag,
};

use crate::buffer::ring::frame_bytes;
use crate::drive::Io;
use crate::engine::{Found, Shared};
use crate::map::Access;
use crate::omf::frame::Record;
use crate::omf::label::Role;
use crate::read::{self, ReadBlocks};
use crate::stats::{Spent, Stage, Tally};
use crate::types::error::VolumeError;
use crate::types::id::{Block, LineageId, Seqno, SnapshotId, VolumeId};
use crate::types::{BLOCK, LEAF_BLOCKS, NODE_LEAVES};
use crate::write;

/// A volume of an open pool.
pub(crate) struct Volume {
    shared: Arc<Shared>,
    name: String,
    view: View,
    counters: Arc<Counters>,
    tally: Arc<Tally>,
}

/// What a device shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    /// A volume, as it is.
    Volume(VolumeId),
    /// A snapshot, read-only.
    Snapshot(SnapshotId),
}

impl Volume {
    /// A volume, or one of its snapshots.
    pub(crate) fn new(shared: Arc<Shared>, view: View, volume: VolumeId, name: &str) -> Volume {
        let name = format!("{}/{name}", shared.name);
        let tally = shared.tallies.of(volume);
        Volume { shared, name, view, counters: Arc::default(), tally }
    }
}

fn geometry(shared: &Shared, view: View) -> Geometry {
    let blocks = {
        let core = shared.core.lock();
        match view {
            View::Volume(id) => core.catalog.volumes.get(&id).map(|row| row.blocks),
            View::Snapshot(id) => core.catalog.snapshots.get(&id).map(|row| row.blocks),
        }
    };
    let blocks = blocks.unwrap_or(0);
    let frame = shared.log.lock().largest_frame();
    let largest = (frame.saturating_sub(frame_bytes(0, 1)) & !4095).clamp(BLOCK, 1 << 20);
    Geometry {
        lba_size: 4096,
        capacity: LbaCount(blocks),
        preferred_write_size: 64 << 10,
        max_transfer_size: u32::try_from(largest).expect("at most 1 MiB"),
        discard_granularity: 4096,
        placement_handles: 0,
        volatile_write_cache: false,
    }
}

impl Device for Volume {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> Geometry {
        geometry(&self.shared, self.view)
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.name, depth)?;
        Ok(Box::new(Queue {
            shared: self.shared.clone(),
            name: self.name.clone(),
            view: self.view,
            counters: self.counters.clone(),
            tally: self.tally.clone(),
            depth,
            done: Vec::with_capacity(depth),
        }))
    }

    fn discards_zero(&self) -> bool {
        true
    }

    /// The pool's id and the volume's, both for ever.
    fn identity(&self) -> Option<Identity> {
        let pool = self.shared.fleet.pool;
        let id = match self.view {
            View::Volume(id) => format!("{pool}-v{}", id.0),
            View::Snapshot(id) => format!("{pool}-s{}", id.0),
        };
        Some(Identity::default().with(Fact::Uuid, &id))
    }

    fn stats(&self) -> DeviceStats {
        let mut stats = self.counters.snapshot(&self.name);
        for role in [Role::Buffer, Role::Drive] {
            let drives = self.shared.fleet.serving(role);
            stats.below.extend(drives.iter().map(|drive| drive.device.stats()));
        }
        stats
    }
}

struct Queue {
    shared: Arc<Shared>,
    name: String,
    view: View,
    counters: Arc<Counters>,
    tally: Arc<Tally>,
    depth: usize,
    done: Vec<Completion>,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.done.len());
        if taken > 0 {
            let batch = commands.drain(..taken).collect();
            let shared = self.shared.clone();
            shared.load.run(&shared.options.clock, || self.execute(batch));
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let count = self.done.len();
        done.append(&mut self.done);
        Ok(count)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

/// A command that changes blocks.
struct Change {
    tag: Tag,
    op: Op,
}

impl Queue {
    fn execute(&mut self, batch: Vec<Command>) {
        let geometry = geometry(&self.shared, self.view);
        let (mut reads, mut changes, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for Command { tag, op } in batch {
            if let Err(error) = op.check(&self.name, &geometry) {
                self.complete(&geometry, tag, op, Err(error));
                continue;
            }
            match &op {
                Op::Read { .. } => reads.push((tag, op)),
                Op::Flush => self.complete(&geometry, tag, op, Ok(())),
                Op::Discard { count, .. } | Op::WriteZeroes { count, .. }
                    if count.0 >= 2 * LEAF_BLOCKS =>
                {
                    ranges.push((tag, op));
                }
                _ => changes.push(Change { tag, op }),
            }
        }
        let shared = self.shared.clone();
        let (read, changed) = (to_u64(reads.len()), to_u64(changes.len() + ranges.len()));
        let clock = &shared.options.clock;
        let start = clock.now();
        let mut io = shared.ios.take();
        io.spent = Spent::default();
        if self.throttle(&reads, &changes) {
            io.spent.add(Stage::Limit, clock.now().since(start));
        }
        self.read(&geometry, &mut io, reads);
        self.change(&geometry, &mut io, changes);
        for (tag, op) in ranges {
            let result = self.zero_range(&mut io, &op);
            let result = result.map_err(|error| self.as_device_error(&error, &op));
            self.complete(&geometry, tag, op, result);
        }
        self.tally.end(read, changed, clock.now().since(start), &io.spent);
    }

    /// Waits until the volume's limits let this batch through; whether it had to wait.
    fn throttle(&self, reads: &[(Tag, Op)], changes: &[Change]) -> bool {
        let View::Volume(id) = self.view else { return false };
        let options = self.shared.core.lock().catalog.volumes.get(&id).map(|row| row.options);
        let Some(options) = options.filter(|o| o.iops_limit > 0 || o.bytes_limit > 0) else {
            return false;
        };
        let ops = reads.iter().map(|(_, op)| op).chain(changes.iter().map(|change| &change.op));
        let transfers = ops.clone().filter(|op| matches!(op, Op::Read { .. } | Op::Write { .. }));
        let bytes = transfers.map(|op| op.range(4096).1).sum();
        let clock = &self.shared.options.clock;
        let count = to_u64(ops.count());
        let wait = self.shared.paces.lock().entry(id).or_default().pass(
            &options,
            clock.now(),
            count,
            bytes,
        );
        if wait > Duration::ZERO {
            clock.sleep(wait);
        }
        wait > Duration::ZERO
    }

    /// The lineage that the device shows, and as of when.
    fn seen(&self) -> Result<(LineageId, Seqno), VolumeError> {
        let core = self.shared.core.lock();
        if core.is_closed {
            return Err(VolumeError::Closed(self.shared.name.clone()));
        }
        let seen = match self.view {
            View::Volume(id) => {
                let row = core.catalog.volumes.get(&id).filter(|row| row.trashed.is_none());
                row.map(|row| (row.lineage, Seqno::HEAD))
            }
            View::Snapshot(id) => core.catalog.snapshots.get(&id).map(|row| (row.lineage, row.at)),
        };
        seen.ok_or_else(|| VolumeError::NotFound { what: "volume", name: self.name.clone() })
    }

    /// The lineage that the volume writes to.
    fn lineage(&self) -> Result<LineageId, VolumeError> {
        match self.view {
            View::Volume(_) => Ok(self.seen()?.0),
            View::Snapshot(_) => {
                Err(VolumeError::Invalid("a snapshot is read-only; clone it".to_owned()))
            }
        }
    }

    fn read(&mut self, geometry: &Geometry, io: &mut Io, reads: Vec<(Tag, Op)>) {
        if reads.is_empty() {
            return;
        }
        let (lineage, at) = match self.seen() {
            Ok(seen) => seen,
            Err(error) => {
                for (tag, op) in reads {
                    let result = Err(self.as_device_error(&error, &op));
                    self.complete(geometry, tag, op, result);
                }
                return;
            }
        };
        let mut places = Vec::with_capacity(reads.len());
        let mut bufs: Vec<AlignedBuf> = Vec::with_capacity(reads.len());
        for (tag, op) in reads {
            let (lba, _) = op.range(geometry.lba_size);
            places.push((tag, lba));
            bufs.push(op.into_buf().expect("a read has a buffer"));
        }
        let mut requests: Vec<ReadBlocks<'_>> = places
            .iter()
            .zip(&mut bufs)
            .map(|((_, lba), buf)| ReadBlocks {
                lineage,
                at,
                block: Block(lba.0),
                buf: &mut buf[..],
            })
            .collect();
        let answers = read::run(&self.shared, io, &mut requests);
        for (((tag, lba), buf), answer) in places.into_iter().zip(bufs).zip(answers) {
            let op = Op::Read { lba, buf };
            let result = answer.map_err(|error| self.as_device_error(&error, &op));
            self.complete(geometry, tag, op, result);
        }
    }

    /// Runs writes and short ranges of zeroes, as many in a frame as it holds.
    fn change(&mut self, geometry: &Geometry, io: &mut Io, changes: Vec<Change>) {
        let largest = self.shared.log.lock().largest_frame();
        let mut frame: Vec<Change> = Vec::new();
        let mut bytes = 0;
        for change in changes {
            let size = match &change.op {
                Op::Write { buf, .. } => buf.len(),
                _ => 0,
            };
            if !frame.is_empty() && frame_bytes(bytes + size, frame.len() + 1) > largest {
                self.write_frame(geometry, io, std::mem::take(&mut frame));
                bytes = 0;
            }
            bytes += size;
            frame.push(change);
        }
        self.write_frame(geometry, io, frame);
    }

    fn write_frame(&mut self, geometry: &Geometry, io: &mut Io, frame: Vec<Change>) {
        if frame.is_empty() {
            return;
        }
        let result = self.commit(io, &frame);
        for Change { tag, op } in frame {
            let result = match &result {
                Ok(_) => Ok(()),
                Err(error) => Err(self.as_device_error(error, &op)),
            };
            self.complete(geometry, tag, op, result);
        }
        let is_filling = {
            let log = self.shared.log.lock();
            log.used() > log.bytes / 2
        };
        if is_filling {
            self.shared.ring();
        }
    }

    fn commit(&self, io: &mut Io, frame: &[Change]) -> Result<Seqno, VolumeError> {
        let written = |change: &Change| match &change.op {
            Op::Write { lba, buf, .. } => Some((lba.0, to_u64(buf.len()))),
            _ => None,
        };
        let bytes: u64 = frame.iter().filter_map(written).map(|(_, bytes)| bytes).sum();
        if bytes > 0 {
            let writes = || frame.iter().filter_map(written);
            write::admit(&self.shared, io, bytes, |io| {
                writes().all(|(lba, bytes)| self.is_mapped(io, lba, bytes / BLOCK))
            })?;
        }
        write::commit(&self.shared, None, io, |_| {
            let lineage = self.lineage()?;
            let records = frame.iter().map(|change| match &change.op {
                Op::Write { lba, buf, .. } => {
                    Record::Write { lineage, block: Block(lba.0), data: &buf[..] }
                }
                op => {
                    let (lba, bytes) = op.range(4096);
                    let blocks = bytes / BLOCK;
                    Record::Zero { lineage, block: Block(lba.0), blocks, at_once: false }
                }
            });
            Ok(records.collect())
        })
    }

    /// Whether all of these blocks have content, which writing would replace.
    fn is_mapped(&self, io: &mut Io, first: u64, blocks: u64) -> bool {
        let Ok(lineage) = self.lineage() else { return false };
        let mut core = self.shared.core.lock();
        (first..first + blocks).all(|block| {
            let found = core.find(io, lineage, Block(block), Seqno::HEAD);
            !matches!(found, Ok(Found::Zero) | Err(_))
        })
    }

    /// Zeroes a long range: its leaves are changed at once, some of them at a time.
    fn zero_range(&self, io: &mut Io, op: &Op) -> Result<(), VolumeError> {
        let (lba, bytes) = op.range(4096);
        let end = lba.0 + bytes / BLOCK;
        let mut start = lba.0;
        while start < end {
            let piece =
                end.min((start / (LEAF_BLOCKS * NODE_LEAVES) + 1) * LEAF_BLOCKS * NODE_LEAVES);
            let lineage = self.lineage()?;
            zero(&self.shared, io, lineage, start..piece)?;
            start = piece;
        }
        Ok(())
    }

    fn complete(&mut self, geometry: &Geometry, tag: Tag, op: Op, result: Result<(), DeviceError>) {
        self.counters.count(&op, geometry, &result);
        self.tally.count(&op, &result);
        self.done.push(Completion { tag, result, buf: op.into_buf() });
    }

    fn as_device_error(&self, error: &VolumeError, op: &Op) -> DeviceError {
        let (lba, bytes) = op.range(4096);
        as_device_error(&self.name, error, op.kind(), lba, bytes)
    }
}

/// Zeroes blocks in the map and in what is pending, durably.
pub(crate) fn zero(
    shared: &Shared,
    io: &mut Io,
    lineage: LineageId,
    blocks: std::ops::Range<u64>,
) -> Result<(), VolumeError> {
    let mut keeper = shared.keeper.lock();
    let keeper = &mut *keeper;
    let (block, count) = (Block(blocks.start), blocks.end - blocks.start);
    let record = Record::Zero { lineage, block, blocks: count, at_once: true };
    let seqno = write::commit(shared, Some(keeper), io, |_| Ok(vec![record.clone()]))?;
    clear(shared, keeper, io, lineage, blocks, seqno)
}

/// Zeroes blocks in the map, a leaf at a time, so that changed leaves never take more memory than there is.
pub(crate) fn clear(
    shared: &Shared,
    keeper: &mut crate::engine::Keeper,
    io: &mut Io,
    lineage: LineageId,
    blocks: std::ops::Range<u64>,
    seqno: Seqno,
) -> Result<(), VolumeError> {
    let mut start = blocks.start;
    while start < blocks.end {
        let piece = blocks.end.min((start / (16 * LEAF_BLOCKS) + 1) * 16 * LEAF_BLOCKS);
        let has_to_spill = {
            let mut core = shared.core.lock();
            let core = &mut *core;
            let Some(points) = core.catalog.points(lineage) else { return Ok(()) };
            let keeps_zero = core.catalog.has_parent(lineage);
            let mut access = Access { io: &mut *io, space: &mut core.space };
            core.map
                .clear(&mut access, lineage, start..piece, seqno, &points, keeps_zero)
                .map_err(|broken| shared.damaged(&broken))?;
            core.map.has_to_spill()
        };
        if has_to_spill {
            crate::keep::checkpoint::spill_leaves(shared, keeper, io)?;
        }
        start = piece;
    }
    Ok(())
}

/// The pool's error as one of a device.
pub(crate) fn as_device_error(
    name: &str,
    error: &VolumeError,
    op: OpKind,
    lba: Lba,
    bytes: u64,
) -> DeviceError {
    let message = error.to_string();
    let cause = match error.kind() {
        ErrorKind::Invalid => Cause::Invalid(message),
        ErrorKind::Closed | ErrorKind::NotFound => Cause::Gone(message),
        ErrorKind::NoSpace => Cause::Os { kind: ErrorKind::NoSpace, message },
        _ => Cause::Media(message),
    };
    DeviceError::new(name, op, lba, bytes, cause)
}
