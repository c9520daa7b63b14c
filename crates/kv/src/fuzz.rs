//! Fuzz targets: any bytes in place of a structure on a medium, or of a text that a user gives. Each says whether they
//! were accepted. Run by `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are encoded to bytes that decode to the same.
//! 3. A structure is decoded with its checksums as they are, and with fitting ones: else no random change gets past them.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use std::fmt::{Debug, Display};
use std::str::FromStr;

use esker_base::checksum::crc32c;
use esker_base::codec::Encoder;
use esker_base::units::to_usize;

use crate::log::kept::LeftFrames;
use crate::manifest::state::State;
use crate::omf::class::ClassHeader;
use crate::omf::frame::{self, FrameHeader, FrameKind, Record, StoredRecord};
use crate::omf::kvset::KvsetMeta;
use crate::omf::manifest::{self, Edit, RecordHeader};
use crate::omf::page::{Entry, Page, PageBuilder};
use crate::omf::{Malformed, expect, options, reserve};
use crate::tree::filter::Filter;
use crate::tree::kvset::PageIndex;
use crate::types::compression::Compression;
use crate::types::ids::Seqno;
use crate::types::policy::{Place, Policy};
use crate::types::spans::Spans;
use crate::values::compression::Unpacker;
use crate::{MediaClass, VALUE_MAX};

/// The header of a class.
pub fn kv_class(data: &[u8]) -> bool {
    both(data, mend_class, |bytes| {
        let header = ClassHeader::decode(bytes)?;
        assert_eq!(ClassHeader::decode(&header.encode()), Ok(header));
        assert_eq!(ClassHeader::other_version(bytes), None);
        Ok(())
    })
}

/// The list of the reserve.
pub fn kv_reserve(data: &[u8]) -> bool {
    let runs = reserve::decode(data);
    assert!(16 * runs.len() <= data.len());
    assert_eq!(reserve::decode(&reserve::encode(&runs)), runs);
    !runs.is_empty()
}

/// A frame of a log segment or a value block.
pub fn kv_frame(data: &[u8]) -> bool {
    both(data, mend_frame, |bytes| {
        let header = FrameHeader::decode(bytes)?;
        assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
        let _ = (header.last_seqno(), FrameHeader::other_version(bytes));
        let end = frame::HEADER_SIZE + to_usize(header.payload_size.into());
        expect(end <= bytes.len(), || "a frame that is cut off".into())?;
        let mut payload = &bytes[frame::HEADER_SIZE..end];
        header.check_payload(payload)?;
        for _ in 0..header.records {
            let size = match header.kind {
                FrameKind::Log => log_record(payload)?,
                FrameKind::Aged => aged_record(payload)?,
            };
            payload = &payload[size..];
        }
        Ok(())
    })
}

/// The file of the frames that a killed process has left, with the checksums of their records as they are.
pub fn kv_tail(data: &[u8]) -> bool {
    let Some(left) = LeftFrames::of_bytes(data) else { return false };
    let (mut records, mut sound) = (0, 0);
    for last in [Seqno::ZERO, Seqno(41), Seqno(u64::MAX - 1)] {
        let count = |found: &[Record<'_>], sum: &mut usize| {
            *sum += found.len();
            Ok(())
        };
        left.behind(last, |found| count(found, &mut records)).expect("nothing fails");
        left.all_behind(last, |_, found| count(found, &mut sound)).expect("nothing fails");
    }
    assert!(records <= sound, "those up to the first gap are among the sound ones");
    sound > 0
}

fn log_record(bytes: &[u8]) -> Result<usize, Malformed> {
    let record = Record::decode(bytes)?;
    let mut encoded = vec![0xee; record.size()];
    record.encode_to(&mut encoded);
    assert_eq!(Record::decode(&encoded), Ok(record));
    let _ = (record.span(), record.version());
    Ok(record.size())
}

fn aged_record(bytes: &[u8]) -> Result<usize, Malformed> {
    let record = StoredRecord::decode(bytes)?;
    let size = frame::record_size(record.key.len(), record.value.bytes.len());
    assert_eq!(StoredRecord::value_of(&bytes[..size]), record.value);
    let mut repacked = Vec::new();
    StoredRecord::repack(&bytes[..size], record.value, &mut repacked);
    assert_eq!(StoredRecord::decode(&repacked), Ok(record));
    let mut value = Vec::new();
    Unpacker::default().unpack(record.value, &mut value)?;
    assert!(value.len() == record.value.plain_size() && value.len() <= VALUE_MAX);
    Ok(size)
}

