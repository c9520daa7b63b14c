//! Key pages: 4 KiB each, sorted, self-contained.
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 4 | crc | CRC-32C of bytes 4 to 4,095 |
//! | 4 | 8 | kvset | id of the kvset it belongs to |
//! | 12 | 4 | index | of this page in its kvset |
//! | 16 | 2 | count | entries |
//! | 18 | 2 | prefix_size | bytes that all keys of the page share |
//! | 20 | 2 × count | slots | offset of each entry in the page, in key order |
//! | | prefix_size | prefix | |
//! | | | entries | the rest of the page, then zeroes |
//!
//! Entry: `varint` size of the key's suffix, the suffix, one byte of tag, and by tag
//!
//! | tag | then | meaning |
//! | --- | --- | --- |
//! | 0 | | tombstone |
//! | 1 | `varint` block, `varint` offset, `varint` value_size | a record in block number `block` of the kvset's block table, at this byte offset |
//! | 2 to 18 | tag − 2 bytes | the value itself |
//! | 19 | `varint` expiry, then a tag from 1 to 18 and the bytes that follow it | the value expires, in milliseconds since 1970-01-01 UTC |

use std::ops::Range;

use esker_base::checksum::crc32c;
use esker_base::codec::{Decoder, Encoder};
use esker_base::units::to_usize;

use super::{Malformed, expect, expect_crc};
use crate::types::expiry::Expiry;
use crate::types::ids::KvsetId;
use crate::types::limits::{KEY_MAX, VALUE_MAX};

/// Bytes per page.
pub(crate) const PAGE_SIZE: usize = 4096;
const HEADER_SIZE: usize = 20;
/// Values up to this many bytes are in the page itself: a reference would be no smaller.
pub(crate) const INLINE_MAX: usize = 16;

/// The tag before that of a value that expires.
const EXPIRES: u8 = 19;

const _: () = assert!(
    HEADER_SIZE + 2 * (2 + 3 + KEY_MAX + 26 + 11) <= PAGE_SIZE,
    "a page holds two entries with the longest keys"
);

/// Value of a key, inline or stored elsewhere, or its tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The key was deleted; older kvsets may still have it.
    Tombstone,
    /// The value itself.
    Inline(&'a [u8], Expiry),
    /// A record in a value block.
    Stored(Stored),
}

impl Entry<'_> {
    pub(crate) fn expiry(&self) -> Expiry {
        match self {
            Entry::Tombstone => Expiry::NEVER,
            Entry::Inline(_, expiry) => *expiry,
            Entry::Stored(stored) => stored.expiry,
        }
    }
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// An index of the kvset's block table.
    pub(crate) block: u32,
    /// The record's offset in that block, in bytes.
    pub(crate) offset: u32,
    /// The size of its value, in bytes.
    pub(crate) value_size: u32,
    pub(crate) expiry: Expiry,
}

/// Collects sorted entries until a page is full.
#[derive(Default)]
pub(crate) struct PageBuilder {
    /// Full keys and encoded entry tails, in order.
    keys: Vec<u8>,
    tails: Encoder,
    ends: Vec<(usize, usize)>,
    /// The size of the longest key.
    longest: usize,
}

