use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, Op, QueuePair,
};

use super::*;
use crate::api::kvdb::Kvdb;
use crate::api::kvs::Kvs;
use crate::compaction::plan::Target;
use crate::compaction::window::Window;
use crate::engine::job::Job;
use crate::maintain::steps;
use crate::media::space::Purpose;
use crate::recover::devices::Devices;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::testing::{device, kvdb, kvdb_on, small_blocks};
use crate::types::options::Tuning;
use crate::types::policy::Policy;
use crate::types::stream::Stream;

#[test]
fn windows_of_keys_and_of_records_take_no_more_than_one_of_them() {
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let usual = small_blocks();
    // Spills have no more memory than other steps.
    let tuning = Tuning { spill_bytes: usual.gather_bytes, ..usual };
    let (db, keys, _) = kvdb_on(devices, tuning);
    let records = db.create_kvs("b", Policy::default()).unwrap();
    for n in 0..20_000u64 {
        keys.put(n.to_be_bytes().repeat(4), [7; 16]).unwrap();
    }
    (0..2000u64).for_each(|n| records.put(n.to_be_bytes(), [7; 1000]).unwrap());
    db.ingest().unwrap();
    let limit = db.engine.tuning.gather_bytes;
    let dram = || {
        let mut scratch = db.engine.budget.scratch(Worker::First, 0, &db.engine.takers());
        let windows = [(); 2].map(|()| scratch.windows.take());
        let kept = windows.iter().filter_map(|window| window.records.as_ref()).map(|it| it.len());
        let dram =
            (windows.iter().map(Window::dram).sum::<usize>() as u64, kept.sum::<usize>() as u64);
        windows.into_iter().for_each(|window| scratch.windows.give_back(window));
        dram
    };
    let spill = |kvs: &Kvs| steps::run_job(&db.engine, Job::Spill { kvs: kvs.id }).unwrap();
    assert!(spill(&records));
    let (of_keys, of_records) = dram();
    assert!(of_keys < limit / 4 && of_records >= limit / 2, "{of_keys} and {of_records}");
    assert!(spill(&keys));
    let (of_keys, of_records) = dram();
    assert!(of_keys > limit / 2 && of_records == 0, "{of_keys} and {of_records}");
    (2000..4000u64).for_each(|n| records.put(n.to_be_bytes(), [7; 1000]).unwrap());
    db.ingest().unwrap();
    assert!(spill(&records));
    let (of_keys, of_records) = dram();
    assert!(of_keys < limit / 4 && of_records >= limit / 2, "{of_keys} and {of_records}");
}

#[test]
fn compaction_without_room_holds_on_to_no_block() {
    let (db, kvs, _) = kvdb();
    (0..100u32).for_each(|n| kvs.put(n.to_be_bytes(), [7; 4000]).unwrap());
    db.ingest().unwrap();
    let (engine, view) = (&db.engine, db.engine.view.load());
    let take =
        || engine.classes.capacity.allocate(Stream::OldKeys, 4096, Purpose::Maintenance).ok();
    let _taken: Vec<_> = std::iter::from_fn(take).collect();
    let tree = view.tree(kvs.id).unwrap();
    let lower = tree.leaves[0].lower.clone();
    let compaction = Compaction {
        kvs: kvs.id,
        policy: tree.options.policy,
        compression: tree.options.compression,
        inputs: tree.root.clone(),
        targets: vec![Target { leaf: tree.leaves[0].id, lower, bottom: true }],
        gone: None,
        rewrite: Rewrite::All,
        asked: false,
    };
    let run = CompactionRun {
        engine,
        plan: &compaction,
        worker: Worker::First,
        writes: &Writes::new(false),
        next_spill: &Vec::new,
    };
    let error = run.run().err().unwrap();
    assert!(error.lacks_space(), "{error}");
    assert!(
        engine.budget.scratch(Worker::First, 0, &engine.takers()).windows.take().entries.is_empty()
    );
}

/// Reads and writes under way on all devices.
#[derive(Default)]
struct Seen {
    reads: AtomicUsize,
    writes: AtomicUsize,
    /// Whether a write ever began while a read was under way.
    writes_beside_reads: AtomicBool,
    /// The same of a read and writes.
    reads_beside_writes: AtomicBool,
}

/// A device that completes commands when it is waited for, and not before.
struct Late(MemoryDevice, Arc<Seen>);

struct LateQueue {
    inner: Box<dyn QueuePair>,
    held: VecDeque<Command>,
    seen: Arc<Seen>,
}

