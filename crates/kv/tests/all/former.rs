//! Media that held another KVDB: whatever is left of it, a new one, or a copy, shows its own content alone,
//! even where both wrote the same in the same order. (A device that was wiped is mostly wiped at its
//! beginning.)

use std::collections::BTreeMap;

use crate::common::sample::{LBA_SIZE, Media, options, read_all};
use crate::common::{Devices, OnDevices};
use crate::common::{remains, without_manifest};
use esker_kv::{Kvdb, Policy};

/// Forgets the KVDB, and leaves the rest.
fn wipe(devices: &Devices) -> Devices {
    let mut media = Media::of(devices);
    media.0[0].fill(0);
    for class in &mut media.0[1..] {
        class[..LBA_SIZE as usize].fill(0);
    }
    media.devices()
}

/// Writes values of this byte and these numbers, each flushed, and is gone without closing.
fn write_and_vanish(db: Kvdb, byte: u8, numbers: std::ops::Range<u32>) {
    let kvs = db.kvs("kvs").unwrap();
    for number in numbers {
        kvs.put(number.to_be_bytes(), [byte; 100]).unwrap();
        db.sync().unwrap();
    }
}

/// Values with these bytes, in the order of their numbers.
fn check(devices: Devices, wanted: &[u8]) {
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    let db = Kvdb::open_on(devices, options()).unwrap();
    let kvs = db.kvs("kvs").unwrap();
    let mut cursor = kvs.cursor().unwrap();
    let mut found = Vec::new();
    while let Some((_, value)) = cursor.next().unwrap() {
        assert_eq!(value.len(), 100);
        found.push(value[0]);
    }
    assert_eq!(found, wanted);
}

fn create(devices: &Devices) -> Kvdb {
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    db.create_kvs("kvs", Policy::default()).unwrap();
    db
}

#[test]
fn a_new_kvdb_does_not_take_former_records_for_its_own() {
    for count in 0..25 {
        let former = Media::blank().devices();
        write_and_vanish(create(&former), 1, 0..25);
        let devices = wipe(&former);
        write_and_vanish(create(&devices), 2, 0..count);
        check(devices, &vec![2; count as usize]);
    }
}

#[test]
fn a_copy_in_the_place_of_a_former_copy_does_not_take_its_records_for_its_own() {
    let source = Media::blank().devices();
    write_and_vanish(create(&source), 1, 0..10);
    let original = Kvdb::open_on(source, options()).unwrap();
    for count in 0..25 {
        let former = Media::blank().devices();
        original.backup_on(&former).unwrap();
        write_and_vanish(Kvdb::open_on(former.clone(), options()).unwrap(), 2, 10..35);
        let devices = wipe(&former);
        original.backup_on(&devices).unwrap();
        write_and_vanish(Kvdb::open_on(devices.clone(), options()).unwrap(), 3, 10..10 + count);
        check(devices, &[vec![1; 10], vec![3; count as usize]].concat());
    }
}

#[test]
fn a_repair_salvages_nothing_of_a_former_kvdb() {
    let former = Media::blank().devices();
    write_and_vanish(create(&former), 1, 0..200);
    let devices = wipe(&former);
    write_and_vanish(create(&devices), 2, 0..12);
    let salvaged = Media::blank().devices();
    let report = Kvdb::repair_on(&remains(&devices), &salvaged, options()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    check(salvaged, &[2; 12]);
}

/// Content that a repair finds without a manifest: a byte of each value, by number.
fn found_without_a_manifest(devices: &Devices) -> BTreeMap<u32, u8> {
    let salvaged = Media::blank().devices();
    let left = without_manifest(devices);
    Kvdb::repair_on(&left, &salvaged, options()).unwrap();
    let found = read_all(&Kvdb::open_on(salvaged, options()).unwrap()).unwrap();
    let number = |key: Vec<u8>| u32::from_be_bytes(key.try_into().unwrap());
    found.into_iter().map(|((_, key), value)| (number(key), value[0])).collect()
}

/// Media that hold the log of a former KVDB behind that of the present one, which has more
/// records in a frame.
/// Which of both has the higher ids is drawn.
fn with_a_former_kvdb() -> Devices {
    let former = Media::blank().devices();
    write_and_vanish(create(&former), 1, 0..200);
    let devices = wipe(&former);
    let db = create(&devices);
    let kvs = db.kvs("kvs").unwrap();
    (190..340u32).for_each(|number| kvs.put(number.to_be_bytes(), [2; 100]).unwrap());
    db.sync().unwrap();
    devices
}

#[test]
fn without_a_manifest_class_headers_say_whose_it_is() {
    for _ in 0..8 {
        let found = found_without_a_manifest(&with_a_former_kvdb());
        assert_eq!(found, (190..340).map(|number| (number, 2)).collect());
    }
}

#[test]
fn no_kvdb_undoes_what_another_one_has_logged() {
    for _ in 0..8 {
        let found = found_without_a_manifest(&wipe(&with_a_former_kvdb()));
        assert!((200..340).all(|number| found.get(&number) == Some(&2)), "{found:?}");
    }
}

#[test]
fn without_a_manifest_all_of_a_copy_is_found_whatever_origin_its_ids_have() {
    let source = Media::blank().devices();
    write_and_vanish(create(&source), 1, 0..10);
    let original = Kvdb::open_on(source, options()).unwrap();
    let copy = Media::blank().devices();
    original.backup_on(&copy).unwrap();
    write_and_vanish(Kvdb::open_on(copy.clone(), options()).unwrap(), 2, 10..35);
    let wanted = (0..35).map(|number| (number, if number < 10 { 1 } else { 2 })).collect();
    assert_eq!(found_without_a_manifest(&copy), wanted);
}
