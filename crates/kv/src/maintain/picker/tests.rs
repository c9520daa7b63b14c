mod choice;

use std::time::Duration;

use esker_base::Rng;
use esker_device::{Device, MemoryDevice};

use super::inputs::pick;
use super::*;
use crate::api::kvdb::Kvdb;
use crate::api::kvs::Kvs;
use crate::maintain::steps;
use crate::media::space::Purpose;
use crate::recover::devices::Devices;
use crate::testing::{device, kvdb, kvdb_on, small_blocks};
use crate::types::ids::{BlockId, KvsId, LeafId};
use crate::types::policy::Policy;
use crate::types::stream::Stream;

/// Ingests `count` records of 1 KiB, none of which hides another.
fn ingest(db: &Kvdb, kvs: &Kvs, count: u64) {
    let first = db.engine.log.visible().0;
    (first..first + count).for_each(|n| kvs.put(n.to_be_bytes(), [7; 1024]).unwrap());
    db.ingest().unwrap();
}

#[test]
fn all_roots_together_make_a_spill_due_and_the_fullest_goes_first() {
    let (db, small, _) = kvdb();
    let large = db.create_kvs("b", Policy::default()).unwrap();
    let spills = || {
        let due = pick(&db.engine, &db.engine.view.load());
        let spills = due.into_iter().filter_map(|job| match job {
            Job::Spill { kvs } => Some(kvs),
            _ => None,
        });
        spills.collect::<Vec<KvsId>>()
    };
    let most = db.engine.pacer.spill_bytes();
    assert_eq!(most, 4 << 20, "a quarter of the medium, and not half of the budget");
    while db.engine.view.load().root_bytes() < most {
        assert_eq!(spills(), [] as [KvsId; 0]);
        ingest(&db, &small, 100);
        ingest(&db, &large, 200);
    }
    let kvs = |name: &str| {
        let view = db.engine.view.load();
        view.trees.values().find(|tree| &*tree.name == name).unwrap().kvs
    };
    assert_eq!(spills(), [kvs("b"), kvs("a")]);
}

#[test]
fn small_writers_keep_the_log_below_half_of_its_class() {
    let memory = |name, bytes| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, bytes, 512)) };
    let (capacity, staging) = (memory("c", 96 << 20), Some(memory("s", 4 << 20)));
    let devices = Devices { manifest: device("m"), capacity, staging };
    let tuning = Tuning { gather_bytes: 16 << 20, ..small_blocks() };
    let (db, small, _) = kvdb_on(devices, tuning);
    small.set_policy(Policy::STAGING_MIN_CAPACITY).unwrap();
    let large = db.create_kvs("b", Policy::STAGING_MIN_CAPACITY).unwrap();
    // So much that nothing is to be saved.
    (0..24).for_each(|_| ingest(&db, &large, 1000));
    db.settle().unwrap();
    let held = || {
        let view = db.engine.view.load();
        let kvsets = view.trees.values().flat_map(|tree| &tree.root);
        let blocks = kvsets.flat_map(|kvset| &kvset.blocks).filter(|(block, _)| block.is_log());
        let sizes = blocks.map(|(block, _)| (block.id, block.allocation.bytes()));
        sizes.collect::<BTreeMap<BlockId, u64>>().into_values().sum::<u64>()
    };
    for n in 0..60 {
        (0..300u64).for_each(|at| large.put((n << 32 | at).to_be_bytes(), [7; 1024]).unwrap());
        ingest(&db, &small, 1);
        db.settle().unwrap();
        assert!(held() < 2 << 20, "{n}: {}", held());
    }
    let spills = db.engine.counters.spills.get();
    assert!((20..60).contains(&spills), "{spills}");
}

#[test]
fn sort_for_scans_is_due_after_spill_for_writers() {
    let (db, kvs, _) = kvdb();
    ingest(&db, &kvs, 200);
    steps::run_job(&db.engine, Job::Spill { kvs: kvs.id }).unwrap();
    let leaf = db.engine.view.load().tree(kvs.id).unwrap().leaves[0].clone();
    leaf.in_vain.store(100 << 20, Ordering::Relaxed);
    let sort = Job::Sort { kvs: kvs.id, leaf: leaf.id };
    assert_eq!(pick(&db.engine, &db.engine.view.load()), std::slice::from_ref(&sort));
    while db.engine.view.load().root_bytes() < db.engine.pacer.spill_bytes() {
        ingest(&db, &kvs, 200);
    }
    let due = pick(&db.engine, &db.engine.view.load());
    assert!(due.contains(&Job::Spill { kvs: kvs.id }), "{due:?}");
    assert_eq!(due.last(), Some(&sort));
}

