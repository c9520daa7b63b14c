//! Values whose bytes follow from the record's number and a version, so that a reader can tell
//! whether some writer wrote it.
//!
//! | offset | size | content |
//! | --- | --- | --- |
//! | 0 | 8 | the record's number, little-endian |
//! | 8 | 8 | the version, little-endian |
//! | 16 | n | incompressible bytes |
//! | 16 + n | the rest | zeroes: the compressible share |
//!
//! The incompressible bytes are a slice of a random pool at a place chosen by number and version,
//! xor-ed with a 64-bit mask of number and version: a compressor that finds two slices of the same
//! part of the pool still finds nothing they share. A value shorter than the stamp is its
//! beginning.

use std::sync::Arc;

use esker_base::Rng;
use esker_base::units::to_usize;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const STAMP: usize = 16;
const POOL: usize = 64 << 10;
const POOL_SEED: u64 = 0x6573_6b65_7220_7631;

/// The size and compressibility of values.
///
/// A YCSB record of several fields is one value here, its fields side by side: a store of keys and
/// values has no fields, and an update replaces the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueFormat {
    /// Fields per record.
    pub fields: u32,
    /// Bytes per field.
    pub field_bytes: u32,
    /// How much of a value is zeroes, in percent, from 0 (nothing to compress) to 100.
    pub compressible_percent: u8,
}

impl Default for ValueFormat {
    /// YCSB's record: 10 fields of 100 bytes, incompressible.
    fn default() -> ValueFormat {
        ValueFormat { fields: 10, field_bytes: 100, compressible_percent: 0 }
    }
}

impl ValueFormat {
    /// One field of `bytes` bytes, incompressible.
    #[must_use]
    pub fn one(bytes: u32) -> ValueFormat {
        ValueFormat { fields: 1, field_bytes: bytes, compressible_percent: 0 }
    }

    /// The size of a value in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.fields) * u64::from(self.field_bytes)
    }
}

/// How a value differs from everything that can have been written under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// Another size than all values have.
    #[error("the value has {got} bytes instead of {expected}")]
    Size {
        /// The size of all values.
        expected: usize,
        /// The size of this value.
        got: usize,
    },
    /// The value of another record.
    #[error("the value belongs to record {got}, not to record {expected}")]
    Record {
        /// The record asked for.
        expected: u64,
        /// The record in the stamp.
        got: u64,
    },
    /// The value of a record that has another key.
    #[error("the value belongs to record {got}, which has another key")]
    Key {
        /// The record in the stamp.
        got: u64,
    },
    /// The stamp fits, and a byte after it does not.
    #[error("byte {offset} of the value is not what version {version:#x} of the record holds")]
    Content {
        /// The first wrong byte.
        offset: usize,
        /// The version in the stamp.
        version: u64,
    },
}

/// Writes and checks values of one format. Cheap to clone: clones share the pool.
#[derive(Clone)]
pub struct ValueSource {
    pool: Arc<[u8]>,
    bytes: usize,
    random_end: usize,
}

impl ValueSource {
    /// A source of values of this format.
    #[must_use]
    pub fn new(format: ValueFormat) -> ValueSource {
        let mut pool = vec![0; 2 * POOL];
        Rng::new(POOL_SEED).fill(&mut pool);
        let bytes = to_usize(format.bytes());
        let zeroes = bytes / 100 * usize::from(format.compressible_percent)
            + bytes % 100 * usize::from(format.compressible_percent) / 100;
        ValueSource { pool: pool.into(), bytes, random_end: bytes - zeroes.min(bytes) }
    }

    /// The size of every value in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Replaces the content of `value` by version `version` of record `number`.
    pub fn write(&self, number: u64, version: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&version.to_le_bytes());
        for (slice, mask) in self.slices(number, version) {
            let from = value.len();
            value.extend_from_slice(slice);
            let mut words = value[from..].chunks_exact_mut(8);
            for word in &mut words {
                let bits = u64::from_le_bytes((&*word).try_into().expect("eight bytes")) ^ mask;
                word.copy_from_slice(&bits.to_le_bytes());
            }
            for (byte, mask) in words.into_remainder().iter_mut().zip(mask.to_le_bytes()) {
                *byte ^= mask;
            }
        }
        value.resize(self.bytes, 0);
    }

    /// The record that `value` belongs to by its stamp; none when values are too short for one.
    #[must_use]
    pub fn record_of(&self, value: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(*value.first_chunk()?))
    }

    /// Checks that `value` is some version of record `number`, whole. Values shorter than 16
    /// bytes are checked as far as they go.
    ///
    /// # Errors
    /// The first difference found.
    pub fn check(&self, number: u64, value: &[u8]) -> Result<(), Mismatch> {
        if value.len() != self.bytes {
            return Err(Mismatch::Size { expected: self.bytes, got: value.len() });
        }
        let Some(got) = self.record_of(value) else {
            let expected = number.to_le_bytes();
            return match value.iter().zip(expected).position(|(&a, b)| a != b) {
                Some(offset) => Err(Mismatch::Content { offset, version: 0 }),
                None => Ok(()),
            };
        };
        if got != number {
            return Err(Mismatch::Record { expected: number, got });
        }
        let Some(version) = value[8..].first_chunk().map(|v| u64::from_le_bytes(*v)) else {
            return Ok(());
        };
        let mut at = STAMP;
        for (slice, mask) in self.slices(number, version) {
            let mask = mask.to_le_bytes();
            let body = &value[at..at + slice.len()];
            let expected = slice.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b);
            if !same(body, slice, mask) {
                let offset = body.iter().zip(expected).position(|(&a, b)| a != b);
                return Err(Mismatch::Content { offset: at + offset.unwrap_or(0), version });
            }
            at += slice.len();
        }
        match value[at..].iter().position(|&byte| byte != 0) {
            Some(zero) => Err(Mismatch::Content { offset: at + zero, version }),
            None => Ok(()),
        }
    }

    /// The slices of the pool that make up the incompressible bytes, each with its mask.
    fn slices(&self, number: u64, version: u64) -> impl Iterator<Item = (&[u8], u64)> {
        let mut left = self.random_end.saturating_sub(STAMP);
        let mut mask = mix(number, version);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            mask = mix(mask, version);
            let size = left.min(POOL);
            left -= size;
            let offset = to_usize(mask) % POOL;
            Some((&self.pool[offset..offset + size], mask))
        })
    }
}

