//! Long walks over data that is not in DRAM: the next reads are under way before they are needed, nothing of that
//! shows in a walk's rows, and little is read in vain.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::Rng;
use esker_base::sync::Mutex;
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, Op, QueuePair,
};
use esker_kv::{CompactRequest, Cursor, KvError, Kvdb, Kvs, Options, Policy, Tuning};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

const KEYS: u64 = 30_000;

/// Little, and now and then as much as some windows.
fn value(n: u64) -> Vec<u8> {
    let mut value =
        vec![0; if n % 500 == 7 { 150_000 } else { 100 + usize::try_from(n % 300).unwrap() }];
    Rng::new(n).fill(&mut value);
    value
}

fn tuning() -> Tuning {
    Tuning {
        memtable_bytes: 512 << 10,
        spill_bytes: 1300 << 10,
        leaf_key_bytes: 4 << 20,
        block_bytes: 4 << 20,
        key_extent_bytes: 256 << 10,
        gather_bytes: 1 << 20,
        ..small_tuning()
    }
}

/// No room for key pages or records.
fn options(memory_bytes: u64, tuning: Tuning) -> Options {
    test_options(tuning).with(|set| set.memory_bytes = memory_bytes)
}

const LITTLE: u64 = 2 << 20;
const PLENTY: u64 = 256 << 20;

/// The byte that fills the large value of a key.
fn byte_of(n: u64) -> u8 {
    u8::try_from(n % 251).unwrap()
}

/// A KVDB on `wrap`ped devices, its values in key order or not.
struct Cold {
    devices: Devices,
    bytes: u64,
    tuning: Tuning,
}

impl Cold {
    fn new(lba_size: u32, in_order: bool) -> Cold {
        let device = |name: &str| Arc::new(MemoryDevice::new(name, 64 << 20, lba_size));
        let (manifest, capacity) = (device("manifest"), device("capacity"));
        let devices = Devices { manifest, capacity, staging: None };
        let db = Kvdb::create_on(devices.clone(), options(LITTLE, tuning())).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let mut bytes = 0;
        for n in 0..KEYS {
            let n = n * 7919 % KEYS;
            kvs.put(n.to_be_bytes(), value(n)).unwrap();
            bytes += 8 + value(n).len() as u64;
        }
        db.ingest().unwrap();
        db.settle().unwrap();
        if in_order {
            db.compact(CompactRequest::Full).unwrap();
        }
        drop(kvs);
        db.close().unwrap();
        Cold { devices, bytes, tuning: tuning() }
    }

    /// `count` values of so many bytes, in key order in blocks of a size.
    fn large(count: u64, value_bytes: usize, block_bytes: u64) -> Cold {
        let device = |name: &str, bytes| Arc::new(MemoryDevice::new(name, bytes, 4096));
        let (manifest, capacity) = (device("manifest", 64 << 20), device("capacity", 256 << 20));
        let devices = Devices { manifest, capacity, staging: None };
        // One spill takes all of them.
        let tuning = Tuning { spill_bytes: 64 << 20, block_bytes, ..tuning() };
        let db = Kvdb::create_on(devices.clone(), options(PLENTY, tuning)).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        for n in 0..count {
            kvs.put(n.to_be_bytes(), vec![byte_of(n); value_bytes]).unwrap();
        }
        db.ingest().unwrap();
        db.settle().unwrap();
        db.compact(CompactRequest::Full).unwrap();
        drop(kvs);
        db.close().unwrap();
        Cold { devices, bytes: count * (8 + value_bytes as u64), tuning }
    }

