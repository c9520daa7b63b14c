//! Writes of a step, behind it: the step goes on while they are under way, a few at a time, so that its device has
//! work while the step reads and merges. Small ones may be gathered: those that touch are one command. A step that writes
//! a kvset of a few keys for each of hundreds of KVSs would wait for a command each time else.
//!
//! Invariants
//! 1. Gathered writes go to extents that the step holds. It lets go of none of them before they are written, or
//!    forgotten ([`Writes::forget`]): others may write there afterwards.
//! 2. A write that is under way may go to an extent that the step has let go of, because the step failed: the class
//!    gives the extent to nobody before the write has ended ([`Media::writes`]).
//! 3. Nothing reads an extent before it is written ([`Writes::write_out`]), which is before the flush that makes the
//!    step durable.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Op, Tag};

use crate::media::class::{Allocation, Media};
use crate::media::in_flight::InFlight;
use crate::types::error::Result;
use crate::types::extent::Extent;
use crate::types::stream::Stream;

/// A larger write is not gathered, in bytes.
const SMALL: usize = 64 << 10;
/// A command gets no larger, and no more is gathered, in bytes.
const MOST: usize = 1 << 20;
/// As much as so many of the largest commands is under way on a class at a time.
pub(crate) const BEHIND: usize = 4;

/// Writes of a step.
pub(crate) struct Writes {
    gathers: bool,
    gathered: RefCell<Gathered>,
    /// As much as so many of the largest commands may be under way on a class.
    at_a_time: Cell<usize>,
    behind: RefCell<Vec<ClassWrites>>,
}

/// Writes under way on a class.
struct ClassWrites {
    commands: InFlight,
    extents: Vec<(Tag, Extent)>,
    bytes: u64,
}

impl ClassWrites {
    /// Those on a class.
    fn of<'b>(all: &'b mut Vec<ClassWrites>, media: &Arc<Media>) -> Result<&'b mut ClassWrites> {
        let known = all.iter().position(|it| Arc::ptr_eq(it.commands.media(), media));
        let at = known.unwrap_or(all.len());
        if at == all.len() {
            let commands = InFlight::new(media, (BEHIND * MOST) as u64)?;
            all.push(ClassWrites { commands, extents: Vec::new(), bytes: 0 });
        }
        Ok(&mut all[at])
    }

    /// Begins to write `buf`, which one command takes.
    fn begin(&mut self, to: &Allocation, offset: u64, buf: AlignedBuf) -> Result<()> {
        let (media, bytes) = (&to.media, buf.len() as u64);
        let (lba, ..) = to.span(offset, buf.len());
        let count = LbaCount::holding(bytes, media.lba_size);
        let extent = Extent { class: media.class, lba, count };
        let op = to.write_op(offset, buf);
        media.writes(extent);
        self.bytes += bytes;
        // Where the queue pair is broken nobody knows whether it is under way: then it stays noted.
        let tag = self.commands.start_op(op)?;
        self.extents.push((tag, extent));
        Ok(())
    }

    /// Waits until no more than `most` bytes are under way.
    fn wait(&mut self, most: u64) -> Result<()> {
        while self.bytes > most
            && let Some(done) = self.commands.next_ended()?
        {
            let at = self.extents.iter().position(|(tag, _)| *tag == done.tag);
            let (_, extent) = self.extents.swap_remove(at.expect("it was begun"));
            let media = self.commands.media();
            media.is_written(extent);
            self.bytes -= extent.count.bytes(media.lba_size);
            done.result?;
            self.commands.give_back(done.buf.expect("a write carries a buffer"));
        }
        Ok(())
    }
}

impl Drop for ClassWrites {
    fn drop(&mut self) {
        // How they ended does not matter any more: the step has failed. A broken queue pair tells nothing.
        let mut left = usize::MAX;
        while self.extents.len() < left && !self.extents.is_empty() {
            left = self.extents.len();
            let _ = self.wait(0);
        }
    }
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
    /// Writes of which small ones are gathered or not. A step of one KVS has few, and takes the room at once that its
    /// file system has.
    pub(crate) fn new(gathers: bool) -> Writes {
        let (gathered, behind) = (RefCell::default(), RefCell::default());
        Writes { gathers, gathered, at_a_time: Cell::new(BEHIND), behind }
    }

