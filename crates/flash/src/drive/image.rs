//! State that survives a power cut: the drive's state on the device that holds its data.
//!
//! A checkpoint is the whole state; a journal has the events since. The journal is written when the
//! host flushes, so a crash takes only events that were not flushed.
//!
//! Invariants
//! 1. An event is in the journal only when the data it speaks of is durable.
//! 2. A unit that was erased is programmed again only when its erasure, and so every event before
//!    it, is durable: until then an older state may need the unit's old content.
//! 3. A checkpoint is written beside the one in force; the superblock that names it comes after.
//! 4. Of the two copies of the superblock one is always durable. The second is written when the
//!    first is durable, so that at rest they say the same and either may be damaged.
//! 5. Frames of an epoch are written in order, each once, and a commit is durable before the next
//!    begins. So a frame that is missing before a later commit was damaged, not torn.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Device, DeviceError, Op, Port};

use super::counts::HostCounts;
use super::omf::{BLOCK, Checkpoint, FRAME_EVENTS, Frame, Superblock};
use super::{Media, Parameters};
use crate::FlashError;
use crate::ftl::{Event, UnitId};

/// Bytes moved at once.
const CHUNK: usize = 1 << 20;
/// The journal, in frames: a share of the map, within bounds.
const FRAMES: std::ops::RangeInclusive<u64> = 1024..=16_384;
/// Frames read at once; behind the end of the journal, so many are looked at for one that shows
/// that it should not end there.
const FRAMES_READ: u32 = 16;

/// Where things are on the device, in bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    checkpoint_bytes: u64,
    journal: u64,
    frames: u32,
    data: u64,
    end: u64,
}

impl Layout {
    /// For parameters in which nothing overflows, from any source.
    fn of(parameters: &Parameters) -> Result<Layout, FlashError> {
        parameters.check()?;
        let pages = parameters.logical_pages()?;
        let checkpoint_bytes = Checkpoint::most_bytes(parameters, pages);
        let frames = (u64::from(pages) / 1024).clamp(*FRAMES.start(), *FRAMES.end());
        let journal = 2 * to_u64(BLOCK) + 2 * checkpoint_bytes;
        let data = (journal + frames * to_u64(BLOCK)).next_multiple_of(to_u64(CHUNK));
        let frames = u32::try_from(frames).expect("bounded above");
        let end = data + parameters.media_bytes();
        Ok(Layout { checkpoint_bytes, journal, frames, data, end })
    }

    fn slot(&self, slot: u8) -> u64 {
        2 * to_u64(BLOCK) + u64::from(slot) * self.checkpoint_bytes
    }

    fn frame(&self, index: u32) -> u64 {
        self.journal + u64::from(index) * to_u64(BLOCK)
    }

    /// Checks that a device can hold it.
    fn check(&self, parameters: &Parameters, device: &dyn Device) -> Result<(), FlashError> {
        let geometry = device.geometry();
        let room = geometry.capacity.bytes(geometry.lba_size);
        if room < self.end {
            let why = format!(
                "{}: the drive needs {} bytes and there are {room}; add capacity or ask for less",
                device.name(),
                self.end
            );
            return Err(FlashError::NoSpace(why));
        }
        // In place, an LBA is not written beside its older content: the device must not tear it.
        if parameters.media == Media::InPlace && geometry.lba_size < parameters.lba_size {
            let why = format!(
                "{}: its LBAs of {} bytes may tear those of {} of a drive written in place; use \
                 {} bytes for both",
                device.name(),
                geometry.lba_size,
                parameters.lba_size,
                geometry.lba_size
            );
            return Err(FlashError::Invalid(why));
        }
        Ok(())
    }
}

/// A drive's image.
pub(crate) struct Image {
    layout: Layout,
    superblock: Superblock,
    /// The next frame of the journal.
    frame: u32,
    /// Events that are not in the journal yet.
    events: Vec<Event>,
    /// Units whose erasure is not durable.
    erased: BTreeSet<UnitId>,
}

/// Content of an image.
pub(super) struct Contents {
    pub(super) checkpoint: Checkpoint,
    /// Events since, in order.
    pub(super) events: Vec<Event>,
    /// Counts of the host's requests.
    pub(super) host: HostCounts,
}

impl Image {
    /// Bytes that an image of this drive takes.
    pub(crate) fn bytes(parameters: &Parameters) -> Result<u64, FlashError> {
        Ok(Layout::of(parameters)?.end)
    }