    fn open(
        &self,
        memory_bytes: u64,
        wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> (Kvdb, Kvs) {
        let (manifest, capacity) = (self.devices.manifest.clone(), self.devices.capacity.clone());
        let devices = Devices { manifest, capacity: wrap(capacity), staging: None };
        let db = Kvdb::open_on(devices, options(memory_bytes, self.tuning)).unwrap();
        let kvs = db.kvs("k").unwrap();
        (db, kvs)
    }
}

/// Steps over record `n`, which comes next.
fn step(cursor: &mut Cursor, forward: bool, n: u64) -> Result<(), KvError> {
    let row = if forward { cursor.next() } else { cursor.prev() };
    let (key, found) = row?.expect("a row");
    assert_eq!(u64::from_be_bytes(key.try_into().unwrap()), n);
    assert!(found == value(n), "the value of {n}");
    Ok(())
}

#[test]
fn long_walks_return_what_is_there_whichever_way_they_go() {
    for (lba_size, in_order) in [(512, true), (4096, false)] {
        let cold = Cold::new(lba_size, in_order);
        let (_db, kvs) = cold.open(LITTLE, |device| device);
        let mut cursor = kvs.cursor().unwrap();
        (0..KEYS).for_each(|n| step(&mut cursor, true, n).unwrap());
        assert_eq!(cursor.next().unwrap(), None);
        (0..KEYS).rev().for_each(|n| step(&mut cursor, false, n).unwrap());
        assert_eq!(cursor.prev().unwrap(), None);
        // It turns and jumps wherever it is.
        let (mut rng, mut at) = (Rng::new(1), 0);
        for _ in 0..30 {
            if rng.chance(1, 3) {
                at = rng.below(KEYS);
                cursor.seek(&at.to_be_bytes()).unwrap();
            }
            let rows = rng.below(2000);
            if rng.chance(1, 2) {
                let end = (at + rows).min(KEYS);
                (at..end).for_each(|n| step(&mut cursor, true, n).unwrap());
                at = end;
            } else {
                let end = at.saturating_sub(rows);
                (end..at).rev().for_each(|n| step(&mut cursor, false, n).unwrap());
                at = end;
            }
        }
    }
}

/// Commands that a device was asked for.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Commands that have not come back.
    under_way: usize,
    /// Bytes of reads.
    read: u64,
}

/// Knows it.
struct Watched {
    inner: Arc<dyn Device>,
    seen: Arc<Mutex<Seen>>,
}

impl Device for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let (inner, done) = (self.inner.queue_pair(depth)?, VecDeque::new());
        Ok(Box::new(Queue { inner, done, seen: self.seen.clone() }))
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

struct Queue {
    inner: Box<dyn QueuePair>,
    /// Done, but not handed back: a drive does not do everything in the time it takes to do one thing.
    done: VecDeque<Completion>,
    seen: Arc<Mutex<Seen>>,
}

impl Queue {
    /// Hands back one command at most.
    fn hand_back(&mut self, some: Vec<Completion>, done: &mut Vec<Completion>) -> usize {
        self.done.extend(some);
        let one = self.done.pop_front();
        let count = usize::from(one.is_some());
        done.extend(one);
        self.seen.lock().under_way -= count;
        count
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let bytes = |command: &Command| match &command.op {
            Op::Read { buf, .. } => buf.len() as u64,
            _ => 0,
        };
        let read: Vec<u64> = commands.iter().map(bytes).collect();
        let taken = self.inner.submit(commands)?;
        let mut seen = self.seen.lock();
        seen.under_way += taken;
        seen.read += read[..taken].iter().sum::<u64>();
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let mut some = Vec::new();
        self.inner.poll(&mut some)?;
        Ok(self.hand_back(some, done))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let mut some = Vec::new();
        if self.done.is_empty() {
            self.inner.wait(&mut some, timeout)?;
        }
        Ok(self.hand_back(some, done))
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.done.len()
    }
}

#[test]
fn windows_of_walks_that_are_over_are_not_kept() {
    let cold = Cold::new(4096, true);
    let (db, kvs) = cold.open(PLENTY, |device| device);
    for expected in [0, 1] {
        let mut cursor = kvs.cursor().unwrap().expecting(expected);
        let mut most = 0;
        // Downwards, so that none goes on where another one ended; none of them is cached.
        for n in (0..KEYS).rev().skip(expected).step_by(7).filter(|n| n % 500 != 7) {
            cursor.seek(&n.to_be_bytes()).unwrap();
            step(&mut cursor, true, n).unwrap();
            let held = db.stats().dram.window_bytes;
            assert!(held.is_multiple_of(4096), "{held} bytes are no buffers");
            most = most.max(held);
        }
        assert!((4096..64 << 10).contains(&most), "{expected} expected: {most} bytes");
    }
}

