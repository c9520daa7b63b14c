//! Buffers in a file that is mapped: what they hold outlives the process, whatever ends it, because the kernel has it
//! and not the process. It does not outlive the machine: nothing here is flushed.
//!
//! Invariants
//! 1. The file has all of its blocks before it is mapped, so that no access lacks space; `map` refuses file systems
//!    that do not promise as much. Nobody else changes its size.
//! 2. The mapping is a head of [`HEAD`] bytes and `pieces` pieces. A piece in use belongs to one [`AlignedBuf`], which
//!    holds the mapping; all others are in `free`.
//! 3. The head is accessed by atomic words alone.

// It maps a file, and hands its memory out by address to buffers that own their piece.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::sync::Mutex;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{ALIGNMENT, AlignedBuf, Source};

/// Bytes before the first piece: [`KeptFile::words`].
pub const HEAD: usize = 4096;

/// File systems whose blocks are there once they are allocated, as `statfs` names them: ext4, XFS, tmpfs.
const PROMISING: [i64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// A mapped file of buffers of one size.
#[derive(Debug)]
pub struct KeptFile(Arc<Mapping>);

/// The mapping, which its buffers keep alive.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    piece: usize,
    pieces: usize,
    free: Mutex<Vec<usize>>,
}

// SAFETY: the memory is shared by words that are atomic, and by pieces that have one owner each (invariants 2, 3).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl KeptFile {
    /// Maps a new file: a head of zeros, and `pieces` buffers of `piece` bytes.
    ///
    /// # Errors
    /// `Unsupported` on a file system that may lack space for an allocated block; or the file system's error.
    ///
    /// # Panics
    /// If `piece` is no multiple of [`ALIGNMENT`], or 0.
    pub fn map(file: &File, piece: usize, pieces: usize) -> io::Result<KeptFile> {
        assert!(piece > 0 && piece.is_multiple_of(ALIGNMENT), "{piece} bytes");
        #[allow(clippy::unnecessary_cast)] // Its type is another one on other machines.
        if !PROMISING.contains(&(fstatfs(file)?.f_type as i64)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let size = HEAD + piece * pieces;
        fallocate(file, FallocateFlags::empty(), 0, size as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).expect("no mapping begins at 0");
        let free = Mutex::new((0..pieces).rev().collect());
        Ok(KeptFile(Arc::new(Mapping { start, piece, pieces, free })))
    }

    /// The head's words, in the byte order of the machine.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the head is mapped as long as this lives, aligned, and accessed by these words alone (invariant 3).
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().cast(), HEAD / 8) }
    }

    /// A piece and its number, with any content; `None` when all are in use.
    #[must_use]
    pub fn take(&self) -> Option<(usize, AlignedBuf)> {
        let number = self.0.free.lock().pop()?;
        // SAFETY: within the mapping; nobody has the piece, and this buffer has it from now on (invariant 2).
        let buf = unsafe {
            let ptr = self.0.start.add(HEAD + number * self.0.piece);
            AlignedBuf::of_source(ptr, self.0.piece, self.0.clone())
        };
        Some((number, buf))
    }

    /// Whether a buffer is a piece of this file.
    #[must_use]
    pub fn has(&self, buf: &AlignedBuf) -> bool {
        let mapping = Arc::as_ptr(&self.0).cast::<()>();
        buf.source.as_ref().is_some_and(|source| Arc::as_ptr(source).cast() == mapping)
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.piece * self.0.pieces
    }
}

impl Source for Mapping {
    unsafe fn give_back(&self, ptr: NonNull<u8>) {
        let number = (ptr.addr().get() - self.start.addr().get() - HEAD) / self.piece;
        self.free.lock().push(number);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let size = HEAD + self.piece * self.pieces;
        // SAFETY: mapped by `map` with this size, and no buffer holds it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), size) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    /// An empty file without a name.
    fn file(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("esker-base-{name}-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn file_shows_words_and_pieces_at_once_and_pieces_come_back() {
        let file = file("kept");
        let kept = match KeptFile::map(&file, 8192, 3) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            kept => kept.unwrap(),
        };
        kept.words()[511].store(77, Ordering::Relaxed);
        let mut taken: Vec<_> = std::iter::from_fn(|| kept.take()).collect();
        assert_eq!(taken.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        taken[1].1.fill(5);
        let read = |at| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            byte[0]
        };
        assert_eq!((read(4088), read(HEAD as u64 + 8192), read(HEAD as u64)), (77, 5, 0));
        assert!(kept.has(&taken[0].1) && !kept.has(&AlignedBuf::zeroed(1)));
        taken.remove(1);
        assert_eq!(kept.take().unwrap().0, 1);
        // A buffer outlives its file's owner.
        drop(kept);
        taken[0].1.fill(6);
        assert_eq!(read(HEAD as u64), 6);
    }

    #[test]
    fn file_that_lacks_space_is_refused() {
        assert!(KeptFile::map(&file("kept-lacks"), 1 << 40, 1 << 10).is_err());
    }
}
