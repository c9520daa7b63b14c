//! Several families of policies over the same three lists, so that a full cache can go from one
//! to another.
//!
//! Called by [`super::adaptive`], which chooses the rule. A *window* takes in new blocks, a
//! *probation* and a *protected* list make up the main part. The rules differ in what passes from
//! the window to the main part, and how:
//!
//! | rule | window | passes to the main part | main part |
//! | --- | --- | --- | --- |
//! | [`Rule::Recent`] | all but `protected` percent | what is hit | LRU; its oldest go back |
//! | [`Rule::Queues`] | `window` percent, a queue | what is hit twice, or comes back | queue with reinsertion |
//! | [`Rule::Frequent`] | `window` percent, LRU | what was seen more often than the victim | segmented LRU |
//! | [`Rule::Near`] | `window` percent, LRU | what comes back sooner than the oldest of the main part was used | LRU; its oldest go back |
//!
//! They are after LRU with mid-point, S3-FIFO, W-TinyLFU and LIRS; see their modules for sources.
//!
//! Each slot has six bits: two count hits, four say in which epoch it was last used.

use super::ghosts::Ghosts;
use super::list::{Lists, Node};
use super::sketch::Sketch;
use super::{Access, Policy, Slots, share};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

const HITS: u8 = 3;
const EPOCHS: u8 = 16;
/// Epochs in which a cache takes in as many blocks as it has slots.
const EPOCHS_A_TURN: u32 = 4;
/// How many slots change lists for one eviction, at most, after the rule has changed.
const STEPS: u32 = 4;

/// How blocks pass from list to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// By recency; `protected` percent are for blocks that were hit.
    Recent {
        /// Of the slots, in percent.
        protected: u8,
    },
    /// By hits while in a queue.
    Queues {
        /// Of the slots, in percent.
        window: u8,
    },
    /// By frequency.
    Frequent {
        /// Of the slots, in percent.
        window: u8,
    },
    /// By the distance between two uses.
    Near {
        /// Of the slots, in percent.
        window: u8,
    },
}

/// A policy whose rule may change at any time.
#[derive(Debug)]
pub struct Blend<N> {
    lists: Lists<N, 3>,
    rule: Rule,
    sketch: Sketch,
    ghosts: Ghosts<1>,
    ghost_epochs: Box<[u8]>,
    epoch: u8,
    ticks: u32,
}

