//! The on-media format of the flash device: every byte that the cache writes besides the data
//! itself. Described with drawings in `docs/format/cache.md`.
//!
//! Called by `store` and `journal`; calls nothing but the codec and the checksum.
//!
//! Invariants
//! 1. Integers are little-endian. Reserved bytes are zero.
//! 2. Every structure has a magic, a version, the cache's id, its own place, and a CRC-32C.
//! 3. A decoder takes any bytes. A count is checked against the bytes that are there before
//!    anything is allocated for it.

mod origin;
mod rows;

use esker_base::checksum::{crc32c, crc32c_append};
use esker_base::codec::{Decoder, Encoder, Truncated};
use esker_device::DeviceError;
use thiserror::Error;

pub use origin::{MAX_IDENTITY, MAX_SAMPLES, Origin, Sample};
pub use rows::Rows;

/// Bytes of a cached block, of a slot, of a superblock and of a table page.
pub const BLOCK: u64 = 4096;
/// The same as a size in memory.
pub const BLOCK_SIZE: usize = 4096;
/// The version of the format of new caches. Version 1 had one row, version 2 knew nothing of its origin but the size;
/// they are written as [`SINGLE`].
pub const VERSION: u32 = 4;
/// The last version with one copy of the journal, and no superblock near the end. Such a cache keeps that layout.
pub const SINGLE: u32 = 3;
/// Copies of the superblock.
pub const COPIES: u32 = 3;
/// Bytes at the end of the used ones that begin with copy 2 of the superblock, and hold nothing else. A partition
/// table (GPT) has its backup in the last 20 KiB of a device.
pub const TAIL: u64 = 64 << 10;
/// The state of a cache that was detached: the origin may have changed, and the flash device may be
/// another cache's.
pub const DETACHED: u8 = 1;
/// The most rows of slots.
pub const MAX_ROWS: usize = 16;
/// The most bytes of a journal area: a record says where it begins in four bytes.
pub const MAX_AREA: u64 = 1 << 32;

const SUPER_MAGIC: &[u8; 8] = b"ESKCACHE";
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"EKCJ");
const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"EKCT");

/// Bytes of a superblock that have a meaning; the rest of its 4,096 are zeroes.
pub const SUPER_SIZE: usize = 88 + 4 * MAX_ROWS + origin::ORIGIN_SIZE;
/// Bytes of a journal record before its changes.
pub const RECORD_HEADER: usize = 64;
/// Bytes of one change in a journal record.
pub const CHANGE_SIZE: usize = 12;
/// Bytes of a table page before its names.
pub const PAGE_HEADER: usize = 64;
/// Names in a table page.
pub const PAGE_NAMES: usize = (BLOCK_SIZE - PAGE_HEADER) / 8;

const _: () = assert!(PAGE_NAMES == 504 && SUPER_SIZE <= BLOCK_SIZE);
const _: () = assert!(PAGE_HEADER + PAGE_NAMES * 8 == BLOCK_SIZE);

/// Reasons why bytes are not a valid structure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// They are all zeroes: nothing was ever written there.
    #[error("nothing was written there")]
    Empty,
    /// They do not begin as such a structure does.
    #[error("they do not begin as {0} does")]
    Magic(&'static str),
    /// They are of another version.
    #[error(
        "it is of version {found} of the format, and this program reads versions 1 to {VERSION}: it is damaged, or a newer \
         program made it"
    )]
    Version {
        /// The version that they state.
        found: u32,
    },
    /// The checksum is wrong.
    #[error("the checksum of {what} is {found:#010x}, and {expected:#010x} was expected")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// The stored checksum.
        found: u32,
        /// The checksum of the bytes.
        expected: u32,
    },
    /// They belong to another cache or another place.
    #[error("{what} is {found}, and {expected} was expected")]
    Mismatch {
        /// Which field.
        what: &'static str,
        /// The stored value.
        found: u64,
        /// The expected value.
        expected: u64,
    },
    /// A field has a value that it cannot have.
    #[error("{what} cannot be {found}")]
    Value {
        /// Which field.
        what: &'static str,
        /// The stored value.
        found: u64,
    },
    /// Journal records without a sound copy, in front of sound ones.
    #[error(
        "{lost} of its records have no sound copy, and {later} sound ones behind them are of no use without"
    )]
    Lost {
        /// Records without a sound copy.
        lost: u64,
        /// Sound records behind them.
        later: u64,
    },
    /// The device could not read them.
    #[error("it cannot be read: {0}")]
    Unreadable(DeviceError),
    /// They end too early.
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

