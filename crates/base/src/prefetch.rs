//! Asking the processor for memory ahead of need.

#![allow(unsafe_code)]

/// Asks the processor to have the cache line of `place` near when it is read, soon. A hint: it changes
/// nothing else, and on processors for which none is known here nothing at all.
#[inline]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing, at the address of a reference; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