#[test]
fn many_small_blocks_of_a_leaf_become_few() {
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let tuning =
        Tuning { allocation_bytes: 4096, block_bytes: 1 << 20, ..Tuning::for_budget(16 << 20) };
    let (db, kvs, _) = kvdb_on(devices, tuning);
    let blocks = || {
        let view = db.engine.view.load();
        view.tree(kvs.id).unwrap().leaves.iter().map(|leaf| leaf.blocks().len()).sum::<usize>()
    };
    let mut most = 0;
    for n in 0..200u64 {
        kvs.put(n.to_be_bytes(), [7; 3900]).unwrap();
        db.ingest().unwrap();
        steps::run_job(&db.engine, Job::Spill { kvs: kvs.id }).unwrap();
        db.settle().unwrap();
        most = most.max(blocks());
    }
    assert!(
        (MANY_SMALL_BLOCKS - 1..=MANY_SMALL_BLOCKS).contains(&most) && blocks() < 100,
        "{most} and {}",
        blocks()
    );
    (0..200u64).for_each(|n| assert_eq!(kvs.get(n.to_be_bytes()).unwrap().unwrap(), [7; 3900]));
}

#[test]
fn small_blocks_that_become_as_small_are_not_rewritten_again_and_again() {
    let capacity: Arc<dyn Device> = Arc::new(MemoryDevice::new("c", 80 << 20, 512));
    let devices = Devices { manifest: device("m"), capacity, staging: None };
    let tuning =
        Tuning { allocation_bytes: 4096, block_bytes: 1 << 20, ..Tuning::for_budget(16 << 20) };
    let (db, kvs, _) = kvdb_on(devices, tuning);
    let capacity = db.engine.classes.capacity.clone();
    let take = || capacity.allocate(Stream::OldValues, 32 << 10, Purpose::Maintenance).ok();
    let mut taken: Vec<_> = std::iter::from_fn(take).collect();
    let mut is_kept = false;
    taken.retain(|_| {
        is_kept = !is_kept;
        is_kept
    });
    capacity.reclaim().unwrap();
    let many = MANY_SMALL_BLOCKS as u64;
    for n in 0..2 * many + 10 {
        (6 * n..6 * n + 6).for_each(|n| kvs.put(n.to_be_bytes(), [7; 5000]).unwrap());
        db.ingest().unwrap();
        steps::run_job(&db.engine, Job::Spill { kvs: kvs.id }).unwrap();
        assert!((0..20).any(|_| !db.step().unwrap()), "after {n}: {:?}", db.stats());
    }
    let view = db.engine.view.load();
    let left = view.tree(kvs.id).unwrap().leaves[0].blocks().len() as u64;
    assert!(left >= 2 * many, "there is room for larger ones: {left}");
    assert_eq!(db.engine.counters.collections.get(), 2);
    (0..6 * many).for_each(|n| assert_eq!(kvs.get(n.to_be_bytes()).unwrap().unwrap(), [7; 5000]));
}

#[test]
fn the_poorest_blocks_are_collected_alone_and_before_little_is_spilled() {
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let tuning = Tuning { allocation_bytes: 4096, gather_bytes: 16 << 20, ..small_blocks() };
    let (db, kvs, _) = kvdb_on(devices, tuning);
    let run = |job| assert!(steps::run_job(&db.engine, job).unwrap());
    let put = |count: u64| {
        // Spread over all keys.
        let keys = (0..count).map(|n| (n * 769 % 2000).to_be_bytes());
        keys.for_each(|key| kvs.put(key, [7; 1024]).unwrap());
        db.ingest().unwrap();
    };
    for count in [2000, 1000, 800] {
        put(count);
        run(Job::Spill { kvs: kvs.id });
    }
    let leaf = db.engine.view.load().tree(kvs.id).unwrap().leaves[0].id;
    run(Job::Collect { kvs: kvs.id, leaf, blocks: BTreeSet::new() });
    put(100);
    let best = || {
        let view = db.engine.view.load_full();
        let Job::Collect { blocks, .. } = Picker::new(&db.engine, &view).savings(102).remove(0).1
        else {
            return None;
        };
        let all = view.tree(kvs.id).unwrap().leaves[0].blocks();
        let sizes = blocks.iter().map(|id| all[id].allocation.bytes());
        let bytes = sizes.sum::<u64>() >> 10;
        run(Job::Collect { kvs: kvs.id, leaf, blocks });
        Some(bytes)
    };
    let first = best()
        .expect("of what was spilled second, four fifths are garbage, of the rest at most half");
    assert!((64..1200).contains(&first), "{first} KiB");
    assert!(std::iter::from_fn(best).count() > 0);
    let left = Picker::new(&db.engine, &db.engine.view.load()).savings(102);
    assert_eq!(left, [(left[0].0, Job::Spill { kvs: kvs.id })]);
}

