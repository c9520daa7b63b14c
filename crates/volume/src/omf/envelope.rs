//! The envelope that every structure stands in, and the seeded checksum of fragments.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic `EKVP` |
//! | 4 | 2 | version |
//! | 6 | 2 | kind |
//! | 8 | 4 | bytes of the structure, these 56 included |
//! | 12 | 4 | CRC-32C of bytes 16 to the end |
//! | 16 | 16 | the pool |
//! | 32 | 8 | own address, first part |
//! | 40 | 8 | own address, second part |
//! | 48 | 8 | generation: what of that place |

use esker_base::checksum::{crc32c, crc32c_append};
use esker_base::codec::{Decoder, Encoder, Truncated};
use esker_base::units::to_usize;
use thiserror::Error;

use crate::types::id::{Generation, LineageId, PoolUuid};
use crate::types::u32_of;

const MAGIC: u32 = u32::from_le_bytes(*b"EKVP");
/// The version of the format.
pub(crate) const VERSION: u16 = 1;
/// Bytes of the envelope before the body.
pub(crate) const ENVELOPE: usize = 56;

/// The kind of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A label: the identity of a drive, and the place of the checkpoint.
    Label = 1,
    /// A checkpoint.
    Root = 2,
    /// A seal: the identity of a chunk of a segment, and its checksums.
    Seal = 3,
    /// A summary: the list of what a part of a segment holds.
    Summary = 4,
    /// Records of the write buffer.
    Frame = 5,
    /// 512 blocks of the map.
    Leaf = 6,
    /// 512 leaves of the map.
    Node = 7,
    /// A mark: up to where the write buffer was durable.
    Mark = 8,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Label => "a label",
            Kind::Root => "a checkpoint",
            Kind::Seal => "a seal",
            Kind::Summary => "a summary",
            Kind::Frame => "a frame",
            Kind::Leaf => "a leaf",
            Kind::Node => "a node",
            Kind::Mark => "a mark",
        }
    }
}

