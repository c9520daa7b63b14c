//! Buffers of reads, apart from the allocator's heap: there, what lives longer would settle in the gaps that they leave,
//! so that the next one takes new memory.

use esker_base::{AlignedBuf, Slab};

/// The least and the most bytes of the buffers that come from slabs; there is a slab for each power of two between.
const LEAST: usize = 4 << 10;
const MOST: usize = 64 << 10;
const SLABS: usize = (MOST / LEAST).ilog2() as usize + 1;

/// A source of buffers for any number of threads.
pub(crate) struct Buffers([Slab; SLABS]);

impl Buffers {
    /// One that keeps up to `keep` bytes of unused buffers of each size.
    pub(crate) fn new(keep: usize) -> Buffers {
        Buffers(std::array::from_fn(|at| {
            let slab = Slab::new(LEAST << at);
            slab.keep(keep);
            slab
        }))
    }

    /// A buffer of `bytes` bytes, with any content.
    pub(crate) fn take(&self, bytes: usize) -> AlignedBuf {
        let Some(slab) = self.0.iter().find(|slab| slab.piece() >= bytes) else {
            return AlignedBuf::zeroed(bytes);
        };
        let mut buf = slab.take();
        buf.set_len(bytes);
        buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_of_the_smallest_size_that_fits() {
        let buffers = Buffers::new(0);
        for (bytes, capacity) in [(1, 4), (4096, 4), (4097, 8), (20_000, 32), (MOST, 64)] {
            let buf = buffers.take(bytes);
            assert_eq!((buf.len(), buf.capacity()), (bytes, capacity << 10));
        }
        assert_eq!(buffers.take(MOST + 1).len(), MOST + 1);
    }
}
