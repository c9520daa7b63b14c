//! The format does not change: every structure against a dump of its bytes, against every damage,
//! and against bytes that were never one of ours.
//!
//! | module | content |
//! | --- | --- |
//! | [`golden`] | annotated dumps in `testdata/`; `ESKER_UPDATE_GOLDEN=1` writes them anew |
//! | [`damage`] | flipped bits, truncations, random bytes, mutations with mended checksums |
//! | [`images`] | whole KVDBs with structures changed behind checksums that fit |
//! | [`pages`] | key pages against a sorted `Vec` |

mod damage;
mod golden;
mod images;
mod pages;

use std::path::PathBuf;

use esker_base::checksum::crc32c;
use esker_base::codec::Encoder;
use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount};

use super::class::ClassHeader;
use super::frame::{self, Change, FrameHeader, FrameKind, Record, StoredRecord};
use super::kvset::KvsetMeta;
use super::manifest::{self, Edit, KvsetEdit, RecordHeader};
use super::packed::{Codec, Packed};
use super::page::{Entry, PAGE_SIZE, Page, PageBuilder, Stored};
use super::{Malformed, expect};
use crate::tree::filter::FilterBuilder;
use crate::types::class::MediaClass;
use crate::types::compression::Compression;
use crate::types::expiry::{Expiries, Expiry};
use crate::types::extent::Extent;
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, Seqno};
use crate::types::key::key_hash;
use crate::types::policy::Place;
use crate::types::policy::{KvsOptions, Policy};
use crate::types::spans::{Span, Spans};
use crate::values::compression::Unpacker;

const UUID: [u8; 16] = *b"0123456789abcdef";
/// 2026-01-01, midnight.
const EXPIRY: Expiry = Expiry(1_767_225_600_000);
const KVSET: KvsetId = KvsetId(9);
const PAGE_INDEX: u32 = 3;
/// Alignment to which frames and manifest records are padded here, in bytes.
const LBA_SIZE: usize = 512;

pub(crate) fn class_header() -> ClassHeader {
    ClassHeader { class: MediaClass::Capacity, lba_size: 4096, uuid: UUID }
}

pub(crate) fn log_records() -> Vec<Record<'static>> {
    let record = |kvs, key, change| Record { kvs: KvsId(kvs), key, change };
    vec![
        record(1, b"apple", Change::Put(b"a pome")),
        record(2, b"pear", Change::Delete),
        record(2, b"pea", Change::DeletePrefix),
        record(1, b"", Change::Expire(EXPIRY)),
        record(1, b"fig", Change::Put(b"")),
    ]
}

/// A frame with them has version 2.
pub(crate) fn range_records() -> Vec<Record<'static>> {
    let record = |key, change| Record { kvs: KvsId(2), key, change };
    vec![
        record(&b"fig"[..], Change::DeleteRange(Some(b"pea"))),
        record(b"pear", Change::DeleteRange(None)),
        record(b"", Change::DeleteRange(Some(b"apple\0"))),
        record(b"", Change::DeleteRange(None)),
        record(b"", Change::Put(b"of the empty key")),
        record(b"", Change::Delete),
        record(b"pea", Change::DeletePrefix),
    ]
}

pub(crate) fn aged_records() -> Vec<Record<'static>> {
    log_records().into_iter().take(1).collect()
}

/// A hundred letters, by both codecs.
const LETTERS: [u8; 100] = [b'z'; 100];
const LETTERS_LZ4: &[u8] = b"\x64\x1fz\x01\x00\x4b\x50zzzzz";
const LETTERS_ZSTD: &[u8] = b"\x64\x28\xb5\x2f\xfd\x00\x00\x23\x03\x00z";

fn packed_records() -> Vec<StoredRecord<'static>> {
    let record =
        |codec, bytes| StoredRecord { kvs: KvsId(1), key: b"fig", value: Packed { codec, bytes } };
    vec![record(Codec::Lz4, LETTERS_LZ4), record(Codec::Zstd, LETTERS_ZSTD)]
}

