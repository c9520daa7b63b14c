//! Buffers that are used again and again: a new one of 1 MiB is a system call, and pages to fault
//! in.

use esker_base::AlignedBuf;

/// The smallest class of buffers, as a power of two.
const SMALLEST: u32 = 12;
const CLASSES: usize = 14;
/// Bytes that may lie idle.
const MOST_IDLE_BYTES: usize = 32 << 20;

/// Free buffers in classes of powers of two.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<AlignedBuf>; CLASSES],
    idle_bytes: usize,
}

impl Pool {
    /// A buffer of `size` bytes with any content.
    pub(crate) fn take(&mut self, size: usize) -> AlignedBuf {
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
    pub(crate) fn give(&mut self, buf: AlignedBuf) {
        let capacity = buf.capacity();
        if !capacity.is_power_of_two() || self.idle_bytes + capacity > MOST_IDLE_BYTES {
            return;
        }
        if let Some(class) = self.class(capacity) {
            class.push(buf);
            self.idle_bytes += capacity;
        }
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
        let mut pool = Pool::default();
        let mut buf = pool.take(5000);
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        buf[0] = 9;
        pool.give(buf);
        assert_eq!(pool.take(8000)[0], 9);
        assert_eq!(pool.take(8000)[0], 0);
        for _ in 0..100 {
            pool.give(AlignedBuf::zeroed(1 << 20));
        }
        assert_eq!(pool.idle_bytes, MOST_IDLE_BYTES);
    }
}
