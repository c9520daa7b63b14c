//! Tests of where the classes of a KVDB are, and of creating it.

use super::*;
use crate::api::kvdb::Kvdb;
use crate::recover::open;
use crate::types::options::Options;
use crate::types::policy::Policy;

const CLASS: MediaClass = MediaClass::Staging;

fn staging_of(dir: &Path) -> String {
    open_manifest(dir, true).unwrap().1.classes[&CLASS].clone()
}

fn check(dir: &Path) {
    let db = Kvdb::builder(dir).open().unwrap();
    assert_eq!(db.kvs("k").unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_class_in_the_directory_moves_with_it_and_its_file_goes_with_it() {
    for (path, known_as) in [
        ("e", "staging.esker"),
        ("e/staging.esker", "staging.esker"),
        ("e/../link/./staging.esker", "staging.esker"),
        ("e/capacity.esker", "capacity.esker"),
        ("link/fast", "./fast"),
        ("e/below", "./below/staging.esker"),
    ] {
        for is_added in [false, true] {
            let scratch = tempfile::tempdir().unwrap();
            let (dir, moved) = (scratch.path().join("e"), scratch.path().join("moved"));
            let path = scratch.path().join(path);
            if is_added || path != dir {
                std::fs::create_dir_all(dir.join("below")).unwrap();
            }
            std::os::unix::fs::symlink(&dir, scratch.path().join("link")).unwrap();
            let mut location =
                Location::dir(&dir).capacity(Medium::Path(scratch.path().join("capacity")));
            let staging = Medium::Path(path.clone());
            if !is_added {
                location = location.staging(staging.clone());
            }
            let db = Kvdb::builder(&location).create().unwrap();
            if is_added {
                db.add_staging(&staging).unwrap();
            }
            db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
            db.close().unwrap();
            assert_eq!(staging_of(&dir), known_as);
            assert!(dir.join(known_as).exists());
            std::fs::rename(&dir, &moved).unwrap();
            check(&moved);
            let db = Kvdb::builder(&moved).open().unwrap();
            db.remove_staging().unwrap();
            assert!(!moved.join(known_as).exists(), "{known_as} stayed");
            drop(db);
            check(&moved);
        }
    }
}

#[test]
fn a_class_elsewhere_is_known_by_its_path_and_its_file_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("e");
    let path = scratch.path().join("e-staging");
    let location = Location::dir(&dir).staging(Medium::Path(path.clone()));
    let db = Kvdb::builder(&location).create().unwrap();
    db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_eq!(Path::new(&staging_of(&dir)), path);
    std::fs::rename(&dir, scratch.path().join("moved")).unwrap();
    let dir = scratch.path().join("moved");
    check(&dir);
    Kvdb::builder(&dir).open().unwrap().remove_staging().unwrap();
    assert!(path.exists());
}

/// The directory as a process leaves it that is killed at this point of a creation.
fn killed_at(point: usize, scratch: &Path) -> PathBuf {
    let (dir, left) = (scratch.join("dir"), scratch.join(format!("left-{point}")));
    let made = Location::dir(&dir).staging(Medium::InDir).make().unwrap();
    let classes = made.devices.classes(&Options::default());
    classes.all().iter().take(point).for_each(|media| media.write_header(made.uuid()).unwrap());
    if point > 2 {
        open::create(&made.devices, &made.classes, made.uuid(), &Options::default()).unwrap();
    }
    std::fs::create_dir(&left).unwrap();
    for file in std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), left.join(file.file_name())).unwrap();
    }
    drop((classes, made));
    assert!(!dir.exists(), "an error leaves nothing");
    left
}

#[test]
fn open_or_create_goes_on_where_a_process_was_killed_that_created() {
    let scratch = tempfile::tempdir().unwrap();
    for point in 0..=3 {
        let left = killed_at(point, scratch.path());
        let location = Location::dir(&left).staging(Medium::InDir);
        let db = Kvdb::builder(&location).open_or_create().unwrap();
        db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
        db.close().unwrap();
        assert!(!creation::is_left(&left), "{point}");
        check(&left);
    }
}

#[test]
fn creation_that_goes_on_takes_no_class_of_another_kvdb() {
    let scratch = tempfile::tempdir().unwrap();
    let left = killed_at(2, scratch.path());
    let other = scratch.path().join("other");
    Kvdb::builder(&other).create().unwrap().close().unwrap();
    let capacity = std::fs::read(other.join("capacity.esker")).unwrap();
    std::fs::write(left.join("capacity.esker"), &capacity).unwrap();
    let error = Kvdb::builder(&left).open_or_create().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert_eq!(std::fs::read(left.join("capacity.esker")).unwrap(), capacity);
}

/// As manifests of former builds have it.
#[test]
fn a_class_in_the_directory_may_be_known_by_an_absolute_path() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("e");
    let path = dir.join("staging.esker");
    let mut made = Location::dir(&dir).staging(Medium::InDir).make().unwrap();
    made.classes.last_mut().unwrap().1 = path.to_str().unwrap().to_owned();
    open::create(&made.devices, &made.classes, made.uuid(), &Options::default()).unwrap();
    drop(made.keep());
    let db = Kvdb::builder(&dir).open().unwrap();
    db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
    db.close().unwrap();
    assert_eq!(Path::new(&staging_of(&dir)), path);
    check(&dir);
    Kvdb::builder(&dir).open().unwrap().remove_staging().unwrap();
    assert!(!path.exists());
    check(&dir);
}