/// A frame at offset 4,096 of block 7.
pub(crate) fn frame_of(kind: FrameKind, records: &[Record<'_>]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut version = FormatVersion::V1;
    for record in records {
        let mut bytes = vec![0xee; record.size()];
        record.encode_to(&mut bytes);
        encoded.push(bytes);
        version = version.max(record.version());
    }
    frame_with((version, kind), &encoded)
}

/// A frame of aged records, compressed.
pub(crate) fn packed_frame() -> Vec<u8> {
    let packed = packed_records().into_iter().map(|StoredRecord { kvs, key, value }| {
        let plain = Record { kvs, key, change: Change::Put(&LETTERS) };
        let (mut bytes, mut packed) = (vec![0; plain.size()], Vec::new());
        plain.encode_to(&mut bytes);
        StoredRecord::repack(&bytes, value, &mut packed);
        packed
    });
    frame_with((FormatVersion::V1, FrameKind::Aged), &packed.collect::<Vec<_>>())
}

fn frame_with((version, kind): (FormatVersion, FrameKind), records: &[Vec<u8>]) -> Vec<u8> {
    let payload = records.concat();
    let (durable_seqno, first_seqno) = match kind {
        FrameKind::Log => (Seqno(40), Seqno(41)),
        FrameKind::Aged => (Seqno::ZERO, Seqno::ZERO),
    };
    let header = FrameHeader {
        version,
        kind,
        records: u32::try_from(records.len()).unwrap(),
        block: BlockId(7),
        offset: 4096,
        durable_seqno,
        first_seqno,
        payload_size: u32::try_from(payload.len()).unwrap(),
        payload_crc: crc32c(&payload),
    };
    padded([&header.encode()[..], &payload].concat())
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(LBA_SIZE), 0);
    bytes
}

fn page_entries() -> Vec<(&'static [u8], Entry<'static>)> {
    let stored = Stored { block: 1, offset: 4160, value_size: 1000, expiry: Expiry::NEVER };
    let expiring = Stored { expiry: EXPIRY, ..stored };
    vec![
        (b"user:1", Entry::Tombstone),
        (b"user:2", Entry::Inline(b"Ada", Expiry::NEVER)),
        (b"user:31", Entry::Stored(stored)),
        (b"user:4", Entry::Inline(b"", EXPIRY)),
        (b"user:5", Entry::Stored(expiring)),
    ]
}

pub(crate) fn page() -> Vec<u8> {
    let mut builder = PageBuilder::default();
    for (key, entry) in page_entries() {
        assert!(builder.add(key, entry));
    }
    builder.finish(KVSET, PAGE_INDEX).raw().to_vec()
}

const INDEX_KEYS: [&[u8]; 3] = [b"apple", b"melon", b"pear"];

/// The meta of a kvset of two pages, with prefixes.
pub(crate) fn kvset_meta() -> Vec<u8> {
    let mut prefixes = Encoder::default();
    prefixes.bytes16(b"grape").bytes16(b"plum");
    kvset_meta_with(FormatVersion::V1, &prefixes.0)
}

/// The same with ranges.
pub(crate) fn kvset_meta_with_ranges() -> Vec<u8> {
    let mut spans = Spans::default();
    spans.push(Span { lower: b"", upper: Some(b"apple") });
    spans.push(Span { lower: b"fig", upper: Some(b"grape\0") });
    spans.push(Span { lower: b"plum", upper: None });
    let (version, hides) = spans.encode(FormatVersion::V1);
    kvset_meta_with(version, &hides)
}

fn kvset_meta_with(version: FormatVersion, hides: &[u8]) -> Vec<u8> {
    let mut filter = FilterBuilder::new(INDEX_KEYS.len(), 10);
    let mut index = Encoder::default();
    for key in INDEX_KEYS {
        filter.add(key_hash(key));
        index.bytes16(key);
    }
    let filter = filter.finish();
    let (filter, index) = (filter.as_bytes(), &index.0);
    let expiries = Expiries { count: 2, first: EXPIRY, last: Expiry(EXPIRY.0 + 1000) };
    let (kvset, kvs, pages) = (KVSET, KvsId(1), 2);
    KvsetMeta { kvset, kvs, pages, filter, index, version, hides, expiries }.encode()
}

pub(crate) fn kvs_options() -> KvsOptions {
    let old_keys = Place::only(MediaClass::Capacity);
    let policy = Policy { old_keys, ..Policy::default() };
    KvsOptions { policy, compression: Compression::Zstd, ttl_ms: Some(60_000) }
}

/// One edit of every kind, both kinds of block among them.
fn edits() -> Vec<Edit> {
    let extent = |class, lba, count| Extent { class, lba: Lba(lba), count: LbaCount(count) };
    let (staging, capacity) = (MediaClass::Staging, MediaClass::Capacity);
    vec![
        Edit::LastId { id: 9 },
        Edit::Class { class: staging, path: "staging.esker".into() },
        Edit::Kvs { id: KvsId(1), name: "users".into(), options: kvs_options() },
        Edit::KvsDropped { id: KvsId(2) },
        Edit::Block {
            id: BlockId(7),
            extent: extent(staging, 64, 8192),
            log: true,
            bytes: 0,
            plain_bytes: 0,
        },
        Edit::Block {
            id: BlockId(8),
            extent: extent(capacity, 16, 4096),
            log: false,
            bytes: 2_000_000,
            plain_bytes: 3_000_000,
        },
        Edit::Ingested { seqno: Seqno(43), first: BlockId(7) },
        Edit::Leaf { id: LeafId(4), kvs: KvsId(1), lower: b"m".to_vec() },
        Edit::LeafRemoved { id: LeafId(5) },
        Edit::Kvset(KvsetEdit {
            id: KVSET,
            kvs: KvsId(1),
            leaf: LeafId(4),
            age: Seqno(43),
            entries: 300,
            tombstones: 2,
            pages: 2,
            meta_size: 195,
            extents: vec![extent(staging, 8256, 16)],
            blocks: vec![(BlockId(7), 1000), (BlockId(8), 200_000)],
        }),
        Edit::KvsetRemoved { id: KvsetId(6) },
        Edit::ClassRemoved { class: staging },
    ]
}

