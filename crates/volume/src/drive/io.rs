//! Commands to many drives at once. An [`Io`] has a queue pair of each drive that it was used for; a caller takes one
//! out of the pool's [`IoPool`] for as long as it needs it.
//!
//! Invariants
//! 1. Between two calls nothing is in flight.
//! 2. A queue pair belongs to the drive that it was opened on: a drive that took the place of another one gets its own.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{
    Cause, Command, Completion, DeviceError, Op, OpKind, PlacementId, QueuePair, Tag,
};
use parking_lot::Mutex;

use crate::drive::fleet::{Drive, Fleet};
use crate::stats::Spent;
use crate::types::id::DriveIndex;

/// Commands in flight on one drive.
const DEPTH: usize = 64;

/// A read of `size` bytes at `offset`; both multiples of 4 KiB or of the drive's LBA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) drive: DriveIndex,
    pub(crate) offset: u64,
    pub(crate) size: usize,
}

/// A write of `bytes` at `offset`; both multiples of 4 KiB or of the drive's LBA.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) drive: DriveIndex,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) class: Option<u8>,
    pub(crate) fua: bool,
}

struct Lane {
    drive: Arc<Drive>,
    queue: Box<dyn QueuePair>,
    batch: VecDeque<Command>,
    /// The commands of this call that have not come back.
    missing: BTreeSet<Tag>,
}

/// Queue pairs of the drives.
pub(crate) struct Io {
    fleet: Arc<Fleet>,
    lanes: Vec<Option<Lane>>,
    /// Where the time of the caller's batch went.
    pub(crate) spent: Spent,
}

/// What became of a piece of a request: its number, and its buffer.
type Outcome = (usize, Result<Option<AlignedBuf>, DeviceError>);

impl Io {
    fn new(fleet: Arc<Fleet>) -> Io {
        Io { fleet, lanes: Vec::new(), spent: Spent::default() }
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Reads; each answer is the whole of what was asked for.
    pub(crate) fn read(&mut self, reads: &[Read]) -> Vec<Result<AlignedBuf, DeviceError>> {
        let mut ops = Vec::with_capacity(reads.len());
        let mut places = Vec::with_capacity(reads.len());
        for (number, read) in reads.iter().enumerate() {
            let largest = self.fleet.get(read.drive).map_or(1 << 20, |drive| drive.largest_io);
            for start in (0..read.size).step_by(largest) {
                let size = largest.min(read.size - start);
                let offset = read.offset + to_u64(start);
                places.push((number, start));
                ops.push((
                    read.drive,
                    offset,
                    OpKind::Read,
                    Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(size) },
                ));
            }
        }
        let mut answers: Vec<Option<Result<AlignedBuf, DeviceError>>> =
            reads.iter().map(|_| None).collect();
        for (piece, outcome) in self.run(ops) {
            let (number, start) = places[piece];
            let answer = &mut answers[number];
            match outcome {
                Err(error) => *answer = Some(Err(error)),
                Ok(buf) => {
                    let buf = buf.expect("a read carries a buffer");
                    let size = reads[number].size;
                    if buf.len() == size {
                        *answer = Some(Ok(buf));
                    } else if let Ok(whole) =
                        answer.get_or_insert_with(|| Ok(AlignedBuf::zeroed(size)))
                    {
                        whole[start..start + buf.len()].copy_from_slice(&buf);
                    }
                }
            }
        }
        let empty = || Ok(AlignedBuf::zeroed(0));
        answers.into_iter().map(|answer| answer.unwrap_or_else(empty)).collect()
    }