    /// Lets as much as so many of the largest commands be under way on a class from now on.
    pub(crate) fn set_at_a_time(&self, commands: usize) {
        self.at_a_time.set(commands);
    }

    /// Writes `buf`, whole LBAs, at `offset` of an extent, now or later. Returns a buffer of that capacity.
    pub(crate) fn add(&self, to: &Allocation, offset: u64, buf: AlignedBuf) -> Result<AlignedBuf> {
        let largest = to.media.transfer.largest();
        if self.gathers && offset == 0 && buf.len() <= SMALL.min(largest) {
            return self.gather(to, buf);
        }
        let mut behind = self.behind.borrow_mut();
        let of_class = ClassWrites::of(&mut behind, &to.media)?;
        let most = (self.at_a_time.get() * MOST) as u64;
        if buf.len() <= largest {
            of_class.wait(most.saturating_sub(buf.len() as u64))?;
            let next = of_class.commands.buffer_like(&buf);
            of_class.begin(to, offset, buf)?;
            return Ok(next);
        }
        for (piece, at) in buf.chunks(largest).zip((offset..).step_by(largest)) {
            of_class.wait(most.saturating_sub(piece.len() as u64))?;
            let mut copy = of_class.commands.buffer(piece.len());
            copy.copy_from_slice(piece);
            of_class.begin(to, at, copy)?;
        }
        Ok(buf)
    }

    fn gather(&self, to: &Allocation, buf: AlignedBuf) -> Result<AlignedBuf> {
        assert!(buf.len() as u64 <= to.bytes(), "a write stays in its extent");
        let mut gathered = self.gathered.borrow_mut();
        let (number, stream, lba) = (gathered.count, to.stream, to.extent.lba);
        let (media, bytes) = (to.media.clone(), Box::from(&buf[..]));
        gathered.writes.push(Small { number, media, stream, lba, bytes });
        (gathered.count, gathered.bytes) = (number + 1, gathered.bytes + buf.len());
        let is_full = gathered.bytes >= MOST;
        drop(gathered);
        if is_full {
            self.write_gathered()?;
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

    /// Ends all.
    pub(crate) fn write_out(&self) -> Result<()> {
        self.write_gathered()?;
        self.behind.borrow_mut().iter_mut().try_for_each(|of_class| of_class.wait(0))
    }

    /// Does those that were gathered.
    fn write_gathered(&self) -> Result<()> {
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
    use esker_base::Clock;
    use esker_device::{Device, MemoryDevice};

    #[test]
    fn small_writes_that_touch_are_one_command_and_forgotten_ones_none() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("m", 32 << 20, 512));
        let tuning = Tuning { block_bytes: 64 << 10, ..Tuning::for_budget(16 << 20) };
        let media = Arc::new(Media::new(
            MediaClass::Capacity,
            device.clone(),
            &tuning,
            &Clock::virtual_time(),
        ));
        let extent =
            |bytes| media.allocate(Stream::YoungKeys, bytes, Purpose::Maintenance).unwrap();
        let (writes, extents) = (Writes::new(true), [(); 6].map(|()| extent(4096)));
        for (extent, byte) in extents.iter().zip(1..) {
            writes.add(extent, 0, AlignedBuf::padded(&[byte; 4096], 512)).unwrap();
            if byte == 4 {
                writes.forget(3);
            }
        }
        assert_eq!(device.stats().writes, 0);
        writes.write_out().unwrap();
        assert_eq!(device.stats().writes, 2);
        let first = |extent: &Allocation| extent.read_at(0, 4096).unwrap().0[4095];
        assert_eq!(extents.each_ref().map(first), [1, 2, 3, 0, 5, 6]);
        writes.add(&extent(128 << 10), 0, AlignedBuf::zeroed(128 << 10)).unwrap();
        writes.write_out().unwrap();
        assert_eq!(device.stats().writes, 3);
    }
}