#[test]
fn where_space_is_short_leaves_are_merged_early_that_save_some() {
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let tuning = Tuning { allocation_bytes: 4096, ..small_blocks() };
    let (db, kvs, _) = kvdb_on(devices, tuning);
    let put = |range: std::ops::Range<u64>| {
        let mut rng = Rng::new(range.start);
        range.for_each(|_| {
            kvs.put(rng.below(u64::MAX).to_be_bytes().repeat(4), [7; 8]).unwrap();
        });
        db.ingest().unwrap();
    };
    let percent = || db.engine.classes.capacity.used_bytes() * 100 / (16 << 20);
    let mut first = 0;
    while percent() < 70 {
        put(first..first + 15_000);
        first += 15_000;
        db.settle().unwrap();
    }
    let run = |job| assert!(steps::run_job(&db.engine, job).unwrap());
    let view = db.engine.view.load_full();
    let leaves: Vec<LeafId> =
        view.tree(kvs.id).unwrap().leaves.iter().map(|leaf| leaf.id).collect();
    drop(view);
    for leaf in leaves {
        run(Job::Collect { kvs: kvs.id, leaf, blocks: BTreeSet::new() });
    }
    let due = || {
        assert!((70..85).contains(&percent()), "{}", percent());
        pick(&db.engine, &db.engine.view.load())
            .iter()
            .any(|job| matches!(job, Job::Compact { .. }))
    };
    let spill = |range| {
        put(range);
        run(Job::Spill { kvs: kvs.id });
    };
    spill(1_000_000..1_000_500);
    assert!(!due(), "there is nothing to be saved");
    spill(0..8_000);
    assert!(due(), "some of it is garbage");
}

#[test]
fn idle_root_spills_at_a_quarter() {
    let (db, kvs, clock) = kvdb();
    while db.engine.view.load().root_bytes() < db.engine.pacer.spill_bytes() / 4 {
        ingest(&db, &kvs, 200);
    }
    clock.advance(Duration::from_millis(4999));
    assert!(
        !pick(&db.engine, &db.engine.view.load())
            .iter()
            .any(|job| matches!(job, Job::Spill { .. }))
    );
    clock.advance(Duration::from_millis(1));
    assert!(
        pick(&db.engine, &db.engine.view.load()).iter().any(|job| matches!(job, Job::Spill { .. }))
    );
}

#[test]
fn kvsets_of_about_a_size_are_merged_and_those_that_gathered_meanwhile_at_once() {
    assert_eq!(merge_run(&[1, 1, 1], 4), None);
    assert_eq!(merge_run(&[1, 1, 1, 1], 4), Some(4));
    assert_eq!(merge_run(&[1, 1, 1, 4], 4), None);
    assert_eq!(merge_run(&[1, 1, 1, 1, 4, 4, 4], 4), Some(4));
    assert_eq!(merge_run(&[1; 12], 4), Some(12));
    assert_eq!(merge_run(&[9, 9], usize::MAX), None);
}

#[test]
fn whatever_comes_there_are_few_kvsets_and_keys_are_rewritten_few_times() {
    for largest in [1, 10, 1000] {
        let (mut rng, mut root) = (Rng::new(largest), Vec::new());
        let (mut ingested, mut rewritten) = (0, 0);
        for _ in 0..1000 {
            let entries = 1 + rng.below(largest);
            root.insert(0, entries);
            ingested += entries;
            while let Some(newest) = merge_run(&root, 4) {
                let merged = root.drain(..newest).sum();
                root.insert(0, merged);
                rewritten += merged;
            }
            assert!(root.len() <= 24, "{root:?}");
        }
        assert!(rewritten <= 7 * ingested, "{rewritten} for {ingested}");
    }
}
