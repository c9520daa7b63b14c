//! Frames and records. A log segment and a value block are the same thing: a sequence of frames,
//! each a header and records, padded to whole LBAs. A frame is the unit of atomicity: all of it
//! is valid, or none is used.
//!
//! Frame header, 64 bytes:
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 8 | magic | `ESKFRAME` |
//! | 8 | 2 | version | 1; 2 if a record deletes a range, or has an empty key |
//! | 10 | 1 | kind | 1 log, 2 aged |
//! | 11 | 1 | | 0 |
//! | 12 | 4 | records | how many |
//! | 16 | 8 | block | id of the block it belongs to |
//! | 24 | 8 | offset | of this frame in its block, in bytes |
//! | 32 | 8 | durable_seqno | every record up to this one was durable when the frame was written |
//! | 40 | 8 | first_seqno | of its first record; the others follow one by one (aged: 0) |
//! | 48 | 4 | payload_size | bytes of records |
//! | 52 | 4 | payload_crc | CRC-32C of the records |
//! | 56 | 4 | | 0 |
//! | 60 | 4 | crc | CRC-32C of bytes 0 to 59 |
//!
//! Record, 16 bytes and key and value. It does not know where it is, so it can be moved as it is:
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 4 | crc | CRC-32C of the rest of the record |
//! | 4 | 4 | value_size | bytes, as stored |
//! | 8 | 4 | kvs | id |
//! | 12 | 2 | key_size | bytes |
//! | 14 | 1 | kind | 1 put, 2 delete, 3 delete of all keys that begin with the key, 4 expiry of the put that is the next record: no key, and as its value 8 bytes of milliseconds since 1970-01-01 UTC. 5 delete of a range of keys: from the key, which may be empty, to below the value; without one there is no upper bound. Kinds 2 to 5 are in the log alone |
//! | 15 | 1 | flags | bits 0 and 1: codec of the value (`packed.rs`), 0 in the log; an unknown flag is an error |

use esker_base::checksum::{crc32c, crc32c_append};
use esker_base::codec::{Decoder, Encoder};
use esker_base::units::to_usize;

use super::packed::{Codec, Packed};
use super::{Malformed, expect, expect_crc, expect_magic, other_version};
use crate::types::expiry::Expiry;
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, KvsId, Seqno};
use crate::types::limits::{BOUND_MAX, KEY_MAX, VALUE_MAX};
use crate::types::spans::{Span, SpanBuf, bound_of, is_span};

const MAGIC: &[u8; 8] = b"ESKFRAME";
pub(crate) const HEADER_SIZE: usize = 64;
pub(crate) const RECORD_HEADER_SIZE: usize = 16;
/// The value of a record that says when the next one expires.
const EXPIRY_SIZE: usize = 8;

/// Log frames are replayed after a crash, aged ones are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Log,
    Aged,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) version: FormatVersion,
    pub(crate) kind: FrameKind,
    pub(crate) records: u32,
    pub(crate) block: BlockId,
    pub(crate) offset: u64,
    pub(crate) durable_seqno: Seqno,
    pub(crate) first_seqno: Seqno,
    pub(crate) payload_size: u32,
    pub(crate) payload_crc: u32,
}

