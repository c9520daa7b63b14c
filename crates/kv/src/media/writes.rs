//! Small writes of a step, gathered: those that touch are one command, and the others are in flight together.
//! A step that writes a kvset of a few keys for each of hundreds of KVSs would wait for a command each time else.
//!
//! Invariants
//! 1. What was gathered goes to extents that the step holds. It lets go of none of them before they are written, or
//!    forgotten ([`Writes::forget`]): others may write there afterwards.
//! 2. Nothing reads an extent before it is written ([`Writes::write_out`]), which is before the flush that makes the
//!    step durable.

use std::cell::RefCell;
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::Op;

use crate::media::class::{Allocation, Media};
use crate::types::error::Result;
use crate::types::stream::Stream;

/// What is larger is written at once, in bytes.
const SMALL: usize = 64 << 10;
/// A command gets no larger, and no more is gathered, in bytes.
const MOST: usize = 1 << 20;

/// Writes of a step.
pub(crate) struct Writes {
    gathers: bool,
    gathered: RefCell<Gathered>,
}

#[derive(Default)]
struct Gathered {
    /// How many there ever were.
    count: u64,
    bytes: usize,
    writes: Vec<Small>,
}

struct Small {
    number: u64,
    media: Arc<Media>,
    stream: Stream,
    lba: Lba,
    bytes: Box<[u8]>,
}

impl Small {
    fn end(&self) -> Lba {
        self.lba + LbaCount::holding(self.bytes.len() as u64, self.media.lba_size)
    }

    /// Whether `next` goes on where this one ends.
    fn touches(&self, next: &Small) -> bool {
        let (at, next_at) = ((self.media.class, self.end()), (next.media.class, next.lba));
        at == next_at && self.stream == next.stream
    }
}

impl Writes {
    /// Writes that are gathered or done at once. A step of one KVS has few, and takes the room at once that its file
    /// system has.
    pub(crate) fn new(gathers: bool) -> Writes {
        Writes { gathers, gathered: RefCell::default() }
    }

    /// Writes `buf`, whole LBAs, to the beginning of an extent, now or later. Returns the buffer.
    pub(crate) fn add(&self, to: &Allocation, buf: AlignedBuf) -> Result<AlignedBuf> {
        let media = &to.media;
        if !self.gathers || buf.len() > SMALL.min(media.transfer.largest()) {
            return to.write_at(0, buf);
        }
        assert!(buf.len() as u64 <= to.bytes(), "a write stays in its extent");
        let mut gathered = self.gathered.borrow_mut();
        let (number, stream, lba) = (gathered.count, to.stream, to.extent.lba);
        let (media, bytes) = (media.clone(), Box::from(&buf[..]));
        gathered.writes.push(Small { number, media, stream, lba, bytes });
        (gathered.count, gathered.bytes) = (number + 1, gathered.bytes + buf.len());
        let is_full = gathered.bytes >= MOST;
        drop(gathered);
        if is_full {
            self.write_out()?;
        }
        Ok(buf)
    }

    /// How many there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.gathered.borrow().count
    }

    /// Forgets those from a number on that are not done yet: their extents are given up.
    pub(crate) fn forget(&self, from: u64) {
        let mut gathered = self.gathered.borrow_mut();
        gathered.writes.retain(|write| write.number < from);
        gathered.bytes = gathered.writes.iter().map(|write| write.bytes.len()).sum();
    }

    /// Does those that are to be done.
    pub(crate) fn write_out(&self) -> Result<()> {
        let mut gathered = self.gathered.borrow_mut();
        let mut writes = std::mem::take(&mut gathered.writes);
        gathered.bytes = 0;
        drop(gathered);
        writes.sort_unstable_by_key(|write| (write.media.class, write.lba));
        for of_class in writes.chunk_by(|a, b| a.media.class == b.media.class) {
            run(of_class)?;
        }
        Ok(())
    }
}

/// Does writes of one class, in the order in which they lie.
fn run(writes: &[Small]) -> Result<()> {
    let media = &writes[0].media;
    let most = MOST.min(media.transfer.largest());
    let mut size = 0;
    let runs = writes.chunk_by(|a, b| {
        size += a.bytes.len();
        let together = a.touches(b) && size + b.bytes.len() <= most;
        size = if together { size } else { 0 };
        together
    });
    let commands = runs.map(|run| {
        let bytes = run.iter().map(|write| &write.bytes[..]).collect::<Vec<_>>().concat();
        media.count_written(run[0].stream, bytes.len());
        let placement = run[0].stream.placement(media.placement_handles);
        let buf = AlignedBuf::padded(&bytes, 1);
        Op::Write { lba: run[0].lba, buf, placement, fua: false }
    });
    let mut failed = Ok(());
    media.ports.port()?.run_all(commands, |_, result| {
        if let Err(error) = result {
            failed = Err(error.into());
        }
    })?;
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::space::Purpose;
    use crate::types::class::MediaClass;
    use crate::types::options::Tuning;
    use esker_device::{Device, MemoryDevice};

    #[test]
    fn small_writes_that_touch_are_one_command_and_forgotten_ones_none() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("m", 32 << 20, 512));
        let tuning = Tuning { block_bytes: 64 << 10, ..Tuning::for_budget(16 << 20) };
        let media = Arc::new(Media::new(MediaClass::Capacity, device.clone(), &tuning));
        let extent =
            |bytes| media.allocate(Stream::YoungKeys, bytes, Purpose::Maintenance).unwrap();
        let (writes, extents) = (Writes::new(true), [(); 6].map(|()| extent(4096)));
        for (extent, byte) in extents.iter().zip(1..) {
            writes.add(extent, AlignedBuf::padded(&[byte; 4096], 512)).unwrap();
            if byte == 4 {
                writes.forget(3);
            }
        }
        assert_eq!(device.stats().writes, 0);
        writes.write_out().unwrap();
        assert_eq!(device.stats().writes, 2);
        let first = |extent: &Allocation| extent.read_at(0, 4096).unwrap().0[4095];
        assert_eq!(extents.each_ref().map(first), [1, 2, 3, 0, 5, 6]);
        writes.add(&extent(128 << 10), AlignedBuf::zeroed(128 << 10)).unwrap();
        assert_eq!(device.stats().writes, 3);
    }
}
