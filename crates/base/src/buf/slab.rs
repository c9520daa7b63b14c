//! Buffers of one size that are cut from mappings of 2 MiB, which the system puts on huge pages where it has
//! some: one entry of the processor's address cache is for 2 MiB then, where it is for 4 KiB else. For
//! random reads, that is half of the time.
//!
//! Unused pieces go back to the operating system at once, but for as many as the slab is told to keep:
//! budgets are about resident memory.
//!
//! Invariants
//! 1. A chunk is a private anonymous mapping of `CHUNK` bytes at a multiple of that, of which each piece is
//!    in use, kept, or free. It is unmapped when all are free.
//! 2. A piece in use belongs to one [`AlignedBuf`], which holds the slab; a kept one belongs to the slab. A
//!    free one is in no memory, but for the newest chunk's when that is huge.

// It maps memory, and hands it out by address to buffers that own their piece.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::{ALIGNMENT, AlignedBuf, Source};
use crate::process::Owner;

/// The bytes of a chunk: those of a huge page.
const CHUNK: usize = 2 << 20;
/// The first chunks of a slab stay on pages of the usual size: memory that is resident because its neighbour is stays
/// a small part of all.
const USUAL: usize = 16;

/// A source of buffers of one size, for any number of threads.
#[derive(Debug, Clone)]
pub struct Slab(Arc<Shared>);

/// State that a buffer of a slab keeps alive.
#[derive(Debug)]
struct Shared {
    /// Bytes of a buffer.
    piece: usize,
    owner: Owner,
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// How many pieces of each chunk are not free, by its address.
    chunks: BTreeMap<Address, usize>,
    /// Free pieces, but for those of the newest chunk that are behind all that were ever taken.
    free: BTreeSet<Address>,
    /// The newest chunk, if it is there, and how many of its pieces were taken.
    newest: Option<(Address, usize)>,
    kept: Vec<Address>,
    most_kept: usize,
}

/// An address within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address(NonNull<u8>);

// SAFETY: it is an address of memory that the slab owns, and used under its lock only.
unsafe impl Send for Address {}

impl Address {
    /// The address so many bytes behind this one, within its chunk or at the end of it.
    fn behind(self, bytes: usize) -> Address {
        debug_assert!(self.chunk() == self && bytes <= CHUNK, "{bytes} bytes behind {self:?}");
        // SAFETY: a chunk is as large (invariant 1).
        Address(unsafe { self.0.add(bytes) })
    }

    /// The chunk that a piece is of.
    fn chunk(self) -> Address {
        let offset = self.0.addr().get() % CHUNK;
        // SAFETY: chunks begin at multiples of their size, so that much of the chunk is before the piece.
        Address(unsafe { self.0.sub(offset) })
    }
}

impl Slab {
    /// A source of buffers of `piece` bytes.
    ///
    /// # Panics
    /// If 2 MiB are no multiple of `piece`, or it is none of [`ALIGNMENT`].
    #[must_use]
    pub fn new(piece: usize) -> Slab {
        assert!(piece.is_multiple_of(ALIGNMENT) && CHUNK.is_multiple_of(piece), "{piece} bytes");
        Slab(Arc::new(Shared { piece, owner: Owner::here(), pieces: Mutex::default() }))
    }

    /// Bytes of a buffer.
    #[must_use]
    pub fn piece(&self) -> usize {
        self.0.piece
    }

    /// A buffer, with any content; in a forked child, whose parent made the slab, one of its own.
    #[must_use]
    pub fn take(&self) -> AlignedBuf {
        if !self.0.owner.is_here() {
            return AlignedBuf::zeroed(self.0.piece);
        }
        let Address(ptr) = self.0.pieces.lock().take(self.0.piece);
        // SAFETY: the piece is in use from now on, and by this buffer alone (invariant 2).
        unsafe { AlignedBuf::of_source(ptr, self.0.piece, self.0.clone()) }
    }

    /// Memory that nobody uses and the slab keeps, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.0.pieces.lock().kept.len() * self.0.piece
    }

    /// Keeps up to `bytes` of returned buffers for the next takers; frees the excess.
    pub fn keep(&self, bytes: usize) {
        let mut pieces = self.0.pieces.lock();
        pieces.most_kept = bytes / self.0.piece;
        let most = pieces.most_kept;
        pieces.free_kept(most, self.0.piece);
    }

    /// Frees all that is kept now.
    pub fn release(&self) {
        self.0.pieces.lock().free_kept(0, self.0.piece);
    }
}

