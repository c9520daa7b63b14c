//! Invariants of every policy, and the plain ones against plain oracles.

mod regret;

use std::collections::BTreeSet;

use super::*;
use crate::Rng;

/// Keys in the slots, and the pinned slots, which may not go.
struct Held {
    keys: Vec<Option<u64>>,
    pinned: BTreeSet<u32>,
}

impl Slots for Held {
    fn key(&self, slot: u32) -> u64 {
        self.keys[slot as usize].expect("policies ask for held slots")
    }
    fn may_go(&self, slot: u32) -> bool {
        assert!(self.keys[slot as usize].is_some(), "slot {slot} is free");
        !self.pinned.contains(&slot)
    }
}

impl Held {
    fn new(capacity: u32) -> Held {
        Held { keys: vec![None; capacity as usize], pinned: BTreeSet::new() }
    }
    fn slot_of(&self, key: u64) -> Option<u32> {
        let at = self.keys.iter().position(|&held| held == Some(key));
        at.map(|slot| u32::try_from(slot).unwrap())
    }
    fn free(&self) -> Option<u32> {
        let at = self.keys.iter().position(Option::is_none);
        at.map(|slot| u32::try_from(slot).unwrap())
    }
    fn count(&self) -> u32 {
        u32::try_from(self.keys.iter().flatten().count()).unwrap()
    }
}

/// References `key`; true when it was there, `None` when nothing could go.
fn refer(policy: &mut dyn Policy, held: &mut Held, key: u64) -> Option<bool> {
    if let Some(slot) = held.slot_of(key) {
        policy.hit(slot, key, Access::Read);
        return Some(true);
    }
    let slot = match held.free() {
        Some(slot) => slot,
        None => {
            let slot = policy.evict(key, held)?;
            assert!(!held.pinned.contains(&slot), "slot {slot} was not to go");
            assert!(held.keys[slot as usize].is_some(), "slot {slot} was not held");
            held.keys[slot as usize] = None;
            slot
        }
    };
    held.keys[slot as usize] = Some(key);
    policy.insert(slot, key, Access::Read);
    Some(false)
}

fn coldest(policy: &dyn Policy) -> Vec<u32> {
    let mut order = Vec::new();
    policy.coldest(&mut |slot| {
        order.push(slot);
        true
    });
    order
}

#[test]
fn blocks_that_come_again_are_known_to_a_policy_that_remembers() {
    for kind in Kind::ALL {
        let mut policy = kind.build(1_000);
        let mut held = Held::new(1_000);
        (0..1_000).for_each(|key| assert_eq!(refer(&mut *policy, &mut held, key), Some(false)));
        // A refused block is known the next time, and so are those refused since then.
        let mut known = |from: u64, count: u64| {
            (from..from + count).filter(|&key| policy.comes_again(key)).count()
        };
        let counts = [known(5_000, 300), known(5_000, 300)];
        known(20_000, 5_000);
        let forgotten = known(5_000, 300);
        if kind.remembers() {
            assert!(counts[0] < 20 && counts[1] > 270 && forgotten < 40, "{counts:?} {forgotten}");
        } else {
            assert_eq!((counts, forgotten), ([0, 0], 0), "{kind}");
        }
    }
}

#[test]
fn every_policy_gives_up_held_slots_that_may_go() {
    for kind in Kind::ALL {
        for capacity in [1, 2, 3, 10, 100] {
            let mut rng = Rng::new(u64::from(capacity));
            let mut policy = kind.build(capacity);
            let mut held = Held::new(capacity);
            let mut refused = 0;
            for step in 0..4_000u64 {
                let key = rng.below(u64::from(capacity) * 3).min(rng.below(200));
                policy.foresee(step + rng.below(100));
                if rng.chance(1, 20) {
                    let slot = u32::try_from(rng.below(u64::from(capacity))).unwrap();
                    if held.keys[slot as usize].take().is_some() {
                        policy.remove(slot);
                    }
                }
                held.pinned.clear();
                if rng.chance(1, 3) {
                    let share = rng.below(3);
                    let pinned = (0..capacity).filter(|_| rng.chance(share, 2));
                    held.pinned = pinned.collect();
                }
                let all = (0..capacity).all(|slot| held.pinned.contains(&slot));
                if refer(&mut policy, &mut held, key).is_none() {
                    assert!(all, "{kind}: {:?} were not to go", held.pinned);
                    refused += 1;
                }
                assert_eq!(policy.len(), held.count(), "{kind} {capacity} step {step}");
                if step % 50 == 0 {
                    let order = coldest(&policy);
                    let unique: BTreeSet<u32> = order.iter().copied().collect();
                    assert_eq!(order.len(), unique.len(), "{kind} names a slot twice");
                    assert_eq!(unique.len(), held.count() as usize, "{kind} forgets a slot");
                    assert!(unique.iter().all(|&slot| held.keys[slot as usize].is_some()));
                    let mut seen = 0;
                    policy.coldest(&mut |_| {
                        seen += 1;
                        seen < 3
                    });
                    assert!(seen <= 3, "{kind} does not stop");
                }
            }
            assert!(refused > 5, "{kind} {capacity}: {refused}");
        }
    }
}

