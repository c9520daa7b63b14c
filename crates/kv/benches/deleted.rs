//! Walks over deleted keys: how long a seek takes that has to pass it, the first time and then.
//!
//! `cargo bench -p esker-kv --bench deleted`. On devices in memory, with the maintenance of an idle KVDB.

use std::time::Duration;

use esker_base::Clock;
use esker_device::MemoryDevice;
use esker_kv::{Cursor, Kvdb, Kvs, Location, Policy};

const KEYS: u32 = 300_000;
const PREFIXED: u32 = 100_000;
const HEADS: u32 = 100_000;

fn kvdb() -> (Kvdb, Kvs) {
    let device = |name: &str, bytes: u64| std::sync::Arc::new(MemoryDevice::new(name, bytes, 4096));
    let location = Location::devices(device("manifest", 4 << 20), device("capacity", 4 << 30));
    let db = Kvdb::builder(location).create().expect("a KVDB in memory");
    let kvs = db.create_kvs("k", Policy::default()).expect("a KVS");
    (db, kvs)
}

fn key(n: u32) -> Vec<u8> {
    [b"b/", &n.to_be_bytes()[..]].concat()
}

fn took(walk: impl FnOnce()) -> Duration {
    let clock = Clock::real();
    let began = clock.now();
    walk();
    clock.now().since(began)
}

/// From the key before the deleted ones to the one behind them, and back.
fn cross(kvs: &Kvs, forward: bool) {
    let mut cursor = kvs.cursor().expect("a cursor");
    cursor.seek(if forward { b"b" } else { b"c" }).expect("sought");
    let step = |cursor: &mut Cursor| {
        let found = if forward { cursor.next() } else { cursor.prev() };
        found.expect("walked").map(|(key, _)| key.to_vec())
    };
    let expected = if forward { b"c" } else { b"a" };
    assert_eq!(step(&mut cursor).as_deref(), Some(&expected[..]));
}

/// The first walk, and the median of those that come then, both ways.
fn show(what: &str, kvs: &Kvs) {
    for forward in [true, false] {
        let first = took(|| cross(kvs, forward));
        let mut others: Vec<Duration> = (0..15).map(|_| took(|| cross(kvs, forward))).collect();
        others.sort_unstable();
        let way = if forward { "forward" } else { "back" };
        println!("{what}, {way}: first {first:?}, then {:?}", others[others.len() / 2]);
    }
}

fn ends(kvs: &Kvs) {
    for key in [b"a", b"c"] {
        kvs.put(key, b"there").expect("put");
    }
}

fn main() {
    for (ingests, of) in [(false, "a memtable"), (true, "kvsets")] {
        let (db, kvs) = kvdb();
        ends(&kvs);
        (0..PREFIXED).for_each(|n| kvs.put(key(n), [1; 20]).expect("put"));
        kvs.delete_prefix(b"b/").expect("deleted");
        if ingests {
            db.ingest().expect("ingested");
        }
        show(&format!("a prefix of {PREFIXED} keys in {of}"), &kvs);
        let (db, kvs) = kvdb();
        ends(&kvs);
        (0..KEYS).for_each(|n| kvs.put(key(n), [1; 20]).expect("put"));
        if ingests {
            db.ingest().expect("ingested");
        }
        (0..KEYS).for_each(|n| kvs.delete(key(n)).expect("deleted"));
        if ingests {
            db.ingest().expect("ingested");
        }
        show(&format!("{KEYS} deleted keys in {of}"), &kvs);
    }
    let (_db, kvs) = kvdb();
    (0..1000).for_each(|n| kvs.put(key(n), [1; 20]).expect("put"));
    let mut times = Vec::new();
    for n in 0..HEADS {
        kvs.put(key(1000 + n), [1; 20]).expect("put");
        // Each of a few, so that it ends where a walk takes long.
        if n % 1000 < 20 {
            let mut head = None;
            times.push(took(|| {
                let mut cursor = kvs.cursor().expect("a cursor").expecting(1);
                head = cursor.next().expect("walked").map(|(key, _)| key.to_vec());
            }));
            assert_eq!(head, Some(key(n)));
        }
        kvs.delete(key(n)).expect("deleted");
    }
    let last = &mut times[1800..];
    last.sort_unstable();
    println!("the head of a queue after {HEADS}: {:?}", last[last.len() / 2]);
}
