//! Reads and writes of whole ranges that overlap: each is started when its owner likes, split into commands that its
//! drive takes, and told of when all of them have ended.

use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba};
use esker_device::{DeviceError, Op};

use crate::drive::io::{Io, Read, Write, handle};
use crate::drive::lanes::{Arrival, Ticket};
use crate::types::id::DriveIndex;
use crate::types::u32_of;

/// How long the drives are waited for before all are looked at again.
const LOOK: Duration = Duration::from_millis(10);

/// A range on its way.
struct Transfer<T> {
    tag: T,
    /// The whole of a read that takes several commands.
    whole: Option<AlignedBuf>,
    /// Bytes of each of its commands but the last.
    step: usize,
    left: usize,
    result: Result<(), DeviceError>,
}

/// Ranges on their way, on one [`Io`]; `T` is what their owner knows them by.
pub(crate) struct Transfers<'a, T> {
    io: &'a mut Io,
    stamp: u32,
    open: Vec<Option<Transfer<T>>>,
    free: Vec<u32>,
    arrived: Vec<Arrival>,
}

/// A range that ended: what was read, or an empty buffer.
pub(crate) type Ended<T> = (T, Result<AlignedBuf, DeviceError>);

impl<'a, T> Transfers<'a, T> {
    pub(crate) fn new(io: &'a mut Io) -> Transfers<'a, T> {
        let stamp = io.lanes.next_stamp();
        Transfers { io, stamp, open: Vec::new(), free: Vec::new(), arrived: Vec::new() }
    }

    fn put(&mut self, transfer: Transfer<T>) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            u32_of(self.open.len() - 1)
        });
        self.open[to_usize(slot.into())] = Some(transfer);
        slot
    }

    fn start(&mut self, slot: u32, part: usize, drive: DriveIndex, at: u64, op: Op) {
        let ticket = Ticket { slot, stamp: self.stamp, part: u32_of(part) };
        self.io.lanes.start(ticket, drive, at, op);
    }

    /// Starts a read.
    pub(crate) fn read(&mut self, tag: T, read: Read) {
        let step = self.largest(read.drive).min(read.size);
        let left = read.size.div_ceil(step);
        let whole = (left > 1).then(|| AlignedBuf::zeroed(read.size));
        let slot = self.put(Transfer { tag, whole, step, left, result: Ok(()) });
        for (part, start) in (0..read.size).step_by(step).enumerate() {
            let buf = self.io.buf(step.min(read.size - start));
            let at = read.offset + to_u64(start);
            self.start(slot, part, read.drive, at, Op::Read { lba: Lba(0), buf });
        }
        self.io.lanes.push();
    }

    /// Starts a write.
    pub(crate) fn write(&mut self, tag: T, write: &Write<'_>) {
        let step = self.largest(write.drive).min(write.bytes.len());
        let left = write.bytes.len().div_ceil(step);
        let slot = self.put(Transfer { tag, whole: None, step, left, result: Ok(()) });
        let drive = self.io.fleet().get(write.drive);
        let placement = drive.and_then(|drive| handle(&drive, write.class?));
        for (part, bytes) in write.bytes.chunks(step).enumerate() {
            let at = write.offset + to_u64(part * step);
            let mut buf = self.io.buf(bytes.len());
            buf.copy_from_slice(bytes);
            let op = Op::Write { lba: Lba(0), buf, placement, fua: write.fua };
            self.start(slot, part, write.drive, at, op);
        }
        self.io.lanes.push();
    }

    fn largest(&self, drive: DriveIndex) -> usize {
        self.io.fleet().get(drive).map_or(1 << 20, |drive| drive.largest_io)
    }

    /// Waits for the next one to end; none when none is left.
    pub(crate) fn next(&mut self) -> Option<Ended<T>> {
        loop {
            while let Some(arrival) = self.arrived.pop() {
                if let Some(ended) = self.take(arrival) {
                    return Some(ended);
                }
            }
            if self.open.len() == self.free.len() {
                return None;
            }
            self.io.lanes.wait(&mut self.arrived, LOOK);
        }
    }

    fn take(&mut self, arrival: Arrival) -> Option<Ended<T>> {
        let Arrival { ticket, result, buf } = arrival;
        if ticket.stamp != self.stamp {
            return None; // nobody waits for it any more
        }
        let at = to_usize(ticket.slot.into());
        let transfer = self.open[at].as_mut().expect("each command arrives once");
        transfer.left -= 1;
        let mut only = None;
        match (result, buf, &mut transfer.whole) {
            (Err(error), ..) => transfer.result = Err(error),
            (Ok(()), Some(buf), Some(whole)) => {
                let start = to_usize(ticket.part.into()) * transfer.step;
                whole[start..start + buf.len()].copy_from_slice(&buf);
                self.io.keep(buf);
            }
            (Ok(()), buf, None) => only = buf,
            (Ok(()), None, Some(_)) => {}
        }
        if transfer.left > 0 {
            only.into_iter().for_each(|buf| self.io.keep(buf));
            return None;
        }
        self.free.push(ticket.slot);
        let Transfer { tag, whole, result, .. } = self.open[at].take().expect("just seen");
        let bytes = whole.or(only).unwrap_or_else(|| AlignedBuf::zeroed(0));
        Some((tag, result.map(|()| bytes)))
    }

    /// Takes a buffer back that was handed out.
    pub(crate) fn keep(&mut self, buf: AlignedBuf) {
        self.io.keep(buf);
    }
}