impl<N: Node> Blend<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or beyond what `N` can link.
    #[must_use]
    pub fn new(capacity: u32, rule: Rule) -> Self {
        Blend {
            lists: Lists::new(capacity),
            rule,
            sketch: Sketch::new(capacity),
            ghosts: Ghosts::new(capacity),
            ghost_epochs: vec![0; capacity as usize].into_boxed_slice(),
            epoch: 0,
            ticks: 0,
        }
    }

    /// The rule it goes by.
    #[must_use]
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Goes by another rule from now on; slots change lists as they are used and evicted.
    pub fn set_rule(&mut self, rule: Rule) {
        self.rule = rule;
    }
    fn percent(&self, percent: u8) -> u32 {
        share(self.capacity(), u32::from(percent)).max(1)
    }

    fn hits(&self, slot: u32) -> u8 {
        self.lists.bits(slot) & HITS
    }

    fn set_hits(&mut self, slot: u32, hits: u8) {
        self.lists.set_bits(slot, self.lists.bits(slot) & !HITS | hits);
    }

    fn touch(&mut self, slot: u32, hits: u8) {
        self.lists.set_bits(slot, hits | self.epoch << 2);
    }

    /// How many epochs ago `epoch` was.
    fn age(&self, epoch: u8) -> u8 {
        self.epoch.wrapping_sub(epoch) % EPOCHS
    }

    /// A block was taken in: time goes on.
    fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks * EPOCHS_A_TURN < self.capacity() {
            return;
        }
        self.ticks = 0;
        self.epoch = (self.epoch + 1) % EPOCHS;
        // Whatever is as old as can be told stays so old.
        let mut next = self.lists.tail(PROTECTED);
        while let Some(slot) = next
            && self.age(self.lists.bits(slot) >> 2) == 0
            && self.lists.len(PROTECTED) > 0
        {
            let oldest = (self.epoch + 1) % EPOCHS;
            self.lists.set_bits(slot, self.hits(slot) | oldest << 2);
            next = self.lists.before(slot);
        }
    }

    fn demote(&mut self, limit: u32, to: usize) {
        for _ in 0..STEPS {
            if self.lists.len(PROTECTED) <= limit {
                return;
            }
            if let Some(oldest) = self.lists.tail(PROTECTED) {
                self.lists.move_front(to, oldest);
            }
        }
    }

    fn remember(&mut self, key: u64, epoch: u8) {
        if self.ghosts.find(key).is_none() {
            let ghost = self.ghosts.remember(0, key);
            self.ghost_epochs[ghost as usize] = epoch;
        }
    }

    /// The coldest slot of the main part by hits: those that were hit go round.
    fn turn(&mut self, list: usize, slots: &dyn Slots) -> Option<u32> {
        for _ in 0..self.lists.len(list) * u32::from(HITS + 1) {
            let slot = self.lists.tail(list)?;
            let hits = self.hits(slot);
            if hits > 0 {
                self.set_hits(slot, hits - 1);
                self.lists.move_front(PROTECTED, slot);
            } else if slots.may_go(slot) {
                return Some(slot);
            } else {
                self.lists.move_front(list, slot);
            }
        }
        None
    }

    fn either(&self, lists: [usize; 3], slots: &dyn Slots) -> Option<u32> {
        lists.into_iter().find_map(|list| self.lists.candidate(list, slots))
    }

    fn victim(&mut self, slots: &dyn Slots) -> Option<u32> {
        match self.rule {
            Rule::Recent { protected } => {
                let limit = share(self.capacity(), u32::from(protected));
                self.demote(limit, WINDOW);
                self.either([PROBATION, WINDOW, PROTECTED], slots)
            }
            Rule::Queues { window } => {
                if self.lists.len(WINDOW) >= self.percent(window) {
                    for _ in 0..self.lists.len(WINDOW) {
                        let Some(slot) = self.lists.tail(WINDOW) else { break };
                        if self.hits(slot) >= 2 {
                            self.set_hits(slot, 0);
                            self.lists.move_front(PROTECTED, slot);
                        } else if slots.may_go(slot) {
                            return Some(slot);
                        } else {
                            self.lists.move_front(WINDOW, slot);
                        }
                    }
                }
                let found = self.turn(PROBATION, slots);
                let found = found.or_else(|| self.turn(PROTECTED, slots));
                found.or_else(|| self.either([PROBATION, PROTECTED, WINDOW], slots))
            }
            Rule::Frequent { window } => {
                let limit = self.percent(window);
                for _ in 0..STEPS {
                    if self.lists.len(WINDOW) <= limit {
                        break;
                    }
                    if let Some(oldest) = self.lists.tail(WINDOW) {
                        self.lists.move_front(PROBATION, oldest);
                    }
                }
                let main = self.either([PROBATION, PROTECTED, PROTECTED], slots);
                let candidate = self.lists.candidate(WINDOW, slots);
                match (candidate, main) {
                    (Some(candidate), Some(main)) if self.lists.len(WINDOW) >= limit => {
                        let count = |slot| self.sketch.count(slots.key(slot));
                        if count(candidate) > count(main) {
                            self.lists.move_front(PROBATION, candidate);
                            Some(main)
                        } else {
                            Some(candidate)
                        }
                    }
                    (candidate, main) => main.or(candidate),
                }
            }
            Rule::Near { window } => {
                let limit = self.capacity() - self.percent(window).min(self.capacity());
                self.demote(limit, WINDOW);
                // After another rule the protected list may have room: it takes the oldest first.
                for _ in 0..STEPS {
                    if self.lists.len(PROTECTED) >= limit {
                        break;
                    }
                    let from = if self.lists.is_empty(PROBATION) { WINDOW } else { PROBATION };
                    match self.lists.tail(from) {
                        Some(oldest) if self.lists.len(from) > 1 => {
                            self.lists.move_front(PROTECTED, oldest);
                        }
                        _ => break,
                    }
                }
                self.either([PROBATION, WINDOW, PROTECTED], slots)
            }
        }
    }

    /// The age of the oldest protected slot, in epochs.
    fn oldest_age(&self) -> u8 {
        let oldest = self.lists.tail(PROTECTED);
        oldest.map_or(0, |slot| self.age(self.lists.bits(slot) >> 2))
    }
}