impl Source for Shared {
    unsafe fn give_back(&self, ptr: NonNull<u8>) {
        if !self.owner.is_here() {
            return; // another thread of the parent may have had the lock
        }
        let mut pieces = self.pieces.lock();
        if pieces.kept.len() < pieces.most_kept {
            pieces.kept.push(Address(ptr));
        } else {
            pieces.free(Address(ptr), self.piece);
        }
    }
}

impl Pieces {
    fn take(&mut self, piece: usize) -> Address {
        if let Some(kept) = self.kept.pop() {
            return kept;
        }
        let taken = self.free.pop_first().unwrap_or_else(|| {
            let (chunk, taken) = match self.newest {
                Some((chunk, taken)) if taken < CHUNK / piece => (chunk, taken),
                _ => {
                    let chunk = map(self.chunks.len() >= USUAL);
                    self.chunks.insert(chunk, 0);
                    (chunk, 0)
                }
            };
            self.newest = Some((chunk, taken + 1));
            chunk.behind(taken * piece)
        });
        *self.used(taken) += 1;
        taken
    }

    /// Frees kept pieces beyond so many.
    fn free_kept(&mut self, most: usize, size: usize) {
        while self.kept.len() > most {
            let piece = self.kept.pop().expect("more than so many");
            self.free(piece, size);
        }
    }

    /// Gives the memory of a piece back, and its chunk when that was the last one.
    fn free(&mut self, piece: Address, size: usize) {
        let used = self.used(piece);
        *used -= 1;
        if *used > 0 {
            // A part of a huge page that is unmapped stays in memory with the rest of it, until the system is
            // short of memory. To call it cold splits the page first.
            for advice in [Advice::LinuxCold, Advice::LinuxDontNeed] {
                // SAFETY: nobody uses the piece. It cannot fail: the range is mapped, and not locked.
                let _ = unsafe { madvise(piece.0.as_ptr().cast(), size, advice) };
            }
            self.free.insert(piece);
            return;
        }
        let chunk = piece.chunk();
        self.chunks.remove(&chunk);
        self.newest = self.newest.filter(|&(newest, _)| newest != chunk);
        let free: Vec<Address> = self.free.range(chunk..chunk.behind(CHUNK)).copied().collect();
        for piece in free {
            self.free.remove(&piece);
        }
        unmap(chunk.0.as_ptr(), CHUNK);
    }

    /// How many pieces are not free of the chunk that this one is of.
    fn used(&mut self, piece: Address) -> &mut usize {
        self.chunks.get_mut(&piece.chunk()).expect("a chunk of the slab")
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // No buffer holds the slab any more, so no piece is in use.
        self.chunks.keys().for_each(|chunk| unmap(chunk.0.as_ptr(), CHUNK));
    }
}

/// Maps a chunk, on a huge page where the system has one.
fn map(huge: bool) -> Address {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // Twice as much, of which the parts beside a multiple of the size go back.
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * CHUNK, access, flags) };
    let layout = Layout::from_size_align(CHUNK, CHUNK).expect("a power of two");
    let Some(start) = mapped.ok().and_then(|mapped| NonNull::new(mapped.cast::<u8>())) else {
        alloc::handle_alloc_error(layout)
    };
    let before = start.addr().get().next_multiple_of(CHUNK) - start.addr().get();
    // SAFETY: `before` is less than a chunk, and two are mapped.
    let (chunk, end) = unsafe { (start.add(before), start.add(before + CHUNK)) };
    unmap(start.as_ptr(), before);
    unmap(end.as_ptr(), CHUNK - before);
    if huge {
        // SAFETY: the chunk is mapped and nobody's yet. A system without huge pages refuses, which changes
        // nothing but speed.
        let _ = unsafe { madvise(chunk.as_ptr().cast(), CHUNK, Advice::LinuxHugepage) };
    }
    Address(chunk)
}

