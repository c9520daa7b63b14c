//! The default policy: goes by the rule that does best on a sample of the blocks.
//!
//! Seven miniature caches, each with a rule of its own, see the references to a sample of the
//! blocks, chosen by a hash of their keys. A cache of a hundredth of the size that sees a
//! hundredth of the blocks misses about as often as the whole (spatial sampling: Waldspurger and
//! others, FAST 2015 and ATC 2017). The cache goes by the rule whose miniature has had the most
//! hits lately.
//!
//! A change of rule costs misses, as the cache is full of blocks that the old rule kept. Plain LRU keeps
//! nothing for the rule after it, so it has to lead by far more than the others.
//!
//! Invariants:
//! 1. All sets of a cache share one [`Chooser`] and see the same sequence of choices.
//! 2. Only references to sampled blocks take the chooser's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use super::blend::{Blend, Rule};
use super::list::{Node, Small};
use super::{Access, Policy, Slots, hash};
use crate::units::to_u64;

/// The rules to choose among; the first one is gone by until there is evidence.
pub const RULES: [Rule; 7] = [
    Rule::Frequent { window: 5 },
    Rule::Frequent { window: 1 },
    Rule::Frequent { window: 20 },
    Rule::Queues { window: 10 },
    Rule::Near { window: 1 },
    Rule::Recent { protected: 75 },
    LRU,
];
const LRU: Rule = Rule::Recent { protected: 0 };

/// Slots of a miniature cache, at most.
const SLOTS: u64 = 1_024;
/// Sampling compares so many bits of a hash.
const SAMPLE_BITS: u32 = 24;
/// A rule is changed when another one's miniature leads by this share of the references, and ...
const MARGIN: f64 = 0.005;
/// ... by so many hits more.
const LEAD: f64 = 6.0;
/// ... or by so many for [`LRU`].
const LRU_LEAD: f64 = 110.0;
/// Part of old evidence that is left after a period, which is a quarter of a miniature's slots long.
const DECAY: f64 = 0.95;
/// No slot.
const NONE: u16 = u16::MAX;

/// A small cache with one rule. Blocks are known by 32 bits of their hash.
#[derive(Debug)]
struct Miniature {
    policy: Blend<Small>,
    marks: Box<[u32]>,
    used: u32,
    /// Slots by the home of their mark, with linear probing.
    table: Box<[u16]>,
    hits: f64,
}

struct Marks<'a>(&'a [u32]);

impl Slots for Marks<'_> {
    fn key(&self, slot: u32) -> u64 {
        u64::from(self.0[slot as usize])
    }
}

impl Miniature {
    fn new(slots: u32, rule: Rule) -> Miniature {
        let places = (slots as usize * 2).next_power_of_two();
        Miniature {
            policy: Blend::new(slots, rule),
            marks: vec![0; slots as usize].into_boxed_slice(),
            used: 0,
            table: vec![NONE; places].into_boxed_slice(),
            hits: 0.0,
        }
    }

    /// The place of `mark`, or the empty one where it belongs.
    fn place(&self, mark: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = mark as usize & mask;
        while self.table[place] != NONE && self.marks[usize::from(self.table[place])] != mark {
            place = (place + 1) & mask;
        }
        place
    }

    /// Frees `hole`, and moves back the entries that it pushed away from home.
    fn close(&mut self, mut hole: usize) {
        let mask = self.table.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let slot = self.table[place];
            if slot == NONE {
                break;
            }
            let home = self.marks[usize::from(slot)] as usize & mask;
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.table[hole] = slot;
                hole = place;
            }
        }
        self.table[hole] = NONE;
    }

    fn refer(&mut self, mark: u32, access: Access) {
        let place = self.place(mark);
        let slot = self.table[place];
        if slot != NONE {
            self.hits += 1.0;
            self.policy.hit(u32::from(slot), u64::from(mark), access);
            return;
        }
        let slot = if self.used < self.policy.capacity() {
            self.used += 1;
            self.used - 1
        } else {
            let marks = Marks(&self.marks);
            let Some(slot) = self.policy.evict(u64::from(mark), &marks) else { return };
            self.close(self.place(self.marks[slot as usize]));
            slot
        };
        self.marks[slot as usize] = mark;
        let place = self.place(mark);
        self.table[place] = u16::try_from(slot).unwrap_or(NONE);
        self.policy.insert(slot, u64::from(mark), access);
    }

    fn memory_bytes(&self) -> usize {
        let outside = size_of::<Self>() - size_of::<Blend<Small>>();
        outside + self.policy.memory_bytes() + size_of_val(&*self.marks) + size_of_val(&*self.table)
    }
}

