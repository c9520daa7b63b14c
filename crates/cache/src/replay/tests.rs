//! The simulation against plain oracles, and against the sets of the device.

use std::collections::BTreeMap;
use std::time::Duration;

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

#[test]
fn warming_counts_for_nothing_and_fills_the_cache() {
    let trace = random(7, 5_000);
    let config = one_set(Kind::Lru, 300);
    let firsts = trace.references().iter().enumerate().filter(|(_, one)| one.is_first());
    let from = firsts.map(|(at, _)| at).nth(2_500).unwrap();
    let whole = run(&trace, &config).unwrap();
    let warming = run(&trace.part(0, from).unwrap(), &config).unwrap();
    let counted = run_from(&trace, &config, from).unwrap();
    assert_eq!(counted.requests.total(), 2_500);
    let less = |of: fn(&Outcome) -> u64| of(&whole) - of(&warming);
    assert_eq!(counted.references.total(), less(|one| one.references.total()));
    assert_eq!(counted.hits.total(), less(|one| one.hits.total()));
    assert_eq!(counted.disk.blocks.reads, less(|one| one.disk.blocks.reads));
    assert_eq!(counted.evictions, less(|one| one.evictions));
    // A cache that begins empty there hits less.
    let cold = run(&trace.part(from, usize::MAX).unwrap(), &config).unwrap();
    assert!(cold.hits.total() < counted.hits.total(), "{cold:?} {counted:?}");
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
            config.admission = Admission::All;
            config.write_back = WriteBack {
                extent_blocks: 1,
                cold_permille: 0,
                dirty_permille: 1_000,
                ..WriteBack::default()
            };
            let outcome = run(&trace, &config).unwrap();
            let (hits, read, written) = plain_lru(&trace, usize::try_from(slots).unwrap());
            assert_eq!(outcome.hits.total(), hits);
            assert_eq!(outcome.disk.blocks, Split { reads: read, writes: written });
            assert_eq!(outcome.disk.operations.writes, written);
        }
    }
}

#[test]
fn a_stream_is_read_ahead_as_far_as_it_is_long() {
    let mut builder = TraceBuilder::new();
    builder.push(500, 1, Access::Read);
    (0..100).for_each(|n| builder.push(n, 1, Access::Read));
    let trace = builder.finish().unwrap();
    let outcome = |read_ahead_bytes, sequential_bytes, slots| {
        let config = one_set(Kind::Lru, slots);
        run(&trace, &Config { read_ahead_bytes, sequential_bytes, ..config }).unwrap()
    };
    // Blocks 0, 1 and 2 more, 4 and 5 more, 10 and 11 more, 22 and 16 more, then 17 at a time: the
    // last command reads seven that nobody asks for, of which the trace knows nothing.
    let ahead = outcome(16 * 4096, 0, 200);
    assert_eq!(ahead.disk.operations.reads, 1 + 9);
    assert_eq!(ahead.disk.blocks.reads, 1 + 107);
    assert_eq!((ahead.read_ahead, ahead.hits.reads), (98, 91));
    assert_eq!(ahead.flash_blocks_written, 108);
    // Not beyond where the stream bypasses the cache.
    let bypassed = outcome(16 * 4096, 20 * 4096, 200);
    assert_eq!(bypassed.disk.operations.reads, 1 + 4 + 80);
    assert_eq!(bypassed.disk.blocks.reads, 101);
    assert_eq!(outcome(0, 0, 200).disk.operations.reads, 101);
    let optimum = Config { read_ahead_bytes: 16 * 4096, ..one_set(Kind::Belady, 200) };
    assert_eq!(run(&trace, &optimum).unwrap().disk.operations.reads, 101);
}

/// Hits and blocks read by the device's sets for the trace.
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
                config.admission = Admission::All;
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
    let everything = |kind| Config { admission: Admission::All, ..one_set(kind, 300) };
    let configs: Vec<Config> = Kind::ALL.iter().map(|&kind| everything(kind)).collect();
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

#[test]
fn no_more_of_a_set_is_dirty_than_may_be_and_the_coldest_go_first() {
    // Blocks far from each other, each written once: nothing merges.
    let mut builder = TraceBuilder::new();
    (0..50).for_each(|n| builder.push(n * 100, 1, Access::Write));
    builder.push(0, 1, Access::Write);
    let trace = builder.finish().unwrap();
    let writes = |dirty_permille| {
        let write_back = WriteBack { cold_permille: 0, dirty_permille, ..WriteBack::default() };
        let config = Config { write_back, ..one_set(Kind::Lru, 100) };
        run(&trace, &config).unwrap().disk.operations.writes
    };
    // All fit: each is written back once, at the end. Else block 0 is written back before it is
    // written again.
    assert_eq!([writes(1_000), writes(200)], [50, 51]);
}

#[test]
fn streams_and_what_is_not_let_in_pass_by() {
    let mut builder = TraceBuilder::new();
    (0..40).for_each(|n| builder.push(1_000 + n * 32, 32, Access::Read));
    (0..40).for_each(|n| builder.push(9_000 + n * 32, 32, Access::Write));
    let trace = builder.finish().unwrap();
    let config = Config { sequential_bytes: 1 << 20, ..one_set(Kind::Lru, 5_000) };
    let outcome = run(&trace, &config).unwrap();
    // The first megabyte of each is cached, and a hit goes on being one.
    assert_eq!(outcome.bypassed, 2 * (40 - 8) * 32);
    assert_eq!(outcome.flash_blocks_written, 2 * 8 * 32);
    // Past the cache a request is a command; blocks written back are cut into extents.
    assert_eq!(outcome.disk.operations.writes, 32 + 4);
    assert_eq!(outcome.disk.blocks.writes, 40 * 32);

    let mut builder = TraceBuilder::new();
    (0..30_000).for_each(|n| builder.push(n * 7 % 50_000, 1, Access::Read));
    let trace = builder.finish().unwrap();
    let written = |admission| {
        let config = Config { admission, ..one_set(Kind::Lru, 2_000) };
        run(&trace, &config).unwrap().flash_blocks_written
    };
    assert_eq!(written(Admission::All), 30_000);
    assert!(written(Admission::Again) < 15_000);
    assert!(written(Admission::Auto) < 16_000);
}

#[test]
fn dirty_blocks_are_written_back_at_their_age_in_the_time_of_the_trace() {
    let mut builder = TraceBuilder::new();
    for second in 0..100 {
        builder.at(second * 1_000_000_000);
        builder.push(5, 1, Access::Write);
        builder.push(6, 1, if second == 0 { Access::Write } else { Access::Read });
    }
    let trace = builder.finish().unwrap();
    let writes = |dirty_age| {
        let config = Config { dirty_age, ..one_set(Kind::Lru, 100) };
        let disk = run(&trace, &config).unwrap().disk;
        (disk.operations.writes, disk.blocks.writes)
    };
    assert_eq!(writes(None), (1, 2));
    // Swept every 15 seconds, and at the end.
    assert_eq!(writes(Some(Duration::from_secs(30))), (7, 8));
    assert_eq!(Config::new(Kind::Lru, 1).dirty_age, Some(Duration::from_secs(30)));
}