    /// Where the data begins.
    pub(super) fn data_offset(&self) -> u64 {
        self.layout.data
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.superblock.parameters
    }

    pub(super) fn name(&self) -> &str {
        &self.superblock.name
    }

    /// A new image in place of the old content; its first checkpoint is still to be written.
    pub(super) fn create(
        device: &Arc<dyn Device>,
        name: &str,
        parameters: &Parameters,
    ) -> Result<Image, FlashError> {
        let layout = Layout::of(parameters)?;
        layout.check(parameters, &**device)?;
        // Remains of another image must not be taken for this one's: its superblocks may count
        // higher, and its frames may have the epochs of ours.
        let mut port = Port::open(&**device, 1)?;
        let mut disk = Disk::new(device, &mut port)?;
        disk.zero(0, 2 * to_u64(BLOCK))?;
        disk.port.flush()?;
        disk.zero(layout.journal, u64::from(layout.frames) * to_u64(BLOCK))?;
        let superblock = Superblock {
            sequence: 0,
            epoch: 0,
            slot: 1,
            name: name.to_owned(),
            parameters: parameters.clone(),
        };
        Ok(Image { layout, superblock, frame: 0, events: Vec::new(), erased: BTreeSet::new() })
    }

    /// Reads an image.
    pub(super) fn open(device: &Arc<dyn Device>) -> Result<(Image, Contents), FlashError> {
        let mut port = Port::open(&**device, 1)?;
        let mut disk = Disk::new(device, &mut port)?;
        // A killed process may not have flushed its writes.
        disk.port.flush()?;
        let superblock = disk.superblock(device.name())?;
        let layout = Layout::of(&superblock.parameters)?;
        layout.check(&superblock.parameters, &**device)?;
        let mut bytes = disk.read(layout.slot(superblock.slot), BLOCK)?;
        let size = Checkpoint::size(&bytes, superblock.epoch)?;
        if size > layout.checkpoint_bytes {
            let most = layout.checkpoint_bytes;
            return Err(FlashError::Corrupt(format!(
                "the image is damaged: a checkpoint of {size} bytes, where {most} fit"
            )));
        }
        let rest = to_usize(size.next_multiple_of(to_u64(BLOCK))).saturating_sub(BLOCK);
        bytes.extend(disk.read(layout.slot(superblock.slot) + to_u64(BLOCK), rest)?);
        let checkpoint = Checkpoint::decode(&bytes, superblock.epoch)?;
        let (mut events, mut host) = (Vec::new(), checkpoint.host);
        let frame = disk.journal(&layout, superblock.epoch, |found| {
            host = found.host;
            events.extend(found.events);
        })?;
        // After a power cut the second copy may name the checkpoint that is written over next. The
        // first flush of that comes before the first copy changes.
        disk.write(to_u64(BLOCK), &superblock.encode()?)?;
        let image =
            Image { layout, superblock, frame, events: Vec::new(), erased: BTreeSet::new() };
        Ok((image, Contents { checkpoint, events, host }))
    }

    /// Notes an event.
    pub(super) fn record(&mut self, event: Event) {
        if let Event::Erase { unit } = event {
            self.erased.insert(unit);
        }
        self.events.push(event);
    }

    /// Whether a unit must not be programmed before the next commit.
    pub(super) fn must_commit_before(&self, unit: UnitId) -> bool {
        self.erased.contains(&unit)
    }

    /// Whether a checkpoint is due: beside the events that are pending, the journal has no room for
    /// those that one command may bring.
    pub(super) fn is_long(&self) -> bool {
        let pending = to_u64(self.events.len().div_ceil(FRAME_EVENTS));
        u64::from(self.frame) + pending > u64::from(self.layout.frames / 2)
    }

    /// Makes everything that happened durable. Returns the units erased meanwhile, whose data no
    /// state needs any more.
    pub(super) fn commit(
        &mut self,
        port: &mut Port,
        device: &Arc<dyn Device>,
        host: HostCounts,
    ) -> Result<BTreeSet<UnitId>, FlashError> {
        port.flush()?;
        if self.events.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut disk = Disk::new(device, port)?;
        let commit = self.frame;
        for events in self.events.chunks(FRAME_EVENTS) {
            if self.frame == self.layout.frames {
                let why = "the journal of the image is full in the middle of a command";
                return Err(FlashError::NoSpace(why.to_owned()));
            }
            let (epoch, index) = (self.superblock.epoch, self.frame);
            let frame = Frame { epoch, index, commit, host, events: events.to_vec() };
            disk.write(self.layout.frame(index), &frame.encode())?;
            self.frame += 1;
        }
        port.flush()?;
        self.events.clear();
        Ok(std::mem::take(&mut self.erased))
    }

