//! Freed memory that the allocator holds back.

#![allow(unsafe_code)]

/// Gives memory that was freed, but is held by the allocator, back to the operating system, so
/// that resident memory follows the memory in use. Costs some milliseconds: for after large jobs.
///
/// glibc keeps memory that a thread has freed in that thread's arena; other allocators decide on
/// their own, and for them this does nothing.
pub fn release_unused() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time, from any thread (MT-Safe in its manual).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Keeps what the allocator holds back small, for a whole program: to be called at its start, before other threads. A
/// library leaves that to the program it is in.
///
/// glibc gives blocks from 128 KiB on mappings of their own, until one is freed: then it serves larger and larger ones
/// from its heaps, where what is freed stays resident. This keeps the limit where it was. For other allocators it does
/// nothing.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, before there are other threads.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}
