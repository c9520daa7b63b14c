//! Several families of policies over the same three lists, so that a full cache can go from one
//! to another.
//!
//! Called by [`super::adaptive`], which chooses the rule. A *window* takes in new blocks, a
//! *probation* and a *protected* list make up the main part. The rules differ in which blocks pass from
//! the window to the main part, and how:
//!
//! | rule | window | passes to the main part | main part |
//! | --- | --- | --- | --- |
//! | [`Rule::Recent`] | none | everything | hit blocks are protected; the oldest of either go on |
//! | [`Rule::Queues`] | `window` percent, a queue | blocks hit twice, or coming back | queue with reinsertion |
//! | [`Rule::Frequent`] | `window` percent, LRU | blocks seen more often than the victim | segmented LRU |
//! | [`Rule::Near`] | `window` percent, LRU | blocks back sooner than the oldest of the main part was used | LRU; its oldest go back |
//!
//! Under every rule the main part is in order: blocks on probation go before protected ones. So a
//! rule takes over from another the blocks that that one would have kept longest.
//!
//! They are after LRU with mid-point, S3-FIFO, W-TinyLFU and LIRS; see their modules for sources.
//!
//! Each slot has six bits: three count uses, three say in which epoch the last one was. A block
//! that leaves through the window is remembered with them ([`Recall`]), and has them again when it
//! comes back: so frequency needs no counters for blocks that are seen once. Counts are halved
//! after every four epochs.

use super::list::{Lists, Node};
use super::recall::{EPOCHS, Past, Recall, USES};
use super::{Access, Policy, Slots, share};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Where the epoch of a slot begins in its bits.
const EPOCH_SHIFT: u32 = 3;
/// Times that [`Rule::Queues`] lets a slot go round, at most.
const ROUNDS: u8 = 3;
/// Epochs in which a cache takes in as many blocks as it has slots.
const EPOCHS_A_TURN: u32 = 2;
/// Counts of uses are halved in one of so many epochs.
const HALVING: u8 = 4;
/// For every hundred slots, so many blocks are remembered that are gone.
const RECALLED: u32 = 90;
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
    gone: Recall,
    epoch: u8,
    ticks: u32,
}