fn expect(what: &'static str, found: u64, expected: u64) -> Result<(), FormatError> {
    match found == expected {
        true => Ok(()),
        false => Err(FormatError::Mismatch { what, found, expected }),
    }
}

fn check_crc(what: &'static str, found: u32, expected: u32) -> Result<(), FormatError> {
    match found == expected {
        true => Ok(()),
        false => Err(FormatError::Checksum { what, found, expected }),
    }
}

/// The checksum of a superblock of this version in these bytes.
fn super_crc(version: u32, bytes: &[u8]) -> u32 {
    let tail = bytes.get(16..BLOCK_SIZE).unwrap_or_default();
    match version {
        ..=SINGLE => crc32c(tail),
        _ => crc32c_append(crc32c(&bytes[8..12]), tail),
    }
}

/// Durable metadata about a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    /// Nothing: the slot may be written.
    #[default]
    None,
    /// It holds the origin's content of this block.
    Clean(u64),
    /// It holds content of this block that the origin has yet to get.
    Dirty(u64),
}

const DIRTY: u64 = 1 << 63;
/// The highest block number, exclusive.
pub const BLOCKS_END: u64 = 1 << 62;

impl Name {
    /// Eight bytes: block + 1, with bit 63 for dirty.
    #[must_use]
    pub fn encode(self) -> u64 {
        match self {
            Name::None => 0,
            Name::Clean(block) => block + 1,
            Name::Dirty(block) => (block + 1) | DIRTY,
        }
    }

    /// The name in these eight bytes.
    ///
    /// # Errors
    /// No name has them.
    pub fn decode(raw: u64) -> Result<Name, FormatError> {
        let place = raw & !DIRTY;
        match (place, raw & DIRTY != 0) {
            (0, false) => Ok(Name::None),
            (place, is_dirty) if (1..=BLOCKS_END).contains(&place) => {
                Ok(if is_dirty { Name::Dirty(place - 1) } else { Name::Clean(place - 1) })
            }
            _ => Err(FormatError::Value { what: "a name", found: raw }),
        }
    }

    /// The block it names.
    #[must_use]
    pub fn block(self) -> Option<u64> {
        match self {
            Name::None => None,
            Name::Clean(block) | Name::Dirty(block) => Some(block),
        }
    }
}