#[test]
fn lirs_evicts_where_all_entries_of_the_stack_are_slots() {
    let mut policy = lirs::Lirs::<list::Small>::within(16, 16);
    let mut held = Held::new(16);
    for key in keys(7, 5_000) {
        refer(&mut policy, &mut held, key).expect("everything may go");
        assert_eq!(policy.len(), held.count());
    }
}

#[test]
fn names_are_read_back() {
    for kind in Kind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!("mid-50".parse(), Ok(Kind::MidPoint(50)));
    assert_eq!("LRU".parse(), Ok(Kind::Lru));
    assert!("mid-100".parse::<Kind>().is_err());
    assert!("mru".parse::<Kind>().unwrap_err().contains("s3-fifo"));
}

/// Skewed keys with scans in between.
fn keys(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let mut scan = 1_000;
    let mut keys = Vec::new();
    while keys.len() < count {
        if rng.chance(1, 200) {
            let length = rng.below(60);
            keys.extend((0..length).map(|i| scan + i));
            scan += rng.below(80);
        } else {
            keys.push(rng.below(120).min(rng.below(120)).min(rng.below(120)));
        }
    }
    keys
}

/// Which references of `keys` hit, by an oracle that keeps a list of keys, coldest first, and
/// changes it when a key at some place of it is hit.
fn by_list(keys: &[u64], capacity: usize, hit: impl Fn(&mut Vec<u64>, usize)) -> Vec<bool> {
    let mut list: Vec<u64> = Vec::new();
    let one = |&key: &u64| match list.iter().position(|&other| other == key) {
        Some(at) => {
            hit(&mut list, at);
            true
        }
        None => {
            if list.len() == capacity {
                list.remove(0);
            }
            list.push(key);
            false
        }
    };
    keys.iter().map(one).collect()
}

fn by_policy(kind: Kind, keys: &[u64], capacity: u32) -> Vec<bool> {
    let mut policy = kind.build(capacity);
    let mut held = Held::new(capacity);
    let mut hits = Vec::new();
    for (at, &key) in keys.iter().enumerate() {
        let next = keys[at + 1..].iter().position(|&other| other == key);
        policy.foresee(next.map_or(u64::MAX, |gap| crate::units::to_u64(at + 1 + gap)));
        hits.push(refer(&mut policy, &mut held, key).expect("everything may go"));
    }
    hits
}

#[test]
fn fifo_and_lru_are_lists() {
    for seed in 0..4 {
        let keys = keys(seed, 5_000);
        for capacity in [1, 7, 40] {
            let size = capacity as usize;
            let fifo = by_list(&keys, size, |_, _| ());
            assert!(by_policy(Kind::Fifo, &keys, capacity) == fifo, "fifo {capacity}");
            let lru = by_list(&keys, size, |list, at| {
                let key = list.remove(at);
                list.push(key);
            });
            assert!(by_policy(Kind::Lru, &keys, capacity) == lru, "lru {capacity}");
            assert!(capacity < 40 || fifo != lru, "the trace tells them apart");
        }
    }
}

#[test]
fn belady_is_the_farthest_next_use_and_beats_all() {
    for seed in 0..3 {
        let keys = keys(seed, 3_000);
        let next_use = |at: usize, key: u64| {
            keys[at + 1..].iter().position(|&other| other == key).unwrap_or(usize::MAX)
        };
        for capacity in [5u32, 30] {
            let mut held: Vec<u64> = Vec::new();
            let mut hits = 0;
            for (at, &key) in keys.iter().enumerate() {
                if held.contains(&key) {
                    hits += 1;
                    continue;
                }
                if held.len() == capacity as usize {
                    let far = (0..held.len()).max_by_key(|&i| next_use(at, held[i])).unwrap();
                    held.remove(far);
                }
                held.push(key);
            }
            let count = |kind| by_policy(kind, &keys, capacity).iter().filter(|hit| **hit).count();
            assert_eq!(count(Kind::Belady), hits);
            for kind in Kind::ALL {
                assert!(count(kind) <= hits, "{kind} beats the optimum");
            }
        }
    }
}

#[test]
fn scans_push_hot_blocks_out_of_lru_and_not_out_of_the_others() {
    let mut keys = Vec::new();
    let mut rng = Rng::new(1);
    for round in 0..200u64 {
        keys.extend((0..100).map(|_| rng.below(50)));
        keys.extend((0..100).map(|i| 1_000 + round * 100 + i));
    }
    let count = |kind| by_policy(kind, &keys, 80).iter().filter(|hit| **hit).count();
    let lru = count(Kind::Lru);
    for kind in [Kind::TwoQ, Kind::Arc, Kind::Lirs, Kind::WTinyLfu, Kind::S3Fifo] {
        assert!(count(kind) > lru + 1_000, "{kind}: {} against {lru}", count(kind));
    }
}

#[test]
fn the_default_needs_six_bytes_a_slot_in_sets_and_ten_in_one() {
    for (sets, slots, most) in [(256, 4_096, 6.0), (1, 1 << 20, 10.0)] {
        let policies = Kind::Adaptive.build_all(&vec![slots; sets]);
        let bytes: usize = policies.iter().map(|policy| policy.memory_bytes()).sum();
        let each = bytes as f64 / (sets as f64 * f64::from(slots));
        assert!(each <= most, "{sets} sets: {each} bytes a slot");
        assert!(each > most - 1.0, "{sets} sets: {each} bytes a slot are too few to be true");
    }
}