/// The same with those that need this version.
pub(crate) fn edits_of(version: FormatVersion) -> Vec<Edit> {
    let mut edits = edits();
    if version == FormatVersion::V2 {
        edits.push(Edit::KvsMetadata { id: KvsId(1), metadata: b"schema 3".to_vec() });
    }
    edits
}

fn record_header(version: FormatVersion, payload: &[u8]) -> RecordHeader {
    RecordHeader {
        version,
        payload_size: u32::try_from(payload.len()).unwrap(),
        epoch: 3,
        index: 1,
        lba: 24,
        uuid: UUID,
        payload_crc: crc32c(payload),
    }
}

pub(crate) fn manifest_record(version: FormatVersion) -> Vec<u8> {
    manifest_record_of(version, &edits_of(version))
}

pub(crate) fn manifest_record_of(version: FormatVersion, edits: &[Edit]) -> Vec<u8> {
    let mut payload = Encoder::default();
    edits.iter().for_each(|edit| edit.encode_to(&mut payload));
    padded([&record_header(version, &payload.0).encode()[..], &payload.0].concat())
}

/// The dump in `testdata/`, after writing `dump` there if the environment asks for it.
fn golden_text(name: &str, dump: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata", name].iter().collect();
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, dump).unwrap();
    }
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; ESKER_UPDATE_GOLDEN=1 writes it", path.display())
    })
}

/// Decoder of a structure's bytes: to text, or to the reason why they are not that structure. Everything that a
/// reader would look at is looked at.
type Decode = fn(&[u8]) -> Result<String, Malformed>;

fn decode_class(bytes: &[u8]) -> Result<String, Malformed> {
    Ok(format!("{:?}", ClassHeader::decode(bytes)?))
}

fn decode_frame(bytes: &[u8]) -> Result<String, Malformed> {
    let header = FrameHeader::decode(bytes)?;
    let end = frame::HEADER_SIZE + to_usize(header.payload_size.into());
    expect(end <= bytes.len(), || "a frame that is cut off".into())?;
    let mut payload = &bytes[frame::HEADER_SIZE..end];
    header.check_payload(payload)?;
    let mut records = Vec::new();
    for _ in 0..header.records {
        let (record, size) = match header.kind {
            FrameKind::Log => {
                let record = Record::decode(payload)?;
                (format!("{record:?}"), record.size())
            }
            FrameKind::Aged => decode_aged(payload)?,
        };
        records.push(record);
        payload = &payload[size..];
    }
    Ok(format!("{header:?} {records:?}"))
}

/// An aged record with its value, and its size.
fn decode_aged(bytes: &[u8]) -> Result<(String, usize), Malformed> {
    let record = StoredRecord::decode(bytes)?;
    let size = frame::record_size(record.key.len(), record.value.bytes.len());
    let mut value = Vec::new();
    Unpacker::default().unpack(record.value, &mut value)?;
    assert_eq!(StoredRecord::value_of(&bytes[..size]), record.value);
    assert_eq!(record.value.plain_size(), value.len());
    Ok((format!("{record:?} {}", value.escape_ascii()), size))
}

fn decode_page(bytes: &[u8]) -> Result<String, Malformed> {
    let page = Page::verify(bytes, KVSET, PAGE_INDEX)?;
    let mut key = Vec::new();
    let entries = (0..page.count()).map(|slot| {
        page.key_to(slot, &mut key);
        // The keys of a damaged page need not ascend: whatever a search answers, it answers.
        let _ = page.search(&key);
        format!("{} {:?} ", key.escape_ascii(), page.entry(slot))
    });
    Ok(entries.collect())
}

fn decode_meta(bytes: &[u8]) -> Result<String, Malformed> {
    let meta = KvsetMeta::decode(bytes, KVSET)?;
    let filter = crate::tree::filter::Filter::from_bytes(meta.filter).map_err(Malformed)?;
    let found = INDEX_KEYS.map(|key| filter.may_contain(key_hash(key)));
    let (index, deleted) = (meta.index.escape_ascii(), Spans::decode(meta.version, meta.hides));
    let (kvs, pages, expiries) = (meta.kvs, meta.pages, meta.expiries);
    Ok(format!("{kvs} {pages} {found:?} {index} {deleted:?} {expiries:?}"))
}

