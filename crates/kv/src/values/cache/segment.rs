//! Segments: buffers of one size that records are appended to.
//!
//! A record in a segment is a header and its bytes, padded to [`UNIT`]:
//!
//! | offset | size | meaning |
//! | --- | --- | --- |
//! | 0 | 8 | block of its address |
//! | 8 | 8 | the age as of which it is the newest of its key |
//! | 16 | 4 | offset of its address |
//! | 20 | 4 | KVS |
//! | 24 | 2 | size of its key |
//! | 26 | 2 | size of its value |
//! | 28 | 1 | visits: how often it was read, up to [`VISITS_MAX`]; and whether it expires |
//! | 29 | | its key, its value |
//!
//! Invariants
//! 1. The first `fill` bytes of a segment are whole records.
//! 2. A segment in use has a slot; a [`CachePlace`] names the slot and the record's position in it, and
//!    stays good until the segment leaves its slot.

use std::num::NonZeroU32;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Slab, prefetch};

use crate::types::ids::{BlockId, KvsId, RecordAddress, Seqno};
use crate::types::key::key_hash;
use crate::values::cache::record::{RecordKey, Version, record_hash};

/// Bytes of a segment, a piece of a [`Slab`].
pub(super) const SEGMENT: usize = 128 << 10;
/// The largest record that is cached, in bytes of key and value: a quarter of a segment, so that the
/// ends of segments stay small.
pub(super) const RECORD_MAX: usize = 32 << 10;
/// Where visits stop counting.
pub(super) const VISITS_MAX: u8 = 3;
/// How many segments one shard can name.
pub(super) const SLOTS_MAX: usize = 1 << (32 - UNIT_BITS);

/// Records start at multiples of this many bytes.
const UNIT: usize = 8;
/// Bits of a [`CachePlace`] for the position in a segment, in units.
const UNIT_BITS: u32 = 15;
const AGE: usize = 8;
const OFFSET: usize = 16;
const KVS: usize = 20;
const KEY_SIZE: usize = 24;
const VALUE_SIZE: usize = 26;
const VISITS: usize = 28;
const HEADER: usize = 29;
/// Set in the byte of the visits when the record expires.
const EXPIRES: u8 = 0x80;

const _: () = assert!(SEGMENT.is_multiple_of(UNIT) && SEGMENT / UNIT < 1 << UNIT_BITS);
const _: () = assert!(to_u64(RECORD_MAX) <= u16::MAX as u64 && VISITS_MAX < EXPIRES);

/// Where a record is: its segment's slot and its position there, and one more than that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachePlace(NonZeroU32);

impl CachePlace {
    pub(super) fn new(slot: usize, position: usize) -> CachePlace {
        let packed = ((slot << UNIT_BITS) | (position / UNIT)) + 1;
        let packed = u32::try_from(packed).ok().and_then(NonZeroU32::new);
        CachePlace(packed.expect("at most SLOTS_MAX slots"))
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
    /// For records not seen before: a tenth of the memory.
    Small,
    /// For records that were read again.
    Main,
}

/// A record as it lies in a segment.
#[derive(Clone, Copy)]
pub(super) struct CachedRecord<'a> {
    bytes: &'a [u8],
    pub(super) queue: Queue,
}

impl<'a> CachedRecord<'a> {
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes[at..at + N].try_into().expect("a field of the header")
    }

    fn size(&self, at: usize) -> usize {
        u16::from_le_bytes(self.field(at)).into()
    }

    fn kvs(&self) -> KvsId {
        KvsId(u32::from_le_bytes(self.field(KVS)))
    }

    fn key(&self) -> &'a [u8] {
        &self.bytes[HEADER..HEADER + self.size(KEY_SIZE)]
    }

    /// The hash that the index knows it by.
    pub(super) fn hash(&self) -> u64 {
        record_hash(self.kvs(), key_hash(self.key()))
    }

    pub(super) fn is_of(&self, key: &RecordKey<'_>) -> bool {
        self.kvs() == key.kvs && self.key() == key.key
    }

    pub(super) fn address(&self) -> RecordAddress {
        RecordAddress {
            block: BlockId(u64::from_le_bytes(self.field(0))),
            offset: u32::from_le_bytes(self.field(OFFSET)),
        }
    }

    pub(super) fn version(&self) -> Version {
        let age = Seqno(u64::from_le_bytes(self.field(AGE)));
        Version { address: self.address(), age, expires: self.bytes[VISITS] & EXPIRES != 0 }
    }

    pub(super) fn visits(&self) -> u8 {
        self.bytes[VISITS] & !EXPIRES
    }

    pub(super) fn value(&self) -> &'a [u8] {
        let start = HEADER + self.size(KEY_SIZE);
        &self.bytes[start..start + self.size(VALUE_SIZE)]
    }

    /// Bytes of key and value.
    pub(super) fn bytes(&self) -> usize {
        self.size(KEY_SIZE) + self.size(VALUE_SIZE)
    }
}

/// A buffer with records.
pub(super) struct Segment {
    bytes: AlignedBuf,
    fill: usize,
    queue: Queue,
}

impl Segment {
    /// Its records with their positions, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = (usize, CachedRecord<'_>)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let position = next;
            (position < self.fill).then(|| {
                let record = self.record(position);
                next += footprint(record.bytes());
                (position, record)
            })
        })
    }

    fn record(&self, position: usize) -> CachedRecord<'_> {
        CachedRecord { bytes: &self.bytes[position..], queue: self.queue }
    }
}

