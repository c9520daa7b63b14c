//! A hint to the CPU that memory will be needed soon. Random accesses to a map of gigabytes would
//! otherwise wait for DRAM one after another: 10 million host writes a second instead of 23.

#![allow(unsafe_code)]

/// How many accesses ahead to ask.
pub(super) const AHEAD: u32 = 16;

/// Asks for the cache line of `slice[index]`. An index that is out of range asks for nothing.
#[inline]
pub(super) fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(entry) = slice.get(index) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no effect on memory and cannot fault; the pointer is valid.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::hint::black_box(entry);
    }
}
