//! How many bytes the devices write for each byte that a user writes, in a load of 1,000-byte
//! records whose keys arrive in no order: the wear of each tier of flash.
//!
//! The devices count, not the engine; the engine's figures have to agree. The full size:
//!
//! ```text
//! cargo test --release -p esker-kv --test all bytes:: -- --ignored --nocapture
//! ```

use std::fmt;
use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use esker_base::Rng;
use esker_device::{Device, MemoryDevice};
use esker_kv::{Kvdb, Kvs, Maintenance, MediaClass, Options, Policy, Stats, Stream, Tuning};
use xxhash_rust::xxh3::xxh3_64;

/// Device bytes per user byte, at most: everything that any device is given to write.
const MOST_IN_ALL: f64 = 2.3;
/// The same for the capacity class of a KVDB that has a staging class.
const MOST_TO_CAPACITY: f64 = 1.15;

const VALUE_BYTES: usize = 1000;
/// The header of a class, in an LBA of its own.
const HEADER_BYTES: u64 = 4096;

#[derive(Clone, Copy)]
struct Load {
    records: u64,
    memory_bytes: u64,
}

/// Small enough for every run of the tests; several dozen memtables large.
const SMALL: Load = Load { records: 100_000, memory_bytes: 64 << 20 };
const FULL: Load = Load { records: 1_000_000, memory_bytes: 256 << 20 };

fn devices(staging: bool) -> Devices {
    let memory = |name: &str, bytes: u64| -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(name, bytes, 4096))
    };
    Devices {
        manifest: memory("manifest", 64 << 20),
        capacity: memory("capacity", 8 << 30),
        staging: staging.then(|| memory("staging", 8 << 30)),
    }
}

/// `user` and a number that says nothing of when the record was written, as YCSB does it.
fn key(number: u64) -> String {
    format!("user{}", xxh3_64(&number.to_le_bytes()))
}

fn put_all(kvs: &Kvs, load: Load) -> u64 {
    let (mut rng, mut value) = (Rng::new(7), [0; VALUE_BYTES]);
    let mut user_bytes = 0;
    for number in 0..load.records {
        rng.fill(&mut value);
        let key = key(number);
        kvs.put(key.as_bytes(), value).unwrap();
        user_bytes += (key.len() + value.len()) as u64;
    }
    user_bytes
}

/// Bytes that the devices were given to write.
struct Written {
    manifest: u64,
    capacity: u64,
    staging: u64,
}

impl Written {
    fn by(devices: &Devices) -> Written {
        let written = |device: &Arc<dyn Device>| device.stats().written_bytes;
        Written {
            manifest: written(&devices.manifest),
            capacity: written(&devices.capacity),
            staging: devices.staging.as_ref().map_or(0, written),
        }
    }

    fn in_all(&self) -> u64 {
        self.manifest + self.capacity + self.staging
    }
}

/// The same for each byte that the user wrote.
struct Ratios {
    user_bytes: u64,
    in_all: f64,
    to_capacity: f64,
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} user bytes; {:.3} device bytes each in all, {:.3} to capacity",
            self.user_bytes, self.in_all, self.to_capacity
        )
    }
}