impl Device for Late {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn queue_pair(&self, depth: usize) -> std::result::Result<Box<dyn QueuePair>, DeviceError> {
        let inner = self.0.queue_pair(depth)?;
        Ok(Box::new(LateQueue { inner, held: VecDeque::new(), seen: self.1.clone() }))
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

impl LateQueue {
    fn count(&self, op: &Op) -> Option<&AtomicUsize> {
        match op {
            Op::Read { .. } => Some(&self.seen.reads),
            Op::Write { .. } => Some(&self.seen.writes),
            _ => None,
        }
    }
}

impl QueuePair for LateQueue {
    fn submit(
        &mut self,
        commands: &mut VecDeque<Command>,
    ) -> std::result::Result<usize, DeviceError> {
        let taken = commands.len();
        let Seen { reads, writes, writes_beside_reads, reads_beside_writes } = &*self.seen;
        for command in commands.drain(..) {
            let (others, beside) = match &command.op {
                Op::Read { .. } => (writes, reads_beside_writes),
                _ => (reads, writes_beside_reads),
            };
            beside.fetch_or(others.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
            self.count(&command.op).map(|count| count.fetch_add(1, Ordering::Relaxed));
            self.held.push_back(command);
        }
        Ok(taken)
    }

    fn poll(&mut self, _: &mut Vec<Completion>) -> std::result::Result<usize, DeviceError> {
        Ok(0)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> std::result::Result<usize, DeviceError> {
        for command in &self.held {
            self.count(&command.op).map(|count| count.fetch_sub(1, Ordering::Relaxed));
        }
        self.inner.submit(&mut self.held)?;
        self.inner.wait(done, timeout)
    }

    fn in_flight(&self) -> usize {
        self.held.len() + self.inner.in_flight()
    }
}

/// A KVDB with a root of several spills, whose values the record cache has lost.
fn much_to_spill(seen: &Arc<Seen>) -> (Kvdb, Kvs) {
    let late = |name| -> Arc<dyn Device> {
        Arc::new(Late(MemoryDevice::new(name, 96 << 20, 512), seen.clone()))
    };
    let (manifest, capacity) = (device("m"), late("c"));
    let devices = Devices { manifest, capacity, staging: Some(late("s")) };
    let (db, kvs, _) = kvdb_on(devices, small_blocks());
    // Keys in no order: each window needs something of each segment.
    let mut n = 0u64;
    while db.engine.view.load().root_bytes() < 8 * db.engine.pacer.spill_bytes() {
        for _ in 0..500 {
            n += 1;
            kvs.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [7; 1000]).unwrap();
        }
        db.ingest().unwrap();
    }
    db.engine.values.cache.set_capacity(0);
    (db, kvs)
}

#[test]
fn reads_of_one_window_are_under_way_with_writes_of_another() {
    let seen = Arc::new(Seen::default());
    let (db, kvs) = much_to_spill(&seen);
    let seen_beside = [&seen.writes_beside_reads, &seen.reads_beside_writes];
    let beside = || seen_beside.map(|it| it.load(Ordering::Relaxed));
    assert_eq!(beside(), [false, false]);
    while db.engine.view.load().root_bytes() > 0 {
        assert!(steps::run_job(&db.engine, Job::Spill { kvs: kvs.id }).unwrap());
    }
    // Of a leaf, because a spill that reads its values has one window.
    seen_beside.iter().for_each(|it| it.store(false, Ordering::Relaxed));
    (0..10).for_each(|_| db.engine.budget.miss_rate().note(1, 0));
    let leaf = db.engine.view.load().tree(kvs.id).unwrap().leaves[0].id;
    assert!(steps::run_job(&db.engine, Job::Sort { kvs: kvs.id, leaf }).unwrap());
    assert_eq!(beside(), [true, true]);
    let values =
        || (0..8u64).map(|n| kvs.get((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()));
    assert!(values().all(|value| value.unwrap().unwrap() == [7; 1000]));
}

#[test]
fn spills_of_what_the_cache_has_lost_read_the_log_once() {
    let (db, kvs) = much_to_spill(&Arc::default());
    let engine = &db.engine;
    let staging = engine.classes.staging().unwrap();
    let read = || staging.traffic(Stream::Log).1;
    let spill = || {
        engine.values.cache.set_capacity(0);
        steps::run_job(engine, Job::Spill { kvs: kvs.id }).unwrap()
    };
    // The first one tells that the cache has lost them.
    assert!(spill());
    // While the roots hold many spills, and when they hold few.
    for spills in [4, 1] {
        let (before, root) = (read(), engine.view.load().root_bytes());
        while engine.view.load().root_bytes() > spills * engine.pacer.spill_bytes() {
            assert!(spill());
        }
        let (read, spilled) = (read() - before, root - engine.view.load().root_bytes());
        assert!(spilled > 2 << 20, "{spilled}");
        // The first window of the next spill is read by now as well.
        let most = spilled + spilled / 8 + engine.tuning.gather_bytes;
        assert!(
            read <= most,
            "{read} bytes of the log were read for {spilled}, with {spills} spills"
        );
    }
    // A spill has memory for all of it in one window, as long as the cache has lost most; other steps need less.
    let Tuning { gather_bytes, spill_bytes, .. } = engine.tuning;
    let of_spills =
        || engine.budget.scratch(Worker::First, spill_bytes, &engine.takers()).windows.bytes;
    assert!(gather_bytes < spill_bytes && of_spills() == spill_bytes);
    (0..4).for_each(|_| engine.budget.miss_rate().note(10, 1));
    assert!(engine.budget.miss_rate().is_much() && of_spills() == gather_bytes);
    assert!(
        engine.budget.scratch(Worker::Helper, 0, &engine.takers()).windows.bytes < gather_bytes
    );
    (0..4).for_each(|_| engine.budget.miss_rate().note(1, 1));
    engine.values.cache.set_capacity(0);
    assert!(spill());
    assert_eq!(engine.budget.window_bytes_of(Worker::First), gather_bytes);
}
