//! Cost of a read to the devices: a value that is not in DRAM one device read, a key that does not exist none, and
//! a scan of neighbours far fewer reads than records.
//!
//! The devices count. Maintenance is manual, so that nobody else reads meanwhile, and the data is
//! four times the memory budget, so that most values cannot be in DRAM.

use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use esker_base::Rng;
use esker_device::{Device, MemoryDevice};
use esker_kv::{Kvdb, Kvs, Maintenance, Options, Policy, VALUE_MAX};
use xxhash_rust::xxh3::xxh3_64;

const MEMORY_BYTES: u64 = 32 << 20;
const RECORDS: u64 = 4 * MEMORY_BYTES / 1000;
/// How many reads each test counts.
const SAMPLES: u64 = 4000;

/// A KVDB on devices that count.
struct Counted {
    devices: Devices,
    db: Option<Kvdb>,
}

impl Counted {
    fn create(lba_size: u32) -> (Counted, Kvs) {
        let memory = |name: &str, bytes: u64| -> Arc<dyn Device> {
            Arc::new(MemoryDevice::new(name, bytes, lba_size))
        };
        let devices = Devices {
            manifest: memory("manifest", 64 << 20),
            capacity: memory("capacity", 1 << 30),
            staging: Some(memory("staging", 1 << 30)),
        };
        let db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let kvs = db.create_kvs("records", Policy::default()).unwrap();
        let db = Some(db);
        (Counted { devices, db }, kvs)
    }

    fn db(&self) -> &Kvdb {
        self.db.as_ref().unwrap()
    }

    /// Closes it, which empties all caches, opens it again, and lets maintenance read its key pages.
    fn reopen(&mut self, kvs: Kvs) -> Kvs {
        let kvs = self.reopen_unsettled(kvs);
        self.db().settle().unwrap();
        kvs
    }

    /// Closes it and opens it again.
    fn reopen_unsettled(&mut self, kvs: Kvs) -> Kvs {
        drop(kvs);
        self.db.take().unwrap().close().unwrap();
        self.db = Some(Kvdb::open_on(self.devices.clone(), options()).unwrap());
        self.db().kvs("records").unwrap()
    }

    fn reads(&self) -> u64 {
        let Devices { manifest, capacity, staging } = &self.devices;
        let all = [manifest, capacity].into_iter().chain(staging);
        all.map(|device| device.stats().reads).sum()
    }

    /// Returns the result of `run`, and how many device reads it took.
    fn count<T>(&self, run: impl FnOnce() -> T) -> (T, u64) {
        let before = self.reads();
        let result = run();
        (result, self.reads() - before)
    }

    /// Gets `SAMPLES` records of `0..records` at random: each is right and takes one read at most.
    /// Returns how many took one.
    fn check_gets(&self, kvs: &Kvs, records: u64, expected: impl Fn(u64) -> Vec<u8>) -> u64 {
        let mut rng = Rng::new(3);
        let mut total = 0;
        for _ in 0..SAMPLES {
            let number = rng.below(records);
            let (value, reads) = self.count(|| kvs.get(key(number)).unwrap());
            assert!(value == Some(expected(number).into()), "record {number}");
            assert!(reads <= 1, "record {number} took {reads} device reads");
            total += reads;
        }
        total
    }
}

fn options() -> Options {
    Options::default().with(|set| {
        set.memory_bytes = MEMORY_BYTES;
        set.durability.bytes = 1 << 20;
        set.maintenance = Maintenance::Manual;
    })
}

/// Keys in no order, none above `userA`.
fn key(number: u64) -> Vec<u8> {
    format!("user{:020}", xxh3_64(&number.to_le_bytes())).into_bytes()
}

/// A value that tells its record and version. The sizes, and so the places, are all different.
fn value(number: u64, version: u64) -> Vec<u8> {
    let mut rng = Rng::new(number << 8 | version);
    let mut value = vec![0; usize::try_from(900 + rng.below(200)).unwrap()];
    rng.fill(&mut value);
    value
}

/// All records, aged as far as maintenance wants to.
fn loaded(lba_size: u32) -> (Counted, Kvs) {
    let (counted, kvs) = Counted::create(lba_size);
    for number in 0..RECORDS {
        kvs.put(key(number), value(number, 0)).unwrap();
    }
    counted.db().settle().unwrap();
    (counted, kvs)
}

#[test]
fn a_value_that_is_not_in_dram_takes_one_device_read() {
    // LBAs so small that every record lies on several, and so large that some do.
    for lba_size in [512, 4096] {
        let (mut counted, kvs) = loaded(lba_size);
        let settled = counted.check_gets(&kvs, RECORDS, |number| value(number, 0));
        let kvs = counted.reopen(kvs);
        let reopened = counted.check_gets(&kvs, RECORDS, |number| value(number, 0));
        println!(
            "LBAs of {lba_size}: {settled} device reads for {SAMPLES} gets, reopened {reopened}"
        );
        // Three quarters of the data cannot be in DRAM.
        assert!(settled > SAMPLES / 2 && reopened > SAMPLES / 2);
    }
}