impl FrameHeader {
    /// The version of an intact header of another release.
    pub(crate) fn other_version(bytes: &[u8]) -> Option<u16> {
        other_version(bytes, MAGIC, HEADER_SIZE, FormatVersion::NEWEST)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut e = Encoder::default();
        let kind = match self.kind {
            FrameKind::Log => 1,
            FrameKind::Aged => 2,
        };
        e.bytes(MAGIC).u16(self.version.number()).u8(kind).u8(0).u32(self.records);
        e.u64(self.block.0);
        e.u64(self.offset).u64(self.durable_seqno.0).u64(self.first_seqno.0);
        e.u32(self.payload_size).u32(self.payload_crc).u32(0);
        let crc = crc32c(&e.0);
        e.u32(crc);
        e.0.try_into().expect("64 bytes")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<FrameHeader, Malformed> {
        let mut d = Decoder::new(bytes);
        let (magic, version) = (d.bytes(8, "magic")?, d.u16("version")?);
        let version = expect_magic(magic, MAGIC, version, FormatVersion::NEWEST)?;
        let kind = d.u8("kind")?;
        d.u8("reserved")?;
        let records = d.u32("records")?;
        let (block, offset) = (BlockId(d.u64("block")?), d.u64("offset")?);
        let durable_seqno = Seqno(d.u64("durable_seqno")?);
        let first_seqno = Seqno(d.u64("first_seqno")?);
        let (payload_size, payload_crc) = (d.u32("payload_size")?, d.u32("payload_crc")?);
        d.u32("reserved")?;
        expect_crc("frame header", d.u32("crc")?, crc32c(&bytes[..HEADER_SIZE - 4]))?;
        let kind = match kind {
            1 => FrameKind::Log,
            2 => FrameKind::Aged,
            other => {
                return Err(Malformed(format!("frame kind 1 or 2 expected, {other} found")));
            }
        };
        Ok(FrameHeader {
            version,
            kind,
            records,
            block,
            offset,
            durable_seqno,
            first_seqno,
            payload_size,
            payload_crc,
        })
    }

    /// The seqno of its last record.
    pub(crate) fn last_seqno(&self) -> Seqno {
        Seqno(self.first_seqno.plus(self.records).0.saturating_sub(1))
    }

    /// Whether a header may begin here: most LBAs that are searched for one say no at once.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Checks the frame's records against the header.
    pub(crate) fn check_payload(&self, payload: &[u8]) -> Result<(), Malformed> {
        expect_crc("frame payload", self.payload_crc, crc32c(payload))
    }
}

/// A record, as it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kvs: KvsId,
    /// Or the prefix of keys, or the lower bound of a range.
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// Effect of a record on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
    /// Every older record of a key that begins with the record's is deleted.
    DeletePrefix,
    /// Every older record of a key from the record's to below this one is deleted.
    DeleteRange(Option<&'a [u8]>),
    /// Expiry of the next record's put. This record has no key.
    Expire(Expiry),
}

impl<'a> Change<'a> {
    /// The value that is put.
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Change::Put(value) => Some(value),
            Change::Delete | Change::DeletePrefix | Change::DeleteRange(_) | Change::Expire(_) => {
                None
            }
        }
    }

    /// The bytes of its value on media.
    fn value_size(self) -> usize {
        match self {
            Change::Expire(_) => EXPIRY_SIZE,
            Change::DeleteRange(upper) => upper.map_or(0, <[u8]>::len),
            other => other.value().map_or(0, <[u8]>::len),
        }
    }
}

/// The size in bytes of a record with a key and a value of these sizes.
pub(crate) const fn record_size(key_size: usize, value_size: usize) -> usize {
    RECORD_HEADER_SIZE + key_size + value_size
}

impl<'a> Record<'a> {
    /// A record that deletes the keys of a span: as a prefix, where they are those of one.
    pub(crate) fn delete_of(kvs: KvsId, span: Span<'a>) -> Record<'a> {
        let is_prefix = span.is_prefix();
        let change = if is_prefix { Change::DeletePrefix } else { Change::DeleteRange(span.upper) };
        Record { kvs, key: span.lower, change }
    }

    /// The keys that it deletes, if it is about more than one.
    pub(crate) fn span(&self) -> Option<SpanBuf> {
        match self.change {
            Change::DeletePrefix => Some(SpanBuf::of_prefix(self.key)),
            Change::DeleteRange(upper) => Some(Span { lower: self.key, upper }.to_buf()),
            Change::Put(_) | Change::Delete | Change::Expire(_) => None,
        }
    }

    /// The version of the format that a KVDB and a frame need to have for it.
    pub(crate) fn version(&self) -> FormatVersion {
        match self.change {
            Change::DeleteRange(_) => FormatVersion::V2,
            Change::Put(_) | Change::Delete if self.key.is_empty() => FormatVersion::V2,
            _ => FormatVersion::V1,
        }
    }

    pub(crate) fn size(&self) -> usize {
        record_size(self.key.len(), self.change.value_size())
    }

    /// Writes the record to the start of `out`, which has room for it.
    ///
    /// # Panics
    /// If key or value exceed the limits; callers check them first.
    pub(crate) fn encode_to(&self, out: &mut [u8]) {
        let expiry;
        let value = match self.change {
            Change::Expire(Expiry(ms)) => {
                expiry = ms.to_le_bytes();
                &expiry[..]
            }
            Change::DeleteRange(upper) => upper.unwrap_or_default(),
            other => other.value().unwrap_or_default(),
        };
        let value_size = u32::try_from(value.len()).expect("VALUE_MAX fits 32 bits");
        let key_size = u16::try_from(self.key.len()).expect("KEY_MAX fits 16 bits");
        out[4..8].copy_from_slice(&value_size.to_le_bytes());
        out[8..12].copy_from_slice(&self.kvs.0.to_le_bytes());
        out[12..14].copy_from_slice(&key_size.to_le_bytes());
        out[14] = match self.change {
            Change::Put(_) => 1,
            Change::Delete => 2,
            Change::DeletePrefix => 3,
            Change::Expire(_) => 4,
            Change::DeleteRange(_) => 5,
        };
        out[15] = 0;
        let key_end = RECORD_HEADER_SIZE + self.key.len();
        out[RECORD_HEADER_SIZE..key_end].copy_from_slice(self.key);
        out[key_end..key_end + value.len()].copy_from_slice(value);
        let crc = crc32c(&out[4..key_end + value.len()]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads and verifies the record at the start of `bytes`, one of the log.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let Fields { kvs, key, kind, codec, value } = Fields::verify(bytes)?;
        expect(codec == Codec::None, || "a compressed record in the log".into())?;
        let change = match kind {
            1 => Change::Put(value),
            2 => Change::Delete,
            3 => Change::DeletePrefix,
            4 => Change::Expire(Expiry(Decoder::new(value).u64("expiry")?)),
            5 if is_span(key, bound_of(value)) => Change::DeleteRange(bound_of(value)),
            5 => return Err(Malformed("a range that ends before it begins".into())),
            other => return Err(Malformed(format!("record kind 1 to 5 expected, {other} found"))),
        };
        expect(value.len() == change.value_size(), || {
            format!("a record of kind {kind} with a value of {} bytes", value.len())
        })?;
        Ok(Record { kvs, key, change })
    }
}

/// A put, as it may be in any block: with its value compressed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecord<'a> {
    pub(crate) kvs: KvsId,
    pub(crate) key: &'a [u8],
    pub(crate) value: Packed<'a>,
}

impl<'a> StoredRecord<'a> {
    /// Reads and verifies the record at the start of `bytes`.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<StoredRecord<'a>, Malformed> {
        let Fields { kvs, key, kind, codec, value } = Fields::verify(bytes)?;
        expect(kind == 1, || format!("record kind {kind} where a value was expected"))?;
        Ok(StoredRecord { kvs, key, value: Packed { codec, bytes: value } })
    }

