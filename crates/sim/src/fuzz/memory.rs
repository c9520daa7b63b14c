//! Bytes that a thread has allocated at a time.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts the bytes of each thread. A test's program has it as its `#[global_allocator]`.
pub struct Watched;

thread_local! {
    /// Allocated since the count began, less what was freed; below zero where older memory was freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn note(more: usize, less: usize) {
    // A thread that ends frees memory when its variables are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add_unsigned(more).saturating_sub_unsigned(less));
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: the system's allocator does all; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

/// What `work` returns, and the most bytes that it had allocated at a time; zero where the allocator is another one.
pub(super) fn most_during<R>(work: impl FnOnce() -> R) -> (R, usize) {
    HELD.set(0);
    MOST.set(0);
    let result = work();
    (result, usize::try_from(MOST.get()).unwrap_or_default())
}