/// Where a structure lies, or what it is of, in two numbers, and the generation of that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) u64, pub(crate) u64, pub(crate) u64);

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum FormatError {
    #[error("nothing was written there")]
    Empty,
    #[error("it does not begin as {0} does")]
    Magic(&'static str),
    #[error("it holds {0}")]
    Foreign(&'static str),
    #[error(
        "it is of version {0} of the format, and this program reads version {VERSION}: it is damaged, or a newer program made it"
    )]
    Version(u16),
    #[error("the checksum of {what} is {found:#010x}, and {expected:#010x} was expected")]
    Checksum { what: &'static str, found: u32, expected: u32 },
    #[error("{what} is {found:#x}, and {expected:#x} was expected")]
    Mismatch { what: &'static str, found: u128, expected: u128 },
    #[error("{what} cannot be {found}")]
    Value { what: &'static str, found: u64 },
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

/// Begins a structure; [`finish`] ends it.
pub(crate) fn begin(kind: Kind, pool: PoolUuid, address: Address) -> Encoder {
    let mut e = Encoder(Vec::with_capacity(512));
    e.u32(MAGIC).u16(VERSION).u16(kind as u16).u32(0).u32(0).bytes(&pool.0.to_le_bytes());
    e.u64(address.0).u64(address.1).u64(address.2);
    e
}

/// Fills in length and checksum.
pub(crate) fn finish(e: Encoder) -> Vec<u8> {
    let mut bytes = e.0;
    finish_in(&mut bytes);
    bytes
}

/// Fills in length and checksum of a structure that lies at the start of a buffer. Returns the checksum.
pub(crate) fn finish_in(bytes: &mut [u8]) -> u32 {
    let length = u32_of(bytes.len());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// An envelope that was opened: magic, version, kind, length and checksum are right.
#[derive(Clone, Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) pool: PoolUuid,
    pub(crate) address: Address,
    pub(crate) body: Decoder<'a>,
    /// Bytes of the whole structure.
    pub(crate) length: usize,
}

/// Opens the structure of this kind at the start of `bytes`.
pub(crate) fn open(kind: Kind, bytes: &[u8]) -> Result<Opened<'_>, FormatError> {
    let mut d = Decoder::new(bytes);
    if d.u32("magic")? != MAGIC {
        let is_empty = bytes.iter().all(|&byte| byte == 0);
        return Err(if is_empty { FormatError::Empty } else { FormatError::Magic(kind.name()) });
    }
    let version = d.u16("version")?;
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    if d.u16("kind")? != kind as u16 {
        return Err(FormatError::Magic(kind.name()));
    }
    let length = to_usize(u64::from(d.u32("length")?));
    let crc = d.u32("crc")?;
    let pool = PoolUuid(u128_of(&mut d, "pool")?);
    let address = Address(d.u64("address")?, d.u64("address")?, d.u64("generation")?);
    if length < ENVELOPE {
        return Err(FormatError::Value { what: "a length", found: length as u64 });
    }
    let body = d.bytes(length - ENVELOPE, "body")?;
    let expected = crc32c(&bytes[16..length]);
    if crc != expected {
        return Err(FormatError::Checksum { what: kind.name(), found: crc, expected });
    }
    Ok(Opened { pool, address, body: Decoder::new(body), length })
}

/// Opens the structure of this kind, pool and address at the start of `bytes`.
pub(crate) fn open_at(
    kind: Kind,
    pool: PoolUuid,
    address: Address,
    bytes: &[u8],
) -> Result<Decoder<'_>, FormatError> {
    let opened = open(kind, bytes)?;
    expect("the pool", opened.pool.0, pool.0)?;
    expect("the address", opened.address.0.into(), address.0.into())?;
    expect("the address", opened.address.1.into(), address.1.into())?;
    expect("the generation", opened.address.2.into(), address.2.into())?;
    Ok(opened.body)
}

pub(crate) fn expect(what: &'static str, found: u128, expected: u128) -> Result<(), FormatError> {
    match found == expected {
        true => Ok(()),
        false => Err(FormatError::Mismatch { what, found, expected }),
    }
}

pub(crate) fn u128_of(d: &mut Decoder<'_>, what: &'static str) -> Result<u128, FormatError> {
    let bytes = d.bytes(16, what)?;
    Ok(u128::from_le_bytes(bytes.try_into().expect("exactly 16 bytes")))
}

/// A count of things that take `size` bytes each, checked against what is left.
pub(crate) fn count_of(
    d: &mut Decoder<'_>,
    what: &'static str,
    size: usize,
) -> Result<usize, FormatError> {
    let found = d.u32(what)?;
    let count = to_usize(u64::from(found));
    match count.checked_mul(size).is_some_and(|bytes| bytes <= d.left()) {
        true => Ok(count),
        false => Err(FormatError::Value { what, found: found.into() }),
    }
}

/// A name: at most [`NAME_MAX`](crate::types::NAME_MAX) bytes of UTF-8.
pub(crate) fn name_of(d: &mut Decoder<'_>, what: &'static str) -> Result<String, FormatError> {
    let bytes = d.bytes16(what)?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= crate::types::NAME_MAX);
    text.map(str::to_owned).ok_or(FormatError::Value { what, found: bytes.len() as u64 })
}

/// The checksum of a fragment: of its bytes as they are stored, seeded with what it is and where it is, so that
/// another fragment, an older one, or one of another place is not taken for it.
pub(crate) fn fragment_crc(
    lineage: LineageId,
    index: u64,
    generation: Generation,
    bytes: &[u8],
) -> u32 {
    let mut seed = [0; 24];
    seed[..8].copy_from_slice(&lineage.0.to_le_bytes());
    seed[8..16].copy_from_slice(&index.to_le_bytes());
    seed[16..].copy_from_slice(&generation.0.to_le_bytes());
    crc32c_append(crc32c(&seed), bytes)
}
