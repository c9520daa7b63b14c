//! How a block is stored: as it is, in eight sectors; or compressed, in fewer, behind a head of four bytes: codec
//! (1: lz4, 2: zstd), which blocks of a bundle there are (zstd; bit n for the nth), and how many bytes follow.
//! Sees `types`.

mod lz4;

use zstd::bulk::{Compressor, Decompressor};

use crate::types::{BLOCK_SIZE, sectors, sectors_of};

const HEAD: usize = 4;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// The level that cold blocks are compressed at.
const ZSTD_LEVEL: i32 = 3;
/// A block that compresses to more is stored as it is: it saves no sector.
const MOST: usize = BLOCK_SIZE - 512 - HEAD;

/// The bytes to store for a block, a multiple of a sector: itself, or what it was compressed to.
pub(crate) fn encode<'a>(
    block: &'a [u8],
    is_compressed: bool,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    if !is_compressed || !is_promising(block) {
        return block;
    }
    scratch.resize(HEAD + lz4_flex::block::get_maximum_output_size(block.len()), 0);
    match lz4_flex::block::compress_into(block, &mut scratch[HEAD..]) {
        Ok(size) if size <= MOST => {
            let length = u16::try_from(size).expect("less than a block").to_le_bytes();
            scratch[..HEAD].copy_from_slice(&[LZ4, 0, length[0], length[1]]);
            let end = sectors(sectors_of(HEAD + size));
            scratch[HEAD + size..end].fill(0);
            &scratch[..end]
        }
        _ => block,
    }
}

/// Whether a look at a part of the block says that it may compress: 64 of its bytes, of which random ones are nearly
/// all different.
fn is_promising(block: &[u8]) -> bool {
    let mut seen = [false; 256];
    let mut different = 0;
    for &byte in block.iter().step_by(block.len().div_ceil(128).max(1)) {
        different += u32::from(!std::mem::replace(&mut seen[usize::from(byte)], true));
    }
    // Of 128 random bytes 101 are different, give or take five.
    different < 92 || has_run(block)
}

/// Whether there are eight equal words in a row somewhere: text and tables have few values, padding has runs.
fn has_run(block: &[u8]) -> bool {
    let equal = |pair: &[u8]| pair[..8] == pair[8..];
    block.chunks_exact(64).filter(|line| line.chunks_exact(16).all(equal)).count() >= 8
}

/// Whether the bytes of a block alone, of so many sectors, were compressed as cold ones are.
pub(crate) fn is_hard(sectors: u8, stored: &[u8]) -> bool {
    sectors < 8 && stored.first() == Some(&ZSTD)
}

/// Compresses cold blocks, several at a time.
#[derive(Default)]
pub(crate) struct Bundler {
    zstd: Option<Compressor<'static>>,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl Bundler {
    /// The bytes to store for some blocks of a bundle, a multiple of a sector; `None` where nothing is gained. Blocks
    /// come with their places, in ascending order.
    pub(crate) fn pack(&mut self, blocks: &[(u8, &[u8])]) -> Option<&[u8]> {
        if !blocks.iter().any(|(_, block)| is_promising(block)) {
            return None;
        }
        self.plain.clear();
        let mut mask = 0;
        for (place, block) in blocks {
            mask |= 1 << place;
            self.plain.extend_from_slice(block);
        }
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(Compressor::new(ZSTD_LEVEL).ok()?),
        };
        self.packed.resize(HEAD + self.plain.len(), 0);
        // Output that does not fit is not smaller.
        let size = zstd.compress_to_buffer(&self.plain, &mut self.packed[HEAD..]).ok()?;
        let length = u16::try_from(size).ok()?.to_le_bytes();
        self.packed[..HEAD].copy_from_slice(&[ZSTD, mask, length[0], length[1]]);
        self.packed.truncate(HEAD + size);
        self.packed.resize(sectors(sectors_of(HEAD + size)), 0);
        Some(&self.packed)
    }
}

/// Gives blocks back.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    plain: Vec<u8>,
}

