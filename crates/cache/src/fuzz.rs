//! Fuzz targets: any bytes in place of a structure on a cache's flash device, or of an option that a user gives. Each
//! says whether they were accepted. Run by `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are encoded to bytes that decode to the same.
//! 3. A structure is decoded with its checksum as it is, and with one that fits.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use std::fmt::{Debug, Display};
use std::ops::Range;
use std::str::FromStr;

use esker_base::checksum::crc32c_append;

use crate::layout::Layout;
use crate::omf::{FormatError, PAGE_NAMES, RecordHeader, Superblock, TablePage, record_size};
use crate::{Admission, Mode, Placement};

/// A superblock, in the copy that it states.
pub fn cache_superblock(data: &[u8]) -> bool {
    let copy = u32_at(data, 16);
    both(data, mend_superblock, |bytes| {
        let found = Superblock::decode(bytes, copy)?;
        assert_eq!(Superblock::decode(&found.encode(copy), copy).as_ref(), Ok(&found));
        let _ = (found.copy(2), found.slots(), Layout::of(&found));
        Ok(())
    })
}

/// A record of the journal.
pub fn cache_record(data: &[u8]) -> bool {
    both(data, mend_record, |bytes| {
        let (header, changes, crc) = RecordHeader::decode(bytes)?;
        let (encoded, computed) = header.encode(&changes);
        assert_eq!(encoded.len(), record_size(changes.len()));
        assert_eq!(RecordHeader::decode(&encoded), Ok((header, changes, computed)));
        assert!(crc != computed || bytes.starts_with(&encoded));
        Ok(())
    })
}

/// A page of the table, the one and the copy that it states.
pub fn cache_page(data: &[u8]) -> bool {
    let copy = u16::try_from(u32_at(data, 6) & 0xffff).unwrap_or_default();
    let id = u64::from(u32_at(data, 8)) | u64::from(u32_at(data, 12)) << 32;
    let number = u32_at(data, 16);
    both(data, mend_page, |bytes| {
        let page = TablePage::decode(bytes, id, number, copy, PAGE_NAMES)?;
        let again = TablePage::decode(&page.encode(id, copy), id, number, copy, PAGE_NAMES);
        assert_eq!(again.as_ref(), Ok(&page));
        assert_eq!(TablePage::decode(bytes, id, number, copy, 3)?.names, page.names[..3]);
        Ok(())
    })
}

/// An option of a cache, as a user says it.
pub fn cache_options(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    shown::<Mode>(text) | shown::<Admission>(text) | shown::<Placement>(text)
}

/// Whether a text is accepted. What it means is shown as a text that means the same.
fn shown<T: FromStr<Err = String> + Display + Debug + PartialEq>(text: &str) -> bool {
    let value = text.parse::<T>();
    if let Ok(value) = &value {
        assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(value));
    }
    value.is_ok()
}

/// Whether bytes are accepted as they are or when their checksum fits.
fn both(
    data: &[u8],
    mend: fn(&mut [u8]),
    decode: impl Fn(&[u8]) -> Result<(), FormatError>,
) -> bool {
    let mut mended = data.to_vec();
    mend(&mut mended);
    decode(data).is_ok() | decode(&mended).is_ok()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
}

/// Writes the checksum of some parts of the bytes, of which those count that are there as a whole.
fn put_crc(bytes: &mut [u8], at: usize, parts: &[Range<usize>]) {
    let part = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
    let crc = parts.iter().fold(0, |crc, range| crc32c_append(crc, part(range)));
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn mend_superblock(bytes: &mut [u8]) {
    match u32_at(bytes, 8) {
        0..=3 => put_crc(bytes, 12, &[8..8, 16..4096]),
        _ => put_crc(bytes, 12, &[8..12, 16..4096]),
    }
}

fn mend_record(bytes: &mut [u8]) {
    let changes = usize::try_from(u32_at(bytes, 36)).unwrap_or(usize::MAX);
    let end = record_size(changes.min(bytes.len()));
    put_crc(bytes, 60, &[0..60, 64..end]);
}

fn mend_page(bytes: &mut [u8]) {
    if let Some(place) = bytes.get_mut(32..36) {
        place.fill(0);
    }
    put_crc(bytes, 32, &[0..36, 36..4096]);
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;
    use crate::omf::tests as omf;
    use crate::omf::{Origin, Rows, SINGLE};

    #[global_allocator]
    static MEMORY: Watched = Watched;

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let (newest, (header, changes)) = (omf::superblock(), omf::record());
        let single = Superblock { version: SINGLE, ..omf::superblock() };
        let plain = Superblock {
            origin: Origin::default(),
            rows: Rows::one(newest.set_slots),
            ..omf::superblock()
        };
        let superblocks = vec![
            ("newest", newest.encode(2)),
            ("single", single.encode(0)),
            ("plain", plain.encode(1)),
        ];
        let (changing, starting) = (header.encode(&changes).0, header.encode(&[]).0);
        let page = omf::page().encode(header.id, 1);
        replay(&[
            Target::new("cache_superblock", cache_superblock, superblocks),
            Target::new(
                "cache_record",
                cache_record,
                vec![("changes", changing), ("empty", starting)],
            ),
            Target::new("cache_page", cache_page, vec![("three", page)]),
            Target::of_texts(
                "cache_options",
                cache_options,
                &[("mode", "write-back"), ("admission", "again"), ("mapping", "hashed")],
            ),
        ]);
    }
}
