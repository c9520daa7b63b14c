//! Files that were cut short, and devices that became smaller: refused at open, in words, and repaired.

use std::fs::{File, OpenOptions};
use std::path::Path;

use crate::common::{Devices, OnDevices};
use esker_base::ErrorKind;
use esker_kv::{Kvdb, Location, MediaClass, Medium, Options, Policy};

fn filled(dir: &Path) -> u64 {
    let db = Kvdb::builder(Location::dir(dir).staging(Medium::InDir))
        .options(Options::default())
        .create()
        .unwrap();
    for (name, policy) in [("a", Policy::default()), ("b", Policy::CAPACITY_ONLY)] {
        let kvs = db.create_kvs(name, policy).unwrap();
        for n in 0..3000u32 {
            kvs.put(n.to_be_bytes(), [7; 300]).unwrap();
        }
    }
    db.compact(esker_kv::CompactRequest::Full).unwrap();
    db.close().unwrap();
    File::open(dir.join("capacity.esker")).unwrap().metadata().unwrap().len()
}

#[test]
fn class_file_cut_short_is_refused_by_its_sizes_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    filled(&old);
    for class in ["staging", "capacity"] {
        let path = old.join(format!("{class}.esker"));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 4096, 8192] {
            file.set_len(length).unwrap();
            for read_only in [false, true] {
                let options = Options::default().with(|set| set.read_only = read_only);
                let error = Kvdb::builder(&old).options(options).open().map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                let message = error.to_string();
                let size = format!("it has {length} bytes");
                let words = [&path.to_string_lossy()[..], "cut short", &size, "esker kv repair"];
                words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
            }
            assert_eq!(file.metadata().unwrap().len(), length, "the refused open wrote");
        }
        let new = dir.path().join(format!("without-{class}"));
        let remains = Location::dir(&old).remains().unwrap();
        let options = Options::default();
        let report = Kvdb::builder(&new).options(options).repair(&remains).unwrap();
        assert!(!report.is_sound(), "{report:#?}");
        drop(remains);
        Kvdb::builder(&new).options(Options::default()).open().unwrap().close().unwrap();
        std::fs::write(&path, whole).unwrap();
        let db = Kvdb::builder(&old).options(Options::default()).open().unwrap();
        assert_eq!(db.kvs("a").unwrap().get(7u32.to_be_bytes()).unwrap().unwrap(), [7; 300]);
        db.close().unwrap();
    }
}

#[test]
fn killed_kvdb_opens_whatever_its_log_has_taken() {
    let dir = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(dir.path()).options(Options::default()).create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    kvs.put(b"k", b"v").unwrap();
    db.sync().unwrap();
    let copy = tempfile::tempdir().unwrap();
    for file in ["manifest.esker", "capacity.esker"] {
        std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
    }
    let capacity = copy.path().join("capacity.esker");
    // The log has written one frame: a crash may have left no more than that, and the length of it.
    OpenOptions::new().write(true).open(&capacity).unwrap().set_len(64 << 10).unwrap();
    let db = Kvdb::builder(copy.path()).options(Options::default()).open().unwrap();
    assert_eq!(db.kvs("a").unwrap().get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn smaller_device_is_refused_by_its_sizes() {
    use crate::common::{bytes_of, in_memory, small_tuning, test_options};
    use esker_base::{AlignedBuf, Lba};
    use esker_device::{Device, MemoryDevice, Port};
    use std::sync::Arc;
    let devices = in_memory("", [128 << 10, 2 << 20, 1 << 20]);
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("a", Policy::CAPACITY_ONLY).unwrap();
    (0..2000u32).for_each(|n| kvs.put(n.to_be_bytes(), [7; 300]).unwrap());
    db.settle().unwrap();
    db.close().unwrap();
    let bytes = 128 << 10;
    let smaller: Arc<dyn Device> = Arc::new(MemoryDevice::new("smaller", bytes, 512));
    let start = AlignedBuf::padded(&bytes_of(&*devices.capacity)[..128 << 10], 512);
    Port::open(&*smaller, 1).unwrap().write(Lba(0), start, None).unwrap();
    let shrunk = Devices { capacity: smaller, ..devices.clone() };
    let error = Kvdb::open_on(shrunk, test_options(small_tuning())).map(drop).unwrap_err();
    let message = error.to_string();
    let words = ["smaller: the capacity class is cut short: it has 131072 bytes", "size"];
    words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
    assert!(message.contains(&MediaClass::Capacity.to_string()));
    Kvdb::open_on(devices, test_options(small_tuning())).unwrap();
}