impl Unpacker {
    /// The block that these compressed bytes store, at this place of its bundle if they store one; `None` if they store
    /// none.
    pub(crate) fn unpack(&mut self, stored: &[u8], place: u8, block: &mut [u8]) -> Option<()> {
        let (head, rest) = stored.split_at_checked(HEAD)?;
        let size = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let compressed = rest.get(..size)?;
        match head[0] {
            LZ4 => lz4::decompress(compressed, block),
            ZSTD => {
                let mask = head[1];
                let before = (mask & ((1 << place) - 1)).count_ones();
                let count = usize::try_from(mask.count_ones()).ok()?;
                let at = usize::try_from(before).ok()? * BLOCK_SIZE;
                self.plain.resize(count * BLOCK_SIZE, 0);
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(Decompressor::new().ok()?),
                };
                let written = zstd.decompress_to_buffer(compressed, &mut self.plain[..]).ok()?;
                let is_there = mask & (1 << place) != 0 && written == self.plain.len();
                block.copy_from_slice(self.plain.get(at..at + BLOCK_SIZE).filter(|_| is_there)?);
                Some(())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    fn block(random: usize, seed: u64) -> Vec<u8> {
        let mut block = vec![7; BLOCK_SIZE];
        Rng::new(seed).fill(&mut block[..random]);
        block
    }

    #[test]
    fn blocks_come_back_whatever_they_hold() {
        let mut unpacker = Unpacker::default();
        for random in [0, 1, 100, 1000, 2048, 3600, 4000, 4096] {
            let block = block(random, 1);
            let mut scratch = Vec::new();
            assert_eq!(encode(&block, false, &mut scratch), block);
            let stored = encode(&block, true, &mut scratch);
            assert!(stored.len().is_multiple_of(512) && stored.len() <= BLOCK_SIZE);
            assert_eq!(stored.len() < BLOCK_SIZE, random <= 3000, "{random} random bytes");
            let mut back = vec![0; BLOCK_SIZE];
            match stored.len() < BLOCK_SIZE {
                true => unpacker.unpack(stored, 0, &mut back).unwrap(),
                false => back.copy_from_slice(stored),
            }
            assert!(back == block, "{random} random bytes");
        }
    }

    #[test]
    fn bundle_gives_each_of_its_blocks_back_and_no_other() {
        let (mut bundler, mut unpacker) = (Bundler::default(), Unpacker::default());
        let blocks: Vec<Vec<u8>> = (0..4).map(|seed| block(2048, seed)).collect();
        for mask in 1..16_u8 {
            let there: Vec<(u8, &[u8])> = (0..4)
                .filter(|n| mask & 1 << n != 0)
                .map(|n| (n, &blocks[usize::from(n)][..]))
                .collect();
            let stored = bundler.pack(&there).unwrap().to_vec();
            assert!(stored.len() <= there.len() * 2300 + 512);
            for place in 0..4 {
                let mut back = vec![0; BLOCK_SIZE];
                let unpacked = unpacker.unpack(&stored, place, &mut back);
                assert_eq!(unpacked.is_some(), mask & 1 << place != 0);
                assert!(unpacked.is_none() || back == blocks[usize::from(place)]);
            }
        }
        assert!(bundler.pack(&[(0, &block(BLOCK_SIZE, 9))]).is_none(), "random bytes");
    }

    #[test]
    fn damaged_bytes_are_refused_or_decoded_without_harm() {
        let (mut rng, mut unpacker) = (Rng::new(2), Unpacker::default());
        let good = Bundler::default().pack(&[(1, &block(500, 1))]).unwrap().to_vec();
        let mut block = vec![0; BLOCK_SIZE];
        for round in 0..2000 {
            let mut stored = vec![0; 512 * usize::try_from(1 + rng.below(7)).unwrap()];
            rng.fill(&mut stored);
            if round % 2 == 0 {
                stored.clone_from(&good);
                let at = usize::try_from(rng.below(stored.len() as u64)).unwrap();
                stored[at] ^= 1 << rng.below(8);
            } else {
                stored[0] = if rng.chance(1, 2) { LZ4 } else { ZSTD };
            }
            let _ = unpacker.unpack(&stored, 1, &mut block);
        }
        assert_eq!(unpacker.unpack(&[], 0, &mut block), None);
    }
}
