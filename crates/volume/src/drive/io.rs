//! Commands to many drives, run to their end by a caller that has nothing else to do. An [`Io`] is taken out of the
//! pool's [`IoPool`] for as long as it is needed.
//!
//! Between two calls commands may be in flight that nobody waits for: reads that others answered first.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use esker_base::sync::{Condvar, Mutex};
use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{DeviceError, Op, PlacementId};

use crate::drive::fleet::{Drive, Fleet};
use crate::drive::lanes::{Arrival, Lanes, Ticket};
use crate::types::id::DriveIndex;
use crate::types::u32_of;

/// How long a drive is waited for before all are looked at again.
const LOOK: Duration = Duration::from_millis(10);

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

/// Queue pairs of the drives.
pub(crate) struct Io {
    pub(crate) lanes: Lanes,
    /// Buffers that were written, to be used again.
    spare: Vec<AlignedBuf>,
}

/// Buffers that are kept for the next writes.
const SPARE: usize = 64;

/// A drive that was not asked anything for so long is asked whether it is there.
const IDLE: Duration = Duration::from_secs(8);
/// The bytes that it is asked for then.
const ASKED: usize = 4096;

/// A command, and the byte of the drive at which it is.
type Placed = (DriveIndex, u64, Op);

impl Io {
    fn new(fleet: Arc<Fleet>) -> Io {
        Io { lanes: Lanes::new(fleet), spare: Vec::new() }
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        self.lanes.fleet()
    }