/// Bytes of a segment that a record takes whose key and value have `size` bytes.
pub(super) fn footprint(size: usize) -> usize {
    (HEADER + size).next_multiple_of(UNIT)
}

/// The segments of a shard.
pub(super) struct Segments {
    slab: Slab,
    slots: Vec<Option<Segment>>,
    free_slots: Vec<usize>,
    spare: Option<AlignedBuf>,
    /// How many buffers there are, with the spare one and those taken out.
    buffers: usize,
}

impl Segments {
    /// None yet; their buffers come from a slab with pieces of [`SEGMENT`] bytes.
    pub(super) fn new(slab: Slab) -> Segments {
        Segments { slab, slots: Vec::new(), free_slots: Vec::new(), spare: None, buffers: 0 }
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
            self.slab.take()
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
            *self = Segments::new(self.slab.clone());
        }
    }

    /// Whether a record fits in the segment at `slot` whose key and value have `size` bytes.
    pub(super) fn has_room(&self, slot: usize, size: usize) -> bool {
        self.segment(slot).fill + footprint(size) <= SEGMENT
    }

    /// Appends a record to the segment at `slot`, which has room for it.
    pub(super) fn append(
        &mut self,
        slot: usize,
        key: &RecordKey<'_>,
        version: &Version,
        parts: &[&[u8]],
        visits: u8,
    ) -> CachePlace {
        let segment = self.slots[slot].as_mut().expect("a slot in use");
        let place = CachePlace::new(slot, segment.fill);
        segment.fill += footprint(key.key.len() + size_of_parts(parts));
        self.write(place, key, version, parts, visits);
        place
    }

    /// Appends a record of a segment that was taken out of its slot.
    pub(super) fn append_copy(
        &mut self,
        slot: usize,
        record: CachedRecord<'_>,
        visits: u8,
    ) -> CachePlace {
        let segment = self.slots[slot].as_mut().expect("a slot in use");
        let (start, size) = (segment.fill, HEADER + record.bytes());
        segment.fill += footprint(record.bytes());
        segment.bytes[start..start + size].copy_from_slice(&record.bytes[..size]);
        segment.bytes[start + VISITS] = record.bytes[VISITS] & EXPIRES | visits;
        CachePlace::new(slot, start)
    }

    /// Writes a record at `place`, in the room of one with the same [`footprint`].
    pub(super) fn write(
        &mut self,
        place: CachePlace,
        key: &RecordKey<'_>,
        version: &Version,
        parts: &[&[u8]],
        visits: u8,
    ) {
        let size = |size: usize| u16::try_from(size).expect("at most RECORD_MAX").to_le_bytes();
        let bytes = self.bytes_mut(place);
        bytes[KVS..KEY_SIZE].copy_from_slice(&key.kvs.0.to_le_bytes());
        bytes[KEY_SIZE..VALUE_SIZE].copy_from_slice(&size(key.key.len()));
        bytes[VALUE_SIZE..VISITS].copy_from_slice(&size(size_of_parts(parts)));
        bytes[VISITS] = visits | if version.expires { EXPIRES } else { 0 };
        let mut at = HEADER;
        for part in std::iter::once(&key.key).chain(parts) {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.set_address(place, version.address);
        self.set_age(place, version.age);
    }

    /// The record at `place`.
    pub(super) fn record(&self, place: CachePlace) -> CachedRecord<'_> {
        self.segment(place.slot()).record(place.position())
    }

    /// Asks for the memory of the record at `place`: its header and up to a kilobyte; where more is read
    /// the processor goes on by itself.
    pub(super) fn prefetch(&self, place: CachePlace) {
        const LINE: usize = 64;
        const LINES: usize = 16;
        let record = &self.segment(place.slot()).bytes[place.position()..];
        record.iter().step_by(LINE).take(LINES).for_each(prefetch);
    }

    /// Gives the record at `place` another address.
    pub(super) fn set_address(&mut self, place: CachePlace, address: RecordAddress) {
        let bytes = self.bytes_mut(place);
        bytes[..AGE].copy_from_slice(&address.block.0.to_le_bytes());
        bytes[OFFSET..KVS].copy_from_slice(&address.offset.to_le_bytes());
    }

    /// Says as of which age the record at `place` is the newest of its key.
    pub(super) fn set_age(&mut self, place: CachePlace, age: Seqno) {
        self.bytes_mut(place)[AGE..OFFSET].copy_from_slice(&age.0.to_le_bytes());
    }

    /// Counts a visit of the record at `place`, and returns its value.
    pub(super) fn visit(&mut self, place: CachePlace) -> &[u8] {
        let visits = &mut self.bytes_mut(place)[VISITS];
        if *visits & !EXPIRES < VISITS_MAX {
            *visits += 1; // the hottest records are read without being written
        }
        self.record(place).value()
    }

    fn bytes_mut(&mut self, place: CachePlace) -> &mut [u8] {
        let segment = self.slots[place.slot()].as_mut().expect("a slot in use");
        &mut segment.bytes[place.position()..]
    }

    fn segment(&self, slot: usize) -> &Segment {
        self.slots[slot].as_ref().expect("a slot in use")
    }
}

/// Bytes of a value that comes in parts.
pub(super) fn size_of_parts(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}
