use super::*;
use crate::api::kvs::Kvs;
use crate::engine::job::Job;
use crate::testing::kvdb;
use crate::types::policy::Policy;
use crate::types::stream::Stream;

#[test]
fn windows_of_keys_and_of_records_take_no_more_than_one_of_them() {
    let (db, keys, _) = kvdb();
    let records = db.create_kvs("b", Policy::default()).unwrap();
    for n in 0..20_000u64 {
        keys.put(&n.to_be_bytes().repeat(4), &[7; 16]).unwrap();
    }
    (0..2000u64).for_each(|n| records.put(&n.to_be_bytes(), &[7; 1000]).unwrap());
    db.ingest().unwrap();
    let limit = db.engine.tuning.gather_bytes;
    let dram = || {
        let mut scratch = db.engine.scratch();
        let windows = [(); 2].map(|()| scratch.windows.take());
        let kept = windows.iter().filter_map(|window| window.records.as_ref()).map(|it| it.len());
        let dram =
            (windows.iter().map(Window::dram).sum::<usize>() as u64, kept.sum::<usize>() as u64);
        windows.into_iter().for_each(|window| scratch.windows.give_back(window));
        dram
    };
    let spill = |kvs: &Kvs| db.engine.run_first([Job::Spill { kvs: kvs.id }], false).unwrap();
    assert!(spill(&records));
    let (of_keys, of_records) = dram();
    assert!(of_keys < limit / 4 && of_records >= limit / 2, "{of_keys} and {of_records}");
    assert!(spill(&keys));
    let (of_keys, of_records) = dram();
    assert!(of_keys > limit / 2 && of_records == 0, "{of_keys} and {of_records}");
    (2000..4000u64).for_each(|n| records.put(&n.to_be_bytes(), &[7; 1000]).unwrap());
    db.ingest().unwrap();
    assert!(spill(&records));
    let (of_keys, of_records) = dram();
    assert!(of_keys < limit / 4 && of_records >= limit / 2, "{of_keys} and {of_records}");
}

#[test]
fn what_found_no_room_holds_on_to_no_block() {
    let (db, kvs, _) = kvdb();
    (0..100u32).for_each(|n| kvs.put(&n.to_be_bytes(), &[7; 4000]).unwrap());
    db.ingest().unwrap();
    let (engine, view) = (&db.engine, db.engine.view.load());
    let take =
        || engine.classes.capacity.allocate(Stream::OldKeys, 4096, Purpose::Maintenance).ok();
    let _taken: Vec<_> = std::iter::from_fn(take).collect();
    let tree = view.tree(kvs.id).unwrap();
    let lower = tree.leaves[0].lower.clone();
    let compaction = Compaction {
        kvs: kvs.id,
        policy: tree.options.policy,
        compression: tree.options.compression,
        inputs: tree.root.clone(),
        targets: vec![Target { leaf: tree.leaves[0].id, lower, bottom: true }],
        gone: None,
        rewrite: Rewrite::All,
        asked: false,
    };
    let error = compaction.run(engine, &Writes::new(false)).err().unwrap();
    assert!(error.lacks_space(), "{error}");
    assert!(engine.scratch().windows.take().entries.is_empty());
}
