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
