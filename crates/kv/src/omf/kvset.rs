//! Kvset meta: filter, page index and deleted spans of keys, after the kvset's pages.
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 8 | magic | `ESKKVSET` |
//! | 8 | 2 | version | 1; 2 if it hides ranges, or has the empty key |
//! | 10 | 2 | flags | bit 0: values expire |
//! | 12 | 4 | pages | how many |
//! | 16 | 8 | kvset | id |
//! | 24 | 4 | kvs | id |
//! | 28 | 4 | filter_size | bytes |
//! | 32 | 4 | index_size | bytes |
//! | 36 | 4 | body_crc | CRC-32C of all that follows the header |
//! | 40 | 4 | hides_size | bytes |
//! | 44 | 4 | crc | CRC-32C of bytes 0 to 43 |
//! | 48 | filter_size | filter | see `tree/filter.rs` |
//! | | index_size | index | the first key of each page, then the kvset's last key: `u16` size and bytes each; without pages, that of no bytes |
//! | | hides_size | hides | version 1: prefixes that hide keys of older kvsets, ascending, none the beginning of another: `u16` size and bytes each; version 2: ranges that do, ascending and apart: lower and upper bound, `u16` size and bytes each, the upper one empty where there is none |
//! | | 24 | expiries | if values expire: how many do, the first and the last expiry in milliseconds since 1970-01-01 UTC, `u64` each |

use esker_base::checksum::{crc32c, crc32c_append};
use esker_base::codec::{Decoder, Encoder};
use esker_base::units::to_usize;

use super::{Malformed, expect, expect_crc, expect_magic};
use crate::types::expiry::{Expiries, Expiry};
use crate::types::format::FormatVersion;
use crate::types::ids::{KvsId, KvsetId};
use crate::types::limits::KEY_MAX;
use crate::types::spans::{bound_of, is_span};

const MAGIC: &[u8; 8] = b"ESKKVSET";
const HEADER_SIZE: usize = 48;

/// Filter, page index and deleted spans of a kvset, borrowed from its meta.
pub(crate) struct KvsetMeta<'a> {
    pub(crate) kvset: KvsetId,
    pub(crate) kvs: KvsId,
    pub(crate) pages: u32,
    pub(crate) filter: &'a [u8],
    /// First keys and the last key, each with its `u16` size.
    pub(crate) index: &'a [u8],
    /// Deleted prefixes or ranges, as the version says.
    pub(crate) version: FormatVersion,
    pub(crate) hides: &'a [u8],
    pub(crate) expiries: Expiries,
}

