//! Memory that is written once, from front to back, while others read the bytes written already.
//!
//! Invariants
//! 1. `ptr` points to the `capacity` bytes of a buffer that `memory` owns and never gives out.
//! 2. Bytes below `len` are never written again. Only the holder of `tail` writes, and only from `len`
//!    on; `len` is stored after the bytes before it.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::AlignedBuf;

/// A buffer that bytes are appended to, and read from meanwhile.
pub struct AppendBuf {
    ptr: NonNull<u8>,
    capacity: usize,
    len: AtomicUsize,
    tail: Mutex<()>,
    /// Owns the memory; touched through `ptr` only.
    _memory: AlignedBuf,
}

// SAFETY: the memory is owned (invariant 1), and writers and readers never touch the same
// bytes (invariant 2).
unsafe impl Send for AppendBuf {}
// SAFETY: as above: writes are behind `tail` and beyond `len`, reads are below `len`.
unsafe impl Sync for AppendBuf {}

impl AppendBuf {
    /// A buffer with room for `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> AppendBuf {
        AppendBuf::over(AlignedBuf::zeroed(capacity))
    }

    /// A buffer over `memory`, whose content counts for nothing.
    #[must_use]
    pub fn over(mut memory: AlignedBuf) -> AppendBuf {
        let (ptr, capacity) = (NonNull::from(&mut memory[..]).cast(), memory.len());
        AppendBuf { ptr, capacity, len: AtomicUsize::new(0), tail: Mutex::new(()), _memory: memory }
    }

    /// Bytes it has room for in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes appended so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether nothing was appended yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `parts` one after the other and returns where they begin; `None` when there is no room for all of
    /// them.
    pub fn append(&self, parts: &[&[u8]]) -> Option<usize> {
        // A writer cannot panic in between, so a poisoned lock protects nothing broken.
        let _tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let start = self.len.load(Ordering::Relaxed);
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size > self.capacity - start {
            return None;
        }
        let mut end = start;
        for part in parts {
            // SAFETY: `end + part.len() <= capacity` was checked for all parts together; nobody
            // reads or writes from `len` on but the holder of `tail` (invariant 2).
            unsafe {
                std::ptr::copy_nonoverlapping(
                    part.as_ptr(),
                    self.ptr.as_ptr().add(end),
                    part.len(),
                );
            }
            end += part.len();
        }
        self.len.store(end, Ordering::Release);
        Some(start)
    }

    /// Bytes that were appended.
    ///
    /// # Panics
    /// If some of them were not.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len(), "bytes that were appended");
        // SAFETY: within the bytes below `len`, which are written and never change (invariant 2).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr().add(range.start), range.len()) }
    }
}

impl fmt::Debug for AppendBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppendBuf({} of {} bytes)", self.len(), self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_bytes_stay_and_a_full_buffer_refuses() {
        let buf = AppendBuf::new(10);
        assert_eq!(buf.append(&[b"ab", b"", b"cd"]), Some(0));
        assert_eq!(buf.append(&[b"1234567"]), None);
        assert_eq!(buf.append(&[b"123456"]), Some(4));
        assert_eq!((buf.bytes(0..4), buf.bytes(4..10)), (&b"abcd"[..], &b"123456"[..]));
        assert_eq!(buf.len(), 10);
    }

    #[test]
    #[should_panic(expected = "bytes that were appended")]
    fn bytes_that_were_not_appended_cannot_be_read() {
        let buf = AppendBuf::new(10);
        buf.append(&[b"ab"]).unwrap();
        let _ = buf.bytes(1..3);
    }

    #[test]
    fn readers_see_whole_records_while_writers_append() {
        const RECORDS: u64 = 20_000;
        let buf = AppendBuf::new(8 * 8 * 1024 * 1024);
        let (send, receive) = std::sync::mpsc::channel::<usize>();
        std::thread::scope(|scope| {
            let writer = &buf;
            crate::thread::spawn_scoped(scope, "writer", move || {
                for n in 0..RECORDS {
                    let word = n.to_le_bytes();
                    send.send(writer.append(&[&word, &word, &word]).unwrap()).unwrap();
                }
            })
            .unwrap();
            for (n, start) in receive.iter().enumerate() {
                assert_eq!(buf.bytes(start..start + 24), (n as u64).to_le_bytes().repeat(3));
            }
        });
        assert_eq!(buf.len() as u64, RECORDS * 24);
    }
}