#[allow(clippy::cast_precision_loss)] // ratios of a few digits
fn measure(load: Load, staging: bool, maintenance: Maintenance) -> Ratios {
    let devices = devices(staging);
    let options = Options::default().with(|set| {
        set.memory_bytes = load.memory_bytes;
        set.maintenance = maintenance;
    });
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    let created = Written::by(&devices).in_all() - db.stats().device_written_bytes;
    assert!(created < 64 << 10, "creating wrote {created} bytes");
    let kvs = db.create_kvs("records", Policy::default()).unwrap();
    let user_bytes = put_all(&kvs, load);
    db.sync().unwrap();
    db.settle().unwrap();

    let written = Written::by(&devices);
    let stats = db.stats();
    assert_eq!(stats.user_bytes, user_bytes);
    // Creating a KVDB writes the header of each class and the manifest's first pages; the engine
    // counts from when it is opened.
    assert_eq!(written.in_all(), created + stats.device_written_bytes);
    let class = stats.classes.iter().find(|class| class.class == MediaClass::Capacity).unwrap();
    assert_eq!(written.capacity, class.written_bytes() + HEADER_BYTES);
    let aged = class.streams.iter().find(|s| s.stream == Stream::OldValues);
    let aged_bytes = aged.unwrap().live_bytes.min(user_bytes);
    assert!(aged_bytes > user_bytes / 2, "{stats:?}");
    // Data that is young still will be written once more.
    let young_bytes = user_bytes - aged_bytes;
    db.close().unwrap();
    let per_user_byte = |bytes: u64| (bytes + young_bytes) as f64 / user_bytes as f64;
    let ratios = Ratios {
        user_bytes,
        in_all: per_user_byte(written.in_all()),
        to_capacity: per_user_byte(written.capacity),
    };
    let classes = if staging { "both" } else { "capacity only" };
    println!("{} records, {classes}, {maintenance:?}: {ratios}", load.records);
    ratios
}

fn check(load: Load, maintenance: Maintenance) {
    let both = measure(load, true, maintenance);
    assert!(both.in_all <= MOST_IN_ALL, "both classes: {both}");
    assert!(both.to_capacity <= MOST_TO_CAPACITY, "both classes: {both}");
    let one = measure(load, false, maintenance);
    assert!(one.in_all <= MOST_IN_ALL, "capacity alone: {one}");
}

#[test]
fn a_load_writes_each_byte_little_more_than_twice_with_threads() {
    check(SMALL, Maintenance::Threads);
}

#[test]
fn a_load_writes_each_byte_little_more_than_twice_step_by_step() {
    check(SMALL, Maintenance::Manual);
}

#[test]
#[ignore = "2 GB of records in memory; see the head of this file"]
fn a_load_of_a_million_records_writes_each_byte_little_more_than_twice() {
    check(FULL, Maintenance::Threads);
}

/// Device bytes per user byte by the size of values, at most: small ones lie with their keys, which are merged again and
/// again, where large ones move once. The table of `docs/kv.md` has the printed figures.
const BY_SIZE: [(usize, f64); 6] =
    [(1, 5.4), (4, 6.2), (16, 5.4), (64, 3.9), (256, 2.6), (1000, 2.2)];

#[test]
#[ignore = "a minute in release; see the head of this file"]
fn small_values_cost_more_bytes_than_large_ones() {
    for (value_bytes, most) in BY_SIZE {
        let stats = load_of_size(value_bytes);
        #[allow(clippy::cast_precision_loss)] // a ratio of a few digits
        let per_byte = |bytes: u64| bytes as f64 / stats.user_bytes as f64;
        let of = |stream: Stream| {
            let streams = stats.classes.iter().flat_map(|class| &class.streams);
            per_byte(streams.filter(|one| one.stream == stream).map(|one| one.written_bytes).sum())
        };
        let ratio = per_byte(stats.device_written_bytes);
        let streams = [Stream::Log, Stream::YoungKeys, Stream::OldKeys, Stream::OldValues].map(of);
        let cells: Vec<String> = streams.iter().map(|share| format!("{share:.2}")).collect();
        println!("| {value_bytes} | {ratio:.2} | {} |", cells.join(" | "));
        assert!(ratio <= most, "values of {value_bytes} bytes: {ratio:.2}");
    }
}