/// Whether `body` is `slice` xor `mask`, eight bytes at a time.
fn same(body: &[u8], slice: &[u8], mask: [u8; 8]) -> bool {
    let bits = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let word = u64::from_le_bytes(mask);
    let (bodies, slices) = (body.chunks_exact(8), slice.chunks_exact(8));
    let tail = bodies.remainder().iter().zip(slices.remainder());
    let tail_differs = tail.zip(mask).fold(0, |d, ((a, b), m)| d | (a ^ b ^ m));
    let difference = bodies.zip(slices).fold(0, |d, (a, b)| d | (bits(a) ^ bits(b) ^ word));
    difference == 0 && tail_differs == 0
}

/// Two numbers to one that looks random (the finaliser of SplitMix64 over their combination).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a
        .wrapping_add(b.rotate_left(32))
        .wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(bytes: u32, compressible_percent: u8) -> ValueFormat {
        ValueFormat { compressible_percent, ..ValueFormat::one(bytes) }
    }

    #[test]
    fn a_value_follows_from_number_and_version() {
        for bytes in [0, 1, 7, 8, 15, 16, 17, 23, 100, 1_000, 200_001] {
            let (one, other) =
                (ValueSource::new(format(bytes, 0)), ValueSource::new(format(bytes, 0)));
            let (mut a, mut b) = (Vec::new(), vec![9; 3]);
            one.write(7, 8, &mut a);
            other.write(7, 8, &mut b);
            assert_eq!(a, b);
            assert_eq!(a.len(), one.bytes());
            assert_eq!(one.check(7, &a), Ok(()));
            other.write(7, 9, &mut b);
            assert!(bytes <= 8 || a != b);
            assert_eq!(one.check(7, &b), Ok(()), "any version is a version");
        }
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let source = ValueSource::new(format(300, 30));
        let mut value = Vec::new();
        source.write(12, 1 << 40, &mut value);
        for at in 0..value.len() {
            value[at] ^= 0x10;
            let error = source.check(12, &value).unwrap_err();
            match error {
                Mismatch::Record { expected, .. } => assert!(expected == 12 && at < 8),
                Mismatch::Content { offset, .. } => assert!(at == offset || at < 16),
                other => panic!("{other}"),
            }
            value[at] ^= 0x10;
        }
        value.pop();
        let size = Mismatch::Size { expected: 300, got: 299 };
        assert_eq!(source.check(12, &value), Err(size));
    }

    #[test]
    fn a_value_of_another_record_is_found_even_when_short() {
        for bytes in [4, 8, 12, 100] {
            let source = ValueSource::new(format(bytes, 0));
            let mut value = Vec::new();
            source.write(5, 1, &mut value);
            assert!(source.check(6, &value).is_err());
        }
    }

    /// Bound: the most frequent byte of 65,536 random ones occurs 256 times on average with a
    /// standard deviation of 16; 384 is eight of those away.
    #[test]
    fn the_incompressible_share_looks_random_and_the_rest_is_zero() {
        let source = ValueSource::new(format(1_016, 50));
        let mut value = Vec::new();
        let mut counts = [0u32; 256];
        let mut pairs = std::collections::BTreeMap::<[u8; 8], u32>::new();
        for number in 0..136 {
            source.write(number, number << 20, &mut value);
            let (random, zeroes) = value[16..].split_at(492);
            assert!(zeroes.iter().all(|&b| b == 0) && zeroes.len() == 508);
            for &byte in random {
                counts[usize::from(byte)] += 1;
            }
            for window in random.windows(8) {
                *pairs.entry(window.try_into().unwrap()).or_default() += 1;
            }
        }
        assert!(counts.iter().all(|&n| n < 384));
        assert!(pairs.values().all(|&n| n == 1), "no eight bytes occur twice in 64 KiB of values");
    }
}