fn decode_manifest(bytes: &[u8]) -> Result<String, Malformed> {
    let header = RecordHeader::decode(bytes)?;
    let edits = Edit::decode_all(manifest::payload(&header, bytes)?)?;
    Ok(format!("{header:?} {edits:?}"))
}

#[test]
fn records_that_are_not_of_the_log_or_no_values_are_refused_there() {
    let (packed, log) = (packed_frame(), frame_of(FrameKind::Log, &log_records()));
    let why = Record::decode(&packed[frame::HEADER_SIZE..]).unwrap_err().0;
    assert_eq!(why, "a compressed record in the log");
    let delete = &log[frame::HEADER_SIZE + log_records()[0].size()..];
    let why = StoredRecord::decode(delete).unwrap_err().0;
    assert_eq!(why, "record kind 2 where a value was expected");
}

#[test]
fn ranges_that_hold_no_key_or_do_not_ascend_are_refused() {
    let record = |key: &'static [u8], upper| {
        let record = Record { kvs: KvsId(1), key, change: Change::DeleteRange(Some(upper)) };
        let mut bytes = vec![0; record.size()];
        record.encode_to(&mut bytes);
        Record::decode(&bytes).map(drop)
    };
    assert_eq!(record(b"a", b"b"), Ok(()));
    for (lower, upper) in [(b"b", b"b"), (b"b", b"a")] {
        assert_eq!(record(lower, upper).unwrap_err().0, "a range that ends before it begins");
    }
    let meta = |ranges: &[(&[u8], &[u8])]| {
        let mut e = Encoder::default();
        for (lower, upper) in ranges {
            e.bytes16(lower).bytes16(upper);
        }
        let bytes = kvset_meta_with(FormatVersion::V2, &e.0);
        KvsetMeta::decode(&bytes, KVSET).map(drop).map_err(|bad| bad.0)
    };
    assert_eq!(meta(&[(b"", b"a"), (b"a", b"b"), (b"c", b"")]), Ok(()));
    assert_eq!(meta(&[(b"b", b"a")]).unwrap_err(), "a range that holds no key");
    for ranges in [[(&b"a"[..], &b"c"[..]), (b"b", b"d")], [(b"a", b""), (b"b", b"d")]] {
        assert_eq!(meta(&ranges).unwrap_err(), "ranges that do not ascend");
    }
}

#[test]
fn encoded_structures_are_decoded() {
    assert_eq!(ClassHeader::decode(&class_header().encode()), Ok(class_header()));
    for (kind, records) in [
        (FrameKind::Log, log_records()),
        (FrameKind::Log, range_records()),
        (FrameKind::Aged, aged_records()),
    ] {
        let bytes = frame_of(kind, &records);
        let header = FrameHeader::decode(&bytes).unwrap();
        assert_eq!((header.kind, header.block, header.offset), (kind, BlockId(7), 4096));
        assert_eq!(header.encode(), bytes[..frame::HEADER_SIZE]);
        let mut payload = &bytes[frame::HEADER_SIZE..];
        for record in records {
            assert_eq!(Record::decode(payload), Ok(record));
            payload = &payload[record.size()..];
        }
    }
    let bytes = packed_frame();
    let mut payload = &bytes[frame::HEADER_SIZE..];
    for record in packed_records() {
        assert_eq!(StoredRecord::decode(payload), Ok(record));
        let (shown, size) = decode_aged(payload).unwrap();
        assert!(shown.ends_with(&"z".repeat(100)), "{shown}");
        payload = &payload[size..];
    }
    for (version, bytes) in
        [(FormatVersion::V1, kvset_meta()), (FormatVersion::V2, kvset_meta_with_ranges())]
    {
        let meta = KvsetMeta::decode(&bytes, KVSET).unwrap();
        assert_eq!((meta.kvset, meta.kvs, meta.pages), (KVSET, KvsId(1), 2));
        assert_eq!((meta.version, meta.encode()), (version, bytes.clone()));
    }
    for version in [FormatVersion::V1, FormatVersion::V2] {
        let bytes = manifest_record(version);
        let header = RecordHeader::decode(&bytes).unwrap();
        let payload = manifest::payload(&header, &bytes).unwrap();
        assert_eq!(header, record_header(version, payload));
        assert_eq!(Edit::decode_all(payload), Ok(edits_of(version)));
    }
    let bytes = page();
    let page = Page::verify(&bytes, KVSET, PAGE_INDEX).unwrap();
    for (slot, (key, entry)) in page_entries().into_iter().enumerate() {
        assert_eq!(page.search(key), (slot, true));
        assert_eq!(page.entry(slot), (&key[b"user:".len()..], entry));
    }
}