/// A key page. Its kvset and its number in that are the ones it states.
pub fn kv_page(data: &[u8]) -> bool {
    both(data, mend_page, |bytes| {
        let (kvset, index) = Page::address(bytes).ok_or_else(|| Malformed("not a page".into()))?;
        let page = Page::verify(bytes, kvset, index)?;
        let (mut key, mut last) = (Vec::new(), None);
        let (mut builder, mut ascends) = (PageBuilder::default(), true);
        for slot in 0..page.count() {
            page.key_to(slot, &mut key);
            // Keys of a damaged page need not ascend: whatever a search answers, it answers.
            let _ = page.search(&key);
            ascends = ascends
                && last.as_ref().is_none_or(|last| *last < key)
                && builder.add(&key, page.entry(slot).1);
            last = Some(key.clone());
        }
        if ascends {
            let built = builder.finish(kvset, index);
            assert_eq!(built.count(), page.count());
            for slot in 0..page.count() {
                page.key_to(slot, &mut key);
                assert_eq!(built.search(&key), (slot, true));
                let (found, wanted): (Entry<'_>, _) = (built.entry(slot).1, page.entry(slot).1);
                assert_eq!(found, wanted);
            }
        }
        Ok(())
    })
}

/// The meta of a kvset. Its kvset is the one it states.
pub fn kv_meta(data: &[u8]) -> bool {
    both(data, mend_meta, |bytes| {
        let (kvset, kvs) = KvsetMeta::owner(bytes).ok_or_else(|| Malformed("not a meta".into()))?;
        let meta = KvsetMeta::decode(bytes, kvset)?;
        assert!((meta.kvset, meta.kvs) == (kvset, kvs));
        let encoded = meta.encode();
        let again = KvsetMeta::decode(&encoded, kvset)?;
        assert_eq!(encoded, again.encode());
        let filter = Filter::from_bytes(meta.filter).map_err(Malformed)?;
        assert_eq!(filter.as_bytes(), meta.filter);
        for hash in [0, 1, u64::MAX / 3, u64::MAX] {
            let _ = filter.may_contain(hash);
        }
        let hides = Spans::decode(meta.version, meta.hides);
        let (version, section) = hides.encode(meta.version);
        assert_eq!(Spans::decode(version, &section), hides);
        let index = PageIndex::decode(meta.index);
        for page in 0..index.pages() {
            let found = index.page_of(index.key(page)).map(|found| to_usize(found.into()));
            assert_eq!(found, Some(page), "first keys ascend");
        }
        Ok(())
    })
}

/// A record of the manifest, applied to the state of a new KVDB.
pub fn kv_manifest(data: &[u8]) -> bool {
    both(data, mend_manifest, |bytes| {
        let header = RecordHeader::decode(bytes)?;
        assert_eq!(RecordHeader::decode(&header.encode()), Ok(header));
        let edits = Edit::decode_all(manifest::payload(&header, bytes)?)?;
        let encoded = encoded(&edits);
        assert_eq!(Edit::decode_all(&encoded).as_ref(), Ok(&edits));
        let mut state = State::default();
        if state.apply_all(edits).is_ok() {
            // A snapshot of the state builds one that is no other.
            let snapshot = state.edits();
            let mut again = State::default();
            again.apply_all(snapshot.clone())?;
            assert_eq!(again.edits(), snapshot);
        }
        Ok(())
    })
}

fn encoded(edits: &[Edit]) -> Vec<u8> {
    let mut e = Encoder::default();
    edits.iter().for_each(|edit| edit.encode_to(&mut e));
    e.0
}

/// The options of a KVS, as an edit has them.
pub fn kv_options(data: &[u8]) -> bool {
    let options = options::decode(data);
    if let Ok(options) = &options {
        assert_eq!(options::decode(&options::encode(options)).as_ref(), Ok(options));
    }
    options.is_ok()
}

/// A policy, or a part of one, as a user says it.
pub fn kv_policy(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    shown::<Policy>(text)
        | shown::<Place>(text)
        | shown::<MediaClass>(text)
        | shown::<Compression>(text)
}

/// Whether a text is accepted. What it means is shown as a text that means the same.
fn shown<T: FromStr<Err = String> + Display + Debug + PartialEq>(text: &str) -> bool {
    let value = text.parse::<T>();
    if let Ok(value) = &value {
        assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(value));
    }
    value.is_ok()
}

/// Whether bytes are accepted as they are or when their checksums fit.
fn both(data: &[u8], mend: fn(&mut [u8]), decode: impl Fn(&[u8]) -> Result<(), Malformed>) -> bool {
    let mut mended = data.to_vec();
    mend(&mut mended);
    decode(data).is_ok() | decode(&mended).is_ok()
}

/// Writes the CRC-32C of some bytes, as many of them as there are, to `at`.
fn put_crc(bytes: &mut [u8], at: usize, from: usize, size: usize) {
    let end = from.saturating_add(size).min(bytes.len());
    let crc = bytes.get(from..end).map(crc32c).unwrap_or_default();
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let found = bytes.get(at..at + 4).map(|bytes| bytes.try_into().expect("4 bytes"));
    to_usize(found.map_or(0, u32::from_le_bytes).into())
}

/// Makes the checksum of a class header fit.
pub(crate) fn mend_class(bytes: &mut [u8]) {
    put_crc(bytes, 36, 0, 36);
}