impl PageBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds an entry, or returns false when the page has no room for it. Keys ascend.
    pub(crate) fn add(&mut self, key: &[u8], entry: Entry<'_>) -> bool {
        let tails = self.tails.0.len();
        let expiry = entry.expiry();
        if !expiry.is_never() {
            self.tails.u8(EXPIRES).varint(expiry.0);
        }
        match entry {
            Entry::Tombstone => {
                self.tails.u8(0);
            }
            Entry::Inline(value, _) => {
                let tag = u8::try_from(value.len() + 2).expect("at most INLINE_MAX bytes");
                self.tails.u8(tag).bytes(value);
            }
            Entry::Stored(Stored { block, offset, value_size, .. }) => {
                self.tails.u8(1).varint(block.into()).varint(offset.into());
                self.tails.varint(value_size.into());
            }
        }
        self.keys.extend_from_slice(key);
        self.ends.push((self.keys.len(), self.tails.0.len()));
        let longest = self.longest;
        self.longest = longest.max(key.len());
        if self.size() <= PAGE_SIZE {
            return true;
        }
        self.ends.pop();
        self.longest = longest;
        self.keys.truncate(self.keys.len() - key.len());
        self.tails.0.truncate(tails);
        false
    }

    /// The first key of the page under construction.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.keys[..self.ends[0].0]
    }

    /// How many bytes the first and the last key share; as keys ascend, all others share them too.
    fn prefix_size(&self) -> usize {
        let last_start = if self.ends.len() < 2 { 0 } else { self.ends[self.ends.len() - 2].0 };
        let last = &self.keys[last_start..];
        self.first_key().iter().zip(last).take_while(|(a, b)| a == b).count()
    }

    fn size(&self) -> usize {
        let count = self.ends.len();
        let prefix = self.prefix_size();
        // The suffixes' sizes take one byte each when all are below 128.
        let size_bytes = if self.longest - prefix < 128 { count } else { 2 * count };
        let suffixes = self.keys.len() - prefix * count;
        HEADER_SIZE + 2 * count + prefix + size_bytes + suffixes + self.tails.0.len()
    }

    /// Ends the page and starts the next one.
    pub(crate) fn finish(&mut self, kvset: KvsetId, index: u32) -> Page<Vec<u8>> {
        let prefix_size = self.prefix_size();
        let count = self.ends.len();
        let mut e = Encoder(Vec::with_capacity(PAGE_SIZE));
        e.u32(0).u64(kvset.0).u32(index);
        e.u16(u16::try_from(count).expect("a page holds at most 4,096 entries"));
        e.u16(u16::try_from(prefix_size).expect("at most KEY_MAX"));
        let slots = e.0.len();
        e.0.resize(slots + 2 * count, 0);
        e.bytes(&self.keys[..prefix_size]);
        let (mut key_start, mut tail_start) = (0, 0);
        for (slot, &(key_end, tail_end)) in self.ends.iter().enumerate() {
            let at = u16::try_from(e.0.len()).expect("within the page");
            e.0[slots + 2 * slot..slots + 2 * slot + 2].copy_from_slice(&at.to_le_bytes());
            let suffix = &self.keys[key_start + prefix_size..key_end];
            e.varint(suffix.len() as u64).bytes(suffix).bytes(&self.tails.0[tail_start..tail_end]);
            (key_start, tail_start) = (key_end, tail_end);
        }
        assert!(e.0.len() <= PAGE_SIZE, "add() admits no more than a page holds");
        e.0.resize(PAGE_SIZE, 0);
        let crc = crc32c(&e.0[4..]);
        e.0[..4].copy_from_slice(&crc.to_le_bytes());
        self.keys.clear();
        self.tails.0.clear();
        self.ends.clear();
        self.longest = 0;
        debug_assert!(Page::verify(&e.0, kvset, index).is_ok(), "a page just built");
        Page(e.0)
    }
}

/// A page that was verified, or just built.
#[derive(Clone, Debug)]
pub(crate) struct Page<B>(B);

impl<B: AsRef<[u8]>> Page<B> {
    /// Verifies everything that reading the page relies on: checksum, own address, and that every
    /// entry decodes.
    pub(crate) fn verify(bytes: B, kvset: KvsetId, index: u32) -> Result<Page<B>, Malformed> {
        let raw = bytes.as_ref();
        expect(raw.len() == PAGE_SIZE, || format!("a page of {} bytes", raw.len()))?;
        let mut d = Decoder::new(raw);
        expect_crc("key page", d.u32("crc")?, crc32c(&raw[4..]))?;
        let own = (KvsetId(d.u64("kvset")?), d.u32("index")?);
        expect(own == (kvset, index), || {
            format!(
                "page {index} of kvset {kvset} expected, page {} of kvset {} found",
                own.1, own.0
            )
        })?;
        let count = d.u16("count")?;
        let prefix_size = d.u16("prefix_size")?;
        expect(count > 0, || "a key page without entries".into())?;
        let entries = HEADER_SIZE + 2 * usize::from(count) + usize::from(prefix_size);
        expect(entries <= PAGE_SIZE, || format!("{count} slots and a prefix of {prefix_size}"))?;
        let page = Page(bytes);
        for slot in 0..page.count() {
            let (suffix, entry) = page.try_entry(slot)?;
            let key_size = suffix.len() + usize::from(prefix_size);
            expect(key_size <= KEY_MAX, || format!("a key of {key_size} bytes"))?;
            if let Entry::Stored(stored) = entry {
                expect(to_usize(stored.value_size.into()) <= VALUE_MAX, || {
                    format!("a value of {} bytes", stored.value_size)
                })?;
            }
        }
        Ok(page)
    }

    /// The same page with its bytes kept in another way.
    pub(crate) fn kept_in<C: AsRef<[u8]>>(&self, bytes: C) -> Page<C> {
        debug_assert_eq!(bytes.as_ref(), self.raw());
        Page(bytes)
    }

    /// The owner of its bytes.
    pub(crate) fn keeper(&self) -> &B {
        &self.0
    }

