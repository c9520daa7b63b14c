//! How a block is stored: as it is, in eight sectors; or compressed, in fewer, behind a head of four bytes: codec
//! (1: lz4), zero, and how many bytes follow. Sees `types`.

use crate::types::{BLOCK_SIZE, sectors, sectors_of};

const HEAD: usize = 4;
const LZ4: u8 = 1;
/// A block that compresses to more is stored as it is: it saves no sector.
const MOST: usize = BLOCK_SIZE - 512 - HEAD;

/// The bytes to store for a block, a multiple of a sector.
pub(crate) fn encode(block: &[u8], is_compressed: bool, scratch: &mut Vec<u8>) {
    scratch.clear();
    if is_compressed && is_promising(block) {
        scratch.resize(HEAD + lz4_flex::block::get_maximum_output_size(block.len()), 0);
        if let Ok(size) = lz4_flex::block::compress_into(block, &mut scratch[HEAD..])
            && size <= MOST
        {
            let length = u16::try_from(size).expect("less than a block").to_le_bytes();
            scratch[..HEAD].copy_from_slice(&[LZ4, 0, length[0], length[1]]);
            scratch.truncate(HEAD + size);
            scratch.resize(sectors(sectors_of(HEAD + size)), 0);
            return;
        }
        scratch.clear();
    }
    scratch.extend_from_slice(block);
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

/// The block that these bytes store; `None` if they store none.
pub(crate) fn decode(stored: &[u8], block: &mut [u8]) -> Option<()> {
    if stored.len() == block.len() {
        block.copy_from_slice(stored);
        return Some(());
    }
    let (head, rest) = stored.split_at_checked(HEAD)?;
    let size = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let compressed = rest.get(..size).filter(|_| head[0] == LZ4)?;
    let written = lz4_flex::block::decompress_into(compressed, block).ok()?;
    (written == block.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    #[test]
    fn blocks_come_back_whatever_they_hold() {
        let mut rng = Rng::new(1);
        for random in [0, 1, 100, 1000, 2048, 3600, 4000, 4096] {
            let mut block = vec![7; BLOCK_SIZE];
            rng.fill(&mut block[..random]);
            let mut stored = Vec::new();
            for is_compressed in [false, true] {
                encode(&block, is_compressed, &mut stored);
                assert!(stored.len() % 512 == 0 && stored.len() <= BLOCK_SIZE);
                let mut back = vec![0; BLOCK_SIZE];
                decode(&stored, &mut back).unwrap();
                assert!(back == block, "{random} random bytes");
            }
            assert_eq!(stored.len() < BLOCK_SIZE, random <= 3000, "{random} random bytes");
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_decoded_without_harm() {
        let mut rng = Rng::new(2);
        let mut block = vec![0; BLOCK_SIZE];
        for _ in 0..1000 {
            let mut stored = vec![0; 512 * usize::try_from(1 + rng.below(7)).unwrap()];
            rng.fill(&mut stored);
            stored[0] = 1;
            let _ = decode(&stored, &mut block);
        }
        assert_eq!(decode(&[], &mut block), None);
    }
}
