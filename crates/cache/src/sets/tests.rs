//! Sets against a map and a list.

use std::collections::BTreeMap;

use esker_base::Rng;
use esker_base::policy::Access;

use super::*;

fn small() -> Geometry {
    Geometry { set_slots: 16, run_blocks: 4, ..Geometry::new(53, 1_000) }
}

#[test]
fn slots_of_the_cache_count_through_the_sets() {
    let sets = Sets::new(small(), Kind::Lru).unwrap();
    assert_eq!(sets.count(), 4);
    let mut expected = 0;
    for set in 0..4 {
        for slot in 0..sets.set(set).slots() {
            assert_eq!(sets.slot_of_cache(set, slot), expected);
            assert_eq!(sets.set_and_slot(expected), (set, slot));
            expected += 1;
        }
    }
    assert_eq!(expected, 53);
}

#[test]
fn a_set_is_an_lru_list_that_spares_dirty_and_busy_blocks() {
    let mut sets = Sets::new(Geometry { seed: 3, ..small() }, Kind::Lru).unwrap();
    // By set: the blocks, the most recent last, and whether they are dirty.
    let mut oracle: BTreeMap<u32, Vec<(u64, bool)>> = BTreeMap::new();
    let mut rng = Rng::new(7);
    let (mut evictions, mut full) = (0, 0);
    for _ in 0..30_000 {
        let block = rng.below(400);
        let index = sets.mapping().set_of(block);
        let set = sets.set_mut(index);
        let list = oracle.entry(index).or_default();
        let known = list.iter().position(|&(other, _)| other == block);
        let slot = set.lookup(block);
        assert_eq!(slot.is_some(), known.is_some());
        match (slot, known, rng.below(8)) {
            (Some(slot), Some(at), 0) => {
                set.remove(slot);
                list.remove(at);
            }
            (Some(slot), Some(at), 1) => {
                assert_eq!(set.set_dirty(slot, true), !list[at].1);
                list[at].1 = true;
            }
            (Some(slot), Some(at), _) => {
                assert_eq!(set.block(slot), Some(block));
                assert_eq!(set.is_dirty(slot), list[at].1);
                set.hit(slot, Access::Read);
                let entry = list.remove(at);
                list.push(entry);
            }
            (None, _, choice) => {
                let evict = if choice == 0 { Evict::Any } else { Evict::Clean };
                let is_full = list.len() == set.slots() as usize;
                let goes = list.iter().position(|&(_, dirty)| !dirty || evict == Evict::Any);
                match set.insert(block, Access::Read, evict) {
                    None => {
                        assert!(is_full && goes.is_none());
                        full += 1;
                    }
                    Some(Inserted { slot, evicted }) => {
                        let expected = is_full.then(|| list.remove(goes.unwrap()));
                        assert_eq!(evicted.map(|gone| (gone.block, gone.dirty)), expected);
                        evictions += usize::from(evicted.is_some());
                        let dirty = rng.chance(99, 100);
                        set.set_dirty(slot, dirty);
                        list.push((block, dirty));
                    }
                }
            }
            (Some(_), None, _) => unreachable!("compared above"),
        }
        let dirty = list.iter().filter(|entry| entry.1).count();
        assert_eq!((set.held() as usize, set.dirty_count() as usize), (list.len(), dirty));
    }
    assert!(evictions > 1_000 && full > 10, "{evictions} {full}");
}

#[test]
fn a_busy_slot_stays() {
    let geometry = Geometry { set_slots: u32::MAX, ..Geometry::new(2, 100) };
    let mut sets = Sets::new(geometry, Kind::Lru).unwrap();
    let set = sets.set_mut(0);
    let first = set.insert(1, Access::Read, Evict::Any).unwrap().slot;
    let second = set.insert(2, Access::Read, Evict::Any).unwrap().slot;
    set.set_busy(first, true);
    let third = set.insert(3, Access::Read, Evict::Any).unwrap();
    assert_eq!(third.slot, second);
    set.set_busy(second, true);
    assert_eq!(set.insert(4, Access::Read, Evict::Any), None);
}

#[test]
fn a_restored_set_finds_its_blocks() {
    let mut sets = Sets::new(small(), Kind::Lru).unwrap();
    let index = sets.mapping().set_of(9);
    let set = sets.set_mut(index);
    set.restore(5, 9);
    assert_eq!((set.lookup(9), set.block(5), set.held()), (Some(5), Some(9), 1));
}

#[test]
fn sets_leave_six_bytes_of_twelve_to_the_policy() {
    let slots = 1 << 16;
    for kind in Kind::ALL {
        let capacities = vec![4096; 16];
        let policies = kind.build_all(&capacities);
        let policies: usize = policies.iter().map(|policy| policy.memory_bytes()).sum();
        let sets = Sets::new(Geometry::new(slots, 1 << 26), kind).unwrap();
        let own = sets.memory_bytes() - policies;
        // Three bytes for the tag, 16/7 for the table, three bits. Two more are the device's.
        assert!((5 << 16..23 << 14).contains(&own), "{kind}: {own} bytes for {slots} slots");
    }
}

#[test]
fn an_origin_that_is_too_large_for_narrow_tags_has_wide_ones() {
    let memory = |origin_blocks| {
        Sets::new(Geometry::new(1 << 16, origin_blocks), Kind::Lru).unwrap().memory_bytes()
    };
    // 16 sets: 2^24 tags each for 2^28 blocks.
    assert_eq!(memory((1 << 27) + 1), memory(1 << 28));
    let (narrow, wide) = (memory(1 << 27), memory(1 << 28));
    assert_eq!(wide - narrow, 1 << 16);
}
