//! Buffers of reads, apart from the allocator's heap: there, what lives longer would settle in the gaps that they leave,
//! so that the next one takes new memory.
//!
//! The KVDBs of a process share them, so that opening one maps no memory.

use esker_base::process::PerProcess;
use esker_base::{AlignedBuf, Slab};

/// The least and the most bytes of the buffers that come from slabs; there is a slab for each power of two between.
const LEAST: usize = 4 << 10;
const MOST: usize = 64 << 10;
const SIZES: usize = (MOST / LEAST).ilog2() as usize + 1;
/// The most bytes of unused buffers that are kept, of each size.
const KEPT: usize = 1 << 20;

static SLABS: PerProcess<[Slab; SIZES]> = PerProcess::new(|| {
    std::array::from_fn(|size| {
        let slab = Slab::new(LEAST << size);
        slab.keep(KEPT);
        slab
    })
});

/// A buffer of `bytes` bytes for a read, with any content.
pub(crate) fn take(bytes: usize) -> AlignedBuf {
    let Some(slab) = SLABS.get().iter().find(|slab| slab.piece() >= bytes) else {
        return AlignedBuf::zeroed(bytes);
    };
    let mut buf = slab.take();
    buf.set_len(bytes);
    buf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_of_the_smallest_size_that_fits() {
        for (bytes, capacity) in [(1, 4), (4096, 4), (4097, 8), (20_000, 32), (MOST, 64)] {
            let buf = take(bytes);
            assert_eq!((buf.len(), buf.capacity()), (bytes, capacity << 10));
        }
        assert_eq!(take(MOST + 1).len(), MOST + 1);
    }
}
