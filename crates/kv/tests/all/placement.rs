//! Which placement id each write carries, on devices that offer any number of them. The devices
//! tell, and the stream of a write is read from its bytes or follows from the policy: the engine
//! is asked only where it says the same of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::shaped::{ShapedDevice, Taken};
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::Rng;
use esker_device::OpKind;
use esker_kv::{Kvdb, MediaClass, Policy, Stream, Tuning};

/// The id of each stream by the number of handles, in the order of [`Stream::ALL`]: log, young
/// keys, old keys, old values, manifest.
const TABLE: [Option<[u16; 5]>; 9] = [
    None,
    Some([0, 0, 0, 0, 0]),
    Some([1, 1, 1, 0, 0]),
    Some([1, 1, 2, 0, 0]),
    Some([1, 3, 2, 0, 0]),
    Some([1, 3, 2, 0, 4]),
    Some([1, 3, 2, 0, 4]),
    Some([1, 3, 2, 0, 4]),
    Some([1, 3, 2, 0, 4]),
];

struct Shaped {
    manifest: Arc<ShapedDevice>,
    capacity: Arc<ShapedDevice>,
    staging: Arc<ShapedDevice>,
}

impl Shaped {
    /// Devices that offer `on_capacity` and `on_staging` handles, and take `largest` bytes in one
    /// command.
    fn new(on_capacity: u16, on_staging: u16, largest: u32) -> Shaped {
        let device = |name: &str, bytes: u64, handles: u16| {
            ShapedDevice::new(name, bytes, 512, |geometry| {
                geometry.placement_handles = handles;
                geometry.max_transfer_size = largest;
            })
        };
        Shaped {
            manifest: device("manifest", 1 << 20, on_capacity),
            capacity: device("capacity", 64 << 20, on_capacity),
            staging: device("staging", 64 << 20, on_staging),
        }
    }

    fn devices(&self) -> Devices {
        Devices {
            manifest: self.manifest.clone(),
            capacity: self.capacity.clone(),
            staging: Some(self.staging.clone()),
        }
    }
}

fn open(shaped: &Shaped) -> Kvdb {
    Kvdb::open_on(shaped.devices(), test_options(small_tuning())).unwrap()
}

/// Creates a KVDB with two KVSs, and leaves it.
fn create(shaped: &Shaped, policy: Policy) {
    let db = Kvdb::create_on(shaped.devices(), test_options(small_tuning())).unwrap();
    for name in ["a", "b"] {
        db.create_kvs(name, policy).unwrap();
    }
}

/// Enough for every kind of maintenance, in two KVSs of which one gets one put in `part`.
fn load(db: &Kvdb, seed: u64, part: u64) {
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    let mut rng = Rng::new(seed);
    for n in 0..6000u64 {
        let kvs = &kvss[usize::from(n % part == 0)];
        let mut value = vec![0; usize::try_from(rng.below(300)).unwrap()];
        rng.fill(&mut value);
        kvs.put(format!("{:05}", rng.below(800)).as_bytes(), &value).unwrap();
        if n % 200 == 0 {
            db.settle().unwrap();
        }
    }
}

fn writes(device: &ShapedDevice) -> Vec<Taken> {
    device.taken().into_iter().filter(|taken| taken.kind == OpKind::Write).collect()
}

/// The stream of a write to a class that has keys of one stream only.
fn stream_of(write: &Taken, keys: Stream) -> Stream {
    match (&write.head[..8], write.head[10]) {
        (b"ESKMEDIA", _) => Stream::OldValues, // the header stays, as they do
        (b"ESKFRAME", 1) => Stream::Log,
        (b"ESKFRAME", 2) => Stream::OldValues,
        _ => keys,
    }
}

/// Every write carries the id of its stream, and these streams were written.
fn check(
    device: &ShapedDevice,
    handles: u16,
    streams: &[Stream],
    stream_of: impl Fn(&Taken) -> Stream,
) {
    let mut seen = BTreeSet::new();
    for write in writes(device) {
        let stream = stream_of(&write);
        let expected = TABLE[usize::from(handles)].map(|ids| ids[stream as usize]);
        let got = write.placement.map(|id| id.0);
        assert_eq!(got, expected, "{stream} with {handles} handles: {write:?}");
        seen.insert(stream);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), streams);
    assert_eq!(device.refused(), [], "ids that were not offered");
}

