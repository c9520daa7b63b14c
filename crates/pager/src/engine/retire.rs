//! Pages leave the staging area, some with a compressed copy; the budget is divided between both.

use super::Engine;
use crate::pages::{self, State};
use crate::staging;
use crate::types::CHUNK;

/// Whether pages that leave the staging area may get compressed copies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// If that pays.
    Kept,
    /// It has to be fast.
    None,
}

/// Pages that a step compresses ahead of need.
const AT_A_TIME: usize = 2;
/// Chunks that are kept free.
const AT_HAND: usize = 2;

impl Engine {
    /// Divides the budget between pages and copies again, if enough has happened.
    fn share(&mut self) {
        if self.shares.are_due() {
            let (now, copies) = (self.clock.now(), &self.slots.compressed);
            let segments = self.shares.divide(now, copies, self.staging.allowed());
            self.slots.compressed.set_most(segments);
        }
        self.staging.allow(self.shares.chunks());
        self.fit();
    }

    /// Counts the pages that may be in memory beside the copies that there are.
    pub(super) fn fit(&mut self) {
        let copies = self.staging.laid_out() * CHUNK + self.slots.compressed.pages();
        self.limit = self.shares.limit(copies);
    }

    /// Keeps a compressed copy of a page that leaves the staging area, if that pays.
    fn compress(&mut self, slot: u32, chunk: usize, index: usize) {
        if !self.shares.is_to_compress() || self.slots.compressed.has(slot) {
            return;
        }
        let began = self.clock.now();
        let page = self.staging.chunks[chunk].page(index);
        let is_kept = self.slots.compressed.keep(slot, page);
        self.stats.compressed_pages += u64::from(is_kept);
        self.shares.note_compressed(is_kept, self.clock.now().since(began));
    }

    /// Retires the oldest chunk that is done with, or so many of its pages. They are on the device from then on.
    pub(super) fn retire(&mut self, most: usize, copies: Copies) -> bool {
        let Some(index) = self.staging.oldest_done() else { return false };
        for _ in 0..most {
            let Some(entry) = self.staging.chunks[index].entries.pop() else { break };
            let Some(space) = self.spaces.get_mut(&entry.space) else { continue };
            let place = staging::place(index, entry.index);
            let is_here = space.pages.state(entry.page) == State::Staged
                && space.pages.place(entry.page) == place;
            if !is_here {
                continue;
            }
            let slot = self.staging.chunks[index].slots[entry.index];
            if slot == pages::NONE {
                space.pages.set(entry.page, State::Zero, pages::NONE);
            } else {
                self.slots.refer(slot);
                space.pages.set(entry.page, State::Out, slot);
                let chunk = &self.staging.chunks[index];
                let is_known = entry.index < chunk.dirty || !chunk.of_child;
                if is_known && copies == Copies::Kept {
                    self.compress(slot, index, entry.index);
                }
            }
        }
        if self.staging.chunks[index].entries.is_empty() {
            for at in 0..CHUNK {
                let slot =
                    std::mem::replace(&mut self.staging.chunks[index].slots[at], pages::NONE);
                self.slots.release(slot);
            }
            self.staging.retire(index);
            if copies == Copies::Kept {
                self.share();
            }
        }
        true
    }

    /// Compresses a few pages of the oldest chunk, so that one is free when it is needed. Says whether it did.
    pub(super) fn retire_ahead(&mut self) -> bool {
        let is_on = self.shares.segments() > 0;
        is_on && self.staging.free() < AT_HAND && self.retire(AT_A_TIME, Copies::Kept)
    }
}
