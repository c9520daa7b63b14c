//! The default policy: goes by the rule that does best on a sample of the blocks.
//!
//! Eight miniature caches, each with a rule of its own, see the references to a sample of the
//! blocks, chosen by a hash of their keys. A cache of a hundredth of the size that sees a
//! hundredth of the blocks misses about as often as the whole (spatial sampling: Waldspurger and
//! others, FAST 2015 and ATC 2017). The cache goes by the rule whose miniature has had the most
//! hits lately.
//!
//! Invariants:
//! 1. All sets of a cache share one [`Chooser`] and see the same sequence of choices.
//! 2. Only references to sampled blocks take the chooser's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use super::blend::{Blend, Rule};
use super::list::{Large, Node};
use super::{Access, Policy, Slots, hash};
use crate::units::to_u64;

/// The rules to choose among; the first one is gone by until there is evidence.
pub const RULES: [Rule; 8] = [
    Rule::Frequent { window: 20 },
    Rule::Frequent { window: 1 },
    Rule::Queues { window: 10 },
    Rule::Near { window: 1 },
    Rule::Near { window: 10 },
    Rule::Recent { protected: 75 },
    Rule::Recent { protected: 40 },
    Rule::Recent { protected: 0 },
];

/// Slots of a miniature cache, at most.
const SLOTS: u32 = 1_024;
/// Sampling compares so many bits of a hash.
const SAMPLE_BITS: u32 = 24;
/// A rule is changed when another one's miniature leads by this share of the references, and ...
const MARGIN: f64 = 0.005;
/// ... by so many hits more.
const LEAD: f64 = 6.0;
/// What is left of old evidence after a period, which is a quarter of a miniature's slots long.
const DECAY: f64 = 0.95;
/// No slot.
const NONE: u32 = u32::MAX;

/// A small cache with one rule.
#[derive(Debug)]
struct Miniature {
    policy: Blend<Large>,
    keys: Vec<u64>,
    /// Slots by the home of their key's hash, with linear probing.
    table: Box<[u32]>,
    hits: f64,
}

struct Keys<'a>(&'a [u64]);

impl Slots for Keys<'_> {
    fn key(&self, slot: u32) -> u64 {
        self.0[slot as usize]
    }
}

impl Miniature {
    fn new(slots: u32, rule: Rule) -> Miniature {
        let places = (slots as usize * 2).next_power_of_two();
        Miniature {
            policy: Blend::new(slots, rule),
            keys: Vec::with_capacity(slots as usize),
            table: vec![NONE; places].into_boxed_slice(),
            hits: 0.0,
        }
    }

    /// The place of `key`, or the empty one where it belongs.
    fn place(&self, key: u64, hashed: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut place = crate::units::to_usize(hashed >> SAMPLE_BITS) & mask;
        while self.table[place] != NONE && self.keys[self.table[place] as usize] != key {
            place = (place + 1) & mask;
        }
        place
    }

    /// Frees `hole`, and moves back what was pushed away from home by it.
    fn close(&mut self, mut hole: usize) {
        let mask = self.table.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let slot = self.table[place];
            if slot == NONE {
                break;
            }
            let home = crate::units::to_usize(hash(self.keys[slot as usize]) >> SAMPLE_BITS) & mask;
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.table[hole] = slot;
                hole = place;
            }
        }
        self.table[hole] = NONE;
    }

    fn refer(&mut self, key: u64, hashed: u64, access: Access) {
        let place = self.place(key, hashed);
        let slot = self.table[place];
        if slot != NONE {
            self.hits += 1.0;
            self.policy.hit(slot, key, access);
            return;
        }
        let slot = if self.keys.len() < self.policy.capacity() as usize {
            self.keys.push(key);
            u32::try_from(self.keys.len() - 1).unwrap_or(0)
        } else {
            let Some(slot) = self.policy.evict(key, &Keys(&self.keys)) else { return };
            let old = self.keys[slot as usize];
            self.close(self.place(old, hash(old)));
            self.keys[slot as usize] = key;
            slot
        };
        let place = self.place_of_new(hashed);
        self.table[place] = slot;
        self.policy.insert(slot, key, access);
    }

    fn place_of_new(&self, hashed: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut place = crate::units::to_usize(hashed >> SAMPLE_BITS) & mask;
        while self.table[place] != NONE {
            place = (place + 1) & mask;
        }
        place
    }
}

/// The miniature caches of one cache, and what they have chosen.
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
        let mini = u32::try_from(slots.min(u64::from(SLOTS))).unwrap_or(SLOTS).max(1);
        let threshold = (u64::from(mini) << SAMPLE_BITS) / slots.max(1);
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
            self.sample(key, hashed, access);
        }
    }

    #[cold]
    fn sample(&self, key: u64, hashed: u64, access: Access) {
        let mut guard = self.minis.lock();
        let Minis { minis, seen, weight } = &mut *guard;
        minis.iter_mut().for_each(|mini| mini.refer(key, hashed, access));
        *seen += 1;
        *weight += 1.0;
        let period = minis[0].policy.capacity() / 4 + 1;
        if *seen < period {
            return;
        }
        *seen = 0;
        let current = usize::from(self.rule.load(Ordering::Relaxed));
        let mut best = current;
        for (index, mini) in minis.iter().enumerate() {
            if mini.hits > minis[best].hits {
                best = index;
            }
        }
        // Changing costs something, and a small lead may be chance.
        let margin = *weight * MARGIN + LEAD;
        if minis[best].hits > minis[current].hits + margin {
            self.rule.store(u8::try_from(best).unwrap_or(0), Ordering::Relaxed);
        }
        *weight *= DECAY;
        minis.iter_mut().for_each(|mini| mini.hits *= DECAY);
    }

    fn memory_bytes(&self) -> usize {
        let guard = self.minis.lock();
        let minis = guard.minis.iter().map(|mini| {
            let keys = mini.keys.capacity() * size_of::<u64>();
            mini.policy.memory_bytes() + keys + size_of_val(&*mini.table) + 40
        });
        size_of::<Self>() + minis.sum::<usize>()
    }
}

/// A cache, or a set of one, that goes by what its chooser says.
#[derive(Debug)]
pub struct Adaptive<N> {
    blend: Blend<N>,
    chooser: Arc<Chooser>,
}

impl<N: Node> Adaptive<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or beyond what `N` can link.
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
