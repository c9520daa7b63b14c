//! Pages of forked children that were leaving their parent's memory when that forked.
//!
//! Such a page may have left before the fork, and then the child has not got it, or not. The kernel tells: a page that is
//! there cannot be installed again.

#![allow(unsafe_code)]

use super::{Engine, SpaceId};
use crate::pages::{self, DIRTY, State};
use crate::protocol::Outcome;
use crate::raw::Errno;
use crate::space::Batch;
use crate::staging;
use crate::types::{PAGE, Page};

/// A page of a forked child that was leaving its parent's memory.
#[derive(Clone, Copy)]
pub(super) struct Follower {
    pub(super) space: SpaceId,
    pub(super) page: Page,
    /// Where its copy is, or will be.
    pub(super) place: u32,
    /// Its content, if the child has not got it; none while the parent's order is under way.
    pub(super) content: Option<Content>,
}

/// Content of a page that its child may not have got.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// The copy.
    Copied,
    /// The page was not there.
    Zero,
    /// The page did not leave, so the child has it.
    Kept,
    /// It left, and cannot be copied.
    Lost,
}

impl Engine {
    /// The order that a page of a new child follows, if the page is leaving its parent's memory and has not been copied.
    pub(super) fn leads(&self, parent: SpaceId, page: Page) -> Option<Follower> {
        let followed = |one: &&Follower| one.space == parent && one.page == page;
        if let Some(found) = self.followers.iter().find(followed) {
            return Some(*found);
        }
        let space = &self.spaces[&parent];
        if space.pages.state(page) != State::Leaving {
            return None;
        }
        let (batch, place) = (space.batch.as_ref()?, space.pages.place(page));
        let (chunk, index) = staging::at(place);
        let is_moved = chunk == batch.chunk && index < batch.moves;
        is_moved.then_some(Follower { space: parent, page, place, content: None })
    }

    /// Notes what has become of the pages that were moved.
    pub(super) fn tell_followers(&mut self, batch: &Batch, copied: u64, outcome: Outcome) {
        for one in &mut self.followers {
            let (chunk, index) = staging::at(one.place);
            if chunk != batch.chunk || one.content.is_some() {
                continue;
            }
            let has = |bits: u64| bits & 1 << index != 0;
            one.content = Some(match () {
                () if has(copied) => Content::Copied,
                () if has(outcome.gone) => Content::Zero,
                () if has(outcome.done) => Content::Lost,
                () => Content::Kept,
            });
        }
    }

    /// The parent has ended before its order was carried out: nobody knows which pages its children have got.
    pub(super) fn lose_followers(&mut self, parent: SpaceId) {
        let batch = self.spaces.get(&parent).and_then(|space| space.batch.as_ref());
        let Some(chunk) = batch.map(|batch| batch.chunk) else { return };
        let its = |one: &&mut Follower| staging::at(one.place).0 == chunk && one.content.is_none();
        self.followers.iter_mut().filter(its).for_each(|one| one.content = Some(Content::Lost));
    }

    /// Settles those that can be. Says whether there were any.
    pub(super) fn settle_followers(&mut self) -> bool {
        if self.followers.iter().all(|one| one.content.is_none()) {
            return false;
        }
        let all = std::mem::take(&mut self.followers);
        let before = all.len();
        for one in all {
            if !self.settle_follower(&one) {
                self.followers.push(one);
            }
        }
        for index in 0..self.staging.chunks.len() {
            let is_followed = self.followers.iter().any(|one| staging::at(one.place).0 == index);
            let is_leaving = |space: &crate::space::Space| {
                space.batch.as_ref().is_some_and(|batch| batch.chunk == index)
            };
            if !is_followed && !self.spaces.values().any(is_leaving) {
                self.staging.chunks[index].leaving = false;
            }
        }
        self.followers.len() < before
    }

    /// False when it has to be tried again.
    fn settle_follower(&mut self, one: &Follower) -> bool {
        let Some(content) = one.content else { return false };
        let (chunk, index) = staging::at(one.place);
        let Some(space) = self.spaces.get_mut(&one.space) else { return true };
        let (page, addr) = (one.page, space.addr(one.page));
        debug_assert_eq!(space.pages.state(page), State::Leaving);
        let source = match content {
            Content::Copied => self.staging.chunks[chunk].memory + index * PAGE,
            _ => self.zeroes.as_ptr().addr(),
        };
        let state = match content {
            Content::Lost => State::Poisoned,
            Content::Kept => State::Resident,
            Content::Copied | Content::Zero => {
                // SAFETY: the chunk is in use as long as a page follows it, and the zeroes are this process's; neither is paged.
                match unsafe { space.uffd.copy(addr, source, PAGE, false) } {
                    (PAGE, _) | (_, Some(Errno(libc::EEXIST))) => State::Resident,
                    (_, Some(Errno(libc::EAGAIN))) => return false,
                    _ => State::Poisoned,
                }
            }
        };
        if state == State::Resident {
            Engine::arrive(space, page, pages::NONE, DIRTY);
        } else {
            self.stats.poisoned_pages += 1;
            space.pages.set(page, state, pages::NONE);
        }
        space.uffd.wake(addr, PAGE);
        true
    }
}
