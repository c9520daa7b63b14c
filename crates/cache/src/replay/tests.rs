//! The simulation against plain oracles, and against the sets of the device.

use std::collections::BTreeMap;

use esker_base::Rng;
use esker_base::policy::Access;

use super::*;
use crate::sets::Evict;
use crate::{Placement, Sets};

/// Skewed reads and writes with scans in between.
fn random(seed: u64, requests: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let mut builder = TraceBuilder::new();
    for _ in 0..requests {
        let access = if rng.chance(1, 3) { Access::Write } else { Access::Read };
        if rng.chance(1, 50) {
            builder.push(rng.below(3_000), 40, Access::Read);
        } else {
            let block = rng.below(2_000).min(rng.below(2_000)).min(rng.below(2_000));
            builder.push(block, u32::try_from(1 + rng.below(4)).unwrap(), access);
        }
    }
    builder.finish().unwrap()
}

/// An LRU cache that is written back a block at a time, as plainly as can be.
fn plain_lru(trace: &Trace, slots: usize) -> (u64, u64, u64) {
    let mut order: Vec<(u32, bool)> = Vec::new();
    let (mut hits, mut read, mut written) = (0, 0, 0);
    for reference in trace.references() {
        let write = reference.access() == Access::Write;
        let at = order.iter().position(|&(id, _)| id == reference.id());
        let was_dirty = at.is_some_and(|at| order.remove(at).1);
        if at.is_some() {
            hits += 1;
        } else {
            read += u64::from(!write);
            if order.len() == slots {
                written += u64::from(order.remove(0).1);
            }
        }
        order.push((reference.id(), was_dirty || write));
    }
    written += order.iter().map(|&(_, dirty)| u64::from(dirty)).sum::<u64>();
    (hits, read, written)
}

fn one_set(policy: Kind, slots: u64) -> Config {
    let mut config = Config::new(policy, slots);
    config.geometry.set_slots = u32::MAX;
    config
}

#[test]
fn a_simulated_lru_cache_is_a_plain_one() {
    for seed in 0..3 {
        let trace = random(seed, 5_000);
        for slots in [1, 50, 700] {
            let mut config = one_set(Kind::Lru, slots);
            config.write_back = WriteBack { extent_blocks: 1, ..WriteBack::default() };
            let outcome = run(&trace, &config).unwrap();
            let (hits, read, written) = plain_lru(&trace, usize::try_from(slots).unwrap());
            assert_eq!(outcome.hits.total(), hits);
            assert_eq!(outcome.disk.blocks, Split { reads: read, writes: written });
            assert_eq!(outcome.disk.operations.writes, written);
        }
    }
}

/// What the device's sets do with the trace, by hits and blocks read.
fn by_sets(trace: &Trace, config: &Config) -> (u64, u64) {
    let geometry = Geometry { origin_blocks: trace.origin_blocks(), ..config.geometry };
    let mut sets = Sets::new(geometry, config.policy).unwrap();
    let (mut hits, mut evictions) = (0, 0);
    for reference in trace.references() {
        let block = trace.block(reference.id());
        let set = sets.mapping().set_of(block);
        let set = sets.set_mut(set);
        if let Some(slot) = set.lookup(block) {
            set.hit(slot, reference.access());
            hits += 1;
        } else {
            let inserted = set.insert(block, reference.access(), Evict::Any).unwrap();
            if inserted.evicted.is_some() {
                evictions += 1;
            }
        }
    }
    (hits, evictions)
}

#[test]
fn the_simulator_does_what_the_sets_of_the_device_do() {
    // Every block of the first 3,040 occurs first, so that numbers are addresses.
    let mut builder = TraceBuilder::new();
    builder.push(0, 3_040, Access::Read);
    for reference in random(9, 6_000).references() {
        builder.push(u64::from(reference.id()), 1, reference.access());
    }
    let trace = builder.finish().unwrap();
    for policy in Kind::ALL.into_iter().filter(|&kind| kind != Kind::Belady) {
        for set_slots in [64, u32::MAX] {
            for placement in [Placement::Hashed, Placement::Linear] {
                let mut config = Config::new(policy, 500);
                config.geometry.set_slots = set_slots;
                config.geometry.placement = placement;
                let outcome = run(&trace, &config).unwrap();
                let expected = by_sets(&trace, &config);
                assert_eq!((outcome.hits.total(), outcome.evictions), expected, "{policy}");
            }
        }
    }
}

#[test]
fn no_policy_beats_the_optimum_and_the_default_beats_lru() {
    let trace = random(4, 30_000);
    let configs: Vec<Config> = Kind::ALL.iter().map(|&kind| one_set(kind, 300)).collect();
    let outcomes = run_all(&trace, &configs, 2).unwrap();
    let hits: BTreeMap<String, u64> = Kind::ALL
        .iter()
        .zip(&outcomes)
        .map(|(kind, outcome)| (kind.to_string(), outcome.hits.total()))
        .collect();
    assert!(hits.values().all(|&count| count <= hits["belady"]), "{hits:?}");
    assert!(hits["adaptive"] > hits["lru"], "{hits:?}");
    let alone = run(&trace, &configs[3]).unwrap();
    assert_eq!(alone, outcomes[3], "threads change nothing");
}

#[test]
fn modes_say_where_writes_go() {
    let mut builder = TraceBuilder::new();
    builder.push(0, 4, Access::Write);
    builder.push(0, 4, Access::Write);
    builder.push(0, 4, Access::Read);
    builder.push(2, 4, Access::Read);
    let trace = builder.finish().unwrap();
    let outcome = |mode| run(&trace, &Config { mode, ..one_set(Kind::Lru, 100) }).unwrap();
    let back = outcome(Mode::WriteBack);
    assert_eq!(back.hits, Split { reads: 6, writes: 4 });
    assert_eq!(back.request_hits, Split { reads: 1, writes: 1 });
    assert_eq!(back.disk.blocks, Split { reads: 2, writes: 4 });
    assert_eq!(back.disk.operations, Split { reads: 1, writes: 1 });
    assert_eq!(back.flash_blocks_written, 10);
    let through = outcome(Mode::WriteThrough);
    assert_eq!(through.disk.blocks, Split { reads: 2, writes: 8 });
    assert_eq!(through.disk.operations, Split { reads: 1, writes: 2 });
    let around = outcome(Mode::WriteAround);
    assert_eq!(around.disk.blocks, Split { reads: 6, writes: 8 });
    assert_eq!((around.hits.reads, around.flash_blocks_written), (2, 6));
}

#[test]
fn the_busier_half_is_half_when_all_are_alike() {
    let close = |counts: &[u64], share: f64| {
        assert!((outcome::busier_half(counts) - share).abs() < 1e-9, "{counts:?}");
    };
    close(&[5, 5, 5, 5], 0.5);
    close(&[5, 5, 5], 0.5);
    close(&[9, 0, 1], 0.95);
    close(&[], 0.0);
}

#[test]
fn wrong_numbers_are_answered_with_what_to_do() {
    let trace = random(1, 10);
    let error = run(&trace, &Config::new(Kind::Lru, 0)).unwrap_err();
    assert!(error.to_string().contains("at least one slot"), "{error}");
    let error = run(&trace, &Config::new(Kind::Lru, 1 << 40)).unwrap_err();
    assert!(error.to_string().contains("smaller"), "{error}");
}
