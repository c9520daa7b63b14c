//! Changes of an input, at random.

use esker_base::Rng;
use esker_base::units::to_usize;

/// Numbers at which decoders go wrong, of 8 bytes; of fewer, the low ones are taken.
const ODD: [u64; 8] = [0, 1, 0x7f, 0x80, u64::MAX, u64::MAX >> 1, 1 << 63, 0x8000_8000_8000_8000];
/// The longest run of bytes that comes or goes.
const RUN: usize = 32;

/// The input with one to four changes, some of them pieces of other files of its corpus.
pub(super) fn mutant(rng: &mut Rng, bytes: &[u8], corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut mutant = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        change(rng, &mut mutant, corpus);
    }
    mutant
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, corpus: &[(String, Vec<u8>)]) {
    let mut below = |bound: usize| to_usize(rng.below(bound.max(1) as u64));
    // The heads of structures hold most of their sizes and counts.
    let span = if below(3) == 0 { bytes.len().min(64) } else { bytes.len() };
    let at = below(span);
    let end = (at + 1 + below(RUN)).min(bytes.len());
    match below(8) {
        _ if bytes.is_empty() => bytes.push(u8::try_from(below(256)).expect("a byte")),
        0 => bytes[at] ^= 1 << below(8),
        1 => bytes[at] = u8::try_from(below(256)).expect("a byte"),
        2 => {
            let size = (1 << below(4)).min(bytes.len() - at);
            bytes[at..at + size].copy_from_slice(&ODD[below(ODD.len())].to_le_bytes()[..size]);
        }
        3 => bytes[at] = bytes[at].wrapping_add(if below(2) == 0 { 1 } else { u8::MAX }),
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            let (_, other) = &corpus[below(corpus.len())];
            let from = below(other.len());
            let piece = &other[from..(from + 1 + below(RUN)).min(other.len())];
            let end = if below(2) == 0 { at } else { (at + piece.len()).min(bytes.len()) };
            bytes.splice(at..end, piece.iter().copied());
        }
    }
}
