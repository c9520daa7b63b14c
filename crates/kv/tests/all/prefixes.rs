//! Deleted prefixes: their cost, the space they free, and the keys they leave alone.

use crate::common::OnDevices;
use crate::common::groups::{create, fill, keys, options, read_bytes};
use esker_base::ErrorKind;
use esker_kv::{Batch, ClassStats, KEY_MAX, Kvdb, Policy, Readable};

#[test]
fn a_prefix_of_many_keys_costs_one_record_and_its_space_comes_back_unread() {
    let (db, kvs, devices) = create();
    fill(&db, &kvs, 4000);
    let before = db.stats();
    kvs.delete_prefix(b"b/").unwrap();
    let after = db.stats();
    assert_eq!(after.user_bytes - before.user_bytes, 2);
    assert!(after.dram.memtable_bytes - before.dram.memtable_bytes < 16 << 10);
    assert_eq!(kvs.get(b"b/000007").unwrap(), None);
    assert_eq!(kvs.get(b"a/000007").unwrap().unwrap(), [1; 200]);
    // The prefix reaches the leaves with the next writes.
    for round in 0..4 {
        kvs.put(format!("d/{round}").as_bytes(), b"").unwrap();
        db.ingest().unwrap();
    }
    db.settle().unwrap();
    let settled = db.stats();
    // It has done its work but in leaves of which it hides little.
    assert!(settled.kvss[0].range_tombstones <= 2, "{:?}", settled.kvss);
    assert!(settled.kvss[0].entries < 9000, "{:?}", settled.kvss);
    // It is known as garbage, and so is collected as any other: some of it may stay.
    let sum = |of: fn(&ClassStats) -> u64| settled.classes.iter().map(of).sum::<u64>();
    let (live, garbage) = (sum(|class| class.live_bytes), sum(|class| class.garbage_bytes));
    assert!(garbage < live && live < 8004 * 300, "{live} bytes are live, {garbage} garbage");
    let read = read_bytes(&settled) - read_bytes(&before);
    // Blocks that it shares with others are rewritten: values that stay are read, at most, and not those that go.
    assert!(read < 8000 * 200, "{read} bytes of values were read");
    assert_eq!(keys(&kvs).len(), 8004);
    db.close().unwrap();
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
}

#[test]
fn a_walk_passes_over_a_deleted_prefix_without_reading_it() {
    let (db, kvs, devices) = create();
    fill(&db, &kvs, 8000);
    kvs.delete_prefix(b"b/").unwrap();
    kvs.put(b"b/000500", b"new").unwrap();
    db.close().unwrap();
    // As little DRAM as there may be: every key page that is looked at is read.
    let options = options().with(|set| set.memory_bytes = 1 << 20);
    let db = Kvdb::open_on(devices, options).unwrap();
    let kvs = db.kvs("k").unwrap();
    let misses = |db: &Kvdb| db.stats().cache.key_page_misses;
    let mut cursor = kvs.cursor().unwrap().keys_only();
    for (from, forward, found) in [
        (&b"a/007999"[..], true, [&b"a/007999"[..], b"b/000500", b"c/000000"]),
        (b"c/000001", false, [b"c/000000", b"b/000500", b"a/007999"]),
    ] {
        let before = misses(&db);
        cursor.seek(from).unwrap();
        for expected in found {
            let step = if forward { cursor.next() } else { cursor.prev() };
            assert_eq!(step.unwrap().map(|(key, _)| key), Some(expected));
        }
        let looked_at = misses(&db) - before;
        assert!(looked_at < 40, "{looked_at} key pages were read");
    }
}

#[test]
fn later_writes_stay_at_every_stage_of_their_life() {
    let (db, kvs, devices) = create();
    let other = db.create_kvs("other", Policy::default()).unwrap();
    other.put(b"ab", b"other").unwrap();
    kvs.put(b"ab1", b"old").unwrap();
    kvs.put(b"ac", b"stays").unwrap();
    let snapshot = db.snapshot();
    let mut batch = Batch::new();
    batch.put(&kvs, b"ab0", b"first");
    batch.delete_prefix(&kvs, b"ab");
    batch.put(&kvs, b"ab2", b"last");
    db.write(&batch).unwrap();
    let check = |db: &Kvdb| {
        let (kvs, other) = (db.kvs("k").unwrap(), db.kvs("other").unwrap());
        assert_eq!(keys(&kvs), [&b"ab2"[..], b"ac"]);
        let got = kvs.get_many(&[&b"ab0"[..], b"ab1", b"ab2", b"ac"]).unwrap();
        assert_eq!(got, [None, None, Some(b"last"[..].into()), Some(b"stays"[..].into())]);
        assert_eq!(other.get(b"ab").unwrap().unwrap(), b"other");
    };
    check(&db);
    assert_eq!(snapshot.get(&kvs, b"ab1").unwrap().unwrap(), b"old");
    assert_eq!(snapshot.get(&kvs, b"ab2").unwrap(), None);
    drop(snapshot);
    db.sync().unwrap();
    std::mem::forget(db);
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    check(&db);
    db.ingest().unwrap();
    check(&db);
    db.settle().unwrap();
    check(&db);
    db.close().unwrap();
    let report = Kvdb::check_on(&devices).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    check(&Kvdb::open_on(devices, options()).unwrap());
}

#[test]
fn prefixes_alone_make_kvsets_without_keys_that_reach_every_leaf() {
    let (db, kvs, devices) = create();
    fill(&db, &kvs, 4000);
    assert!(db.stats().kvss[0].leaves > 2, "one prefix is to span leaves");
    for prefix in [&b"a/0000"[..], b"a", b"c/001", b"\xff\xff", &[b'x'; KEY_MAX]] {
        kvs.delete_prefix(prefix).unwrap();
        db.ingest().unwrap();
    }
    db.close().unwrap();
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    let db = Kvdb::open_on(devices, options()).unwrap();
    let kvs = db.kvs("k").unwrap();
    let expected = 4000 + 3000;
    assert_eq!(keys(&kvs).len(), expected);
    db.settle().unwrap();
    assert_eq!(keys(&kvs).len(), expected);
    let mut cursor = kvs.cursor().unwrap();
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.prev().unwrap().unwrap().0, b"c/003999");
    for prefix in [&b"b"[..], b"c"] {
        kvs.delete_prefix(prefix).unwrap();
    }
    assert_eq!(keys(&kvs), Vec::<Vec<u8>>::new());
}

#[test]
fn a_prefix_has_the_length_of_a_key_and_is_of_this_kvs() {
    let (db, kvs, _) = create();
    kvs.put([b'x'; KEY_MAX], b"long").unwrap();
    assert_eq!(kvs.delete_prefix(b"").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(kvs.delete_prefix([b'x'; KEY_MAX + 1]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(kvs.get([b'x'; KEY_MAX]).unwrap().is_some());
    kvs.delete_prefix([b'x'; KEY_MAX]).unwrap();
    assert_eq!(kvs.get([b'x'; KEY_MAX]).unwrap(), None);
    let mut transaction = db.transaction();
    assert_eq!(transaction.delete_prefix(&kvs, b"").unwrap_err().kind(), ErrorKind::Invalid);
    db.drop_kvs("k").unwrap();
    assert_eq!(kvs.delete_prefix(b"x").unwrap_err().kind(), ErrorKind::Closed);
}
