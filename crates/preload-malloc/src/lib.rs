//! `libesker_malloc.so`: mimalloc under the names of the C library's allocator.
//!
//! The C library's allocator calls its own `mmap`, which nothing can take the place of. `esker run`
//! preloads this one beside `libesker_preload.so` for programs that bring no allocator; its large
//! mappings come from there.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use libmimalloc_sys as _;

unsafe extern "C" {
    fn mi_malloc(size: usize) -> *mut c_void;
    fn mi_calloc(count: usize, size: usize) -> *mut c_void;
    fn mi_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn mi_reallocarray(memory: *mut c_void, count: usize, size: usize) -> *mut c_void;
    fn mi_free(memory: *mut c_void);
    fn mi_usable_size(memory: *const c_void) -> usize;
    fn mi_posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn mi_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn mi_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn mi_valloc(size: usize) -> *mut c_void;
    fn mi_pvalloc(size: usize) -> *mut c_void;
}

/// Gives a function of mimalloc the name that the C library has for it.
macro_rules! named {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? = $function:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(3)`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            // SAFETY: the caller's promise.
            unsafe { $function($($argument),*) }
        }
    )*};
}

named! {
    malloc(size: usize) -> *mut c_void = mi_malloc;
    calloc(count: usize, size: usize) -> *mut c_void = mi_calloc;
    realloc(memory: *mut c_void, size: usize) -> *mut c_void = mi_realloc;
    reallocarray(memory: *mut c_void, count: usize, size: usize) -> *mut c_void = mi_reallocarray;
    free(memory: *mut c_void) = mi_free;
    malloc_usable_size(memory: *const c_void) -> usize = mi_usable_size;
    posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int = mi_posix_memalign;
    memalign(alignment: usize, size: usize) -> *mut c_void = mi_memalign;
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void = mi_aligned_alloc;
    valloc(size: usize) -> *mut c_void = mi_valloc;
    pvalloc(size: usize) -> *mut c_void = mi_pvalloc;
}

/// `malloc_trim(3)`: mimalloc gives memory back by itself.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_keep: usize) -> c_int {
    0
}
