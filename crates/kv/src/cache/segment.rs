//! Segments: buffers of one size that records are appended to.
//!
//! A record in a segment is a header and its bytes, padded to [`UNIT`]:
//!
//! | offset | size | meaning |
//! | --- | --- | --- |
//! | 0 | 8 | block of its address |
//! | 8 | 8 | offset of its address |
//! | 16 | 4 | size of its bytes |
//! | 20 | 1 | visits: how often it was read, up to [`VISITS_MAX`] |
//! | 24 | size | its bytes |
//!
//! Invariants
//! 1. The first `fill` bytes of a segment are whole records.
//! 2. A segment in use has a slot; a [`Place`] names the slot and the record's position in it, and
//!    stays good until the segment leaves its slot.

use std::num::NonZeroU32;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, prefetch};

use super::RecordAddress;

/// Bytes of a segment: enough that its buffer is a mapping of its own and goes back to the
/// operating system when it is freed ([`AlignedBuf`]).
pub(super) const SEGMENT: usize = 33 * 4096;
/// The largest record that is cached, in bytes: a quarter of a segment, so that the ends of
/// segments stay small.
pub(super) const RECORD_MAX: usize = 32 << 10;
/// Where visits stop counting.
pub(super) const VISITS_MAX: u8 = 3;
/// How many segments one shard can name.
pub(super) const SLOTS_MAX: usize = 1 << (32 - UNIT_BITS);

/// Records start at multiples of this many bytes.
const UNIT: usize = 8;
/// Bits of a [`Place`] for the position in a segment, in units.
const UNIT_BITS: u32 = 15;
const HEADER: usize = 24;
const VISITS: usize = 20;

const _: () = assert!(SEGMENT.is_multiple_of(UNIT) && SEGMENT / UNIT < 1 << UNIT_BITS);

/// Where a record is: its segment's slot and its position there, and one more than that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(NonZeroU32);

impl Place {
    pub(super) fn new(slot: usize, position: usize) -> Place {
        let packed = ((slot << UNIT_BITS) | (position / UNIT)) + 1;
        let packed = u32::try_from(packed).ok().and_then(NonZeroU32::new);
        Place(packed.expect("at most SLOTS_MAX slots"))
    }

    fn packed(self) -> u32 {
        self.0.get() - 1
    }

    fn slot(self) -> usize {
        to_usize(u64::from(self.packed() >> UNIT_BITS))
    }

    fn position(self) -> usize {
        to_usize(u64::from(self.packed() & ((1 << UNIT_BITS) - 1))) * UNIT
    }
}

/// The two queues of S3-FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// For what was not seen before: a tenth of the memory.
    Small,
    /// For what was read again.
    Main,
}

/// A record as it lies in a segment.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) address: RecordAddress,
    pub(super) visits: u8,
    pub(super) queue: Queue,
    pub(super) bytes: &'a [u8],
}

/// A buffer with records.
pub(super) struct Segment {
    bytes: AlignedBuf,
    fill: usize,
    queue: Queue,
}

impl Segment {
    /// Its records with their positions, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = (usize, Record<'_>)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let position = next;
            (position < self.fill).then(|| {
                let record = self.record(position);
                next += footprint(record.bytes.len());
                (position, record)
            })
        })
    }

    fn record(&self, position: usize) -> Record<'_> {
        let (header, rest) = self.bytes[position..].split_at(HEADER);
        let size = u32::from_le_bytes(header[16..20].try_into().expect("four bytes"));
        Record {
            address: address(header),
            visits: header[VISITS],
            queue: self.queue,
            bytes: &rest[..to_usize(u64::from(size))],
        }
    }
}

fn address(header: &[u8]) -> RecordAddress {
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    RecordAddress { block: word(0), offset: word(8) }
}

/// Bytes of a segment that a record of `size` bytes takes.
fn footprint(size: usize) -> usize {
    (HEADER + size).next_multiple_of(UNIT)
}

/// The segments of a shard.
pub(super) struct Segments {
    slots: Vec<Option<Segment>>,
    free_slots: Vec<usize>,
    spare: Option<AlignedBuf>,
    /// How many buffers there are, with the spare one and those taken out.
    buffers: usize,
}

impl Segments {
    pub(super) fn new() -> Segments {
        Segments { slots: Vec::new(), free_slots: Vec::new(), spare: None, buffers: 0 }
    }

    /// Memory of all buffers.
    pub(super) fn bytes(&self) -> usize {
        self.buffers * SEGMENT
    }

