//! The staging area: pages that have left memory and are written, or will be dropped, soon. One that is wanted
//! again comes back without a read, so it is the second chance of a queue by arrival.
//!
//! Invariants
//! 1. A chunk's memory does not move, and pages copied into it stay until the chunk is retired.
//! 2. A chunk holds one reference to each of its slots.
//! 3. Dirty pages come first in a chunk, and their slots are in a row.
//! 4. A chunk is retired when its pages have left, no child's page follows one of them, and its write has ended well.

#![allow(unsafe_code)]

use std::collections::VecDeque;

use esker_base::AlignedBuf;

use crate::pages::NONE;
use crate::types::{CHUNK, PAGE, Page};

/// A page's copy in a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) space: u32,
    pub(crate) page: Page,
    pub(crate) index: usize,
}

/// A batch of pages that left together.
pub(crate) struct Chunk {
    /// Where its memory is, also while a write of it is under way.
    pub(crate) memory: usize,
    /// None while a write is under way, and while the chunk has no memory.
    pub(crate) buf: Option<AlignedBuf>,
    /// How many of its pages are to be written.
    pub(crate) dirty: usize,
    pub(crate) slots: [u32; CHUNK],
    /// Slots between them that no page needs: its write covers them, so they are free when that has ended.
    pub(crate) spare: Vec<u32>,
    /// Its pages, which a fault may take back. Those that were dropped meanwhile have another state or place.
    pub(crate) entries: Vec<Entry>,
    /// The pages may still be mapped.
    pub(crate) leaving: bool,
    /// Clean pages in it came from a forked child, which may have put other content there than their slots have.
    pub(crate) of_child: bool,
    /// It is being written, or has to be written again.
    pub(crate) writing: bool,
}

impl Chunk {
    /// Gives it memory.
    fn lay_out(&mut self) {
        let mut buf = AlignedBuf::zeroed(CHUNK * PAGE);
        self.memory = buf.as_mut_ptr().expose_provenance();
        self.buf = Some(buf);
    }

    /// A page's copy.
    pub(crate) fn page(&self, index: usize) -> &[u8] {
        assert!(index < CHUNK);
        let from = std::ptr::with_exposed_provenance::<u8>(self.memory + index * PAGE);
        // SAFETY: the chunk's memory has CHUNK pages, and nobody writes to it while it is in use.
        unsafe { std::slice::from_raw_parts(from, PAGE) }
    }
}

/// The chunks.
pub(crate) struct Staging {
    pub(crate) chunks: Vec<Chunk>,
    /// Those in use, the oldest first.
    order: VecDeque<usize>,
    /// Free ones that have memory.
    free: Vec<usize>,
    /// Free ones whose memory was given back.
    bare: Vec<usize>,
    /// Most that may be in use.
    allowed: usize,
}

impl Staging {
    pub(crate) fn new(count: usize) -> Staging {
        let chunk = |_| {
            let mut chunk = Chunk {
                memory: 0,
                buf: None,
                dirty: 0,
                slots: [NONE; CHUNK],
                spare: Vec::new(),
                entries: Vec::with_capacity(CHUNK),
                leaving: false,
                of_child: false,
                writing: false,
            };
            chunk.lay_out();
            chunk
        };
        let chunks: Vec<Chunk> = (0..count).map(chunk).collect();
        Staging {
            chunks,
            order: VecDeque::with_capacity(count),
            free: (0..count).collect(),
            bare: Vec::new(),
            allowed: count,
        }
    }

    /// An empty chunk.
    pub(crate) fn take(&mut self) -> Option<usize> {
        if self.free() == 0 {
            return None;
        }
        let chunk = self.free.pop().or_else(|| {
            let bare = self.bare.pop()?;
            self.chunks[bare].lay_out();
            Some(bare)
        })?;
        self.order.push_back(chunk);
        Some(chunk)
    }

    /// Puts back a chunk that was taken for nothing.
    pub(crate) fn untake(&mut self, chunk: usize) {
        self.order.retain(|&other| other != chunk);
        self.free.push(chunk);
    }

    /// How many chunks may be taken.
    pub(crate) fn free(&self) -> usize {
        self.allowed.saturating_sub(self.order.len())
    }

    /// Most chunks that may be in use.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed
    }

    /// Allows so many chunks, or one less than before, if they are to become fewer: to retire many at once takes long.
    pub(crate) fn allow(&mut self, count: usize) {
        self.allowed = count.min(self.chunks.len()).max(self.allowed - 1);
        self.give_back();
    }

    /// Chunks that have memory, or will have when they are taken.
    pub(crate) fn laid_out(&self) -> usize {
        self.allowed.max(self.chunks.len() - self.bare.len())
    }

    /// Gives back the memory of free chunks that may not be taken.
    fn give_back(&mut self) {
        while self.free.len() > self.free() {
            let Some(chunk) = self.free.pop() else { return };
            self.chunks[chunk].buf = None;
            self.bare.push(chunk);
        }
    }

    /// The oldest chunk that can be retired.
    pub(crate) fn oldest_done(&self) -> Option<usize> {
        let is_done = |&chunk: &usize| {
            let chunk = &self.chunks[chunk];
            !chunk.leaving && !chunk.writing
        };
        self.order.iter().copied().find(is_done)
    }

    /// A chunk is no longer in use.
    pub(crate) fn retire(&mut self, chunk: usize) {
        self.untake(chunk);
        self.give_back();
    }
}

/// Where a staged page is, as its place.
pub(crate) fn place(chunk: usize, index: usize) -> u32 {
    crate::types::page_of(chunk * CHUNK + index)
}

/// The chunk and the index of a place.
pub(crate) fn at(place: u32) -> (usize, usize) {
    (place as usize / CHUNK, place as usize % CHUNK)
}