#[test]
fn a_walk_reads_ahead_of_need_however_many_blocks_it_has_come_through() {
    let (count, value_bytes) = (4000, 10_000);
    let cold = Cold::large(count, value_bytes, 256 << 10);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watch = |inner| -> Arc<dyn Device> { Arc::new(Watched { inner, seen: seen.clone() }) };
    let (_db, kvs) = cold.open(PLENTY, watch);
    let mut cursor = kvs.cursor().unwrap();
    let mut ahead = [0; 10];
    for n in 0..count {
        assert_eq!(cursor.next().unwrap().unwrap().1.len(), value_bytes);
        let tenth = &mut ahead[usize::try_from(n * 10 / count).unwrap()];
        *tenth = seen.lock().under_way.max(*tenth);
    }
    println!("reads ahead of need in each tenth: {ahead:?}");
    assert!(ahead.iter().all(|tenth| *tenth > 0), "{ahead:?} in each tenth");
}

#[test]
fn of_large_values_nothing_is_read_twice() {
    let cold = Cold::large(60, 700_000, 32 << 20);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watch = |inner| -> Arc<dyn Device> { Arc::new(Watched { inner, seen: seen.clone() }) };
    for forward in [true, false] {
        let (_db, kvs) = cold.open(32 << 20, watch);
        let mut cursor = kvs.cursor().unwrap();
        if !forward {
            cursor.seek_to_last().unwrap();
        }
        seen.lock().read = 0;
        for at in 0..60 {
            let n = if forward { at } else { 59 - at };
            let row = if forward { cursor.next() } else { cursor.prev() };
            let (key, value) = row.unwrap().expect("a row");
            assert_eq!(u64::from_be_bytes(key.try_into().unwrap()), n);
            assert!(value == vec![byte_of(n); 700_000], "the value of {n}");
        }
        let percent = seen.lock().read * 100 / cold.bytes;
        println!("forward {forward}: {percent} bytes read for 100");
        assert!(percent <= 110, "forward {forward}: {percent} bytes read for 100");
    }
}

#[test]
fn next_values_are_under_way_and_little_is_read_in_vain() {
    for in_order in [true, false] {
        let cold = Cold::new(4096, in_order);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let watch = |inner| -> Arc<dyn Device> { Arc::new(Watched { inner, seen: seen.clone() }) };
        // Nothing is in DRAM either way; where there is more of it, more is read ahead.
        let ways = [(LITTLE, true), (LITTLE, false), (PLENTY, true), (PLENTY, false)];
        for (memory_bytes, forward) in ways {
            let (db, kvs) = cold.open(memory_bytes, watch);
            seen.lock().read = 0;
            let (mut cursor, mut ahead, mut held) = (kvs.cursor().unwrap(), 0, 0);
            if !forward {
                cursor.seek_to_last().unwrap();
            }
            let mut step = |n| {
                step(&mut cursor, forward, n).unwrap();
                // Nobody waits for these yet.
                ahead = ahead.max(seen.lock().under_way);
                if n % 1000 == 0 {
                    held = held.max(db.stats().dram.window_bytes);
                }
            };
            if forward {
                (0..KEYS).for_each(&mut step);
            } else {
                (0..KEYS).rev().for_each(&mut step);
            }
            drop(cursor);
            let read = seen.lock().read;
            let percent = read * 100 / cold.bytes;
            let what = format!("{memory_bytes}, in order {in_order}, forward {forward}");
            println!("{what}: {ahead} reads ahead of need, {percent} bytes read for 100");
            // Few of them can be of keys.
            let is_long = in_order && memory_bytes == PLENTY;
            assert!(!is_long || ahead >= 6, "{what}: {ahead} reads ahead of need");
            assert!(!in_order || held >= 256 << 10, "{what}: {held} bytes held for rows to come");
            assert_eq!(db.stats().dram.window_bytes, 0, "{what}, when it is over");
            // Keys are an eighth of the data.
            let most = if in_order { 135 } else { 160 };
            assert!(percent <= most, "{what}: {percent} bytes read for 100");
        }
        // A short walk asks for nothing ahead of need.
        let (_db, kvs) = cold.open(LITTLE, watch);
        seen.lock().read = 0;
        let mut cursor = kvs.cursor().unwrap();
        cursor.seek(&1100u64.to_be_bytes()).unwrap();
        (1100..1150).for_each(|n| step(&mut cursor, true, n).unwrap());
        let read = seen.lock().read;
        assert!(read < 200 << 10, "{read} bytes for a short walk");
    }
}

