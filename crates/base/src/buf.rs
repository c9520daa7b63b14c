//! Aligned memory that a device can read and write directly (`O_DIRECT`, DMA).
//!
//! A large buffer is a mapping of its own, so that its memory goes back to the operating system
//! when it is dropped, whatever the allocator's policy: budgets are about resident memory.
//!
//! Invariants
//! 1. `ptr` points to `capacity` initialised bytes aligned to [`ALIGNMENT`], owned by this value: a
//!    piece of what `source` names, else a private anonymous mapping if `capacity >= MAPPED_SIZE`,
//!    else of the global allocator.
//! 2. `len <= capacity`.
//!
//! `slab` cuts buffers of one size from large mappings, `kept` from a file that is mapped.

#![allow(unsafe_code)]

pub mod kept;
pub mod slab;

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The alignment of every [`AlignedBuf`], in bytes: enough for any LBA size up to 4 KiB.
pub const ALIGNMENT: usize = 4096;

/// Buffers from this size on, in bytes, are mappings of their own.
const MAPPED_SIZE: usize = 128 << 10;

const TOO_LARGE: &str = "a buffer below isize::MAX bytes";

/// A buffer of bytes aligned to [`ALIGNMENT`].
///
/// It is moved into a device command and comes back with the completion, so no lifetime and no
/// lock stands between a queue pair and its memory.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    capacity: usize,
    source: Option<Arc<dyn Source>>,
}

/// Memory that buffers are pieces of.
trait Source: Send + Sync {
    /// Takes a piece back.
    ///
    /// # Safety
    /// It was taken from this memory, and nobody uses it any more.
    unsafe fn give_back(&self, ptr: NonNull<u8>);
}

// SAFETY: the buffer owns its memory exclusively, as a Vec<u8> does (invariant 1).
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    ///
    /// # Panics
    /// If `len` exceeds `isize::MAX`, as for a `Vec`.
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        let capacity = len.checked_next_multiple_of(ALIGNMENT).expect(TOO_LARGE).max(ALIGNMENT);
        let layout = Self::layout(capacity);
        let raw = if capacity >= MAPPED_SIZE {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new anonymous mapping at an address of the kernel's choice.
            let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), capacity, access, flags) };
            mapped.map_or(std::ptr::null_mut(), <*mut _>::cast)
        } else {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc::alloc_zeroed(layout) }
        };
        let Some(ptr) = NonNull::new(raw) else { alloc::handle_alloc_error(layout) };
        AlignedBuf { ptr, len, capacity, source: None }
    }

    /// A piece of other memory, of `size` bytes.
    ///
    /// # Safety
    /// `ptr` is an initialised piece of `source`, and nobody else uses it until it is given back.
    unsafe fn of_source(ptr: NonNull<u8>, size: usize, source: Arc<dyn Source>) -> AlignedBuf {
        AlignedBuf { ptr, len: size, capacity: size, source: Some(source) }
    }

    /// A buffer that holds a copy of `bytes`, zero-padded to a multiple of `unit` bytes.
    #[must_use]
    pub fn padded(bytes: &[u8], unit: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(bytes.len().next_multiple_of(unit));
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    /// How many bytes the buffer can hold without a new allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the length. Bytes that come into view keep the value they last had.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} bytes do not fit a buffer of {}", self.capacity);
        self.len = len;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect(TOO_LARGE)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(source) = &self.source {
            // SAFETY: taken from there (invariant 1), and nobody has it after this.
            unsafe { source.give_back(self.ptr) };
        } else if self.capacity >= MAPPED_SIZE {
            // SAFETY: mapped in `zeroed` with this very size (invariant 1). It cannot fail: the
            // range is a whole mapping.
            let _ = unsafe { munmap(self.ptr.as_ptr().cast(), self.capacity) };
        } else {
            // SAFETY: allocated in `zeroed` with this very layout (invariant 1).
            unsafe { alloc::dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: invariants 1 and 2.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: invariants 1 and 2, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        let mut copy = AlignedBuf::zeroed(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_copy_deeply() {
        let mut buf = AlignedBuf::zeroed(5000);
        assert_eq!(buf.as_ptr().addr() % ALIGNMENT, 0);
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        assert!(buf.iter().all(|&b| b == 0));
        let copy = buf.clone();
        buf[4999] = 7;
        assert_eq!(copy[4999], 0);
        buf.set_len(8192);
        assert_eq!(buf[4999], 7);
        assert_eq!(AlignedBuf::padded(b"abc", 512).len(), 512);
    }

    #[test]
    fn large_buffers_are_zeroed_and_writable_to_the_end() {
        for size in [MAPPED_SIZE - 1, MAPPED_SIZE, (1 << 20) + 5] {
            let mut buf = AlignedBuf::zeroed(size);
            assert_eq!(buf.as_ptr().addr() % ALIGNMENT, 0);
            assert!(buf.iter().all(|&b| b == 0));
            buf[size - 1] = 1;
            assert_eq!(buf.clone()[size - 1], 1);
        }
    }

    #[test]
    #[should_panic(expected = "a buffer below isize::MAX bytes")]
    fn a_size_beyond_what_memory_can_have_is_a_bug() {
        let _ = AlignedBuf::zeroed(usize::MAX);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn a_length_beyond_the_capacity_is_a_bug() {
        AlignedBuf::zeroed(10).set_len(4097);
    }
}