    /// Writes; an answer for each.
    pub(crate) fn write(&mut self, writes: &[Write<'_>]) -> Vec<Result<(), DeviceError>> {
        let mut ops = Vec::with_capacity(writes.len());
        let mut numbers = Vec::with_capacity(writes.len());
        for (number, write) in writes.iter().enumerate() {
            let drive = self.fleet.get(write.drive);
            let largest = drive.as_ref().map_or(1 << 20, |drive| drive.largest_io);
            let handles = drive.map_or(0, |drive| drive.placement_handles);
            let placement = write
                .class
                .filter(|_| handles > 0)
                .map(|class| PlacementId(u16::from(class) % handles));
            for (piece, bytes) in write.bytes.chunks(largest).enumerate() {
                let offset = write.offset + to_u64(piece * largest);
                let buf = AlignedBuf::padded(bytes, 1);
                numbers.push(number);
                let op = Op::Write { lba: Lba(0), buf, placement, fua: write.fua };
                ops.push((write.drive, offset, OpKind::Write, op));
            }
        }
        self.gather(writes.len(), &numbers, ops)
    }

    /// Flushes the drives; an answer for each.
    pub(crate) fn flush(&mut self, drives: &[DriveIndex]) -> Vec<Result<(), DeviceError>> {
        let ops = drives.iter().map(|drive| (*drive, 0, OpKind::Flush, Op::Flush)).collect();
        let numbers: Vec<usize> = (0..drives.len()).collect();
        self.gather(drives.len(), &numbers, ops)
    }

    /// Discards `size` bytes at each of these places. That one fails costs space in the drive, and nothing else.
    pub(crate) fn discard(&mut self, places: &[(DriveIndex, u64, u64)]) {
        let ops = places.iter().map(|(drive, offset, size)| {
            (*drive, *offset, OpKind::Discard, Op::Discard { lba: Lba(0), count: LbaCount(*size) })
        });
        let ops = ops.collect();
        self.run(ops);
    }

    fn gather(
        &mut self,
        count: usize,
        numbers: &[usize],
        ops: Vec<(DriveIndex, u64, OpKind, Op)>,
    ) -> Vec<Result<(), DeviceError>> {
        let mut answers = vec![Ok(()); count];
        for (piece, outcome) in self.run(ops) {
            if let Err(error) = outcome {
                answers[numbers[piece]] = Err(error);
            }
        }
        answers
    }

    /// Runs commands, whose places are in bytes, to their end.
    fn run(&mut self, ops: Vec<(DriveIndex, u64, OpKind, Op)>) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(ops.len());
        let patience = self.fleet.patience;
        for (number, (index, offset, kind, op)) in ops.into_iter().enumerate() {
            match self.lane(index) {
                Ok(lane) => {
                    let op = place(op, offset, lane.drive.lba_size);
                    let tag = Tag(to_u64(number));
                    lane.missing.insert(tag);
                    lane.batch.push_back(Command { tag, op });
                }
                Err(error) => outcomes.push((number, Err(error(kind, offset)))),
            }
        }
        let mut done = Vec::new();
        for lane in self.lanes.iter_mut().flatten() {
            lane.start(&mut done);
            lane.take(&mut done, &mut outcomes);
        }
        for place in &mut self.lanes {
            let Some(lane) = place else { continue };
            let answers = lane.finish(patience, &mut done);
            lane.take(&mut done, &mut outcomes);
            if answers {
                continue;
            }
            // Its commands may still come back, into buffers that must be there then: so it is never dropped.
            let lane = place.take().expect("matched above");
            lane.drive.take_out();
            for tag in &lane.missing {
                let why = format!("it did not answer within {patience:?}");
                let (name, cause) = (lane.drive.device.name(), Cause::Gone(why));
                lane.drive.count(OpKind::Write);
                let error = DeviceError::new(name, OpKind::Flush, Lba(0), 0, cause);
                outcomes.push((to_usize(tag.0), Err(error)));
            }
            std::mem::forget(lane.queue);
        }
        outcomes
    }