/// Parameters and state of a cache. There are three copies, and two before version 4.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 0 | 8 | magic `ESKCACHE` |
/// | 8 | 4 | version |
/// | 12 | 4 | CRC-32C of bytes 8 to 11 and 16 to 4,095; before version 4 of the latter alone |
/// | 16 | 4 | which copy: 0, 1 or 2 |
/// | 20 | 1 | mode: 0 write-back, 1 write-through, 2 write-around |
/// | 21 | 1 | state: 0 attached, 1 detached |
/// | 22 | 1 | mapping: 0 hashed, 1 linear, 2 one set |
/// | 23 | 1 | reserved |
/// | 24 | 8 | generation |
/// | 32 | 8 | the cache's id |
/// | 40 | 8 | bytes of the origin when the cache was made |
/// | 48 | 8 | bytes of the flash device that are used |
/// | 56 | 4 | slots in a set |
/// | 60 | 4 | blocks in a run |
/// | 64 | 4 | sets |
/// | 68 | 4 | clean epoch: clean names of other epochs are void |
/// | 72 | 8 | bytes of a copy of a journal area |
/// | 80 | 4 | rows; none in version 1 |
/// | 84 | 4 | reserved |
/// | 88 | 64 | slots of a set in each row |
/// | 152 | 1,304 | what is known of the origin: [`Origin`]; nothing before version 3 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version of the layout: [`VERSION`], or [`SINGLE`].
    pub version: u32,
    /// The mode's number.
    pub mode: u8,
    /// 0 attached, 1 detached.
    pub state: u8,
    /// 0 hashed, 1 linear, 2 one set.
    pub mapping: u8,
    /// Counts the changes.
    pub generation: u64,
    /// Random; everything on the medium carries it.
    pub id: u64,
    /// Bytes of the origin when the cache was made.
    pub origin_bytes: u64,
    /// Bytes of the flash device that are used.
    pub flash_bytes: u64,
    /// Slots in a set.
    pub set_slots: u32,
    /// How many of them are in each row.
    pub rows: Rows,
    /// Blocks in a run: neighbours that share a set.
    pub run_blocks: u32,
    /// How many sets.
    pub sets: u32,
    /// Clean names of other epochs are void.
    pub clean_epoch: u32,
    /// Bytes of a copy of a journal area.
    pub area_bytes: u64,
    /// Facts about the origin.
    pub origin: Origin,
}

