//! Manifest records: the KVDB's structure as a log of edits.
//!
//! The manifest device holds two regions of equal size. A region begins with a snapshot (a record
//! of edits that build the whole state) and goes on with one record per change. When a region is
//! full, and whenever the KVDB is opened, a snapshot with the next epoch begins the other region.
//! The region with the higher epoch and a valid snapshot is the current one.
//!
//! Record, padded to whole LBAs:
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 8 | magic | `ESKMANIF` |
//! | 8 | 2 | version | that of the KVDB: 1 or 2 |
//! | 10 | 2 | | 0 |
//! | 12 | 4 | payload_size | bytes of edits |
//! | 16 | 8 | epoch | of the region |
//! | 24 | 8 | index | of the record in its region; 0 is the snapshot |
//! | 32 | 8 | lba | of this record |
//! | 40 | 16 | uuid | of the KVDB |
//! | 56 | 4 | payload_crc | CRC-32C of the edits |
//! | 60 | 4 | crc | CRC-32C of bytes 0 to 59 |
//!
//! The payload is a sequence of [`Edit`]s: one byte of tag, then the fields in the order of their
//! declaration. The options of a KVS are in `options.rs`.

use esker_base::checksum::crc32c;
use esker_base::codec::{Decoder, Encoder};
use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount};

use super::class::{class_code, class_of};
use super::{Malformed, expect, expect_crc, expect_magic, options, other_version};
use crate::types::class::MediaClass;
use crate::types::extent::Extent;
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, Seqno};
use crate::types::policy::KvsOptions;

const MAGIC: &[u8; 8] = b"ESKMANIF";
pub(crate) const HEADER_SIZE: usize = 64;

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Of the KVDB.
    pub(crate) version: FormatVersion,
    pub(crate) payload_size: u32,
    pub(crate) epoch: u64,
    pub(crate) index: u64,
    pub(crate) lba: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) payload_crc: u32,
}

impl RecordHeader {
    /// The version of an intact header of another release.
    pub(crate) fn other_version(bytes: &[u8]) -> Option<u16> {
        other_version(bytes, MAGIC, HEADER_SIZE, FormatVersion::NEWEST)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut e = Encoder::default();
        e.bytes(MAGIC).u16(self.version.number()).u16(0).u32(self.payload_size).u64(self.epoch);
        e.u64(self.index).u64(self.lba).bytes(&self.uuid).u32(self.payload_crc);
        let crc = crc32c(&e.0);
        e.u32(crc);
        e.0.try_into().expect("64 bytes")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<RecordHeader, Malformed> {
        let mut d = Decoder::new(bytes);
        let (magic, version) = (d.bytes(8, "magic")?, d.u16("version")?);
        let version = expect_magic(magic, MAGIC, version, FormatVersion::NEWEST)?;
        d.u16("reserved")?;
        let payload_size = d.u32("payload_size")?;
        let (epoch, index, lba) = (d.u64("epoch")?, d.u64("index")?, d.u64("lba")?);
        let uuid = d.bytes(16, "uuid")?.try_into().expect("16 bytes");
        let payload_crc = d.u32("payload_crc")?;
        expect_crc("manifest record", d.u32("crc")?, crc32c(&bytes[..HEADER_SIZE - 4]))?;
        Ok(RecordHeader { version, payload_size, epoch, index, lba, uuid, payload_crc })
    }
}

/// A kvset, as the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KvsetEdit {
    pub(crate) id: KvsetId,
    pub(crate) kvs: KvsId,
    /// The node it belongs to.
    pub(crate) leaf: LeafId,
    /// The newest seqno in it: within a node, a higher age hides a lower one.
    pub(crate) age: Seqno,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) pages: u32,
    pub(crate) meta_size: u32,
    /// Pages and meta lie in these extents, one after the other.
    pub(crate) extents: Vec<Extent>,
    /// The block table: block ids, and the bytes of records that this kvset refers to in each.
    pub(crate) blocks: Vec<(BlockId, u64)>,
}

