//! What survives a power cut: the drive's state on the device that holds its data.
//!
//! A checkpoint is the whole state; a journal says what happened since. The journal is written when
//! the host flushes, so what a crash takes is what was not flushed.
//!
//! Invariants
//! 1. An event is in the journal only when the data it speaks of is durable.
//! 2. A unit that was erased is programmed again only when its erasure, and so every event before
//!    it, is durable: until then an older state may need what the unit held.
//! 3. A checkpoint is written beside the one in force; the superblock that names it comes after.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Device, DeviceError, Port};

use super::Parameters;
use super::omf::{BLOCK, Checkpoint, FRAME_EVENTS, Frame, Superblock};
use crate::FlashError;
use crate::ftl::{Event, UnitId};

/// Bytes moved at once.
const CHUNK: usize = 1 << 20;
/// The journal, in frames: a share of the map, within bounds.
const FRAMES: std::ops::RangeInclusive<u64> = 1024..=16_384;

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
    fn of(parameters: &Parameters) -> Result<Layout, FlashError> {
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
}

/// A drive's image.
pub(crate) struct Image {
    layout: Layout,
    superblock: Superblock,
    /// The next frame of the journal.
    frame: u32,
    /// What is not in the journal yet.
    events: Vec<Event>,
    /// Units whose erasure is not durable.
    erased: BTreeSet<UnitId>,
}

/// What an image says.
pub(super) struct Contents {
    pub(super) checkpoint: Checkpoint,
    /// What happened since, in order.
    pub(super) events: Vec<Event>,
    /// Bytes the host has written.
    pub(super) host_bytes: u64,
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

    /// A new image; its first checkpoint is still to be written.
    pub(super) fn create(
        device: &Arc<dyn Device>,
        name: &str,
        parameters: &Parameters,
    ) -> Result<Image, FlashError> {
        let layout = Layout::of(parameters)?;
        let geometry = device.geometry();
        let room = geometry.capacity.bytes(geometry.lba_size);
        if room < layout.end {
            let why = format!(
                "{}: the drive needs {} bytes and there are {room}; add capacity or ask for less",
                device.name(),
                layout.end
            );
            return Err(FlashError::NoSpace(why));
        }
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
        let mut disk = Disk::new(device, &mut port);
        let mut newest: Option<Superblock> = None;
        let mut why = None;
        for copy in 0..2 {
            match Superblock::decode(&disk.read(copy * to_u64(BLOCK), BLOCK)?) {
                Ok(found) if newest.as_ref().is_none_or(|kept| found.sequence > kept.sequence) => {
                    newest = Some(found);
                }
                Ok(_) => {}
                Err(error) => why = why.or(Some(error)),
            }
        }
        let superblock = match (newest, why) {
            (Some(superblock), _) => superblock,
            (None, why) => {
                let why = why.map_or_else(String::new, |error| error.to_string());
                return Err(FlashError::Corrupt(format!("{}: {why}", device.name())));
            }
        };
        superblock.parameters.check()?;
        let layout = Layout::of(&superblock.parameters)?;
        let size = to_usize(layout.checkpoint_bytes);
        let bytes = disk.read(layout.slot(superblock.slot), size)?;
        let checkpoint = Checkpoint::decode(&bytes, superblock.epoch)?;
        let (mut events, mut host_bytes, mut frame) = (Vec::new(), checkpoint.host_bytes, 0);
        while frame < layout.frames {
            let block = disk.read(layout.journal + u64::from(frame) * to_u64(BLOCK), BLOCK)?;
            let Some(found) = Frame::decode(&block, superblock.epoch, frame) else { break };
            host_bytes = found.host_bytes;
            events.extend(found.events);
            frame += 1;
        }
        let image =
            Image { layout, superblock, frame, events: Vec::new(), erased: BTreeSet::new() };
        Ok((image, Contents { checkpoint, events, host_bytes }))
    }

    /// Notes what happened.
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

    /// Whether a checkpoint is due: the journal has no room for what one command may bring.
    pub(super) fn is_long(&self) -> bool {
        self.frame > self.layout.frames / 2
    }

    /// Makes everything that happened durable. Returns the units erased meanwhile, whose data no
    /// state needs any more.
    pub(super) fn commit(
        &mut self,
        port: &mut Port,
        device: &Arc<dyn Device>,
        host_bytes: u64,
    ) -> Result<BTreeSet<UnitId>, FlashError> {
        port.flush()?;
        if self.events.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut disk = Disk::new(device, port);
        for events in self.events.chunks(FRAME_EVENTS) {
            if self.frame == self.layout.frames {
                let why = "the journal of the image is full in the middle of a command";
                return Err(FlashError::NoSpace(why.to_owned()));
            }
            let (epoch, index) = (self.superblock.epoch, self.frame);
            let frame = Frame { epoch, index, host_bytes, events: events.to_vec() };
            let offset = self.layout.journal + u64::from(self.frame) * to_u64(BLOCK);
            disk.write(offset, &frame.encode())?;
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
        let mut disk = Disk::new(device, port);
        disk.write(self.layout.slot(next.slot), &state.encode(next.epoch)?)?;
        port.flush()?;
        let mut disk = Disk::new(device, port);
        disk.write((next.sequence % 2) * to_u64(BLOCK), &next.encode()?)?;
        port.flush()?;
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
    fn new(device: &Arc<dyn Device>, port: &'a mut Port) -> Disk<'a> {
        let geometry = device.geometry();
        let most = CHUNK.min(to_usize(u64::from(geometry.max_transfer_size)));
        Disk { port, lba_size: geometry.lba_size, most }
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
}
