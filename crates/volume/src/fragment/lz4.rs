//! Decompression of lz4's block format: sequences of a token, literals, and a match, which repeats what is at an offset
//! before it. (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>) Sees nothing.
//!
//! Matches that overlap themselves, as runs do, are copied in steps that double: blocks that are half padding are mostly
//! such matches, and byte by byte each byte waits for the one before it.

/// Bytes that short copies copy at once, whether as many are needed or not.
const STRIDE: usize = 16;
/// Bytes of the shortest match.
const MATCH_MIN: usize = 4;

/// Fills `out` with what `packed` was compressed from; `None` if it was compressed from anything else.
pub(crate) fn decompress(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let (mut rest, mut at) = (packed, 0);
    loop {
        let (token, after) = rest.split_first()?;
        rest = after;
        let count = length(token >> 4, &mut rest)?;
        let literals = rest.get(..count)?;
        let whole = rest.first_chunk::<STRIDE>().filter(|_| count <= STRIDE);
        match (whole, out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<STRIDE>)) {
            (Some(from), Some(to)) => *to = *from,
            _ => out.get_mut(at..at + count)?.copy_from_slice(literals),
        }
        (rest, at) = (&rest[count..], at + count);
        if rest.is_empty() {
            return (at == out.len()).then_some(());
        }
        let (offset, after) = rest.split_first_chunk::<2>()?;
        rest = after;
        let count = length(token & 15, &mut rest)? + MATCH_MIN;
        repeat(out, at, u16::from_le_bytes(*offset).into(), count)?;
        at += count;
    }
}

/// A length of which the token has these four bits: 15 stands for more in the bytes that follow.
fn length(bits: u8, rest: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(bits);
    if bits == 15 {
        loop {
            let (more, after) = rest.split_first()?;
            *rest = after;
            length += usize::from(*more);
            if *more != u8::MAX {
                break;
            }
        }
    }
    Some(length)
}

/// Repeats at `at` so many bytes from `offset` before it on.
fn repeat(out: &mut [u8], at: usize, offset: usize, count: usize) -> Option<()> {
    let start = at.checked_sub(offset).filter(|_| offset > 0)?;
    if count > out.len() - at {
        return None;
    }
    if count <= STRIDE
        && offset >= STRIDE
        && let Some(from) = out[start..].first_chunk::<STRIDE>().copied()
        && let Some(to) = out[at..].first_chunk_mut::<STRIDE>()
    {
        *to = from;
        return Some(());
    }
    let mut copied = 0;
    while copied < count {
        let piece = (count - copied).min(offset + copied);
        out.copy_within(start..start + piece, at + copied);
        copied += piece;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use esker_base::units::to_usize;
    use lz4_flex::block::{compress, decompress_into};

    /// Content with runs, repetitions and noise of all lengths.
    fn content(rng: &mut Rng, size: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(size);
        while content.len() < size {
            let most = 2 << rng.below(9);
            let length = 1 + to_usize(rng.below(most));
            match rng.below(3) {
                0 => content.resize(content.len() + length, 7),
                1 if !content.is_empty() => {
                    let from = to_usize(rng.below(content.len() as u64));
                    for n in 0..length {
                        content.push(content[from + n]);
                    }
                }
                _ => {
                    let start = content.len();
                    content.resize(start + length, 0);
                    rng.fill(&mut content[start..]);
                }
            }
        }
        content.truncate(size);
        content
    }

    #[test]
    fn everything_that_was_compressed_comes_back() {
        let mut rng = Rng::new(1);
        for n in 0..3000 {
            let size = if n < 300 { n } else { 4096 };
            let content = content(&mut rng, size);
            let mut out = vec![0xee; content.len()];
            assert_eq!(decompress(&compress(&content), &mut out), Some(()), "{n}");
            assert!(out == content, "{n}");
        }
    }

    #[test]
    fn damage_is_refused_or_decompressed_as_others_do() {
        let mut rng = Rng::new(2);
        for n in 0..20_000 {
            let content = content(&mut rng, 600);
            let mut packed = compress(&content);
            for _ in 0..=rng.below(3) {
                let at = to_usize(rng.below(packed.len() as u64));
                packed[at] = rng.below(256).to_le_bytes()[0];
            }
            if rng.chance(1, 4) {
                packed.truncate(to_usize(rng.below(packed.len() as u64)));
            }
            let (mut out, mut expected) = (vec![0; 600], vec![0; 600]);
            let is_whole = decompress_into(&packed, &mut expected).is_ok_and(|n| n == 600);
            if decompress(&packed, &mut out).is_some() && is_whole {
                assert!(out == expected, "{n}");
            } else {
                assert!(!is_whole, "{n}: it is refused");
            }
        }
    }
}
