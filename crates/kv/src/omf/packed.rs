//! Compressed values: the bytes that a record holds in place of its value when its flags name a codec.
//!
//! | size | name | meaning |
//! | --- | --- | --- |
//! | `varint` | plain_size | bytes of the value, more than all bytes here |
//! | the rest | | by codec |
//!
//! | codec | then |
//! | --- | --- |
//! | 0 | the value itself, without a size in front |
//! | 1 | an LZ4 block |
//! | 2 | a Zstandard frame (RFC 8878) |

use esker_base::codec::{Decoder, Encoder};
use esker_base::units::to_usize;

use super::{Malformed, expect};
use crate::types::limits::VALUE_MAX;

/// How a value is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Not at all.
    #[default]
    None,
    Lz4,
    Zstd,
}

impl Codec {
    /// The number that stands for it on a medium: two bits.
    pub(crate) fn code(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }

    pub(crate) fn of(code: u8) -> Result<Codec, Malformed> {
        match code {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            other => Err(Malformed(format!("codec 0, 1 or 2 expected, {other} found"))),
        }
    }
}

/// A value as a record holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed<'a> {
    pub(crate) codec: Codec,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// The size of the value, in bytes.
    pub(crate) fn plain_size(&self) -> usize {
        match self.codec {
            Codec::None => self.bytes.len(),
            Codec::Lz4 | Codec::Zstd => self.split().map_or(self.bytes.len(), |(size, _)| size),
        }
    }

    /// The size of a compressed value, and its encoding.
    pub(crate) fn split(&self) -> Result<(usize, &'a [u8]), Malformed> {
        let mut d = Decoder::new(self.bytes);
        let size = to_usize(d.varint("uncompressed size")?);
        expect((self.bytes.len() + 1..=VALUE_MAX).contains(&size), || {
            format!("a value of {size} bytes, compressed to {}", self.bytes.len())
        })?;
        Ok((size, &self.bytes[d.offset()..]))
    }
}

/// Bytes in front of the encoding of a value of `size` bytes.
pub(crate) fn head(size: usize) -> Vec<u8> {
    let mut e = Encoder::default();
    e.varint(size as u64);
    e.0
}