    /// Reads; each answer is the whole of what was asked for.
    pub(crate) fn read(&mut self, reads: &[Read]) -> Vec<Result<AlignedBuf, DeviceError>> {
        let mut ops = Vec::with_capacity(reads.len());
        let mut places = Vec::with_capacity(reads.len());
        for (number, read) in reads.iter().enumerate() {
            let largest = self.fleet().get(read.drive).map_or(1 << 20, |drive| drive.largest_io);
            for start in (0..read.size).step_by(largest) {
                let buf = AlignedBuf::zeroed(largest.min(read.size - start));
                places.push((number, start));
                let offset = read.offset + to_u64(start);
                ops.push((read.drive, offset, Op::Read { lba: Lba(0), buf }));
            }
        }
        let mut answers: Vec<Option<Result<AlignedBuf, DeviceError>>> =
            reads.iter().map(|_| None).collect();
        for Arrival { ticket, result, buf } in self.run(ops) {
            let (number, start) = places[to_usize(ticket.slot.into())];
            let answer = &mut answers[number];
            match result {
                Err(error) => *answer = Some(Err(error)),
                Ok(()) => {
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
            let drive = self.fleet().get(write.drive);
            let largest = drive.as_ref().map_or(1 << 20, |drive| drive.largest_io);
            let placement = drive.and_then(|drive| handle(&drive, write.class?));
            for (piece, bytes) in write.bytes.chunks(largest).enumerate() {
                let offset = write.offset + to_u64(piece * largest);
                let buf = AlignedBuf::padded(bytes, 1);
                numbers.push(number);
                let op = Op::Write { lba: Lba(0), buf, placement, fua: write.fua };
                ops.push((write.drive, offset, op));
            }
        }
        self.gather(writes.len(), &numbers, ops)
    }

    /// Asks drives something that have not answered for long because nobody asked: one that is gone is found out.
    pub(crate) fn call_idle(&mut self) {
        let idle = self.fleet().idle(IDLE).into_iter();
        let reads: Vec<Read> = idle.map(|drive| Read { drive, offset: 0, size: ASKED }).collect();
        self.read(&reads);
    }

    /// A buffer of this size, with any content.
    pub(crate) fn buf(&mut self, size: usize) -> AlignedBuf {
        let fits = self.spare.iter().enumerate().filter(|(_, buf)| buf.capacity() >= size);
        let Some((at, _)) = fits.min_by_key(|(_, buf)| buf.capacity()) else {
            return AlignedBuf::zeroed(size);
        };
        let mut buf = self.spare.swap_remove(at);
        buf.set_len(size);
        buf
    }

    /// Writes buffers, each at a byte of a drive, for a class of segments. Returns the drives that failed.
    pub(crate) fn write_bufs(
        &mut self,
        writes: Vec<(DriveIndex, u64, AlignedBuf)>,
        class: u8,
    ) -> Vec<DriveIndex> {
        let drives: Vec<DriveIndex> = writes.iter().map(|(drive, ..)| *drive).collect();
        let ops = writes.into_iter().map(|(drive, offset, buf)| {
            let placement = self.fleet().get(drive).and_then(|drive| handle(&drive, class));
            (drive, offset, Op::Write { lba: Lba(0), buf, placement, fua: false })
        });
        let ops = ops.collect();
        let mut failed = Vec::new();
        for Arrival { ticket, result, buf } in self.run(ops) {
            let drive = drives[to_usize(ticket.slot.into())];
            if result.is_err() && !failed.contains(&drive) {
                failed.push(drive);
            }
            buf.into_iter().for_each(|buf| self.keep(buf));
        }
        failed
    }

    /// Keeps a buffer for the next transfers.
    pub(crate) fn keep(&mut self, buf: AlignedBuf) {
        if self.spare.len() < SPARE && !buf.is_empty() {
            self.spare.push(buf);
        }
    }

    /// Flushes the drives; an answer for each.
    pub(crate) fn flush(&mut self, drives: &[DriveIndex]) -> Vec<Result<(), DeviceError>> {
        let ops = drives.iter().map(|drive| (*drive, 0, Op::Flush)).collect();
        let numbers: Vec<usize> = (0..drives.len()).collect();
        self.gather(drives.len(), &numbers, ops)
    }

    /// Discards `size` bytes at each of these places. That one fails costs space in the drive, and nothing else.
    pub(crate) fn discard(&mut self, places: &[(DriveIndex, u64, u64)]) {
        let ops = places.iter().map(|(drive, offset, size)| {
            (*drive, *offset, Op::Discard { lba: Lba(0), count: LbaCount(*size) })
        });
        let ops = ops.collect();
        self.run(ops);
    }

    fn gather(
        &mut self,
        count: usize,
        numbers: &[usize],
        ops: Vec<Placed>,
    ) -> Vec<Result<(), DeviceError>> {
        let mut answers = vec![Ok(()); count];
        for arrival in self.run(ops) {
            if let Err(error) = arrival.result {
                answers[numbers[to_usize(arrival.ticket.slot.into())]] = Err(error);
            }
        }
        answers
    }

    /// Runs commands to their end. Tickets have their numbers.
    fn run(&mut self, ops: Vec<Placed>) -> Vec<Arrival> {
        let stamp = self.lanes.next_stamp();
        let count = ops.len();
        for (number, (drive, offset, op)) in ops.into_iter().enumerate() {
            self.lanes.start(Ticket { slot: u32_of(number), stamp, part: 0 }, drive, offset, op);
        }
        self.lanes.push();
        let (mut outcomes, mut arrived) = (Vec::with_capacity(count), Vec::new());
        while outcomes.len() < count {
            self.lanes.wait(&mut arrived, LOOK);
            outcomes.extend(arrived.drain(..).filter(|one| one.ticket.stamp == stamp));
        }
        outcomes
    }
}

/// The placement id of a class of segments on a drive that has some: neighbouring classes share one where it has few.
pub(crate) fn handle(drive: &Drive, class: u8) -> Option<PlacementId> {
    let handles = drive.placement_handles;
    (handles > 0).then(|| PlacementId(u16::from(class) % handles))
}

/// Ios of an open pool: maintenance, a writer that makes room for itself, and one of them that takes a drive out meanwhile.
const KEPT: usize = 3;
/// How long an Io is waited for that somebody has, where there are no descriptors for another one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ios that are not in use.
pub(crate) struct IoPool {
    fleet: Arc<Fleet>,
    free: Mutex<Vec<Io>>,
    returned: Condvar,
}

impl IoPool {
    pub(crate) fn new(fleet: Arc<Fleet>) -> IoPool {
        IoPool { fleet, free: Mutex::default(), returned: Condvar::new() }
    }

    /// Opens as many Ios as a pool needs, and queue pairs of drives that they lack.
    pub(crate) fn open(&self) -> Result<(), DeviceError> {
        let mut free = self.free.lock();
        while free.len() < KEPT {
            free.push(Io::new(self.fleet.clone()));
        }
        free.iter_mut().try_for_each(|io| io.lanes.open())
    }

    /// An Io, which goes back when it is dropped.
    pub(crate) fn take(&self) -> PooledIo<'_> {
        let mut has_waited = false;
        loop {
            let free = self.free.lock().pop();
            let is_new = free.is_none();
            let mut io = free.unwrap_or_else(|| Io::new(self.fleet.clone()));
            // One whose queue pairs cannot be opened is the last resort.
            if !is_new || io.lanes.open().is_ok() || has_waited {
                return PooledIo { pool: self, io: Some(io) };
            }
            let mut free = self.free.lock();
            has_waited = free.is_empty() && self.returned.wait_for(&mut free, PATIENCE).timed_out();
        }
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
        let io = self.io.take();
        if std::thread::panicking() {
            // Its queue pairs may be in the middle of something, and would be waited for.
            return std::mem::forget(io);
        }
        self.pool.free.lock().extend(io);
        self.pool.returned.notify_one();
    }
}
