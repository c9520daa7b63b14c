//! A KVDB in a directory, with classes on devices that are no files: their names are kept, and
//! whoever opens it brings them.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{small_tuning, test_options};
use esker_base::ErrorKind;
use esker_device::{Device, MemoryDevice};
use esker_kv::{Kvdb, Layout, MediaClass, NamedDevice, Options, Policy};

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("memory", 64 << 20, 512))
}

fn named(name: &str, device: &Arc<dyn Device>) -> NamedDevice {
    NamedDevice { name: name.to_owned(), device: device.clone() }
}

fn options() -> Options {
    test_options(small_tuning())
}

#[test]
fn a_device_is_asked_for_by_its_name_and_found_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let capacity = memory();
    let given = BTreeMap::from([(MediaClass::Capacity, named("mem:a", &capacity))]);
    let db = Kvdb::create_with(dir, &Layout::with_staging(), &given, options()).unwrap();
    let kvs = db.create_kvs("k", Policy::CAPACITY_ONLY).unwrap();
    kvs.put(b"key", &[7; 5000]).unwrap();
    drop(kvs);
    db.close().unwrap();
    assert!(dir.join("staging.esker").exists() && !dir.join("capacity.esker").exists());

    let names = Kvdb::device_names(dir).unwrap();
    assert_eq!(names, BTreeMap::from([(MediaClass::Capacity, "mem:a".to_owned())]));
    let missing = Kvdb::open(dir, options()).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    assert!(missing.to_string().contains("'mem:a'"), "{missing}");
    let wrong = BTreeMap::from([(MediaClass::Capacity, memory())]);
    assert_eq!(Kvdb::open_with(dir, &wrong, options()).err().unwrap().kind(), ErrorKind::Corrupt);

    let right = BTreeMap::from([(MediaClass::Capacity, capacity)]);
    assert!(
        Kvdb::check_with(dir, &right, |_| std::ops::ControlFlow::Continue(()))
            .unwrap()
            .findings
            .is_empty()
    );
    let db = Kvdb::open_with(dir, &right, options()).unwrap();
    assert_eq!(db.kvs("k").unwrap().get(b"key").unwrap().unwrap(), [7; 5000]);
}

#[test]
fn staging_on_a_device_is_added_while_the_database_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::create(scratch.path(), &Layout::capacity_only(), options()).unwrap();
    let staging = memory();
    db.add_staging_named(named("mem:s", &staging)).unwrap();
    db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_eq!(Kvdb::device_names(scratch.path()).unwrap()[&MediaClass::Staging], "mem:s");
    let given = BTreeMap::from([(MediaClass::Staging, staging)]);
    let db = Kvdb::open_with(scratch.path(), &given, options()).unwrap();
    assert_eq!(db.kvs("k").unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_device_with_content_and_a_name_that_is_a_path_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let device = memory();
    let create = |dir: &str, name: &str| {
        let given = BTreeMap::from([(MediaClass::Capacity, named(name, &device))]);
        let dir = scratch.path().join(dir);
        Kvdb::create_with(dir, &Layout::capacity_only(), &given, options())
    };
    for path in ["/dev/null", "capacity.esker", "staging.esker", "./staging", ""] {
        assert_eq!(create("db", path).err().unwrap().kind(), ErrorKind::Invalid, "{path}");
    }
    create("db", "mem:a").unwrap().close().unwrap();
    let taken = create("other", "mem:a").err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    assert!(taken.to_string().contains("mem:a: it holds data"), "{taken}");
}
