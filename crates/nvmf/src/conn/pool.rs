//! Buffers that are used again, so that no command allocates.

use esker_base::AlignedBuf;
use esker_base::buf::ALIGNMENT;

/// Free buffers, by size class: powers of two from [`ALIGNMENT`] on.
#[derive(Debug)]
pub struct BufPool {
    classes: Vec<Vec<AlignedBuf>>,
    free_bytes: usize,
    keep_bytes: usize,
}

impl BufPool {
    /// A pool that keeps up to `keep_bytes` bytes of free buffers.
    #[must_use]
    pub fn new(keep_bytes: usize) -> BufPool {
        BufPool { classes: Vec::new(), free_bytes: 0, keep_bytes }
    }

    /// A buffer of `len` bytes. What it holds is left over from its last user.
    pub fn take(&mut self, len: usize) -> AlignedBuf {
        let class = class_of(len);
        let mut buf = match self.classes.get_mut(class).and_then(Vec::pop) {
            Some(buf) => {
                self.free_bytes -= buf.capacity();
                buf
            }
            None => AlignedBuf::zeroed(ALIGNMENT << class),
        };
        buf.set_len(len);
        buf
    }

    /// Takes a buffer back. One that has not the size of a class, or is too much, is freed.
    pub fn give(&mut self, buf: AlignedBuf) {
        let class = class_of(buf.capacity());
        let fits = self.free_bytes + buf.capacity() <= self.keep_bytes;
        if !fits || buf.capacity() != ALIGNMENT << class {
            return;
        }
        while self.classes.len() <= class {
            self.classes.push(Vec::new());
        }
        self.free_bytes += buf.capacity();
        self.classes[class].push(buf);
    }
}

fn class_of(len: usize) -> usize {
    let pages = len.div_ceil(ALIGNMENT).max(1).next_power_of_two();
    usize::try_from(pages.trailing_zeros()).expect("a count of bits")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(pool.free_bytes, 8192);
    }
}
