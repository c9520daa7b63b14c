//! A KVDB with keys in three groups, of which a test deletes one by a prefix or a range.

use esker_kv::{Kvdb, Kvs, Options, Policy, Stats, Stream, Tuning};

use super::{Devices, OnDevices, in_memory, small_tuning, test_options};

pub(crate) fn devices() -> Devices {
    in_memory("", [1 << 20, 64 << 20, 32 << 20])
}

/// Leaves of some hundred keys.
pub(crate) fn options() -> Options {
    test_options(Tuning { leaf_key_bytes: 24 << 10, ..small_tuning() })
}

pub(crate) fn create() -> (Kvdb, Kvs, Devices) {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    (db, kvs, devices)
}

/// Keys in three groups of `count`, with values of 200 bytes.
pub(crate) fn fill(db: &Kvdb, kvs: &Kvs, count: u32) {
    for n in 0..count {
        for group in ["a", "b", "c"] {
            kvs.put(format!("{group}/{n:06}").as_bytes(), [1; 200]).unwrap();
        }
    }
    db.ingest().unwrap();
    db.settle().unwrap();
}

pub(crate) fn keys(kvs: &Kvs) -> Vec<Vec<u8>> {
    let mut cursor = kvs.cursor().unwrap().keys_only();
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        found.push(key.to_vec());
    }
    found
}

pub(crate) fn read_bytes(stats: &Stats) -> u64 {
    let streams = stats.classes.iter().flat_map(|class| &class.streams);
    streams.filter(|stream| stream.stream == Stream::OldValues).map(|s| s.read_bytes).sum()
}