impl<'a> KvsetMeta<'a> {
    /// The kvset and the KVS that a meta which begins with `bytes` states.
    pub(crate) fn owner(bytes: &[u8]) -> Option<(KvsetId, KvsId)> {
        let header = bytes.get(..HEADER_SIZE)?;
        let (body, crc) = header.split_at(HEADER_SIZE - 4);
        if !body.starts_with(MAGIC) || crc32c(body).to_le_bytes() != crc {
            return None;
        }
        let mut d = Decoder::new(&body[16..]);
        Some((KvsetId(d.u64("kvset").ok()?), KvsId(d.u32("kvs").ok()?)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let size = |bytes: &[u8]| u32::try_from(bytes.len()).expect("meta below 4 GiB");
        let mut e = Encoder::default();
        e.bytes(MAGIC)
            .u16(self.version.number())
            .u16(u16::from(self.expiries.count > 0))
            .u32(self.pages)
            .u64(self.kvset.0)
            .u32(self.kvs.0);
        e.u32(size(self.filter)).u32(size(self.index));
        let mut expiries = Encoder::default();
        if self.expiries.count > 0 {
            let Expiries { count, first, last } = self.expiries;
            expiries.u64(count).u64(first.0).u64(last.0);
        }
        let body = [self.filter, self.index, self.hides, &expiries.0];
        let body_crc = body.iter().fold(0, |crc, part| crc32c_append(crc, part));
        e.u32(body_crc).u32(size(self.hides));
        let crc = crc32c(&e.0);
        e.u32(crc);
        for part in body {
            e.bytes(part);
        }
        e.0
    }

    pub(crate) fn decode(bytes: &'a [u8], kvset: KvsetId) -> Result<KvsetMeta<'a>, Malformed> {
        let mut d = Decoder::new(bytes);
        let (magic, version) = (d.bytes(8, "magic")?, d.u16("version")?);
        let version = expect_magic(magic, MAGIC, version, FormatVersion::NEWEST)?;
        let flags = d.u16("flags")?;
        let pages = d.u32("pages")?;
        let (own, kvs) = (KvsetId(d.u64("kvset")?), KvsId(d.u32("kvs")?));
        let (filter_size, index_size) = (d.u32("filter_size")?, d.u32("index_size")?);
        let body_crc = d.u32("body_crc")?;
        let hides_size = d.u32("hides_size")?;
        expect_crc("kvset meta", d.u32("crc")?, crc32c(&bytes[..HEADER_SIZE - 4]))?;
        expect(own == kvset, || format!("meta of kvset {kvset} expected, of {own} found"))?;
        let filter = d.bytes(to_usize(filter_size.into()), "filter")?;
        let index = d.bytes(to_usize(index_size.into()), "index")?;
        let hides = d.bytes(to_usize(hides_size.into()), "hides")?;
        expect(flags <= 1, || format!("kvset flags {flags:#06x}"))?;
        let mut expiries = Expiries::NONE;
        if flags == 1 {
            let count = d.u64("expiries")?;
            let (first, last) = (Expiry(d.u64("first")?), Expiry(d.u64("last")?));
            expiries = Expiries { count, first, last };
        }
        let computed = crc32c(&bytes[HEADER_SIZE..d.offset()]);
        expect_crc("kvset meta body", body_crc, computed)?;
        check_index(index, pages)?;
        match version {
            FormatVersion::V1 => check_prefixes(hides)?,
            FormatVersion::V2 => check_ranges(hides)?,
        }
        expect(
            (flags == 0) == (expiries.count == 0)
                && (flags == 0 || expiries.first <= expiries.last),
            || {
                format!(
                    "{} values expire from {} to {}",
                    expiries.count, expiries.first.0, expiries.last.0
                )
            },
        )?;
        Ok(KvsetMeta { kvset, kvs, pages, filter, index, version, hides, expiries })
    }
}

/// The first key of each page, then the last of all, which may be the first of the last page.
fn check_index(section: &[u8], pages: u32) -> Result<(), Malformed> {
    let mut d = Decoder::new(section);
    let mut last: Option<&[u8]> = None;
    for n in 0..=pages {
        let key = d.bytes16("index key")?;
        let ascends = |last| if n < pages { last < key } else { last <= key };
        expect(last.is_none_or(ascends), || "index keys that do not ascend".into())?;
        last = Some(key);
    }
    expect(d.left() == 0, || "bytes after the page index".into())
}

/// Searches rely on the order.
fn check_prefixes(section: &[u8]) -> Result<(), Malformed> {
    let mut d = Decoder::new(section);
    let mut last: Option<&[u8]> = None;
    while d.left() > 0 {
        let prefix = d.bytes16("prefix")?;
        expect((1..=KEY_MAX).contains(&prefix.len()), || {
            format!("a prefix of {} bytes", prefix.len())
        })?;
        expect(last.is_none_or(|last| last < prefix && !prefix.starts_with(last)), || {
            "prefixes that do not ascend".into()
        })?;
        last = Some(prefix);
    }
    Ok(())
}

/// Searches rely on the order.
fn check_ranges(section: &[u8]) -> Result<(), Malformed> {
    let mut d = Decoder::new(section);
    let mut end: Option<&[u8]> = Some(&[]);
    while d.left() > 0 {
        let (lower, upper) = (d.bytes16("lower")?, bound_of(d.bytes16("upper")?));
        expect(is_span(lower, upper), || "a range that holds no key".into())?;
        expect(end.is_some_and(|end| end <= lower), || "ranges that do not ascend".into())?;
        end = upper;
    }
    Ok(())
}
