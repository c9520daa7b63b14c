//! Several families of policies over the same three lists, so that a full cache can go from one
//! to another.
//!
//! Called by [`super::adaptive`], which chooses the rule. A *window* takes in new blocks, a
//! *probation* and a *protected* list make up the main part. The rules differ in which blocks pass from
//! the window to the main part, and how:
//!
//! | rule | window | passes to the main part | main part |
//! | --- | --- | --- | --- |
//! | [`Rule::Queues`] | `window` percent, a queue | blocks hit twice, or coming back | queue with reinsertion |
//! | [`Rule::Frequent`] | `window` percent, LRU | blocks seen more often than the victim | segmented LRU |
//!
//! Under every rule the main part is in order: blocks on probation go before protected ones. So a
//! rule takes over from another the blocks that that one would have kept longest.
//!
//! They are after S3-FIFO and W-TinyLFU; see their modules for sources.
//!
//! Each slot has three bits that count uses. A block that leaves through the window is remembered with
//! them ([`Recall`]). Under [`Rule::Frequent`] it has them again when it comes back, so frequency needs no
//! counters for blocks that are seen once. Counts age under that rule only: queues take from a count when
//! they let its block go round.

use super::list::{Lists, Node};
use super::recall::{Recall, USES};
use super::{Access, Policy, Slots, share};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Times that [`Rule::Queues`] lets a slot go round, at most.
const ROUNDS: u8 = 3;
/// A count of uses is halved while a cache takes in so many times as many blocks as it has slots.
const HALVING: u32 = 2;
/// For every hundred slots, so many blocks are remembered that are gone.
const RECALLED: u32 = 90;
/// How many slots change lists for one eviction, at most, after the rule has changed.
const STEPS: u32 = 4;

/// How blocks pass from list to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
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
}

/// A policy whose rule may change at any time.
#[derive(Debug)]
pub struct Blend<N> {
    lists: Lists<N, 3>,
    rule: Rule,
    gone: Recall,
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
        self.lists.bits(slot)
    }

    /// A block was taken in: counts age with the turns of the cache, slot by slot. Queues have none that age.
    fn tick(&mut self) {
        self.ticks = (self.ticks + 1) % (self.capacity() * HALVING);
        if self.ticks.is_multiple_of(HALVING) && !matches!(self.rule, Rule::Queues { .. }) {
            let slot = self.ticks / HALVING;
            self.lists.set_bits(slot, self.uses(slot) / 2);
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

    /// The coldest slot of the main part by hits: those that were hit go round.
    fn turn(&mut self, list: usize, slots: &dyn Slots) -> Option<u32> {
        for _ in 0..self.lists.len(list) * u32::from(ROUNDS + 1) {
            let slot = self.lists.tail(list)?;
            let uses = self.uses(slot).min(ROUNDS);
            if uses > 0 {
                self.lists.set_bits(slot, uses - 1);
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
            Rule::Queues { window } => {
                if self.lists.len(WINDOW) >= self.percent(window) {
                    for _ in 0..self.lists.len(WINDOW) {
                        let Some(slot) = self.lists.tail(WINDOW) else { break };
                        if self.uses(slot) >= 2 {
                            self.lists.set_bits(slot, 0);
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
        }
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
        self.lists.set_bits(slot, (self.uses(slot) + 1).min(USES - 1));
        match self.rule {
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
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        self.tick();
        let past = self.gone.take(key);
        let uses = match self.rule {
            Rule::Queues { .. } => 0,
            Rule::Frequent { .. } => past.map_or(0, |uses| (uses + 1).min(USES - 1)),
        };
        self.lists.set_bits(slot, uses);
        let list = match self.rule {
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
        };
        self.lists.push_front(list, slot);
    }
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let slot = self.victim(slots)?;
        if self.lists.list_of(slot) == WINDOW {
            self.gone.remember(slots.key(slot), self.uses(slot));
        }
        self.lists.unlink(slot);
        Some(slot)
    }
    fn comes_again(&mut self, key: u64) -> bool {
        let is_known = self.gone.knows(key);
        if !is_known {
            self.tick();
            self.gone.remember(key, 0);
        }
        is_known
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let order = [WINDOW, PROBATION, PROTECTED];
        order.into_iter().flat_map(|list| self.lists.from_tail(list)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes() + self.gone.heap_bytes()
    }
}