    /// The kvset and the index that bytes state, if they are a page.
    pub(crate) fn address(bytes: B) -> Option<(KvsetId, u32)> {
        let mut d = Decoder::new(bytes.as_ref());
        d.u32("crc").ok()?;
        let (kvset, index) = (KvsetId(d.u64("kvset").ok()?), d.u32("index").ok()?);
        let is_page = kvset > KvsetId(0) && Page::verify(bytes, kvset, index).is_ok();
        is_page.then_some((kvset, index))
    }

    /// Its bytes.
    pub(crate) fn raw(&self) -> &[u8] {
        self.0.as_ref()
    }

    fn u16_at(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes(self.raw()[at..at + 2].try_into().expect("two bytes")))
    }

    /// How many entries the page has; at least one.
    pub(crate) fn count(&self) -> usize {
        self.u16_at(16)
    }

    /// Prefix that all keys of the page share.
    pub(crate) fn prefix(&self) -> &[u8] {
        let start = HEADER_SIZE + 2 * self.count();
        &self.raw()[start..start + self.u16_at(18)]
    }

    fn try_entry(&self, slot: usize) -> Result<(&[u8], Entry<'_>), Malformed> {
        let at = self.u16_at(HEADER_SIZE + 2 * slot);
        expect(at < PAGE_SIZE, || format!("slot {slot} points to {at}"))?;
        let mut d = Decoder::new(&self.raw()[at..]);
        let size = d.varint("suffix size")?;
        let size_bytes = d.offset();
        expect(size_bytes <= 2, || {
            format!("a suffix size of {size_bytes} bytes; searches read one or two")
        })?;
        let suffix = d.bytes(usize::try_from(size).unwrap_or(usize::MAX), "suffix")?;
        Ok((suffix, self.try_tail(at + d.offset())?))
    }

    /// The entry of the key whose suffix ends at `at`.
    fn try_tail(&self, at: usize) -> Result<Entry<'_>, Malformed> {
        let mut d = Decoder::new(&self.raw()[at..]);
        let narrow = |n: u64| u32::try_from(n).map_err(|_| Malformed(format!("{n} in an entry")));
        let (mut tag, mut expiry) = (d.u8("tag")?, Expiry::NEVER);
        if tag == EXPIRES {
            expiry = Expiry(d.varint("expiry")?);
            tag = d.u8("tag")?;
            expect(tag != 0 && !expiry.is_never(), || "an expiry of nothing".into())?;
        }
        Ok(match tag {
            0 => Entry::Tombstone,
            1 => Entry::Stored(Stored {
                block: narrow(d.varint("block")?)?,
                offset: narrow(d.varint("offset")?)?,
                value_size: narrow(d.varint("value_size")?)?,
                expiry,
            }),
            tag => {
                let size = usize::from(tag) - 2;
                expect(size <= INLINE_MAX, || format!("entry tag {tag}"))?;
                Entry::Inline(d.bytes(size, "inline value")?, expiry)
            }
        })
    }

    /// The key's suffix after [`Page::prefix`], and the key's entry.
    ///
    /// # Panics
    /// If `slot` is not below the count.
    pub(crate) fn entry(&self, slot: usize) -> (&[u8], Entry<'_>) {
        let suffix = self.suffix_at(slot);
        let entry = self.entry_at(suffix.end);
        (&self.raw()[suffix], entry)
    }

    /// The entry of the key whose suffix ends at `at`, as [`Page::suffix_at`] says.
    pub(crate) fn entry_at(&self, at: usize) -> Entry<'_> {
        self.try_tail(at).expect("verified when the page was read")
    }

    /// The suffix alone: a search looks at no more.
    pub(crate) fn suffix(&self, slot: usize) -> &[u8] {
        &self.raw()[self.suffix_at(slot)]
    }

    /// Where in the page the suffix is.
    pub(crate) fn suffix_at(&self, slot: usize) -> Range<usize> {
        let raw = self.raw();
        let at = self.u16_at(HEADER_SIZE + 2 * slot);
        let low = usize::from(raw[at]);
        if low < 0x80 {
            return at + 1..at + 1 + low;
        }
        let size = (low & 0x7f) | usize::from(raw[at + 1]) << 7;
        at + 2..at + 2 + size
    }

    /// Writes the key at `slot` to `key`.
    pub(crate) fn key_to(&self, slot: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.suffix(slot));
    }

    /// The first slot whose key is not below `key` (may be the count), and whether it is equal.
    pub(crate) fn search(&self, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let head = &key[..key.len().min(prefix.len())];
        match head.cmp(prefix) {
            std::cmp::Ordering::Less => return (0, false),
            std::cmp::Ordering::Greater => return (self.count(), false),
            std::cmp::Ordering::Equal => {}
        }
        let suffix = &key[prefix.len()..];
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.suffix(middle).cmp(suffix) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }
}
