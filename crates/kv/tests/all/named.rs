//! A KVDB in a directory, with classes on devices that are no files: their names are kept, and
//! whoever opens it brings them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{small_tuning, test_options};
use esker_base::ErrorKind;
use esker_device::{Device, MemoryDevice};
use esker_kv::{Kvdb, Location, MediaClass, Medium, Options, Policy};

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("memory", 64 << 20, 512))
}

fn named(name: &str, device: &Arc<dyn Device>) -> Medium {
    Medium::Device { name: name.to_owned(), device: device.clone() }
}

fn options() -> Options {
    test_options(small_tuning())
}

#[test]
fn a_device_is_asked_for_by_its_name_and_found_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let capacity = memory();
    let at = |device| Location::dir(dir).capacity(named("mem:a", device));
    let db = Kvdb::builder(at(&capacity).staging(Medium::InDir)).options(options());
    let db = db.create().unwrap();
    let kvs = db.create_kvs("k", Policy::CAPACITY_ONLY).unwrap();
    kvs.put(b"key", [7; 5000]).unwrap();
    drop(kvs);
    db.close().unwrap();
    assert!(dir.join("staging.esker").exists() && !dir.join("capacity.esker").exists());

    let names = Location::dir(dir).device_names().unwrap();
    assert_eq!(names, BTreeMap::from([(MediaClass::Capacity, "mem:a".to_owned())]));
    let missing = Kvdb::builder(dir).options(options()).open().err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    assert!(missing.to_string().contains("'mem:a'"), "{missing}");
    let other = memory();
    let wrong = Kvdb::builder(at(&other)).options(options()).open().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Corrupt);
    let other_name = Location::dir(dir).capacity(named("mem:b", &capacity));
    let other_name = Kvdb::builder(other_name).options(options()).open().unwrap_err();
    assert_eq!(other_name.kind(), ErrorKind::Invalid);

    assert!(Kvdb::builder(at(&capacity)).check().unwrap().findings.is_empty());
    let db = Kvdb::builder(at(&capacity)).options(options()).open().unwrap();
    assert_eq!(db.kvs("k").unwrap().get(b"key").unwrap().unwrap(), [7; 5000]);
}

#[test]
fn staging_on_a_device_is_added_while_the_database_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(scratch.path()).options(options()).create().unwrap();
    let staging = memory();
    db.add_staging(&named("mem:s", &staging)).unwrap();
    db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_eq!(
        Location::dir(scratch.path()).device_names().unwrap()[&MediaClass::Staging],
        "mem:s"
    );
    let location = Location::dir(scratch.path()).staging(named("mem:s", &staging));
    let db = Kvdb::builder(location).options(options()).open().unwrap();
    assert_eq!(db.kvs("k").unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_device_with_content_and_a_name_that_is_a_path_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let device = memory();
    let create = |dir: &str, name: &str| {
        let location = Location::dir(scratch.path().join(dir)).capacity(named(name, &device));
        Kvdb::builder(location).options(options()).create()
    };
    for path in ["/dev/null", "capacity.esker", "staging.esker", "./staging", ""] {
        assert_eq!(create("db", path).err().unwrap().kind(), ErrorKind::Invalid, "{path}");
    }
    create("db", "mem:a").unwrap().close().unwrap();
    let taken = create("other", "mem:a").err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    assert!(taken.to_string().contains("mem:a: it holds data"), "{taken}");
}
