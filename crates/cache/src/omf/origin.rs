//! Facts about the origin in the superblock: its identity, and the checksums of blocks sampled over it.

use esker_base::codec::{Decoder, Encoder};

use super::{BLOCK, FormatError};

/// The most samples.
pub const MAX_SAMPLES: usize = 64;
/// The most bytes of an identity.
pub const MAX_IDENTITY: usize = 512;
/// Bytes of all this.
pub(super) const ORIGIN_SIZE: usize = 24 + 12 * MAX_SAMPLES + MAX_IDENTITY;

/// A block of the origin, and the CRC-32C of its 4,096 bytes when the cache looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The block.
    pub block: u64,
    /// Its checksum.
    pub crc: u32,
}

/// Facts about the origin that the superblock keeps. Nothing in versions 1 and 2.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 152 | 4 | samples |
/// | 156 | 4 | bytes of the identity; 0 when it is unknown |
/// | 160 | 8 | bit n: sample n is *armed*: the origin holds that content |
/// | 168 | 8 | bit n: sample n was discarded, and may read as anything |
/// | 176 | 768 | 64 samples: block 8, CRC-32C 4; in the order of blocks, zeroes behind the last |
/// | 944 | 512 | the identity: facts as `name=value`, separated by a comma and a space; UTF-8 |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Identity that tells it from other devices; empty when that is unknown.
    pub identity: String,
    /// In the order of blocks.
    pub samples: Vec<Sample>,
    /// Bit n: the origin holds the content of sample n, durably.
    pub armed: u64,
    /// Bit n: sample n was discarded, and may read as anything.
    pub untold: u64,
}

impl Origin {
    pub(super) fn encode(&self, e: &mut Encoder) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        e.u32(count(self.samples.len())).u32(count(self.identity.len()));
        e.u64(self.armed).u64(self.untold);
        let unused = [Sample::default(); MAX_SAMPLES];
        for sample in self.samples.iter().chain(&unused).take(MAX_SAMPLES) {
            e.u64(sample.block).u32(sample.crc);
        }
        let mut text = self.identity.as_bytes().to_vec();
        text.resize(MAX_IDENTITY, 0);
        e.bytes(&text);
    }

    /// Decodes the facts about an origin of `origin_bytes` bytes.
    pub(super) fn decode(d: &mut Decoder<'_>, origin_bytes: u64) -> Result<Origin, FormatError> {
        let wrong = |what, found: u64| Err(FormatError::Value { what, found });
        let (count, size) = (d.u32("samples")?, d.u32("bytes of the identity")?);
        let (armed, untold) = (d.u64("armed samples")?, d.u64("discarded samples")?);
        let Some(used) = usize::try_from(count).ok().filter(|used| *used <= MAX_SAMPLES) else {
            return wrong("the number of samples", count.into());
        };
        let mut samples = Vec::with_capacity(MAX_SAMPLES);
        for _ in 0..MAX_SAMPLES {
            samples.push(Sample { block: d.u64("a sample")?, crc: d.u32("a checksum")? });
        }
        if samples.drain(used..).any(|sample| sample != Sample::default()) {
            return wrong("the number of samples", count.into());
        }
        let is_last =
            |n: usize| samples.get(n + 1).is_none_or(|next| samples[n].block < next.block);
        let is_there = |sample: &Sample| sample.block < origin_bytes / BLOCK;
        if !(samples.iter().all(is_there) && (0..used).all(is_last)) {
            return wrong("the block of a sample", count.into());
        }
        let beyond = |bits: u64| used < MAX_SAMPLES && bits >> used != 0;
        if let Some(bits) = [armed, untold].into_iter().find(|bits| beyond(*bits)) {
            return wrong("the marks of samples", bits);
        }
        let text = d.bytes(MAX_IDENTITY, "the identity")?;
        let text = usize::try_from(size).ok().and_then(|size| text.get(..size));
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        let Some(text) = text else { return wrong("the size of the identity", size.into()) };
        Ok(Origin { identity: text.to_owned(), samples, armed, untold })
    }
}