/// One change of the KVDB's structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Ids up to this one are taken.
    LastId { id: u64 },
    /// The KVDB has this class, opened from this path.
    Class { class: MediaClass, path: String },
    /// A KVS was created, or its options were changed.
    Kvs { id: KvsId, name: String, options: KvsOptions },
    /// A KVS was dropped, with all it holds.
    KvsDropped { id: KvsId },
    /// A block with this many bytes of records, which would be `plain_bytes` with no value compressed,
    /// or a log segment (0 bytes: it is not known yet).
    Block { id: BlockId, extent: Extent, log: bool, bytes: u64, plain_bytes: u64 },
    /// Records up to `seqno` are in kvsets; replay begins in block `first`.
    Ingested { seqno: Seqno, first: BlockId },
    /// A leaf of a KVS, which holds the keys from `lower` to the next leaf's.
    Leaf { id: LeafId, kvs: KvsId, lower: Vec<u8> },
    /// A leaf is gone.
    LeafRemoved { id: LeafId },
    /// A kvset was added.
    Kvset(KvsetEdit),
    /// A kvset is gone.
    KvsetRemoved { id: KvsetId },
    /// The KVDB has this class no more.
    ClassRemoved { class: MediaClass },
    /// A KVS has this metadata of the caller's. Version 2.
    KvsMetadata { id: KvsId, metadata: Vec<u8> },
}

fn put_extent(e: &mut Encoder, extent: &Extent) {
    e.u8(class_code(extent.class)).u64(extent.lba.0).u64(extent.count.0);
}

fn take_extent(d: &mut Decoder<'_>) -> Result<Extent, Malformed> {
    let class = class_of(d.u8("extent class")?)?;
    let (lba, count) = (Lba(d.u64("extent lba")?), LbaCount(d.u64("extent count")?));
    expect(lba.0.checked_add(count.0).is_some(), || {
        format!("an extent of {count} LBAs from {lba} on")
    })?;
    Ok(Extent { class, lba, count })
}

fn take_text(d: &mut Decoder<'_>, what: &'static str) -> Result<String, Malformed> {
    let bytes = d.bytes16(what)?.to_vec();
    String::from_utf8(bytes).map_err(|_| Malformed(format!("{what} is not UTF-8")))
}

