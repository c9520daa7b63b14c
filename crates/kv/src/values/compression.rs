//! Compression of values: which of them, with which codec, and back.
//!
//! Values are compressed when they are written in key order for the first time (`maintain/compact.rs`), by
//! one [`Packer`], because then nobody waits for it; each alone, so that a value is still one
//! device read. Records lie side by side, so every byte saved is a byte of the medium saved.
//!
//! Invariants
//! 1. A packed value says itself how ([`Packed`]): the setting of a KVS concerns values to come.
//! 2. A value stays as it is unless compression saves more than an eighth of it.
//! 3. Of values that do not compress, one in sixty-five is tried ([`TRIAL`], [`STRETCH`]).
//! 4. Unpacking takes no more memory than a value may have, whatever the bytes say.

mod zstandard;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use zstandard::{Compress, Decompress};

use crate::omf::packed::{Codec, Packed, head};
use crate::omf::{Malformed, expect};
use crate::types::compression::Compression;

/// Smaller values are not tried: no more than a few bytes could be saved.
const SIZE_MIN: usize = 64;
/// So many values in a row are tried, and the codec that they choose is used for those that follow.
const TRIAL: u32 = 8;
/// How many values follow before the next trial.
const STRETCH: u32 = 512;

/// The codecs that a setting allows, the faster ones first.
fn candidates(setting: Compression) -> &'static [Codec] {
    match setting {
        Compression::None => &[],
        Compression::Lz4 => &[Codec::Lz4],
        Compression::Zstd => &[Codec::Zstd],
        Compression::Auto => &[Codec::Lz4, Codec::Zstd],
    }
}

/// Whether coming from `size` to `packed` bytes is worth the trouble, for values of `plain` bytes.
fn pays(plain: usize, size: usize, packed: usize) -> bool {
    size.saturating_sub(packed) > plain / 8
}

/// Compresses values, where that pays.
#[derive(Default)]
pub(crate) struct Packer {
    encoder: Encoder,
    choice: Choice,
}

/// Encoding that is chosen for the values at hand.
#[derive(Default)]
struct Choice {
    setting: Compression,
    /// How many values were tried, in this trial.
    tried: u32,
    plain_bytes: usize,
    /// By candidate.
    packed_bytes: [usize; 2],
    chosen: Option<Codec>,
    /// How many values follow the choice.
    left: u32,
}

impl Choice {
    /// Those to be tried on the next value.
    fn codecs(&self) -> &[Codec] {
        if self.left > 0 { self.chosen.as_slice() } else { candidates(self.setting) }
    }

    /// Notes the outcome for a value: its size, and its size by each of [`Choice::codecs`].
    fn note(&mut self, plain: usize, packed: &[usize]) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.tried += 1;
        self.plain_bytes += plain;
        self.packed_bytes.iter_mut().zip(packed).for_each(|(sum, size)| *sum += size);
        if self.tried == TRIAL {
            let (plain, mut size) = (self.plain_bytes, self.plain_bytes);
            let mut chosen = None;
            for (codec, &packed) in candidates(self.setting).iter().zip(&self.packed_bytes) {
                // A later candidate is slower: it has to save as much again.
                if pays(plain, size, packed) {
                    (chosen, size) = (Some(*codec), packed);
                }
            }
            *self = Choice { setting: self.setting, chosen, left: STRETCH, ..Choice::default() };
        }
    }
}

impl Packer {
    /// Values of another kind follow, to be compressed by this setting.
    pub(crate) fn begin(&mut self, setting: Compression) {
        self.choice = Choice { setting, ..Choice::default() };
    }

    /// The value compressed, if that pays.
    pub(crate) fn pack(&mut self, value: &[u8]) -> Option<Packed<'_>> {
        if value.len() < SIZE_MIN || self.choice.setting == Compression::None {
            return None;
        }
        let mut sizes = [value.len(); 2];
        let mut best: Option<Codec> = None;
        let (mut size, mut encoded) = (value.len(), None);
        for (codec, packed) in self.choice.codecs().iter().zip(&mut sizes) {
            *packed = self.encoder.encode(*codec, value);
            encoded = Some(*codec);
            if pays(value.len(), size, *packed) {
                (best, size) = (Some(*codec), *packed);
            }
        }
        self.choice.note(value.len(), &sizes);
        let codec = best?;
        if encoded != best {
            size = self.encoder.encode(codec, value);
        }
        Some(Packed { codec, bytes: &self.encoder.out[..size] })
    }
}

