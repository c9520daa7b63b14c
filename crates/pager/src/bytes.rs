//! Bytes in memory that something pages, as slices: an arena, or one of its peers, for comparisons.

#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::arena::Arena;
use crate::types::PAGE;

/// How a mapped file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// At random: the kernel reads nothing ahead.
    Random,
    /// From its beginning to its end.
    Sequential,
}

/// Bytes that something pages.
pub struct Bytes {
    base: NonNull<u8>,
    size: usize,
    is_writable: bool,
    keeps: Keeps,
}

/// Owner of the memory, which must live as long as the bytes.
enum Keeps {
    Arena(Box<Arena>),
    /// A mapping of the kernel.
    Mapping,
    /// A mapping of umap's, which reads its file.
    Umap(#[allow(dead_code)] File),
}

// SAFETY: it owns its memory, and lends it as any owner does.
unsafe impl Send for Bytes {}

impl Bytes {
    /// Slow memory of an arena; `None` when that is used up.
    #[must_use]
    pub fn in_arena(arena: Arena, size: usize) -> Option<Bytes> {
        let base = arena.allocate_slow(size, PAGE)?;
        Some(Bytes { base, size, is_writable: true, keeps: Keeps::Arena(Box::new(arena)) })
    }

    /// Anonymous memory in pages of 4 KiB.
    ///
    /// # Errors
    /// The kernel's.
    pub fn anonymous(size: usize) -> io::Result<Bytes> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { rustix::mm::mmap_anonymous(anywhere, size, access, flags)? };
        // A kernel without huge pages refuses, which is just as well.
        // SAFETY: the mapping made above; the advice keeps its content.
        let _ = unsafe { rustix::mm::madvise(at, size, Advice::LinuxNoHugepage) };
        Bytes::mapping(at, size, true)
    }

    /// A file, for reading. Whoever shortens it meanwhile lets readers get `SIGBUS`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map_file(file: &File, size: usize, order: Order) -> io::Result<Bytes> {
        let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { rustix::mm::mmap(anywhere, size, ProtFlags::READ, flags, file, 0)? };
        let advice = match order {
            Order::Random => Advice::Random,
            Order::Sequential => Advice::Sequential,
        };
        // SAFETY: the mapping made above; the advice keeps its content.
        unsafe { rustix::mm::madvise(at, size, advice)? };
        Bytes::mapping(at, size, false)
    }

    /// A file, for reading, paged by the library umap, which has its configuration from the environment. `None`
    /// where the library cannot be loaded.
    ///
    /// # Errors
    /// The library maps nothing.
    pub fn in_umap(library: &Path, file: File, size: usize) -> io::Result<Option<Bytes>> {
        type Umap = unsafe extern "C" fn(*mut c_void, usize, i32, i32, i32, i64) -> *mut c_void;
        let Ok(name) = CString::new(library.as_os_str().as_bytes()) else { return Ok(None) };
        // SAFETY: a name that ends with a zero byte. The library's initializers run, as its user asks for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Ok(None);
        }
        // SAFETY: a handle of a library that is never unloaded, and a name that ends with a zero byte.
        let symbol = unsafe { libc::dlsym(handle, c"umap".as_ptr()) };
        if symbol.is_null() {
            return Ok(None);
        }
        // SAFETY: `umap/umap.h` declares it so.
        let umap = unsafe { std::mem::transmute::<*mut c_void, Umap>(symbol) };
        // The header's UMAP_PRIVATE is the C library's flag.
        let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE);
        // SAFETY: a new mapping of a file that stays open.
        let at = unsafe { umap(anywhere, size, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::other("umap maps nothing"));
        }
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Some(Bytes { base, size, is_writable: false, keeps: Keeps::Umap(file) }))
    }

    fn mapping(at: *mut c_void, size: usize, is_writable: bool) -> io::Result<Bytes> {
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Bytes { base, size, is_writable, keeps: Keeps::Mapping })
    }

    /// The bytes, to be written.
    ///
    /// # Errors
    /// They are a file's, mapped for reading.
    pub fn writable(&mut self) -> io::Result<&mut [u8]> {
        if !self.is_writable {
            return Err(io::Error::other("mapped for reading"));
        }
        // SAFETY: it owns the memory, and is borrowed for as long as the slice.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.size) })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it owns the memory, which is readable.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.size) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        match &self.keeps {
            Keeps::Arena(arena) => {
                // SAFETY: allocated from it, and nobody refers to it any more.
                unsafe { arena.free(self.base) };
            }
            Keeps::Mapping => {
                // SAFETY: its own mapping, to which nobody refers any more. It cannot fail.
                let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size) };
            }
            // Its threads end with the process.
            Keeps::Umap(_) => {}
        }
    }
}

/// Keeps memory from ever being paged.
///
/// # Errors
/// The kernel's: more than it lets this process lock.
pub fn lock<T>(memory: &[T]) -> io::Result<()> {
    let start = memory.as_ptr().cast_mut().cast();
    // SAFETY: memory of this process, whose content stays as it is.
    unsafe { rustix::mm::mlock(start, size_of_val(memory)) }.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_written_and_a_file_only_read() {
        let mut memory = Bytes::anonymous(2 * PAGE).unwrap();
        memory.writable().unwrap()[PAGE] = 7;
        assert_eq!((memory[PAGE], memory[0], memory.len()), (7, 0, 2 * PAGE));
        lock(&memory).unwrap();
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        for order in [Order::Random, Order::Sequential] {
            let mut mapped = Bytes::map_file(&file, PAGE, order).unwrap();
            assert_eq!(mapped[..4], *b"\x7fELF");
            assert!(mapped.writable().is_err());
        }
        let none = Bytes::in_umap(Path::new("/nonexistent/libumap.so"), file, PAGE);
        assert!(none.unwrap().is_none());
    }
}