impl<N: Node> Policy for Blend<N> {
    fn capacity(&self) -> u32 {
        self.lists.capacity()
    }
    fn len(&self) -> u32 {
        (0..3).map(|list| self.lists.len(list)).sum()
    }
    #[inline]
    fn hit(&mut self, slot: u32, key: u64, _: Access) {
        self.sketch.add(key);
        let list = self.lists.list_of(slot);
        let hits = (self.hits(slot) + 1).min(HITS);
        match self.rule {
            Rule::Recent { protected } => {
                self.touch(slot, hits);
                if protected == 0 {
                    self.lists.move_front(WINDOW, slot);
                } else {
                    self.lists.move_front(PROTECTED, slot);
                    self.demote(share(self.capacity(), u32::from(protected)), WINDOW);
                }
            }
            Rule::Queues { .. } => self.touch(slot, hits),
            Rule::Frequent { window } => {
                self.touch(slot, hits);
                if list == WINDOW {
                    self.lists.move_front(WINDOW, slot);
                } else {
                    self.lists.move_front(PROTECTED, slot);
                    let main = self.capacity() - self.percent(window).min(self.capacity());
                    self.demote(share(main, 80), PROBATION);
                }
            }
            Rule::Near { window } => {
                let limit = self.capacity() - self.percent(window).min(self.capacity());
                let recent = self.age(self.lists.bits(slot) >> 2) <= self.oldest_age();
                self.touch(slot, hits);
                if list == PROTECTED || recent {
                    self.lists.move_front(PROTECTED, slot);
                    self.demote(limit, WINDOW);
                } else {
                    self.lists.move_front(WINDOW, slot);
                }
            }
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        self.sketch.add(key);
        self.tick();
        self.touch(slot, 0);
        let ghost = self.ghosts.find(key);
        let epoch = ghost.map(|ghost| self.ghost_epochs[ghost as usize]);
        if let Some(ghost) = ghost {
            self.ghosts.forget(ghost);
        }
        let list = match self.rule {
            Rule::Recent { .. } => WINDOW,
            Rule::Frequent { window } => {
                if self.len() + 1 < self.capacity() {
                    while self.lists.len(WINDOW) >= self.percent(window)
                        && let Some(oldest) = self.lists.tail(WINDOW)
                    {
                        self.lists.move_front(PROBATION, oldest);
                    }
                }
                WINDOW
            }
            Rule::Queues { .. } => {
                if ghost.is_some() {
                    PROTECTED
                } else {
                    WINDOW
                }
            }
            Rule::Near { window } => {
                let limit = self.capacity() - self.percent(window).min(self.capacity());
                let near = epoch.is_some_and(|epoch| self.age(epoch) < self.oldest_age());
                if near || self.lists.len(PROTECTED) < limit && self.len() + 1 < self.capacity() {
                    PROTECTED
                } else {
                    WINDOW
                }
            }
        };
        self.lists.push_front(list, slot);
    }
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let slot = self.victim(slots)?;
        if self.lists.list_of(slot) == WINDOW {
            self.remember(slots.key(slot), self.lists.bits(slot) >> 2);
        }
        self.lists.unlink(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let order = match self.rule {
            Rule::Recent { .. } | Rule::Near { .. } => [PROBATION, WINDOW, PROTECTED],
            Rule::Queues { .. } | Rule::Frequent { .. } => [WINDOW, PROBATION, PROTECTED],
        };
        order.into_iter().flat_map(|list| self.lists.from_tail(list)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        let history = self.sketch.heap_bytes() + self.ghosts.heap_bytes() + self.ghost_epochs.len();
        size_of::<Self>() + self.lists.heap_bytes() + history
    }
}
