//! Pages leave the staging area, some with a compressed copy, and come back from that.

#![allow(unsafe_code)]

use super::Engine;
use super::pending::{Aim, Answer, SpaceId};
use crate::pages::{self, AHEAD, DIRTY, State};
use crate::raw::Errno;
use crate::staging;
use crate::types::{CHUNK, Page};

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

    /// Brings a page back from its compressed copy, if it has one. The copy stays if nobody waits for the page.
    pub(super) fn restore(
        &mut self,
        id: SpaceId,
        page: Page,
        write: bool,
        aim: Aim,
    ) -> Option<Answer> {
        let slot = self.spaces[&id].pages.place(page);
        let hit = self.slots.compressed.read(slot, &mut self.one_page)?;
        let space = self.spaces.get_mut(&id).expect("looked up above");
        let source = self.one_page.as_ptr().addr();
        // SAFETY: the page is this process's, and not paged.
        let (done, error) = unsafe { Engine::install(space, page, source, 1, !write) };
        if error == Some(Errno(libc::EAGAIN)) {
            return Some(Answer::Later);
        }
        if done > 0 && write {
            self.slots.release(slot);
            Engine::arrive(space, page, pages::NONE, DIRTY);
        } else if done > 0 {
            match aim {
                Aim::Leaf => Engine::arrive_passing(space, page, slot),
                Aim::Stream => Engine::arrive(space, page, slot, AHEAD),
                Aim::Fault | Aim::Node => Engine::arrive(space, page, slot, 0),
            }
            self.stats.ahead_restored += u64::from(aim != Aim::Fault);
        }
        if aim == Aim::Fault {
            // While the page is in memory the copy would be of no use.
            if done > 0 && !write && !self.slots.is_shared(slot) {
                self.slots.compressed.forget(slot);
            }
            self.shares.note_restored(hit.is_old);
            self.stats.restored_pages += 1;
        }
        Some(Answer::Done)
    }
}
