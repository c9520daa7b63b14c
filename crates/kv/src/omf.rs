//! The on-media format: every byte that the engine writes is laid out here and nowhere else.
//! Drawings, possible tears, and assumptions about the medium: `docs/format/kv.md`.
//!
//! | module | structure | where |
//! | --- | --- | --- |
//! | [`class`] | class header | the first LBA of each class device |
//! | [`frame`] | frames and records | log segments and value blocks |
//! | [`packed`] | compressed values | in records |
//! | [`page`] | key pages | the first part of a kvset's extents |
//! | [`kvset`] | kvset meta | the last part of a kvset's extents |
//! | [`manifest`] | manifest records and edits | the manifest device |
//! | [`options`] | the options of a KVS | in an edit |
//!
//! All integers are little-endian. Every structure carries magic or kind, version, length, its own
//! address, and a CRC-32C.

pub(crate) mod class;
pub(crate) mod frame;
pub(crate) mod kvset;
pub(crate) mod manifest;
pub(crate) mod options;
pub(crate) mod packed;
pub(crate) mod page;
pub(crate) mod reserve;
#[cfg(test)]
pub(crate) mod tests;

use esker_base::checksum::crc32c;
use esker_base::codec::Truncated;

use crate::types::format::FormatVersion;

/// Why bytes are not the structure they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl From<Truncated> for Malformed {
    fn from(error: Truncated) -> Malformed {
        Malformed(error.to_string())
    }
}

/// `Err` with a message made by `detail` unless `holds`.
pub(crate) fn expect(holds: bool, detail: impl FnOnce() -> String) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed(detail())) }
}

/// Checks the magic at the start of a structure, and its version: one up to `newest`, which it returns.
pub(crate) fn expect_magic(
    magic: &[u8],
    wanted: &[u8; 8],
    version: u16,
    newest: FormatVersion,
) -> Result<FormatVersion, Malformed> {
    expect(magic == wanted, || {
        let shown = magic.escape_ascii();
        format!("magic '{}' expected, '{shown}' found", wanted.escape_ascii())
    })?;
    known_version(version, newest).ok_or_else(|| {
        let newest = newest.number();
        Malformed(format!(
            "format version {version} found; this build reads versions 1 to {newest}"
        ))
    })
}

/// Checks a CRC-32C.
pub(crate) fn expect_crc(what: &str, stored: u32, computed: u32) -> Result<(), Malformed> {
    expect(stored == computed, || {
        format!("{what} CRC-32C {stored:#010x} stored, {computed:#010x} computed")
    })
}

/// The version of a structure of `size` bytes whose magic and CRC-32C (its last four bytes) hold,
/// when it is none up to `newest`: not damage, but another release.
pub(crate) fn other_version(
    bytes: &[u8],
    magic: &[u8; 8],
    size: usize,
    newest: FormatVersion,
) -> Option<u16> {
    let (body, crc) = bytes.get(..size)?.split_at(size - 4);
    let version = u16::from_le_bytes(body[8..10].try_into().expect("two bytes"));
    let holds = body.starts_with(magic) && crc32c(body).to_le_bytes() == crc;
    (holds && known_version(version, newest).is_none()).then_some(version)
}

fn known_version(number: u16, newest: FormatVersion) -> Option<FormatVersion> {
    FormatVersion::of(number).filter(|known| *known <= newest)
}