/// Each read of a walk fails once, or brings a wrong bit: the walk goes on, or says it and goes on when it
/// is told to.
#[test]
fn a_read_that_fails_ahead_of_need_is_no_error() {
    let cold = Cold::new(512, true);
    for (effect, step_by) in [
        (Effect::Fail, 13),
        (Effect::Short, 41),
        (Effect::DelayPolls { count: 3 }, 41),
        (Effect::Corrupt { offset: 1037, mask: 4 }, 29),
    ] {
        let (mut fired, mut told) = (0, 0);
        for nth in (0..).step_by(step_by) {
            let plan = FaultPlan::new();
            let (db, kvs) = cold.open(LITTLE, |device| Arc::new(FaultDevice::new(device, &plan)));
            plan.once(Target::Read, plan.seen(Target::Read) + nth, effect.clone());
            let mut cursor = kvs.cursor().unwrap();
            let mut n = 0;
            while n < KEYS {
                if let Err(error) = step(&mut cursor, true, n) {
                    assert!(error.to_string().contains("capacity"), "{error}");
                    told += 1;
                    cursor.seek(&n.to_be_bytes()).unwrap();
                } else {
                    n += 1;
                }
            }
            drop((cursor, kvs));
            fired += plan.fired();
            let is_over = plan.fired() == 0;
            drop(db);
            if is_over {
                break;
            }
        }
        assert!(fired > 3, "{effect:?} fired {fired} times");
        assert!(told <= 1, "{effect:?}: {told} of {fired} were told");
    }
}

#[test]
fn a_long_walk_does_not_push_others_out_of_the_record_cache() {
    let cold = Cold::new(4096, true);
    // Room for a part of the records.
    let (db, kvs) = cold.open(11 << 20, |device| device);
    db.settle().unwrap();
    // A part of the half that the walk does not come to.
    let hot = || (0..KEYS / 2).step_by(2).filter(|n| n % 500 != 7);
    let read =
        || hot().for_each(|n| assert!(kvs.get(n.to_be_bytes()).unwrap() == Some(value(n).into())));
    let walk = || {
        let mut cursor = kvs.cursor().unwrap();
        cursor.seek(&(KEYS / 2).to_be_bytes()).unwrap();
        (KEYS / 2..KEYS).for_each(|n| step(&mut cursor, true, n).unwrap());
    };
    // The second time from the cache, where others may still take their places.
    read();
    read();
    walk();
    let before = db.stats().cache.record_hits;
    read();
    let (hits, all) = (db.stats().cache.record_hits - before, hot().count() as u64);
    println!("{hits} of {all} are still cached; {:?}", db.stats().cache);
    assert!(db.stats().cache.records * 10 < KEYS * 9, "not everything fits");
    assert!(hits * 10 > all * 8, "{hits} of {all} are still cached");
}

#[test]
fn a_short_walk_over_cached_records_finds_each_and_counts_its_steps() {
    let cold = Cold::new(4096, true);
    let (db, kvs) = cold.open(64 << 20, |device| device);
    let rows = 2010..2110u64; // none of them is too large to be cached
    let walk = || {
        let mut cursor = kvs.cursor().unwrap().expecting(100);
        cursor.seek(&rows.start.to_be_bytes()).unwrap();
        rows.clone().for_each(|n| step(&mut cursor, true, n).unwrap());
    };
    walk();
    let before = db.stats();
    walk();
    let after = db.stats();
    assert_eq!(after.cache.record_hits - before.cache.record_hits, 100);
    assert_eq!(after.cache.record_misses, before.cache.record_misses);
    assert_eq!(after.operations.cursor_steps - before.operations.cursor_steps, 100);
}