    /// The value in the bytes of a record that was verified.
    pub(crate) fn value_of(bytes: &'a [u8]) -> Packed<'a> {
        let codec = Codec::of(bytes[15] & CODEC).unwrap_or_default();
        Packed { codec, bytes: &bytes[Self::value_at(bytes)..] }
    }

    /// The version of the format that a frame needs to have for the record that `bytes` hold.
    pub(crate) fn version_of(bytes: &[u8]) -> FormatVersion {
        let has_key = Self::value_at(bytes) > RECORD_HEADER_SIZE;
        if has_key { FormatVersion::V1 } else { FormatVersion::V2 }
    }

    /// Where the value begins in the bytes of a record.
    fn value_at(bytes: &[u8]) -> usize {
        record_size(usize::from(u16::from_le_bytes([bytes[12], bytes[13]])), 0)
    }

    /// Writes to `out` the record that `bytes` hold, with its value in another form.
    pub(crate) fn repack(bytes: &[u8], value: Packed<'_>, out: &mut Vec<u8>) {
        let value_size = u32::try_from(value.bytes.len()).expect("VALUE_MAX fits 32 bits");
        out.clear();
        out.extend_from_slice(&bytes[..Self::value_at(bytes)]);
        out.extend_from_slice(value.bytes);
        out[4..8].copy_from_slice(&value_size.to_le_bytes());
        out[15] = out[15] & !CODEC | value.codec.code();
        let crc = crc32c(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The bits of a record's flags that name the codec.
const CODEC: u8 = 3;

/// A record's fields, under a checksum that holds.
struct Fields<'a> {
    kvs: KvsId,
    key: &'a [u8],
    kind: u8,
    codec: Codec,
    value: &'a [u8],
}

impl<'a> Fields<'a> {
    fn verify(bytes: &'a [u8]) -> Result<Fields<'a>, Malformed> {
        let mut d = Decoder::new(bytes);
        let crc = d.u32("record crc")?;
        let value_size = to_usize(u64::from(d.u32("value_size")?));
        let kvs = KvsId(d.u32("kvs")?);
        let key_size = usize::from(d.u16("key_size")?);
        let kind = d.u8("record kind")?;
        let flags = d.u8("record flags")?;
        let keys = match kind {
            4 => 0..=0,
            5 => 0..=BOUND_MAX,
            3 => 1..=KEY_MAX,
            _ => 0..=KEY_MAX,
        };
        expect(keys.contains(&key_size) && value_size <= VALUE_MAX, || {
            format!("record with a key of {key_size} and a value of {value_size} bytes")
        })?;
        let key = d.bytes(key_size, "key")?;
        let value = d.bytes(value_size, "value")?;
        expect_crc("record", crc, crc32c_append(0, &bytes[4..record_size(key_size, value_size)]))?;
        expect(flags & !CODEC == 0, || format!("unknown record flags {flags:#04x}"))?;
        Ok(Fields { kvs, key, kind, codec: Codec::of(flags & CODEC)?, value })
    }
}
