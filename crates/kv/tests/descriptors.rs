//! A process that has no descriptors left: the KVDB goes on.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use esker_kv::{Kvdb, Location, Medium, Options, Policy, Tuning};

mod common;

/// The directory of the KVDB, for the child.
const DIR: &str = "ESKER_TEST_DESCRIPTORS";
const KEYS: u32 = 6000;

fn options() -> Options {
    // Sizes by which a few thousand writes go through all kinds of maintenance.
    let tuning = Tuning { workers: 2, ..common::small_tuning() };
    Options::default().with(|set| {
        set.memory_bytes = 8 << 20;
        set.tuning = Some(tuning);
    })
}

fn value(n: u32) -> Vec<u8> {
    n.to_be_bytes().repeat(60)
}

#[test]
#[ignore = "the child of the test below"]
fn child_without_descriptors() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    let mut taken: Vec<File> = Vec::new();
    let refused = loop {
        match File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(24), "{refused}");
    let put = |keys: std::ops::Range<u32>| {
        keys.for_each(|n| kvs.put(n.to_be_bytes(), value(n)).unwrap());
        db.sync().unwrap();
    };
    put(0..KEYS);
    let mut cursor = kvs.cursor().unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, KEYS);
    let stats = db.stats();
    assert_eq!((stats.stopped, stats.damaged), (None, Vec::new()));
    assert!(stats.maintenance.spills > 0, "{:?}", stats.maintenance);
    assert!(File::open("/dev/null").is_err(), "descriptors were given back");
    drop(taken);
    put(KEYS..2 * KEYS);
    db.close().unwrap();
}

#[test]
fn kvdb_goes_on_without_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = &dir.path().join("db");
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new("sh");
    child.arg("-c").arg("ulimit -n 48; exec \"$0\" --exact child_without_descriptors --ignored");
    let output = child.arg(own).env(DIR, path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
    let db = Kvdb::builder(path).options(options()).open().unwrap();
    let kvs = db.kvs("a").unwrap();
    (0..2 * KEYS)
        .for_each(|n| assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), Some(value(n).into())));
}