impl Edit {
    pub(crate) fn encode_to(&self, e: &mut Encoder) {
        let count = |n: usize| u32::try_from(n).expect("fewer than 2^32 of anything");
        match self {
            Edit::LastId { id } => {
                e.u8(1).u64(*id);
            }
            Edit::Class { class, path } => {
                e.u8(2).u8(class_code(*class)).bytes16(path.as_bytes());
            }
            Edit::Kvs { id, name, options } => {
                e.u8(3).u32(id.0).bytes16(name.as_bytes()).bytes16(&options::encode(options));
            }
            Edit::KvsDropped { id } => {
                e.u8(4).u32(id.0);
            }
            Edit::Block { id, extent, log, bytes, plain_bytes } => {
                e.u8(5).u64(id.0);
                put_extent(e, extent);
                e.u8(u8::from(*log)).u64(*bytes).u64(*plain_bytes);
            }
            Edit::Ingested { seqno, first } => {
                e.u8(6).u64(seqno.0).u64(first.0);
            }
            Edit::Leaf { id, kvs, lower } => {
                e.u8(7).u64(id.0).u32(kvs.0).bytes16(lower);
            }
            Edit::LeafRemoved { id } => {
                e.u8(8).u64(id.0);
            }
            Edit::Kvset(k) => {
                e.u8(9).u64(k.id.0).u32(k.kvs.0).u64(k.leaf.0).u64(k.age.0).u64(k.entries);
                e.u64(k.tombstones).u32(k.pages).u32(k.meta_size);
                e.u32(count(k.extents.len()));
                k.extents.iter().for_each(|extent| put_extent(e, extent));
                e.u32(count(k.blocks.len()));
                for (block, live) in &k.blocks {
                    e.u64(block.0).u64(*live);
                }
            }
            Edit::KvsetRemoved { id } => {
                e.u8(10).u64(id.0);
            }
            Edit::ClassRemoved { class } => {
                e.u8(11).u8(class_code(*class));
            }
            Edit::KvsMetadata { id, metadata } => {
                e.u8(12).u32(id.0).bytes16(metadata);
            }
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Edit, Malformed> {
        Ok(match d.u8("edit")? {
            1 => Edit::LastId { id: d.u64("id")? },
            2 => Edit::Class { class: class_of(d.u8("class")?)?, path: take_text(d, "path")? },
            3 => Edit::Kvs {
                id: KvsId(d.u32("kvs")?),
                name: take_text(d, "name")?,
                options: options::decode(d.bytes16("options")?)?,
            },
            4 => Edit::KvsDropped { id: KvsId(d.u32("kvs")?) },
            5 => Edit::Block {
                id: BlockId(d.u64("block")?),
                extent: take_extent(d)?,
                log: d.u8("log")? != 0,
                bytes: d.u64("bytes")?,
                plain_bytes: d.u64("plain_bytes")?,
            },
            6 => Edit::Ingested { seqno: Seqno(d.u64("seqno")?), first: BlockId(d.u64("first")?) },
            7 => Edit::Leaf {
                id: LeafId(d.u64("leaf")?),
                kvs: KvsId(d.u32("kvs")?),
                lower: d.bytes16("lower")?.to_vec(),
            },
            8 => Edit::LeafRemoved { id: LeafId(d.u64("leaf")?) },
            9 => {
                let (id, kvs, leaf) =
                    (KvsetId(d.u64("kvset")?), KvsId(d.u32("kvs")?), LeafId(d.u64("leaf")?));
                let (age, entries) = (Seqno(d.u64("age")?), d.u64("entries")?);
                let tombstones = d.u64("tombstones")?;
                let (pages, meta_size) = (d.u32("pages")?, d.u32("meta_size")?);
                // Counts are not trusted for allocation: each item needs bytes that must be there.
                let extents = (0..d.u32("extents")?)
                    .map(|_| take_extent(d))
                    .collect::<Result<Vec<_>, _>>()?;
                let blocks = (0..d.u32("blocks")?)
                    .map(|_| Ok((BlockId(d.u64("block")?), d.u64("live")?)))
                    .collect::<Result<Vec<_>, Malformed>>()?;
                expect((pages > 0) == (entries > 0) && !extents.is_empty(), || {
                    let extents = extents.len();
                    format!("kvset {id} with {entries} entries, {pages} pages, {extents} extents")
                })?;
                Edit::Kvset(KvsetEdit {
                    id,
                    kvs,
                    leaf,
                    age,
                    entries,
                    tombstones,
                    pages,
                    meta_size,
                    extents,
                    blocks,
                })
            }
            10 => Edit::KvsetRemoved { id: KvsetId(d.u64("kvset")?) },
            11 => Edit::ClassRemoved { class: class_of(d.u8("class")?)? },
            12 => Edit::KvsMetadata {
                id: KvsId(d.u32("kvs")?),
                metadata: d.bytes16("metadata")?.to_vec(),
            },
            tag => return Err(Malformed(format!("unknown edit {tag}"))),
        })
    }

    /// All edits of a payload.
    pub(crate) fn decode_all(payload: &[u8]) -> Result<Vec<Edit>, Malformed> {
        let mut d = Decoder::new(payload);
        let mut edits = Vec::new();
        while d.left() > 0 {
            edits.push(Edit::decode(&mut d)?);
        }
        Ok(edits)
    }
}

/// The size in bytes of a record with a payload of this size, padded to whole LBAs.
pub(crate) fn padded_size(payload_size: u32, lba_size: u32) -> u64 {
    let bytes = HEADER_SIZE as u64 + u64::from(payload_size);
    esker_base::units::round_up(bytes, u64::from(lba_size))
}

/// The payload of a record that begins at the start of `bytes`, verified.
pub(crate) fn payload<'a>(header: &RecordHeader, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let size = to_usize(header.payload_size.into());
    let payload = Decoder::new(&bytes[HEADER_SIZE..]).bytes(size, "manifest payload")?;
    expect_crc("manifest payload", header.payload_crc, crc32c(payload))?;
    Ok(payload)
}
