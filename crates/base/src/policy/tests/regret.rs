//! The default beside the others on made-up references: it may miss at most three in a hundred
//! more often than the best of them.

use std::collections::BTreeMap;

use super::super::*;
use crate::Rng;
use crate::units::to_u64;

const SLOTS: u32 = 4_000;
const REFERENCES: usize = 240_000;
const MORE_MISSES: u64 = 30; // in a thousand
const OTHERS: [Kind; 7] =
    [Kind::Lru, Kind::TwoQ, Kind::Arc, Kind::Lirs, Kind::S3Fifo, Kind::Sieve, Kind::WTinyLfu];

struct Keys<'a>(&'a [u64]);

impl Slots for Keys<'_> {
    fn key(&self, slot: u32) -> u64 {
        self.0[slot as usize]
    }
}

fn misses(kind: Kind, references: &[u64]) -> u64 {
    misses_of(&mut *kind.build(SLOTS), references)
}

fn misses_of(policy: &mut dyn Policy, references: &[u64]) -> u64 {
    let (mut keys, mut slots) = (Vec::new(), BTreeMap::new());
    let mut misses = 0;
    for &key in references {
        if let Some(&slot) = slots.get(&key) {
            policy.hit(slot, key, Access::Read);
            continue;
        }
        misses += 1;
        let slot = if keys.len() < SLOTS as usize {
            keys.push(key);
            u32::try_from(keys.len() - 1).unwrap()
        } else {
            let slot = policy.evict(key, &Keys(&keys)).expect("everything may go");
            slots.remove(&std::mem::replace(&mut keys[slot as usize], key));
            slot
        };
        slots.insert(key, slot);
        policy.insert(slot, key, Access::Read);
    }
    misses
}

/// Some keys far more often than others, and scans of new keys in between.
fn skewed(rng: &mut Rng, count: usize, first: u64) -> Vec<u64> {
    let mut references = Vec::new();
    let mut scanned = first + (1 << 30);
    while references.len() < count {
        for _ in 0..20_000 {
            let spread = 2 << rng.below(15);
            references.push(first + rng.below(spread));
        }
        references.extend(scanned..scanned + 6_000);
        scanned += 6_000;
    }
    references.truncate(count);
    references
}

/// A loop over a quarter more keys than there are slots, with others in between.
fn looping(rng: &mut Rng, count: usize, first: u64) -> Vec<u64> {
    let step = |at: usize| {
        if rng.chance(1, 5) {
            first + 100_000 + rng.below(1_000)
        } else {
            first + to_u64(at) % 5_000
        }
    };
    (0..count).map(step).collect()
}

/// Keys of a window that moves on by half from time to time.
fn shifting(rng: &mut Rng, count: usize, first: u64) -> Vec<u64> {
    let key = |at: usize| first + to_u64(at) / 15_000 * 1_500 + rng.below(3_000);
    (0..count).map(key).collect()
}

/// All of them in turn, each on keys of its own, twice.
fn mixed(rng: &mut Rng, count: usize, first: u64) -> Vec<u64> {
    let part = count / 6;
    let mut references = Vec::new();
    for _ in 0..2 {
        references.extend(skewed(rng, part, first));
        references.extend(looping(rng, part, first + (1 << 40)));
        references.extend(shifting(rng, part, first + (1 << 41)));
    }
    references
}

type Make = fn(&mut Rng, usize, u64) -> Vec<u64>;
const TRACES: [(&str, Make); 4] =
    [("skewed", skewed), ("looping", looping), ("shifting", shifting), ("mixed", mixed)];

#[test]
fn queues_miss_no_more_often_than_s3_fifo() {
    for (name, make) in TRACES {
        let references = make(&mut Rng::new(5), REFERENCES, 1 << 20);
        let mut queues =
            blend::Blend::<list::Small>::new(SLOTS, blend::Rule::Queues { window: 10 });
        let (own, exact) = (misses_of(&mut queues, &references), misses(Kind::S3Fifo, &references));
        let bound = exact + to_u64(references.len()) / 200;
        assert!(own <= bound, "{name}: {own} misses, S3-FIFO has {exact}");
    }
}

#[test]
fn the_default_is_never_far_from_the_best() {
    for (name, make) in TRACES {
        let references = make(&mut Rng::new(5), REFERENCES, 1 << 20);
        let others = OTHERS.map(|kind| misses(kind, &references));
        let best = others.into_iter().min().unwrap_or(0);
        let own = misses(Kind::Adaptive, &references);
        let bound = best + to_u64(references.len()) * MORE_MISSES / 1_000;
        assert!(own <= bound, "{name}: {own} misses, the others have {others:?}");
    }
}
