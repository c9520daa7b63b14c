//! The filter of a kvset: a Bloom filter cut into blocks of one cache line, so that a search for a
//! key that is not there costs one cache miss (Putze, Sanders and Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters", WEA 2007).
//!
//! # Layout
//!
//! A filter is written to media as the bytes of [`Filter::as_bytes`], a multiple of 64:
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 0 | 1 | version | 1 |
//! | 1 | 1 | probes | how many bits of its block a key sets: 1 to 14 |
//! | 2 | 62 | reserved | 0 |
//! | 64 | 64 × n | blocks | n ≥ 1 blocks of 512 bits; bit `i` is bit `i % 8` of byte `i / 8` |
//!
//! A key with hash `h` belongs to block `h × n / 2^64`, and sets the bits given by the first
//! `probes` of fourteen numbers: the seven 9-bit fields of `h × M1 mod 2^64` and the seven of
//! `h × M2 mod 2^64`, each from the top down.
//!
//! Invariants
//! 1. No false negatives: an added key is found.
//! 2. A block lies in one cache line where the filter has a page or more, because the buffer is aligned and the
//!    header is a block long. A smaller one takes the buffer as it is, because there may be thousands.

use std::ops::{Deref, DerefMut};

use esker_base::AlignedBuf;
use esker_base::buf::ALIGNMENT;
use esker_base::units::{to_u64, to_usize};

use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a block, and of the header.
const BLOCK: usize = 64;
/// Bits of a block; a bit index has [`FIELD`] bits.
const BLOCK_BITS: u64 = 512;
const FIELD: u32 = 9;
/// How many fields there are in a word.
const FIELDS: u32 = 7;
const VERSION: u8 = 1;
const PROBES_MAX: u8 = 14;
/// Odd multipliers: 2^64 divided by the golden ratio, and by the square root of two.
const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xb504_f333_f9de_6485];

/// Collects the hashes of a kvset's keys.
pub(crate) struct FilterBuilder(Filter);

impl FilterBuilder {
    /// A filter for `expected_keys` keys. With more keys than expected, more searches for keys
    /// that are not there pass.
    pub(crate) fn new(expected_keys: usize, bits_per_key: usize) -> FilterBuilder {
        let bits = to_u64(expected_keys).saturating_mul(to_u64(bits_per_key));
        let blocks = to_usize(bits.div_ceil(BLOCK_BITS).max(1));
        let mut bytes = Bytes::zeroed(BLOCK + blocks * BLOCK);
        bytes[0] = VERSION;
        bytes[1] = probes(bits_per_key);
        FilterBuilder(Filter { bytes })
    }

    /// Adds the key whose xxh3-64 is `hash`.
    pub(crate) fn add(&mut self, hash: u64) {
        let (start, probes) = (self.0.block_of(hash), self.0.bytes[1]);
        let block = &mut self.0.bytes[start..start + BLOCK];
        for bit in bits(hash, probes) {
            block[bit / 8] |= 1 << (bit % 8);
        }
    }

    /// The finished filter.
    pub(crate) fn finish(self) -> Filter {
        self.0
    }
}

/// How many bits a key sets: 0.6 per bit it has room for. A plain Bloom filter is best with ln 2;
/// one in blocks prefers fewer, because its fuller blocks are worse than its emptier are better.
fn probes(bits_per_key: usize) -> u8 {
    let best = bits_per_key.saturating_mul(6).div_ceil(10);
    u8::try_from(best).map_or(PROBES_MAX, |best| best.clamp(1, PROBES_MAX))
}

/// The bits of its block that a key sets.
#[inline]
fn bits(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let words = MULTIPLIERS.map(|m| hash.wrapping_mul(m));
    (0..u32::from(probes)).map(move |probe| {
        let word = words[usize::from(probe >= FIELDS)];
        to_usize((word >> (64 - FIELD * (1 + probe % FIELDS))) & (BLOCK_BITS - 1))
    })
}