/// A load of 128 MiB, keys in no order, one step of maintenance at a time.
fn load_of_size(value_bytes: usize) -> Stats {
    const USER_BYTES: u64 = 128 << 20;
    let options = Options::default().with(|set| {
        set.memory_bytes = 64 << 20;
        set.maintenance = Maintenance::Manual;
    });
    let db = Kvdb::create_on(devices(true), options).unwrap();
    let kvs = db.create_kvs("records", Policy::default()).unwrap();
    let (mut rng, mut value) = (Rng::new(7), vec![0; value_bytes]);
    let (mut number, mut user_bytes) = (0, 0);
    while user_bytes < USER_BYTES {
        rng.fill(&mut value);
        let key = key(number);
        kvs.put(key.as_bytes(), &value).unwrap();
        user_bytes += (key.len() + value.len()) as u64;
        number += 1;
    }
    db.sync().unwrap();
    db.settle().unwrap();
    db.stats()
}

/// The values of a KVS that has a small part of the log are written once more, in key order, so that its
/// spills read them and not the records of others.
#[test]
fn no_kvs_reads_what_others_wrote() {
    const KVSS: u64 = 10;
    let devices = devices(true);
    let maintenance = Maintenance::Manual;
    let memory_bytes = 16 << 20;
    let tuning = Some(Tuning { spill_bytes: 1 << 20, ..Tuning::for_budget(memory_bytes) });
    let options = Options::default().with(|set| {
        set.memory_bytes = memory_bytes;
        set.maintenance = maintenance;
        set.tuning = tuning;
    });
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    let create = |n| db.create_kvs(&format!("kvs-{n}"), Policy::default()).unwrap();
    let kvss: Vec<Kvs> = (0..KVSS).map(create).collect();
    let mut user_bytes = 0;
    for number in 0..60_000 {
        let key = key(number);
        let kvs = &kvss[usize::try_from(number % KVSS).unwrap()];
        kvs.put(key.as_bytes(), [7; 100]).unwrap();
        user_bytes += key.len() as u64 + 100;
    }
    db.settle().unwrap();
    let stats = db.stats();
    assert!(
        stats.maintenance.spills >= 2 * KVSS && stats.maintenance.young_blocks > 0,
        "{stats:?}"
    );
    let reads = |device: &Arc<dyn Device>| device.stats().read_bytes;
    let read = reads(&devices.capacity) + reads(devices.staging.as_ref().unwrap());
    let written = Written::by(&devices).in_all();
    println!("{user_bytes} bytes put, {read} read, {written} written");
    // Each value is read when it is spilled, and now and then with its key when leaves are compacted.
    assert!(read < 2 * user_bytes, "{read} bytes read");
    assert!(written < 4 * user_bytes, "{written} bytes written");
}

/// Updates to which hot records leave less of the record cache than spills would need: their values age from the log,
/// which is read once for them.
#[test]
fn log_is_read_once_for_updates_that_age() {
    const RECORDS: u64 = 120_000;
    let devices = devices(true);
    let maintenance = Maintenance::Manual;
    let options = Options::default().with(|set| {
        set.memory_bytes = 32 << 20;
        set.maintenance = maintenance;
    });
    let db = Kvdb::create_on(devices, options).unwrap();
    let kvs = db.create_kvs("records", Policy::default()).unwrap();
    let mut rng = Rng::new(11);
    let read_of_log = || {
        let stats = db.stats();
        let streams = stats.classes.iter().flat_map(|class| &class.streams);
        let of_log = streams.filter(|one| one.stream == Stream::Log);
        (of_log.map(|one| one.read_bytes).sum::<u64>(), stats.user_bytes)
    };
    let put = |number: u64| {
        kvs.put(key(number).as_bytes(), [7; VALUE_BYTES]).unwrap();
        if number.is_multiple_of(100) {
            db.step().unwrap();
        }
    };
    (0..RECORDS).for_each(put);
    let (read, user_bytes) = read_of_log();
    println!("load: {read} bytes of the log read for {user_bytes} put");
    (0..RECORDS).for_each(|_| put(rng.below(RECORDS)));
    let (after, all) = read_of_log();
    let (read, user_bytes) = (after - read, all - user_bytes);
    println!("updates: {read} bytes of the log read for {user_bytes} put");
    assert!(read <= user_bytes / 10 * 11, "{read} bytes of the log read for {user_bytes} put");
}