/// The miniature caches of one cache, and the rule that they have chosen.
#[derive(Debug)]
pub struct Chooser {
    rule: AtomicU8,
    /// Blocks whose hash, cut to so many bits, is below this are in the sample.
    threshold: u64,
    minis: Mutex<Minis>,
}

#[derive(Debug)]
struct Minis {
    minis: Vec<Miniature>,
    seen: u32,
    weight: f64,
}

impl Chooser {
    /// For a cache of `slots` slots in all.
    #[must_use]
    pub fn new(slots: u64) -> Chooser {
        let mini = slots.clamp(1, SLOTS);
        let threshold = (mini << SAMPLE_BITS) / slots.max(1);
        let mini = u32::try_from(mini).unwrap_or(1);
        let minis = RULES.iter().map(|&rule| Miniature::new(mini, rule)).collect();
        Chooser {
            rule: AtomicU8::new(0),
            threshold,
            minis: Mutex::new(Minis { minis, seen: 0, weight: 0.0 }),
        }
    }

    /// The rule to go by.
    #[inline]
    #[must_use]
    pub fn rule(&self) -> Rule {
        RULES[usize::from(self.rule.load(Ordering::Relaxed)) % RULES.len()]
    }

    /// A block was referenced.
    #[inline]
    fn refer(&self, key: u64, access: Access) {
        let hashed = hash(key);
        if hashed & ((1 << SAMPLE_BITS) - 1) < self.threshold {
            self.sample(mark(hashed), access);
        }
    }

    #[cold]
    fn sample(&self, mark: u32, access: Access) {
        let mut guard = self.minis.lock();
        let Minis { minis, seen, weight } = &mut *guard;
        minis.iter_mut().for_each(|mini| mini.refer(mark, access));
        *seen += 1;
        *weight += 1.0;
        let period = minis[0].policy.capacity() / 4 + 1;
        if *seen < period {
            return;
        }
        *seen = 0;
        let current = usize::from(self.rule.load(Ordering::Relaxed));
        let score = |index: usize| match RULES[index] {
            _ if index == current => minis[index].hits,
            LRU => minis[index].hits - *weight * MARGIN - LRU_LEAD,
            _ => minis[index].hits - *weight * MARGIN - LEAD,
        };
        let best = (0..RULES.len())
            .fold(current, |best, index| if score(index) > score(best) { index } else { best });
        self.rule.store(u8::try_from(best).unwrap_or(0), Ordering::Relaxed);
        *weight *= DECAY;
        minis.iter_mut().for_each(|mini| mini.hits *= DECAY);
    }

    fn memory_bytes(&self) -> usize {
        let guard = self.minis.lock();
        let minis = guard.minis.iter().map(Miniature::memory_bytes);
        size_of::<Self>() + minis.sum::<usize>()
    }
}

/// The half of a hash that does not decide on the sample.
#[allow(clippy::cast_possible_truncation)] // the high half
fn mark(hashed: u64) -> u32 {
    (hashed >> 32) as u32
}

/// A cache, or a set of one, that goes by the rule of its chooser.
#[derive(Debug)]
pub struct Adaptive<N> {
    blend: Blend<N>,
    chooser: Arc<Chooser>,
}

impl<N: Node> Adaptive<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32, chooser: Arc<Chooser>) -> Self {
        Adaptive { blend: Blend::new(capacity, chooser.rule()), chooser }
    }

    #[inline]
    fn refer(&mut self, key: u64, access: Access) {
        self.chooser.refer(key, access);
        self.blend.set_rule(self.chooser.rule());
    }
}

impl<N: Node> Policy for Adaptive<N> {
    fn capacity(&self) -> u32 {
        self.blend.capacity()
    }
    fn len(&self) -> u32 {
        self.blend.len()
    }
    #[inline]
    fn hit(&mut self, slot: u32, key: u64, access: Access) {
        self.refer(key, access);
        self.blend.hit(slot, key, access);
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, access: Access) {
        self.refer(key, access);
        self.blend.insert(slot, key, access);
    }
    #[inline]
    fn evict(&mut self, incoming: u64, slots: &dyn Slots) -> Option<u32> {
        self.blend.evict(incoming, slots)
    }
    fn comes_again(&mut self, key: u64) -> bool {
        let is_known = self.blend.comes_again(key);
        // One that is known is let in, and referred to then.
        if !is_known {
            self.refer(key, Access::Read);
        }
        is_known
    }
    fn remove(&mut self, slot: u32) {
        self.blend.remove(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        self.blend.coldest(visit);
    }
    fn memory_bytes(&self) -> usize {
        let sharers = to_u64(Arc::strong_count(&self.chooser)).max(1);
        let shared = to_u64(self.chooser.memory_bytes()).div_ceil(sharers);
        self.blend.memory_bytes() + size_of::<Arc<Chooser>>() + crate::units::to_usize(shared)
    }
}