/// A finished filter.
pub(crate) struct Filter {
    bytes: Bytes,
}

/// The bytes of a filter.
enum Bytes {
    Small(Box<[u8]>),
    Large(AlignedBuf),
}

impl Bytes {
    fn zeroed(size: usize) -> Bytes {
        match size < ALIGNMENT {
            true => Bytes::Small(vec![0; size].into()),
            false => Bytes::Large(AlignedBuf::zeroed(size)),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Small(bytes) => bytes,
            Bytes::Large(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Small(bytes) => bytes,
            Bytes::Large(bytes) => bytes,
        }
    }
}

impl Filter {
    /// A filter out of the bytes that another one had.
    ///
    /// # Errors
    /// A sentence that says how they differ from every filter there is.
    pub(crate) fn from_bytes(bytes: impl AsRef<[u8]>) -> Result<Filter, String> {
        let bytes = bytes.as_ref();
        let size = bytes.len();
        if size < 2 * BLOCK || !size.is_multiple_of(BLOCK) {
            return Err(format!(
                "a filter has a multiple of {BLOCK} bytes and at least two of them, not {size}"
            ));
        }
        let (version, probes) = (bytes[0], bytes[1]);
        if version != VERSION || !(1..=PROBES_MAX).contains(&probes) {
            return Err(format!(
                "a filter has version {VERSION} and 1 to {PROBES_MAX} probes, \
                 not version {version} and {probes}"
            ));
        }
        let mut copy = Bytes::zeroed(size);
        copy.copy_from_slice(bytes);
        Ok(Filter { bytes: copy })
    }

    /// A filter that every key passes.
    pub(crate) fn of_all_keys() -> Filter {
        let mut filter = FilterBuilder::new(0, 1).finish();
        filter.bytes[BLOCK..].fill(u8::MAX);
        filter
    }

    /// The bytes to write to a medium.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// False when the key with this xxh3-64 was not added, for certain.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let start = self.block_of(hash);
        let block = &self.bytes[start..start + BLOCK];
        bits(hash, self.bytes[1]).all(|bit| block[bit / 8] >> (bit % 8) & 1 == 1)
    }

    /// Where the block of a hash starts.
    fn block_of(&self, hash: u64) -> usize {
        let blocks = to_u64(self.bytes.len() / BLOCK - 1);
        let index = (u128::from(hash) * u128::from(blocks)) >> 64;
        let index = u64::try_from(index).expect("the high half of a 128-bit product");
        BLOCK + to_usize(index) * BLOCK
    }
}

/// The filter of a memtable, which is asked while it grows: words of 64 bits, of which a key sets
/// [`LIVE_PROBES`] in one word. It is in DRAM only.
pub(crate) struct LiveFilter {
    words: Box<[AtomicU64]>,
}

/// Bits that a key sets in its word.
const LIVE_PROBES: u32 = 4;
/// The number of a bit in a word has so many bits.
const WORD_FIELD: u32 = 6;

impl LiveFilter {
    /// A filter of about `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> LiveFilter {
        let words = (bytes / size_of::<u64>()).max(1);
        LiveFilter { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Adds the key with this hash. Whoever is told of the key after that, finds it.
    pub(crate) fn add(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        word.fetch_or(bits, Ordering::Relaxed);
    }

    /// False when the key with this hash was not added, for certain.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Ordering::Relaxed) & bits == bits
    }

    /// The word of a hash and its bits there: the word by the upper half of the hash, the bits by its product with
    /// a multiplier.
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let index = (u128::from(hash) * self.words.len() as u128) >> 64;
        let fields = hash.wrapping_mul(MULTIPLIERS[0]);
        let bit = |probe| 1u64 << ((fields >> (64 - WORD_FIELD * (1 + probe))) & 63);
        let bits = (0..LIVE_PROBES).fold(0, |bits, probe| bits | bit(probe));
        (&self.words[usize::try_from(index).expect("an index of the slice")], bits)
    }
}

#[cfg(test)]
mod tests;