    /// Writes the whole state; the journal begins anew.
    pub(super) fn checkpoint(
        &mut self,
        port: &mut Port,
        device: &Arc<dyn Device>,
        state: &Checkpoint,
    ) -> Result<(), FlashError> {
        let next = Superblock {
            sequence: self.superblock.sequence + 1,
            epoch: self.superblock.epoch + 1,
            slot: 1 - self.superblock.slot,
            ..self.superblock.clone()
        };
        let bytes = next.encode()?;
        let mut disk = Disk::new(device, port)?;
        disk.write(self.layout.slot(next.slot), &state.encode(next.epoch)?)?;
        // Makes durable the data of the checkpoint, and the second copy of the last superblock.
        disk.port.flush()?;
        disk.write(0, &bytes)?;
        disk.port.flush()?;
        disk.write(to_u64(BLOCK), &bytes)?;
        self.superblock = next;
        self.frame = 0;
        self.events.clear();
        self.erased.clear();
        Ok(())
    }
}

/// Bytes on a device, through a port.
struct Disk<'a> {
    port: &'a mut Port,
    lba_size: u32,
    most: usize,
}

impl<'a> Disk<'a> {
    fn new(device: &Arc<dyn Device>, port: &'a mut Port) -> Result<Disk<'a>, FlashError> {
        let geometry = device.geometry();
        let most = CHUNK.min(to_usize(u64::from(geometry.max_transfer_size))) / BLOCK * BLOCK;
        if most == 0 {
            let why = format!(
                "{}: it moves {} bytes at once, and an image needs {BLOCK}",
                device.name(),
                geometry.max_transfer_size
            );
            return Err(FlashError::Invalid(why));
        }
        Ok(Disk { port, lba_size: geometry.lba_size, most })
    }

    /// The superblock in force: of two that are whole, the later one.
    fn superblock(&mut self, name: &str) -> Result<Superblock, FlashError> {
        let first = Superblock::decode(&self.read(0, BLOCK)?);
        let second = Superblock::decode(&self.read(to_u64(BLOCK), BLOCK)?);
        match (first, second) {
            (Ok(first), Ok(second)) if second.sequence > first.sequence => Ok(second),
            (Ok(found), _) | (Err(_), Ok(found)) => Ok(found),
            (Err(error), Err(_)) => Err(FlashError::Corrupt(format!("{name}: {error}"))),
        }
    }

    /// Hands out the frames of the journal in order, and returns how many there are.
    fn journal(
        &mut self,
        layout: &Layout,
        epoch: u64,
        mut each: impl FnMut(Frame),
    ) -> Result<u32, FlashError> {
        let (mut end, mut next) = (None, 0);
        while next < layout.frames && end.is_none_or(|end| next - end <= FRAMES_READ) {
            let count = FRAMES_READ.min(layout.frames - next);
            let bytes = self.read(layout.frame(next), count as usize * BLOCK)?;
            for (block, index) in bytes.chunks(BLOCK).zip(next..) {
                match (Frame::decode(block, epoch, index)?, end) {
                    (Some(found), None) => each(found),
                    (None, None) => end = Some(index),
                    (Some(later), Some(end)) if later.commit > end => {
                        return Err(FlashError::Corrupt(format!(
                            "the image is damaged: frame {end} of the journal is gone, and frame \
                             {index} was written after it"
                        )));
                    }
                    _ => {}
                }
            }
            next += count;
        }
        Ok(end.unwrap_or(layout.frames))
    }

    fn lba(&self, offset: u64) -> Lba {
        Lba(offset / u64::from(self.lba_size))
    }

    fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let part = AlignedBuf::zeroed(self.most.min(size - bytes.len()));
            let lba = self.lba(offset + to_u64(bytes.len()));
            bytes.extend_from_slice(&self.port.read(lba, part)?);
        }
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        for (part, number) in bytes.chunks(self.most).zip(0..) {
            let lba = self.lba(offset + number * to_u64(self.most));
            self.port.write(lba, AlignedBuf::padded(part, BLOCK), None)?;
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let count = LbaCount(bytes / u64::from(self.lba_size));
        self.port.run(Op::WriteZeroes { lba: self.lba(offset), count }).map(drop)
    }
}
