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
    /// None while a write is under way.
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
    /// It is being written, or has to be written again.
    pub(crate) writing: bool,
}

impl Chunk {
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
    free: Vec<usize>,
}

impl Staging {
    pub(crate) fn new(count: usize) -> Staging {
        let chunk = |_| {
            let mut buf = AlignedBuf::zeroed(CHUNK * PAGE);
            Chunk {
                memory: buf.as_mut_ptr().expose_provenance(),
                buf: Some(buf),
                dirty: 0,
                slots: [NONE; CHUNK],
                spare: Vec::new(),
                entries: Vec::with_capacity(CHUNK),
                leaving: false,
                writing: false,
            }
        };
        let chunks: Vec<Chunk> = (0..count).map(chunk).collect();
        Staging { chunks, order: VecDeque::with_capacity(count), free: (0..count).collect() }
    }

    /// An empty chunk.
    pub(crate) fn take(&mut self) -> Option<usize> {
        let chunk = self.free.pop()?;
        self.order.push_back(chunk);
        Some(chunk)
    }

    /// Gives back a chunk that was taken for nothing.
    pub(crate) fn untake(&mut self, chunk: usize) {
        self.order.retain(|&other| other != chunk);
        self.free.push(chunk);
    }

    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The oldest chunk that can be retired. It is no longer in use.
    pub(crate) fn retire(&mut self) -> Option<usize> {
        let is_done = |&chunk: &usize| {
            let chunk = &self.chunks[chunk];
            !chunk.leaving && !chunk.writing
        };
        let at = self.order.iter().position(is_done)?;
        let chunk = self.order.remove(at)?;
        self.free.push(chunk);
        Some(chunk)
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
