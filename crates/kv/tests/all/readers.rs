//! Readers that are open: they are counted, their age is known, and so is the space that nothing but they keep.

use std::time::Duration;

use crate::common::OnDevices;
use crate::common::{in_memory, medium_tuning, test_options};
use esker_base::Clock;
use esker_kv::{CompactRequest, Kvdb, Options, Policy, Readable, ReaderStats};

const VALUE: usize = 1000;
const KEYS: u32 = 20_000;

fn options() -> Options {
    test_options(medium_tuning()).with(|set| {
        set.memory_bytes = 512 << 20;
        set.transaction_ms = 600_000;
    })
}

fn rewrite(db: &Kvdb, round: u8) {
    let kvs = db.kvs("k").unwrap();
    (0..KEYS).for_each(|n| kvs.put(n.to_be_bytes(), [round; VALUE]).unwrap());
    db.ingest().unwrap();
    db.settle().unwrap();
}

#[test]
fn space_that_only_readers_keep_is_told_with_who_keeps_it() {
    let devices = in_memory("readers", [4 << 20, 512 << 20, 256 << 20]);
    let clock = Clock::virtual_time();
    let options = options().with(|set| set.clock = clock.clone());
    let db = Kvdb::create_on(devices, options).unwrap();
    db.create_kvs("k", Policy::default()).unwrap();
    rewrite(&db, 1);
    db.compact(CompactRequest::Full).unwrap();
    let readers = || db.stats().readers;
    assert_eq!(readers().pinned_bytes, 0);
    assert!(db.remarks().is_empty(), "{:?}", db.remarks());

    type Begin = fn(&Kvdb) -> Box<dyn std::any::Any>;
    type Open = fn(&ReaderStats) -> (usize, u64);
    let kinds: [(&str, Begin, Open); 3] = [
        (
            "1 cursor, the oldest for 60 s",
            |db| Box::new(db.kvs("k").unwrap().cursor().unwrap()),
            |stats| (stats.cursors.open, stats.cursors.oldest_ns),
        ),
        (
            "1 snapshot, the oldest for 60 s",
            |db| Box::new(db.snapshot()),
            |stats| (stats.snapshots.open, stats.snapshots.oldest_ns),
        ),
        (
            "1 transaction, the oldest for 60 s",
            |db| Box::new(db.transaction()),
            |stats| (stats.transactions.open, stats.transactions.oldest_ns),
        ),
    ];
    let live = u64::from(KEYS) * VALUE as u64;
    for (words, begin, open) in kinds {
        let reader = begin(&db);
        assert_eq!(open(&readers()), (1, 0), "{words}");
        rewrite(&db, 2);
        db.compact(CompactRequest::Full).unwrap();
        clock.sleep(Duration::from_secs(60));
        let stats = db.stats();
        let pinned = stats.readers.pinned_bytes;
        assert!(pinned > live && pinned < live / 2 * 5, "{words}: {pinned} of {live}");
        assert_eq!(stats.classes.iter().map(|class| class.pinned_bytes).sum::<u64>(), pinned);
        assert_eq!(open(&stats.readers), (1, 60_000_000_000), "{words}");
        let remarks = db.remarks();
        assert!(remarks.iter().any(|remark| remark.contains(words)), "{words}: {remarks:?}");
        drop(reader);
        db.ingest().unwrap();
        let stats = readers();
        assert_eq!((open(&stats), stats.pinned_bytes), ((0, 0), 0), "{words}");
        assert!(db.remarks().is_empty(), "{:?}", db.remarks());
    }
}

#[test]
fn clones_of_a_snapshot_are_one() {
    let db =
        Kvdb::create_on(in_memory("clones", [4 << 20, 64 << 20, 64 << 20]), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let snapshot = db.snapshot();
    let clone = snapshot.clone();
    let cursor = clone.cursor(&kvs).unwrap();
    drop(snapshot);
    let readers = db.stats().readers;
    assert_eq!((readers.snapshots.open, readers.cursors.open), (1, 1));
    drop((clone, cursor));
    let readers = db.stats().readers;
    assert_eq!((readers.snapshots.open, readers.cursors.open), (0, 0));
}