#[test]
fn updates_that_are_still_in_the_root_take_no_more_reads() {
    let (mut counted, kvs) = loaded(4096);
    let version = |number: u64| u64::from(number.is_multiple_of(5));
    for round in 0..2 {
        for number in (0..RECORDS).filter(|&n| version(n) == 1 && n % 2 == round) {
            kvs.put(key(number), value(number, 1)).unwrap();
            if number % 20_000 < 10 {
                counted.db().ingest().unwrap();
            }
        }
        counted.db().ingest().unwrap();
        let root = counted.db().stats().kvss[0].root_kvsets;
        assert!(root > 0, "the updates were to be in the root");
    }
    let young = counted.check_gets(&kvs, RECORDS, |number| value(number, version(number)));
    // Maintenance would age them. A walk over all keys brings their pages, too.
    let kvs = counted.reopen_unsettled(kvs);
    let mut cursor = kvs.cursor().unwrap().keys_only();
    while cursor.next().unwrap().is_some() {}
    drop(cursor);
    let root = counted.db().stats().kvss[0].root_kvsets;
    assert!(root > 0, "the updates were to be in the root");
    let reopened = counted.check_gets(&kvs, RECORDS, |number| value(number, version(number)));
    println!("{young} device reads for {SAMPLES} gets, reopened {reopened}; root of {root} kvsets");
    assert!(young > SAMPLES / 2 && reopened > SAMPLES / 2);
}

#[test]
fn a_key_that_does_not_exist_takes_no_device_read() {
    let (mut counted, mut kvs) = loaded(4096);
    for number in 0..RECORDS / 50 {
        kvs.delete(key(number)).unwrap();
    }
    for reopened in [false, true] {
        if reopened {
            kvs = counted.reopen(kvs);
        }
        let ((), reads) = counted.count(|| {
            for absent in 0..SAMPLES {
                let deleted = absent % (RECORDS / 50);
                assert_eq!(kvs.get(key(RECORDS + absent)).unwrap(), None);
                assert_eq!(kvs.get(key(deleted)).unwrap(), None);
            }
        });
        assert_eq!(reads, 0, "reopened: {reopened}");
    }
}

#[test]
fn large_values_take_one_device_read_too() {
    let (mut counted, kvs) = Counted::create(4096);
    let sizes =
        [4000, 4096, 5000, 8192, 16_300, 16_384, 20_000, 100_000, 300_000, 900_000, VALUE_MAX];
    let size = |number: u64| sizes[usize::try_from(number).unwrap() % sizes.len()];
    let value = |number: u64| {
        let mut value = vec![0; size(number)];
        Rng::new(number).fill(&mut value);
        value
    };
    for number in 0..sizes.len() as u64 * 8 {
        kvs.put(key(number), value(number)).unwrap();
    }
    counted.db().settle().unwrap();
    let kvs = counted.reopen(kvs);
    let mut worst = std::collections::BTreeMap::new();
    for number in 0..sizes.len() as u64 * 8 {
        let (got, reads) = counted.count(|| kvs.get(key(number)).unwrap());
        assert!(got == Some(value(number).into()), "record {number}");
        let most = worst.entry(size(number)).or_insert(0);
        *most = reads.max(*most);
    }
    println!("device reads by size of the value: {worst:?}");
    assert!(worst.values().all(|&reads| reads <= 1), "{worst:?}");
}

/// Values age in key order, into a block or two for each spill, and stay there when keys are
/// compacted: neighbours lie in as many runs as there were spills. A cursor that reads twice as
/// much each time it goes on in a run needs, for 2,000 records in a dozen runs, eight or nine reads
/// for each: half of the limit here.
#[test]
fn a_scan_of_neighbours_takes_far_fewer_reads_than_records() {
    const SCANNED: u64 = 2000;
    let (mut counted, kvs) = loaded(4096);
    // Values that the root still holds are not in key order: more updates, until it holds none.
    for round in 0.. {
        if counted.db().stats().kvss[0].root_kvsets == 0 {
            break;
        }
        for number in (0..100).map(|n| round * 100 + n) {
            kvs.put(key(number), value(number, 0)).unwrap();
        }
        counted.db().ingest().unwrap();
        counted.db().settle().unwrap();
    }
    let kvs = counted.reopen(kvs);
    let mut rng = Rng::new(5);
    for _ in 0..5 {
        let start = key(rng.below(RECORDS));
        let mut cursor = kvs.cursor().unwrap();
        cursor.seek(&start).unwrap();
        let (records, reads) = counted.count(|| {
            let mut records = 0;
            while records < SCANNED && cursor.next().unwrap().is_some() {
                records += 1;
            }
            records
        });
        println!("{records} records from {} took {reads} device reads", start.escape_ascii());
        assert!(reads <= SCANNED / 10, "{reads} device reads for {records} records");
    }
}