#[test]
fn every_write_carries_the_id_of_its_stream() {
    for on_staging in 0..=8 {
        let on_capacity = 8 - on_staging;
        let shaped = Shaped::new(on_capacity, on_staging, 1 << 20);
        create(&shaped, Policy::STAGING_MIN_CAPACITY);
        for seed in 0..2 {
            let db = open(&shaped); // replays the log of the last round
            load(&db, seed, 2);
        }
        check(&shaped.manifest, on_capacity, &[Stream::Manifest], |_| Stream::Manifest);
        let old = [Stream::OldKeys, Stream::OldValues];
        check(&shaped.capacity, on_capacity, &old, |write| stream_of(write, Stream::OldKeys));
        let young = [Stream::Log, Stream::YoungKeys, Stream::OldValues];
        check(&shaped.staging, on_staging, &young, |write| stream_of(write, Stream::YoungKeys));
    }
}

/// Every stream on one device, in commands so small that most writes are cut.
#[test]
fn the_pieces_of_a_write_carry_its_id() {
    let (class_of, policies) = (
        [MediaClass::Staging, MediaClass::Capacity],
        [Policy::STAGING_ONLY, Policy::STAGING_MAX_CAPACITY],
    );
    for (handles, policy) in (0..=8).flat_map(|n| policies.map(|policy| (n, policy))) {
        let shaped = Shaped::new(handles, handles, 1024);
        create(&shaped, policy);
        for device in [&shaped.capacity, &shaped.staging] {
            device.taken(); // the headers, which the engine does not count
        }
        let db = open(&shaped);
        load(&db, 7, 16);
        let stats = db.stats();
        for (class, device) in class_of.into_iter().zip([&shaped.staging, &shaped.capacity]) {
            let mut told = BTreeMap::new();
            let figures = stats.classes.iter().find(|figures| figures.class == class).unwrap();
            let all_here = policy == Policy::STAGING_ONLY && class == MediaClass::Staging;
            assert!(!all_here || figures.streams.iter().all(|stream| stream.written_bytes > 0));
            for stream in figures.streams.iter().filter(|stream| stream.written_bytes > 0) {
                let id = TABLE[usize::from(handles)].map(|ids| ids[stream.stream as usize]);
                assert_eq!(stream.placement, id, "{}", stream.stream);
                *told.entry(id).or_insert(0) += stream.written_bytes;
            }
            let mut carried = BTreeMap::new();
            for write in writes(device) {
                *carried.entry(write.placement.map(|id| id.0)).or_insert(0) += write.bytes;
            }
            assert_eq!(carried, told, "{class} with {handles} handles");
            assert_eq!(device.refused(), []);
        }
    }
}

/// Young values that an ingest writes for a KVS that has a small part of the log.
#[test]
fn young_values_outside_the_log_are_in_its_stream() {
    let shaped = Shaped::new(5, 5, 1 << 20);
    create(&shaped, Policy::STAGING_MAX_CAPACITY);
    let never_spills = Tuning { spill_bytes: u64::MAX, ..small_tuning() };
    let db = Kvdb::open_on(shaped.devices(), test_options(never_spills)).unwrap();
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    for n in 0..2000u32 {
        kvss[usize::from(n.is_multiple_of(16))].put(n.to_be_bytes(), [7; 200]).unwrap();
    }
    let stats = db.stats().maintenance;
    assert!(stats.young_blocks > 0 && stats.spills == 0, "{stats:?}");
    let young = |write: &Taken| match (&write.head[..8], write.head[10]) {
        (b"ESKMEDIA", _) => Stream::OldValues,
        (b"ESKFRAME", _) => Stream::Log,
        _ => Stream::YoungKeys,
    };
    check(&shaped.staging, 5, &[Stream::Log, Stream::YoungKeys, Stream::OldValues], young);
}
