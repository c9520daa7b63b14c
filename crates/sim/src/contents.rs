//! The bytes of a device, sparse and copy-on-write, so that thousands of images of a device cost
//! only their differences.
//!
//! Invariants
//! 1. A chunk in `over` hides the chunk of the same index in `base`; one in neither is zeroes.
//! 2. Chunks are never changed while shared.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};

/// Bytes per chunk: a multiple of every LBA size.
const CHUNK: u64 = 4096;

type Chunks = BTreeMap<u64, Arc<[u8]>>;

/// Content of a device. Clones share everything until one of them is written.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    base: Arc<Chunks>,
    over: Chunks,
}

impl Contents {
    /// The same contents, sharing all chunks; cheap however much was written before.
    pub(crate) fn fork(&mut self) -> Contents {
        if !self.over.is_empty() {
            Arc::make_mut(&mut self.base).append(&mut self.over);
        }
        self.clone()
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        for (at, chunk, within) in pieces(offset, buf.len()) {
            let part = &mut buf[at..at + within.len()];
            match self.over.get(&chunk).or_else(|| self.base.get(&chunk)) {
                Some(bytes) => part.copy_from_slice(&bytes[within]),
                None => part.fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, offset: u64, buf: &[u8]) {
        for (at, chunk, within) in pieces(offset, buf.len()) {
            let part = &buf[at..at + within.len()];
            self.chunk_mut(chunk)[within].copy_from_slice(part);
        }
    }

    /// Fills a range with zeroes; costs the chunks stored in the range, however large it is.
    pub(crate) fn zero(&mut self, range: Range<u64>) {
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK);
        let mut stored: Vec<u64> = self.base.range(chunks.clone()).map(|(&c, _)| c).collect();
        stored.extend(self.over.range(chunks).map(|(&c, _)| c));
        for chunk in stored {
            let start = range.start.max(chunk * CHUNK) - chunk * CHUNK;
            let end = range.end.min((chunk + 1) * CHUNK) - chunk * CHUNK;
            self.chunk_mut(chunk)[to_usize(start)..to_usize(end)].fill(0);
        }
    }

    fn chunk_mut(&mut self, chunk: u64) -> &mut [u8] {
        let bytes = self.over.entry(chunk).or_insert_with(|| {
            let old = self.base.get(&chunk).cloned();
            old.unwrap_or_else(|| Arc::from(vec![0; to_usize(CHUNK)]))
        });
        Arc::make_mut(bytes)
    }
}

/// Cuts `size` bytes from `offset` on at chunk borders: where the piece starts in the caller's
/// buffer, which chunk, and which bytes of it.
fn pieces(offset: u64, size: usize) -> impl Iterator<Item = (usize, u64, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == size {
            return None;
        }
        let position = offset + to_u64(at);
        let start = to_usize(position % CHUNK);
        let length = (to_usize(CHUNK) - start).min(size - at);
        let piece = (at, position / CHUNK, start..start + length);
        at += length;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    #[test]
    fn forks_agree_with_flat_copies_and_do_not_see_each_other() {
        const SIZE: u64 = 5 * CHUNK;
        let mut rng = Rng::new(11);
        let mut all = vec![(Contents::default(), vec![0u8; to_usize(SIZE)])];
        for _ in 0..3000 {
            let pick = to_usize(rng.below(to_u64(all.len())));
            let (start, size) = (rng.below(SIZE), rng.below(2 * CHUNK));
            let end = (start + size).min(SIZE);
            let range = to_usize(start)..to_usize(end);
            let (contents, flat) = &mut all[pick];
            match rng.below(4) {
                0 => {
                    contents.zero(start..end);
                    flat[range].fill(0);
                }
                1 => {
                    let twin = (contents.fork(), flat.clone());
                    if all.len() < 8 {
                        all.push(twin);
                    } else {
                        all[to_usize(rng.below(8))] = twin;
                    }
                }
                _ => {
                    rng.fill(&mut flat[range.clone()]);
                    contents.write(start, &flat[range]);
                }
            }
        }
        for (contents, flat) in &all {
            let mut read = vec![1; flat.len()];
            contents.read(0, &mut read);
            assert!(read == *flat);
        }
    }
}