/// Makes the checksums of a frame and of its records fit.
pub(crate) fn mend_frame(bytes: &mut [u8]) {
    let end = (frame::HEADER_SIZE + u32_at(bytes, 48)).min(bytes.len());
    let mut at = frame::HEADER_SIZE;
    for _ in 0..u32_at(bytes, 12) {
        if at + 16 > end {
            break;
        }
        let key_size = u32_at(bytes, at + 12) & 0xffff;
        let next = (at + 16 + key_size + u32_at(bytes, at + 4)).min(end);
        put_crc(bytes, at, at + 4, next - at - 4);
        at = next;
    }
    put_crc(bytes, 52, frame::HEADER_SIZE, u32_at(bytes, 48));
    put_crc(bytes, 60, 0, 60);
}

/// Makes the checksum of a page fit.
pub(crate) fn mend_page(bytes: &mut [u8]) {
    put_crc(bytes, 0, 4, usize::MAX);
}

/// Makes the checksums of a kvset's meta fit.
pub(crate) fn mend_meta(bytes: &mut [u8]) {
    let expiries = if bytes.get(10) == Some(&1) { 24 } else { 0 };
    let body = u32_at(bytes, 28) + u32_at(bytes, 32) + u32_at(bytes, 40) + expiries;
    put_crc(bytes, 36, 48, body);
    put_crc(bytes, 44, 0, 44);
}

/// Makes the checksums of a manifest's record fit.
pub(crate) fn mend_manifest(bytes: &mut [u8]) {
    put_crc(bytes, 56, manifest::HEADER_SIZE, u32_at(bytes, 12));
    put_crc(bytes, 60, 0, 60);
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;
    use crate::omf::tests as omf;
    use crate::types::format::FormatVersion;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    /// Edits that can be applied to nothing: those that remove something are left out.
    fn of_a_state() -> Vec<Edit> {
        let removes = |edit: &Edit| {
            matches!(
                edit,
                Edit::KvsDropped { .. }
                    | Edit::LeafRemoved { .. }
                    | Edit::KvsetRemoved { .. }
                    | Edit::ClassRemoved { .. }
            )
        };
        let edits = omf::edits_of(FormatVersion::V2);
        let edits: Vec<Edit> = edits.into_iter().filter(|edit| !removes(edit)).collect();
        assert!(State::default().apply_all(edits.clone()).is_ok());
        edits
    }

    /// The file with one piece, which holds the records of a frame.
    fn tail() -> Vec<u8> {
        let frame = omf::frame_of(FrameKind::Log, &omf::log_records());
        let size = u64::from(FrameHeader::decode(&frame).unwrap().payload_size) + 64;
        let magic = u64::from_ne_bytes(*b"ESKTAIL1");
        let words = [magic, 4096, 1, 2, 3, 4, 7, 0, 41, 5 << 32 | size];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        bytes.resize(4096, 0);
        bytes.extend(frame);
        bytes.resize(2 * 4096, 0);
        bytes
    }

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let manifest = omf::manifest_record;
        replay(&[
            Target::new("kv_class", kv_class, vec![("capacity", omf::class_header().encode())]),
            Target::new(
                "kv_reserve",
                kv_reserve,
                vec![("three", reserve::encode(&[(64, 8), (100, 1), (1 << 40, 4096)]))],
            ),
            Target::new(
                "kv_frame",
                kv_frame,
                vec![
                    ("log", omf::frame_of(FrameKind::Log, &omf::log_records())),
                    ("ranges", omf::frame_of(FrameKind::Log, &omf::range_records())),
                    ("aged", omf::frame_of(FrameKind::Aged, &omf::aged_records())),
                    ("compressed", omf::packed_frame()),
                ],
            )
            .memory(4 * VALUE_MAX),
            Target::new("kv_tail", kv_tail, vec![("one-piece", tail())]),
            Target::new("kv_page", kv_page, vec![("five", omf::page())]),
            Target::new(
                "kv_meta",
                kv_meta,
                vec![("prefixes", omf::kvset_meta()), ("ranges", omf::kvset_meta_with_ranges())],
            ),
            Target::new(
                "kv_manifest",
                kv_manifest,
                vec![
                    ("version-1", manifest(FormatVersion::V1)),
                    ("version-2", manifest(FormatVersion::V2)),
                    ("state", omf::manifest_record_of(FormatVersion::V2, &of_a_state())),
                ],
            ),
            Target::new(
                "kv_options",
                kv_options,
                vec![("all", options::encode(&omf::kvs_options())), ("none", Vec::new())],
            ),
            Target::of_texts(
                "kv_policy",
                kv_policy,
                &[
                    ("template", "staging-only"),
                    ("cells", "young=staging,old-keys=capacity/none,old-values=capacity"),
                    ("place", "staging/capacity"),
                    ("class", "capacity"),
                    ("compression", "zstd"),
                ],
            ),
        ]);
    }
}