    /// Memory of the tables of slots.
    pub(super) fn tables(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Option<Segment>>();
        slots + self.free_slots.capacity() * size_of::<usize>()
    }

    /// Memory of the buffer that is kept for the next segment.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spare.as_ref().map_or(0, |spare| spare.len())
    }

    /// Gives an empty segment a slot.
    pub(super) fn open(&mut self, queue: Queue) -> usize {
        let bytes = self.spare.take().unwrap_or_else(|| {
            self.buffers += 1;
            AlignedBuf::zeroed(SEGMENT)
        });
        let segment = Some(Segment { bytes, fill: 0, queue });
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot] = segment;
            return slot;
        }
        self.slots.push(segment);
        self.slots.len() - 1
    }

    /// Takes a segment out of its slot. It must come back by [`Segments::recycle`].
    pub(super) fn take(&mut self, slot: usize) -> Segment {
        self.free_slots.push(slot);
        self.slots[slot].take().expect("a slot in use")
    }

    /// Keeps the buffer of a segment for the next one, or frees it when there is one already.
    pub(super) fn recycle(&mut self, segment: Segment) {
        if self.spare.is_none() {
            self.spare = Some(segment.bytes);
        } else {
            self.buffers -= 1;
        }
    }

    /// Frees the spare buffer, and the tables too when no segment is left.
    pub(super) fn trim(&mut self) {
        self.buffers -= usize::from(self.spare.take().is_some());
        if self.buffers == 0 {
            *self = Segments::new();
        }
    }

    /// Whether a record of `size` bytes fits in the segment at `slot`.
    pub(super) fn has_room(&self, slot: usize, size: usize) -> bool {
        self.segment(slot).fill + footprint(size) <= SEGMENT
    }

    /// Appends a record to the segment at `slot`, which has room for it.
    pub(super) fn append(
        &mut self,
        slot: usize,
        address: RecordAddress,
        visits: u8,
        parts: &[&[u8]],
    ) -> Place {
        let segment = self.slots[slot].as_mut().expect("a slot in use");
        let start = segment.fill;
        let mut at = start + HEADER;
        for part in parts {
            segment.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let size = at - start - HEADER;
        let header = &mut segment.bytes[start..start + HEADER];
        write_address(header, address);
        let size_field = u32::try_from(size).expect("at most RECORD_MAX");
        header[16..20].copy_from_slice(&size_field.to_le_bytes());
        header[VISITS] = visits;
        segment.fill += footprint(size);
        Place::new(slot, start)
    }

    /// The record at `place`.
    pub(super) fn record(&self, place: Place) -> Record<'_> {
        self.segment(place.slot()).record(place.position())
    }

    /// The address of the record at `place`.
    pub(super) fn address(&self, place: Place) -> RecordAddress {
        address(&self.segment(place.slot()).bytes[place.position()..])
    }

    /// Asks for the memory of the record at `place`: its header and up to a kilobyte; where more is read
    /// the processor goes on by itself.
    pub(super) fn prefetch(&self, place: Place) {
        const LINE: usize = 64;
        const LINES: usize = 16;
        let record = &self.segment(place.slot()).bytes[place.position()..];
        record.iter().step_by(LINE).take(LINES).for_each(prefetch);
    }

    /// Gives the record at `place` another address.
    pub(super) fn set_address(&mut self, place: Place, address: RecordAddress) {
        let segment = self.slots[place.slot()].as_mut().expect("a slot in use");
        write_address(&mut segment.bytes[place.position()..], address);
    }

    /// Counts a visit of the record at `place`, and returns its bytes.
    pub(super) fn visit(&mut self, place: Place) -> &[u8] {
        let segment = self.slots[place.slot()].as_mut().expect("a slot in use");
        let visits = &mut segment.bytes[place.position() + VISITS];
        if *visits < VISITS_MAX {
            *visits += 1; // the hottest records are read without being written
        }
        segment.record(place.position()).bytes
    }

    fn segment(&self, slot: usize) -> &Segment {
        self.slots[slot].as_ref().expect("a slot in use")
    }
}

fn write_address(header: &mut [u8], address: RecordAddress) {
    header[..8].copy_from_slice(&address.block.to_le_bytes());
    header[8..16].copy_from_slice(&address.offset.to_le_bytes());
}

const _: () = assert!(to_u64(RECORD_MAX) <= u32::MAX as u64);
