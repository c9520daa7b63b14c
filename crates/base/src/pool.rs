//! Buffers that are used again and again: a new one of 1 MiB is a system call, and pages to fault
//! in; dropping it is another one, which interrupts every processor that runs the program.

use crate::AlignedBuf;

/// The smallest class of buffers, as a power of two.
const SMALLEST: u32 = 12;
const CLASSES: usize = 14;

/// Free buffers in classes of powers of two, from 4 KiB to 32 MiB; larger ones are not kept.
#[derive(Debug)]
pub struct BufPool {
    free: [Vec<AlignedBuf>; CLASSES],
    idle_bytes: usize,
    most_idle_bytes: usize,
}

impl BufPool {
    /// A pool of which so many bytes at most lie idle.
    #[must_use]
    pub fn new(most_idle_bytes: usize) -> BufPool {
        BufPool { free: Default::default(), idle_bytes: 0, most_idle_bytes }
    }

    /// A buffer of `size` bytes with any content.
    pub fn take(&mut self, size: usize) -> AlignedBuf {
        let capacity = size.next_power_of_two().max(1 << SMALLEST);
        if let Some(mut buf) = self.class(capacity).and_then(Vec::pop) {
            self.idle_bytes -= buf.capacity();
            buf.set_len(size);
            return buf;
        }
        let mut buf = AlignedBuf::zeroed(capacity);
        buf.set_len(size);
        buf
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buf: AlignedBuf) {
        let capacity = buf.capacity();
        if !capacity.is_power_of_two() || self.idle_bytes + capacity > self.most_idle_bytes {
            return;
        }
        if let Some(class) = self.class(capacity) {
            class.push(buf);
            self.idle_bytes += capacity;
        }
    }

    /// Drops idle buffers.
    pub fn clear(&mut self) {
        *self = BufPool::new(self.most_idle_bytes);
    }

    fn class(&mut self, capacity: usize) -> Option<&mut Vec<AlignedBuf>> {
        let class = capacity.trailing_zeros().checked_sub(SMALLEST)?;
        self.free.get_mut(usize::try_from(class).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_and_no_more_than_a_bound_lies_idle() {
        let mut pool = BufPool::new(32 << 20);
        let mut buf = pool.take(5000);
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        buf[0] = 9;
        pool.give(buf);
        assert_eq!(pool.take(8000)[0], 9);
        assert_eq!(pool.take(8000)[0], 0);
        for _ in 0..100 {
            pool.give(AlignedBuf::zeroed(1 << 20));
        }
        assert_eq!(pool.idle_bytes, 32 << 20);
        pool.clear();
        assert_eq!((pool.idle_bytes, pool.take(4096)[0]), (0, 0));
    }

    #[test]
    fn a_buffer_comes_back_for_the_same_class_only() {
        let mut pool = BufPool::new(64 << 10);
        let buf = pool.take(5000);
        let address = buf.as_ptr();
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        pool.give(buf);
        assert_ne!(pool.take(4096).as_ptr(), address);
        assert_eq!(pool.take(8192).as_ptr(), address);
    }

    #[test]
    fn no_more_is_kept_than_was_said() {
        let mut pool = BufPool::new(8192);
        let bufs: Vec<_> = (0..3).map(|_| pool.take(4096)).collect();
        bufs.into_iter().for_each(|buf| pool.give(buf));
        assert_eq!(pool.idle_bytes, 8192);
    }
}