impl<N: Node> Blend<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32, rule: Rule) -> Self {
        Blend {
            lists: Lists::new(capacity),
            rule,
            gone: Recall::new(share(capacity, RECALLED)),
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

    /// How often the block of `slot` was used again.
    fn uses(&self, slot: u32) -> u8 {
        self.lists.bits(slot) % USES
    }

    fn epoch_of(&self, slot: u32) -> u8 {
        self.lists.bits(slot) >> EPOCH_SHIFT
    }

    fn note(&mut self, slot: u32, past: Past) {
        self.lists.set_bits(slot, past.uses | past.epoch << EPOCH_SHIFT);
    }

    /// How many epochs ago `epoch` was.
    fn age(&self, epoch: u8) -> u8 {
        self.epoch.wrapping_sub(epoch) % EPOCHS
    }

    /// A block was taken in: time goes on, and in an epoch all slots are looked at once.
    fn tick(&mut self) {
        let first = self.ticks * EPOCHS_A_TURN;
        let halve = self.epoch.is_multiple_of(HALVING);
        for slot in first..(first + EPOCHS_A_TURN).min(self.capacity()) {
            let (epoch, uses) = (self.epoch_of(slot), self.uses(slot));
            // An entry of the greatest age that can be told gets no older.
            let as_old = self.age(epoch) == EPOCHS - 1;
            let epoch = if as_old { (epoch + 1) % EPOCHS } else { epoch };
            self.note(slot, Past { epoch, uses: if halve { uses / 2 } else { uses } });
        }
        self.ticks += 1;
        if self.ticks * EPOCHS_A_TURN >= self.capacity() {
            self.ticks = 0;
            self.epoch = (self.epoch + 1) % EPOCHS;
        }
    }

    /// Puts the oldest slots of the window or the protected ones beyond `limit` on probation.
    fn shrink(&mut self, list: usize, limit: u32) {
        for _ in 0..STEPS {
            match self.lists.tail(list) {
                Some(oldest) if self.lists.len(list) > limit => {
                    self.lists.move_front(PROBATION, oldest);
                }
                _ => return,
            }
        }
    }

    /// Puts the oldest slots of the main part beyond `limit` into the window.
    fn shrink_main(&mut self, limit: u32) {
        for _ in 0..STEPS {
            match self.oldest() {
                Some(oldest) if self.main() > limit => self.lists.move_front(WINDOW, oldest),
                _ => return,
            }
        }
    }

    /// How many slots are in the main part.
    fn main(&self) -> u32 {
        self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }

    /// The oldest slot of the main part.
    fn oldest(&self) -> Option<u32> {
        self.lists.tail(PROBATION).or_else(|| self.lists.tail(PROTECTED))
    }

    /// The coldest slot of the main part by hits: those that were hit go round.
    fn turn(&mut self, list: usize, slots: &dyn Slots) -> Option<u32> {
        for _ in 0..self.lists.len(list) * u32::from(ROUNDS + 1) {
            let slot = self.lists.tail(list)?;
            let uses = self.uses(slot).min(ROUNDS);
            if uses > 0 {
                let epoch = self.epoch_of(slot);
                self.note(slot, Past { epoch, uses: uses - 1 });
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
                self.shrink(PROTECTED, self.percent(protected));
                self.shrink(WINDOW, 0);
                self.either([PROBATION, WINDOW, PROTECTED], slots)
            }
            Rule::Queues { window } => {
                if self.lists.len(WINDOW) >= self.percent(window) {
                    for _ in 0..self.lists.len(WINDOW) {
                        let Some(slot) = self.lists.tail(WINDOW) else { break };
                        if self.uses(slot) >= 2 {
                            let epoch = self.epoch_of(slot);
                            self.note(slot, Past { epoch, uses: 0 });
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
                self.shrink(WINDOW, limit);
                let main = self.either([PROBATION, PROTECTED, PROTECTED], slots);
                let candidate = self.lists.candidate(WINDOW, slots);
                match (candidate, main) {
                    (Some(candidate), Some(main)) if self.lists.len(WINDOW) >= limit => {
                        if self.uses(candidate) > self.uses(main) {
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
                let window = self.percent(window);
                self.shrink_main(self.capacity() - window);
                self.shrink(WINDOW, window);
                self.either([WINDOW, PROBATION, PROTECTED], slots)
            }
        }
    }

    /// The age of the oldest slot of the main part, in epochs.
    fn oldest_age(&self) -> u8 {
        self.oldest().map_or(0, |slot| self.age(self.epoch_of(slot)))
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
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        let list = self.lists.list_of(slot);
        let before = self.epoch_of(slot);
        let uses = (self.uses(slot) + 1).min(USES - 1);
        self.note(slot, Past { epoch: self.epoch, uses });
        match self.rule {
            Rule::Recent { protected } => {
                self.lists.move_front(PROTECTED, slot);
                self.shrink(PROTECTED, self.percent(protected));
            }
            Rule::Queues { .. } => {}
            Rule::Frequent { window } => {
                if list == WINDOW {
                    self.lists.move_front(WINDOW, slot);
                } else {
                    self.lists.move_front(PROTECTED, slot);
                    let main = self.capacity() - self.percent(window);
                    self.shrink(PROTECTED, share(main, 80));
                }
            }
            Rule::Near { window } => {
                if list != WINDOW || self.age(before) <= self.oldest_age() {
                    self.lists.move_front(PROTECTED, slot);
                    self.shrink_main(self.capacity() - self.percent(window));
                } else {
                    self.lists.move_front(WINDOW, slot);
                }
            }
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        self.tick();
        let past = self.gone.take(key);
        let uses = past.map_or(0, |past| (past.uses + 1).min(USES - 1));
        self.note(slot, Past { epoch: self.epoch, uses });
        let list = match self.rule {
            Rule::Recent { .. } => PROBATION,
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
                if past.is_some() {
                    PROTECTED
                } else {
                    WINDOW
                }
            }
            Rule::Near { window } => {
                let limit = self.capacity() - self.percent(window);
                let near = past.is_some_and(|past| self.age(past.epoch) < self.oldest_age());
                if near || self.main() < limit && self.len() + 1 < self.capacity() {
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
        let is_new = match self.rule {
            Rule::Recent { .. } => true,
            _ => self.lists.list_of(slot) == WINDOW,
        };
        if is_new {
            let past = Past { epoch: self.epoch_of(slot), uses: self.uses(slot) };
            self.gone.remember(slots.key(slot), past, self.epoch);
        }
        self.lists.unlink(slot);
        Some(slot)
    }
    fn comes_again(&mut self, key: u64) -> bool {
        let is_known = self.gone.knows(key);
        if !is_known {
            self.tick();
            self.gone.remember(key, Past { epoch: self.epoch, uses: 0 }, self.epoch);
        }
        is_known
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let order = match self.rule {
            Rule::Recent { .. } => [PROBATION, WINDOW, PROTECTED],
            _ => [WINDOW, PROBATION, PROTECTED],
        };
        order.into_iter().flat_map(|list| self.lists.from_tail(list)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes() + self.gone.heap_bytes()
    }
}