/// The codecs and their memory.
#[derive(Default)]
struct Encoder {
    lz4: CompressTable,
    zstd: Compress,
    out: Vec<u8>,
}

impl Encoder {
    /// Encodes a value to `out` and returns the size; the value's own when it failed, which never pays.
    fn encode(&mut self, codec: Codec, value: &[u8]) -> usize {
        let head = head(value.len());
        let needed = head.len() + get_maximum_output_size(value.len());
        if self.out.len() < needed {
            self.out.resize(needed, 0);
        }
        let (front, room) = self.out.split_at_mut(head.len());
        front.copy_from_slice(&head);
        let size = match codec {
            Codec::None => None,
            Codec::Lz4 => compress_into_with_table(value, room, &mut self.lz4).ok(),
            Codec::Zstd => self.zstd.compress(value, room),
        };
        size.map_or(value.len(), |size| head.len() + size)
    }
}

/// Gets values back. Its memory is that of the threads that do so at the same time.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: Decompress,
}

impl Unpacker {
    /// Writes the value to `out`, in place of its content.
    pub(crate) fn unpack(&self, packed: Packed<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.clear();
        if packed.codec == Codec::None {
            out.extend_from_slice(packed.bytes);
            return Ok(());
        }
        let (size, encoded) = packed.split()?;
        out.resize(size, 0);
        let unpacked = match packed.codec {
            Codec::None => unreachable!("answered above"),
            Codec::Lz4 => decompress_into(encoded, out).map_err(|error| error.to_string()),
            Codec::Zstd => self.zstd.decompress(encoded, out).map_err(|error| error.to_string()),
        };
        let found = unpacked.map_err(|error| {
            Malformed(format!("a value that was compressed with {:?}: {error}", packed.codec))
        })?;
        expect(found == size, || format!("a value of {size} bytes expected, {found} found"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::limits::VALUE_MAX;
    use esker_base::Rng;

    /// Bytes that do not compress, then text that does: `noise` percent of the first kind.
    fn value(rng: &mut Rng, size: usize, noise: usize) -> Vec<u8> {
        let mut value = vec![0; size * noise / 100];
        rng.fill(&mut value);
        while value.len() < size {
            let words = ["\"name\": ", "\"Ada\", ", "\"year\": ", "1815, ", "{", "}, "];
            let word = words[usize::try_from(rng.below(6)).unwrap()];
            value.extend_from_slice(word.as_bytes());
        }
        value.truncate(size);
        value
    }

    /// The codecs that a packer of this setting chooses for values.
    fn codecs(setting: Compression, values: &[Vec<u8>]) -> Vec<Codec> {
        let (mut packer, unpacker, mut back) = (Packer::default(), Unpacker::default(), vec![1]);
        packer.begin(setting);
        let one = |value: &Vec<u8>| match packer.pack(value) {
            None => Codec::None,
            Some(packed) => {
                assert!(packed.bytes.len() < value.len() - value.len() / 8);
                unpacker.unpack(packed, &mut back).unwrap();
                assert_eq!(back, *value);
                packed.codec
            }
        };
        values.iter().map(one).collect()
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn values_of_all_sizes_come_back() {
        let mut rng = Rng::new(1);
        let sizes = [64, 65, 127, 128, 1000, 16_383, 16_384, 65_535, 65_536, 70_000, VALUE_MAX];
        let values: Vec<Vec<u8>> = sizes.iter().map(|&size| value(&mut rng, size, 30)).collect();
        for (setting, codec) in [(Compression::Lz4, Codec::Lz4), (Compression::Zstd, Codec::Zstd)] {
            let found = codecs(setting, &values);
            assert!(found[3..].iter().all(|found| *found == codec), "{setting}: {found:?}");
        }
        let zeroes = vec![0; VALUE_MAX];
        assert_eq!(codecs(Compression::Auto, &[zeroes]), [Codec::Lz4]);
    }

    #[test]
    fn small_values_and_those_that_do_not_compress_stay_as_they_are() {
        let mut rng = Rng::new(2);
        let small: Vec<Vec<u8>> = (0..SIZE_MIN).map(|size| vec![7; size]).collect();
        let noise: Vec<Vec<u8>> = (0..2000).map(|_| value(&mut rng, 500, 100)).collect();
        for setting in Compression::ALL {
            assert!(codecs(setting, &small).iter().all(|codec| *codec == Codec::None));
            assert!(codecs(setting, &noise).iter().all(|codec| *codec == Codec::None));
        }
        assert!(codecs(Compression::None, &[vec![0; 5000]]) == [Codec::None]);
    }

    #[test]
    fn incompressible_values_are_hardly_ever_tried() {
        let mut rng = Rng::new(3);
        let mut packer = Packer::default();
        packer.begin(Compression::Auto);
        let mut tried = 0;
        for _ in 0..10_000 {
            tried += packer.choice.codecs().len();
            assert!(packer.pack(&value(&mut rng, 300, 100)).is_none());
        }
        assert!(tried <= 10_000 / 30, "{tried} encodings of 10,000 values");
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn auto_takes_the_slower_codec_only_where_it_saves_an_eighth_more() {
        let mut rng = Rng::new(4);
        // Zeroes and noise: one is as good as the other.
        let halves: Vec<Vec<u8>> = (0..50)
            .map(|_| {
                let mut half = value(&mut rng, 400, 100);
                half.resize(1000, 0);
                half
            })
            .collect();
        assert!(codecs(Compression::Auto, &halves).iter().all(|codec| *codec == Codec::Lz4));
        // Digits without repetition: only an entropy coder finds something.
        let digits: Vec<Vec<u8>> = (0..50)
            .map(|_| (0..1000).map(|_| b'0' + u8::try_from(rng.below(10)).unwrap()).collect())
            .collect();
        assert!(codecs(Compression::Auto, &digits).iter().all(|codec| *codec == Codec::Zstd));
        assert!(codecs(Compression::Lz4, &digits).iter().all(|codec| *codec == Codec::None));
    }

    #[test]
    fn a_choice_is_made_again_when_the_values_change() {
        let mut rng = Rng::new(5);
        let mut values: Vec<Vec<u8>> = (0..3000).map(|_| value(&mut rng, 200, 100)).collect();
        values.extend((0..3000).map(|_| value(&mut rng, 200, 0)));
        let found = codecs(Compression::Lz4, &values);
        assert!(found[..3000].iter().all(|codec| *codec == Codec::None));
        let late = usize::try_from(TRIAL + STRETCH).unwrap();
        assert!(found[3000 + late..].iter().all(|codec| *codec == Codec::Lz4));
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn damaged_encodings_are_refused_or_yield_what_they_say() {
        let mut rng = Rng::new(6);
        let unpacker = Unpacker::default();
        for setting in [Compression::Lz4, Compression::Zstd] {
            let mut packer = Packer::default();
            packer.begin(setting);
            let plain = value(&mut rng, 600, 20);
            let Packed { codec, bytes } = packer.pack(&plain).unwrap();
            let (bytes, mut out) = (bytes.to_vec(), Vec::new());
            let mut unpack = |bytes: &[u8]| {
                let result = unpacker.unpack(Packed { codec, bytes }, &mut out);
                assert!(out.capacity() <= 2 * VALUE_MAX);
                result.map(|()| out.len())
            };
            for size in 0..bytes.len() {
                assert!(unpack(&bytes[..size]).is_err(), "{codec:?} cut at {size}");
            }
            let mut refused = 0;
            for _ in 0..20_000 {
                let mut mutant = bytes.clone();
                for _ in 0..=rng.below(3) {
                    let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                    mutant[at] = u8::try_from(rng.below(256)).unwrap();
                }
                refused += u64::from(unpack(&mutant).is_err());
            }
            assert!(refused > 100, "{codec:?}: {refused}");
            for huge in [VALUE_MAX as u64 + 1, u64::from(u32::MAX), u64::MAX] {
                let mut e = esker_base::codec::Encoder::default();
                e.varint(huge).bytes(&bytes[2..]);
                assert!(unpack(&e.0).is_err());
            }
        }
    }

    #[test]
    fn settings_are_read_as_they_are_shown() {
        for setting in Compression::ALL {
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        let why = "gzip".parse::<Compression>().unwrap_err();
        assert_eq!(why, "'gzip' is no compression; use none, lz4, zstd or auto");
    }
}