    /// The lane of a drive, or what to answer in its place.
    fn lane(
        &mut self,
        index: DriveIndex,
    ) -> Result<&mut Lane, impl FnOnce(OpKind, u64) -> DeviceError + use<>> {
        let gone = |name: String, why: String| {
            move |op, offset| DeviceError::new(&name, op, Lba(offset / 512), 0, Cause::Gone(why))
        };
        let Some(drive) = self.fleet.get(index) else {
            return Err(gone(index.to_string(), "it is out of the pool".to_owned()));
        };
        let at = index.index();
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, || None);
        }
        let is_current =
            self.lanes[at].as_ref().is_some_and(|lane| Arc::ptr_eq(&lane.drive, &drive));
        if !is_current {
            let queue = drive.device.queue_pair(DEPTH);
            let queue = match queue {
                Ok(queue) => queue,
                Err(error) => return Err(gone(drive.device.name().to_owned(), error.to_string())),
            };
            let (batch, missing) = (VecDeque::new(), BTreeSet::new());
            self.lanes[at] = Some(Lane { drive, queue, batch, missing });
        }
        Ok(self.lanes[at].as_mut().expect("opened above"))
    }
}

impl Lane {
    fn start(&mut self, done: &mut Vec<Completion>) {
        if !self.batch.is_empty()
            && let Err(error) = self.queue.submit(&mut self.batch)
        {
            self.give_up(&error, done);
        }
    }

    /// Waits for all that is in flight or still to be started; false when nothing came back for so long.
    fn finish(&mut self, patience: Duration, done: &mut Vec<Completion>) -> bool {
        while self.queue.in_flight() > 0 || !self.batch.is_empty() {
            self.start(done);
            if self.queue.in_flight() == 0 {
                continue;
            }
            match self.queue.wait(done, Some(patience)) {
                Ok(0) => return self.queue.in_flight() == 0,
                Ok(_) => {}
                Err(error) => {
                    self.give_up(&error, done);
                    return true;
                }
            }
        }
        true
    }

    /// The queue pair is broken: what has not been started fails.
    fn give_up(&mut self, error: &DeviceError, done: &mut Vec<Completion>) {
        for Command { tag, op } in self.batch.drain(..) {
            done.push(Completion { tag, result: Err(error.clone()), buf: op.into_buf() });
        }
    }

    fn take(&mut self, done: &mut Vec<Completion>, outcomes: &mut Vec<Outcome>) {
        for Completion { tag, result, buf } in done.drain(..) {
            self.missing.remove(&tag);
            if let Err(error) = &result {
                self.drive.count(error.op());
            }
            outcomes.push((to_usize(tag.0), result.map(|()| buf)));
        }
    }
}

/// The command at this byte of a device with such LBAs.
fn place(op: Op, offset: u64, lba_size: u32) -> Op {
    let lba = Lba(offset / u64::from(lba_size));
    match op {
        Op::Read { buf, .. } => Op::Read { lba, buf },
        Op::Write { buf, placement, fua, .. } => Op::Write { lba, buf, placement, fua },
        Op::Discard { count, .. } => {
            Op::Discard { lba, count: LbaCount(count.0 / u64::from(lba_size)) }
        }
        other => other,
    }
}

/// Ios that are not in use.
pub(crate) struct IoPool {
    fleet: Arc<Fleet>,
    free: Mutex<Vec<Io>>,
}

impl IoPool {
    pub(crate) fn new(fleet: Arc<Fleet>) -> IoPool {
        IoPool { fleet, free: Mutex::default() }
    }

    /// An Io, which goes back when it is dropped.
    pub(crate) fn take(&self) -> PooledIo<'_> {
        let free = self.free.lock().pop();
        let io = free.unwrap_or_else(|| Io::new(self.fleet.clone()));
        PooledIo { pool: self, io: Some(io) }
    }
}

/// An Io out of a pool.
pub(crate) struct PooledIo<'a> {
    pool: &'a IoPool,
    io: Option<Io>,
}

impl Deref for PooledIo<'_> {
    type Target = Io;
    fn deref(&self) -> &Io {
        self.io.as_ref().expect("present until dropped")
    }
}

impl DerefMut for PooledIo<'_> {
    fn deref_mut(&mut self) -> &mut Io {
        self.io.as_mut().expect("present until dropped")
    }
}

impl Drop for PooledIo<'_> {
    fn drop(&mut self) {
        self.pool.free.lock().extend(self.io.take());
    }
}