impl Superblock {
    /// The 4,096 bytes of copy `copy`.
    #[must_use]
    pub fn encode(&self, copy: u32) -> Vec<u8> {
        let mut e = Encoder(Vec::with_capacity(BLOCK_SIZE));
        e.bytes(SUPER_MAGIC).u32(self.version).u32(0).u32(copy);
        e.u8(self.mode).u8(self.state).u8(self.mapping).u8(0);
        e.u64(self.generation).u64(self.id).u64(self.origin_bytes).u64(self.flash_bytes);
        e.u32(self.set_slots).u32(self.run_blocks).u32(self.sets).u32(self.clean_epoch);
        e.u64(self.area_bytes).u32(self.rows.count).u32(0);
        for slots in self.rows.slots {
            e.u32(slots);
        }
        self.origin.encode(&mut e);
        let mut bytes = e.0;
        debug_assert_eq!(bytes.len(), SUPER_SIZE);
        bytes.resize(BLOCK_SIZE, 0);
        let crc = super_crc(self.version, &bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The superblock in these 4,096 bytes, which are copy `copy`.
    ///
    /// # Errors
    /// They are none of this version, or damaged.
    pub fn decode(bytes: &[u8], copy: u32) -> Result<Superblock, FormatError> {
        let mut d = Decoder::new(bytes);
        if d.bytes(8, "magic")? != SUPER_MAGIC {
            let is_empty = bytes.iter().all(|&byte| byte == 0);
            return Err(if is_empty {
                FormatError::Empty
            } else {
                FormatError::Magic("a cache's superblock")
            });
        }
        let found = d.u32("version")?;
        if !(1..=VERSION).contains(&found) {
            return Err(FormatError::Version { found });
        }
        let crc = d.u32("crc")?;
        check_crc("the superblock", crc, super_crc(found, bytes))?;
        expect("the copy", d.u32("copy")?.into(), copy.into())?;
        let (mode, state, mapping) = (d.u8("mode")?, d.u8("state")?, d.u8("mapping")?);
        d.u8("reserved")?;
        let version = found;
        let mut found = Superblock {
            version: version.max(SINGLE),
            mode,
            state,
            mapping,
            generation: d.u64("generation")?,
            id: d.u64("id")?,
            origin_bytes: d.u64("origin bytes")?,
            flash_bytes: d.u64("flash bytes")?,
            set_slots: d.u32("slots in a set")?,
            rows: Rows::default(),
            run_blocks: d.u32("blocks in a run")?,
            sets: d.u32("sets")?,
            clean_epoch: d.u32("clean epoch")?,
            area_bytes: d.u64("area bytes")?,
            origin: Origin::default(),
        };
        found.rows = match version {
            1 => Rows::one(found.set_slots),
            _ => Rows::decode(&mut d)?,
        };
        if version > 2 {
            found.origin = Origin::decode(&mut d, found.origin_bytes)?;
        }
        // Before version 4 the checksum does not cover the version: a wrong one must not hide the rest.
        let unused = d.bytes(BLOCK_SIZE - d.offset(), "the unused part")?;
        if unused.iter().any(|&byte| byte != 0) {
            return Err(FormatError::Value { what: "the version", found: version.into() });
        }
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<(), FormatError> {
        let is_single = self.version == SINGLE;
        let values: [(&'static str, u64, bool); 9] = [
            (
                "the bytes that are used",
                self.flash_bytes,
                is_single || (self.flash_bytes.is_multiple_of(BLOCK) && self.flash_bytes > TAIL),
            ),
            ("the mode", self.mode.into(), self.mode <= 2),
            ("the state", self.state.into(), self.state <= 1),
            ("the mapping", self.mapping.into(), self.mapping <= 2),
            ("slots in a set", self.set_slots.into(), (1..=65_535).contains(&self.set_slots)),
            ("slots in all rows", self.rows.total(), self.rows.total() == self.set_slots.into()),
            ("blocks in a run", self.run_blocks.into(), (1..=1 << 20).contains(&self.run_blocks)),
            ("the number of sets", self.sets.into(), self.sets >= 1 && self.slots() < 1 << 32),
            (
                "the size of a journal area",
                self.area_bytes,
                self.area_bytes.is_multiple_of(BLOCK)
                    && (4 * BLOCK..=MAX_AREA).contains(&self.area_bytes),
            ),
        ];
        match values.into_iter().find(|(_, _, is_good)| !is_good) {
            Some((what, found, _)) => Err(FormatError::Value { what, found }),
            None => Ok(()),
        }
    }

    /// Where copy 2 lies, if there is one.
    #[must_use]
    pub fn last_copy(&self) -> Option<u64> {
        (self.version > SINGLE).then(|| self.flash_bytes - TAIL)
    }

    /// Where a copy lies, if there is one.
    #[must_use]
    pub fn copy(&self, copy: u32) -> Option<u64> {
        match copy {
            0 | 1 => Some(u64::from(copy) * BLOCK),
            _ => self.last_copy(),
        }
    }

    /// Slots in all.
    #[must_use]
    pub fn slots(&self) -> u64 {
        u64::from(self.sets) * u64::from(self.set_slots)
    }
}

/// One change of the names: a slot, and its new name. A `u32` and a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The slot, counted over all sets.
    pub slot: u32,
    /// Its new name.
    pub name: Name,
}

/// Purpose of a journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The first one of an area.
    Start,
    /// It carries changes, or none.
    Names,
    /// It says which pages of the table are about to be written: page numbers in place of slots,
    /// their new generations encoded as clean names.
    Pages,
}

/// The header of a journal record, before its changes.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 0 | 4 | magic `EKCJ` |
/// | 4 | 2 | version |
/// | 6 | 1 | kind: 1 start of an area, 2 names, 3 pages |
/// | 7 | 1 | 1 when the area before this one is still needed |
/// | 8 | 8 | the cache's id |
/// | 16 | 8 | sequence of the area |
/// | 24 | 8 | number of the record, over all areas |
/// | 32 | 4 | its offset in the area |
/// | 36 | 4 | how many changes follow |
/// | 40 | 4 | CRC-32C of the record before |
/// | 44 | 4 | clean epoch |
/// | 48 | 4 | dirty names in all, after this record |
/// | 52 | 4 | names in all, after this record |
/// | 56 | 4 | blocks of 4 KiB of the flash device that are used; 0 if they are more, and before version 4 |
/// | 60 | 4 | CRC-32C of bytes 0 to 59 and of the changes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Purpose of the record.
    pub kind: RecordKind,
    /// Whether the area before this one is still needed.
    pub needs_previous: bool,
    /// The cache's id.
    pub id: u64,
    /// Sequence of the area.
    pub sequence: u64,
    /// Number of the record, over all areas.
    pub number: u64,
    /// Its offset in the area.
    pub offset: u32,
    /// CRC-32C of the record before.
    pub previous_crc: u32,
    /// The clean epoch that its clean names belong to.
    pub clean_epoch: u32,
    /// Dirty names in all, after this record.
    pub dirty: u32,
    /// Names in all, after this record.
    pub named: u32,
    /// Blocks of the flash device that are used, if they are known: they tell where copy 2 of the superblock lies.
    pub used_blocks: u32,
}

/// Bytes of a record with this many changes, before it is padded to LBAs.
#[must_use]
pub fn record_size(changes: usize) -> usize {
    RECORD_HEADER + changes * CHANGE_SIZE
}

impl RecordHeader {
    /// The bytes of the record, and its CRC.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` changes, which no area holds.
    #[must_use]
    pub fn encode(&self, changes: &[Change]) -> (Vec<u8>, u32) {
        let count = u32::try_from(changes.len()).expect("an area is smaller than 4 GiB");
        let mut e = Encoder(Vec::with_capacity(record_size(changes.len())));
        let kind = match self.kind {
            RecordKind::Start => 1,
            RecordKind::Names => 2,
            RecordKind::Pages => 3,
        };
        e.u32(RECORD_MAGIC).u16(1).u8(kind).u8(u8::from(self.needs_previous));
        e.u64(self.id).u64(self.sequence).u64(self.number);
        e.u32(self.offset).u32(count).u32(self.previous_crc).u32(self.clean_epoch);
        e.u32(self.dirty).u32(self.named).u32(self.used_blocks).u32(0);
        for change in changes {
            e.u32(change.slot).u64(change.name.encode());
        }
        let mut bytes = e.0;
        let crc = crc32c_append(crc32c(&bytes[..60]), &bytes[RECORD_HEADER..]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// The record that begins `bytes`, which reach to the end of its area: header, changes, CRC.
    ///
    /// # Errors
    /// There is none, or it is torn or damaged.
    pub fn decode(bytes: &[u8]) -> Result<(RecordHeader, Vec<Change>, u32), FormatError> {
        let mut d = Decoder::new(bytes);
        if d.u32("magic")? != RECORD_MAGIC {
            return Err(FormatError::Magic("a journal record"));
        }
        let version = d.u16("version")?;
        if version != 1 {
            return Err(FormatError::Version { found: version.into() });
        }
        let kind = match d.u8("kind")? {
            1 => RecordKind::Start,
            2 => RecordKind::Names,
            3 => RecordKind::Pages,
            other => return Err(FormatError::Value { what: "the kind", found: other.into() }),
        };
        let needs_previous = d.u8("needs the area before")? != 0;
        let (id, sequence, number) = (d.u64("id")?, d.u64("sequence")?, d.u64("number")?);
        let (offset, count) = (d.u32("offset")?, d.u32("count")?);
        let (previous_crc, clean_epoch) = (d.u32("crc before")?, d.u32("clean epoch")?);
        let (dirty, named) = (d.u32("dirty")?, d.u32("named")?);
        let used_blocks = d.u32("used blocks")?;
        let crc = d.u32("crc")?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let payload = d.bytes(count.saturating_mul(CHANGE_SIZE), "changes")?;
        check_crc("the record", crc, crc32c_append(crc32c(&bytes[..60]), payload))?;
        let mut d = Decoder::new(payload);
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            changes.push(Change { slot: d.u32("slot")?, name: Name::decode(d.u64("name")?)? });
        }
        let header = RecordHeader {
            kind,
            needs_previous,
            id,
            sequence,
            number,
            offset,
            previous_crc,
            clean_epoch,
            dirty,
            named,
            used_blocks,
        };
        Ok((header, changes, crc))
    }
}

/// A page of the table: the names of the slots of a part of a set. There are two copies side by side; a change is
/// written to the older one.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 0 | 4 | magic `EKCT` |
/// | 4 | 2 | version |
/// | 6 | 2 | which copy: 0 or 1 |
/// | 8 | 8 | the cache's id |
/// | 16 | 4 | number of the page, over all sets |
/// | 20 | 4 | clean epoch |
/// | 24 | 8 | generation |
/// | 32 | 4 | CRC-32C of the page with these four bytes zero |
/// | 36 | 28 | reserved |
/// | 64 | 4,032 | 504 names |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// Number of the page, over all sets.
    pub page: u32,
    /// The clean epoch that its clean names belong to.
    pub clean_epoch: u32,
    /// Counts the writes of this page.
    pub generation: u64,
    /// The names, in the order of slots.
    pub names: Vec<Name>,
}

impl TablePage {
    /// The 4,096 bytes of copy `copy` of this page of the cache `id`.
    ///
    /// # Panics
    /// If there are more names than a page holds.
    #[must_use]
    pub fn encode(&self, id: u64, copy: u16) -> Vec<u8> {
        assert!(self.names.len() <= PAGE_NAMES, "a page holds {PAGE_NAMES} names");
        let mut e = Encoder(Vec::with_capacity(BLOCK_SIZE));
        e.u32(PAGE_MAGIC).u16(1).u16(copy).u64(id).u32(self.page).u32(self.clean_epoch);
        e.u64(self.generation).u32(0).bytes(&[0; 28]);
        for name in &self.names {
            e.u64(name.encode());
        }
        let mut bytes = e.0;
        bytes.resize(BLOCK_SIZE, 0);
        let crc = crc32c(&bytes);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Copy `copy` of page `page` of the cache `id`, of whose names the first `count` are used.
    ///
    /// # Errors
    /// [`FormatError::Empty`] when it was never written; else torn, damaged or another's.
    pub fn decode(
        bytes: &[u8],
        id: u64,
        page: u32,
        copy: u16,
        count: usize,
    ) -> Result<TablePage, FormatError> {
        let mut d = Decoder::new(bytes);
        if d.u32("magic")? != PAGE_MAGIC {
            let is_empty = bytes.iter().all(|&byte| byte == 0);
            return Err(if is_empty { FormatError::Empty } else { FormatError::Magic("a page") });
        }
        let version = d.u16("version")?;
        if version != 1 {
            return Err(FormatError::Version { found: version.into() });
        }
        let found_copy = d.u16("copy")?;
        let found_id = d.u64("id")?;
        let found_page = d.u32("page")?;
        let (clean_epoch, generation) = (d.u32("clean epoch")?, d.u64("generation")?);
        let crc = d.u32("crc")?;
        let (head, tail) = (&bytes[..32], bytes.get(36..BLOCK_SIZE).unwrap_or_default());
        let expected = crc32c_append(crc32c_append(crc32c(head), &[0; 4]), tail);
        check_crc("the page", crc, expected)?;
        expect("the copy", found_copy.into(), copy.into())?;
        expect("the cache's id", found_id, id)?;
        expect("the page", found_page.into(), page.into())?;
        d.bytes(28, "reserved")?;
        let mut names = Vec::with_capacity(PAGE_NAMES);
        for _ in 0..count.min(PAGE_NAMES) {
            names.push(Name::decode(d.u64("name")?)?);
        }
        Ok(TablePage { page, clean_epoch, generation, names })
    }
}

#[cfg(test)]
pub(crate) mod tests;