fn unmap(ptr: *mut u8, size: usize) {
    if size > 0 {
        // SAFETY: mapped by `map`, and no buffer is there any more. It fails only when the process has too
        // many mappings to split one; then memory stays mapped that nobody touches.
        let _ = unsafe { munmap(ptr.cast(), size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::units::to_usize;

    const PIECE: usize = 128 << 10;

    /// Bytes of the buffer that are in memory, as the kernel says.
    fn resident(buf: &[u8]) -> usize {
        let page = 4096;
        let start = buf.as_ptr().cast_mut().cast();
        let mut pages = vec![0_u8; buf.len() / page];
        // SAFETY: the range is mapped, and `pages` has a byte for each of its pages.
        let answer = unsafe { libc::mincore(start, buf.len(), pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|&&page| page & 1 != 0).count() * page
    }

    #[test]
    fn pieces_are_distinct_and_writable_whatever_is_taken_and_given_back() {
        let (slab, mut rng) = (Slab::new(PIECE), Rng::new(1));
        let mut taken: Vec<(AlignedBuf, u8)> = Vec::new();
        for round in 0..4_000_u32 {
            if round % 1000 == 0 {
                slab.keep(to_usize(rng.below(40)) * PIECE);
            }
            if taken.len() < 300 && rng.chance(if round / 600 % 2 == 0 { 3 } else { 1 }, 4) {
                let mut buf = slab.take();
                assert_eq!((buf.len(), buf.as_ptr().addr() % ALIGNMENT), (PIECE, 0));
                let sign = round.to_le_bytes()[0];
                (buf[0], buf[PIECE - 1]) = (sign, sign);
                taken.push((buf, sign));
            } else if !taken.is_empty() {
                let (buf, sign) = taken.swap_remove(to_usize(rng.below(taken.len() as u64)));
                assert_eq!((buf[0], buf[PIECE - 1]), (sign, sign));
            }
            let pieces = slab.0.pieces.lock();
            let used: usize = pieces.chunks.values().sum();
            assert_eq!(used, taken.len() + pieces.kept.len());
            let never = pieces.newest.map_or(0, |(_, taken)| CHUNK / PIECE - taken);
            assert_eq!(used + pieces.free.len() + never, pieces.chunks.len() * CHUNK / PIECE);
            assert!(
                pieces.chunks.values().all(|&used| used > 0)
                    && pieces.kept.len() <= pieces.most_kept
            );
        }
        drop(taken);
        slab.keep(0);
        assert_eq!(slab.0.pieces.lock().chunks.len(), 0, "what nobody uses is unmapped");
    }

    #[test]
    fn returned_buffers_leave_memory_unless_they_are_kept() {
        let slab = Slab::new(PIECE);
        let neighbour = slab.take();
        let mut buf = slab.take();
        buf.fill(1);
        assert_eq!(resident(&buf), PIECE);
        let place = buf.as_ptr();
        drop(buf);
        let buf = slab.take();
        assert_eq!((buf.as_ptr(), resident(&buf)), (place, 0));
        drop((buf, neighbour));

        slab.keep(PIECE);
        let (mut first, second) = (slab.take(), slab.take());
        first.fill(7);
        drop((first, second));
        assert_eq!(slab.kept_bytes(), PIECE);
        assert!(slab.take().iter().all(|&byte| byte == 7));
        slab.release();
        assert_eq!(slab.kept_bytes(), 0);
        drop(slab.take());
        assert_eq!(slab.kept_bytes(), PIECE, "it goes on keeping what comes back");
        slab.keep(0);
        assert_eq!(slab.kept_bytes(), 0);
    }

    #[test]
    fn buffers_outlive_their_slab_and_go_between_threads() {
        let slab = Slab::new(PIECE);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let slab = slab.clone();
                crate::thread::spawn_scoped(scope, "taker", move || {
                    for _ in 0..200 {
                        let mut buf = slab.take();
                        buf.fill(n);
                        assert!(buf.iter().all(|&byte| byte == n));
                    }
                })
                .unwrap();
            }
        });
        let mut last = slab.take();
        drop(slab);
        last.fill(1);
    }

    #[test]
    #[should_panic(expected = "5000 bytes")]
    fn a_size_that_does_not_divide_a_chunk_is_a_bug() {
        let _ = Slab::new(5000);
    }
}
