//! Scrubbing: nothing of a key or value that was deleted can be read from the media afterwards, and everything else is
//! there. The whole media are searched.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use crate::common::{bytes_of, in_memory, small_tuning, test_options};
use esker_base::Clock;
use esker_device::{Device, Op};
use esker_kv::{
    CompactRequest, KvError, Kvdb, Kvs, Location, Maintenance, Medium, Options, Policy, Readable,
    Tuning,
};
use esker_sim::{Fate, HookDevice};

/// A drive on which a discard leaves everything as it is.
fn keeping(device: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(HookDevice::new(device).on_command(|op| match op {
        Op::Discard { .. } => Fate::Done,
        _ => Fate::Pass,
    }))
}

/// Bytes that the keys and values of a kind have in common.
const GONE: &[u8] = b"-to-be-deleted-";
const KEPT: &[u8] = b"-to-be-kept-";

fn key(kind: &[u8], n: u32) -> Vec<u8> {
    [&n.to_be_bytes(), kind].concat()
}

/// Of many sizes: in pages, in blocks, larger than a frame.
fn value(kind: &[u8], n: u32) -> Vec<u8> {
    let size = [20, 300, 1500, 9000][n as usize % 4];
    kind.iter().copied().cycle().skip(n as usize % kind.len()).take(size).collect()
}

fn put(kvs: &Kvs, kind: &[u8], keys: std::ops::Range<u32>) {
    keys.for_each(|n| kvs.put(key(kind, n), value(kind, n)).unwrap());
}

/// How often a marker stands in the bytes.
fn count(bytes: &[u8], marker: &[u8]) -> usize {
    let first = marker[0];
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.filter(|(at, _)| bytes[*at..].starts_with(marker)).count()
}

fn check_kept(kvs: &Kvs, keys: std::ops::Range<u32>) {
    for n in keys {
        assert_eq!(kvs.get(key(KEPT, n)).unwrap(), Some(value(KEPT, n).into()));
        assert_eq!(kvs.get(key(GONE, n)).unwrap(), None);
    }
}

/// Puts, deletes and overwrites, with steps of maintenance in between.
fn fill_and_delete(db: &Kvdb, kvs: &Kvs, keys: u32) {
    for from in (0..keys).step_by(200) {
        put(kvs, GONE, from..from + 200);
        put(kvs, KEPT, from..from + 200);
        // Values of others lie under these keys first.
        (from..from + 50).for_each(|n| kvs.put(key(KEPT, n), value(GONE, n)).unwrap());
        (from..from + 50).for_each(|n| kvs.put(key(KEPT, n), value(KEPT, n)).unwrap());
        if from % 600 == 0 {
            db.ingest().unwrap();
        }
        (from..from + 200).for_each(|n| kvs.delete(key(GONE, n)).unwrap());
    }
    db.sync().unwrap();
}

fn media_of(devices: &Devices) -> Vec<u8> {
    let all = [&devices.manifest, &devices.capacity, devices.staging.as_ref().unwrap()];
    all.iter().flat_map(|device| bytes_of(&***device).to_vec()).collect()
}

fn scrubs(devices: Devices) {
    let tuning = Tuning { frame_bytes: 16 << 10, ..small_tuning() };
    let db = Kvdb::create_on(devices.clone(), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    fill_and_delete(&db, &kvs, 3000);
    db.compact(CompactRequest::Full).unwrap();
    let before = count(&media_of(&devices), GONE);
    db.compact(CompactRequest::Scrub).unwrap();
    let after = count(&media_of(&devices), GONE);
    println!("{before} places before, {after} after");
    assert!(before > 0, "a compaction leaves nothing: this test cannot fail");
    assert_eq!(after, 0);
    check_kept(&kvs, 0..3000);
    // It goes on, and does it again.
    fill_and_delete(&db, &kvs, 1000);
    db.compact(CompactRequest::Scrub).unwrap();
    assert_eq!(count(&media_of(&devices), GONE), 0);
    db.close().unwrap();
    assert_eq!(count(&media_of(&devices), GONE), 0);
    let db = Kvdb::open_on(devices, test_options(tuning)).unwrap();
    check_kept(&db.kvs("a").unwrap(), 0..3000);
    db.close().unwrap();
}

#[test]
fn nothing_of_what_was_deleted_is_left_on_media_that_discard() {
    scrubs(in_memory("discards", [4 << 20, 64 << 20, 64 << 20]));
}

#[test]
fn nothing_of_what_was_deleted_is_left_on_media_that_keep_it() {
    let Devices { manifest, capacity, staging } = in_memory("keeps", [4 << 20, 64 << 20, 64 << 20]);
    let (manifest, capacity) = (keeping(manifest), keeping(capacity));
    scrubs(Devices { manifest, capacity, staging: staging.map(keeping) });
}

/// Of a directory, `tail.esker` included.
fn count_in_files(dir: &Path, marker: &[u8]) -> usize {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let counted = files.filter(|file| file.is_file()).map(|file| {
        let mut bytes = Vec::new();
        read_data(&file, &mut bytes);
        count(&bytes, marker)
    });
    counted.sum()
}

/// Content of the file, without its holes.
fn read_data(file: &Path, bytes: &mut Vec<u8>) {
    let file = std::fs::File::open(file).unwrap();
    // SAFETY: the descriptor is open.
    let seek = |at, whence| unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    let mut at = 0;
    loop {
        let start = seek(at, libc::SEEK_DATA);
        if start < 0 {
            return;
        }
        let end = seek(start, libc::SEEK_HOLE);
        let mut part = vec![0; usize::try_from(end - start).unwrap()];
        file.read_exact_at(&mut part, u64::try_from(start).unwrap()).unwrap();
        bytes.extend_from_slice(&part);
        at = end;
    }
}

#[test]
fn nothing_of_what_was_deleted_is_left_in_files_while_the_threads_work() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let options = Options::default().with(|set| {
        set.memory_bytes = 32 << 20;
        set.maintenance = Maintenance::Threads;
        set.clock = Clock::real();
    });
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(options)
        .create()
        .unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    fill_and_delete(&db, &kvs, 6000);
    assert!(count_in_files(&dir, GONE) > 0);
    let status = db.compact(CompactRequest::Scrub).unwrap();
    assert!(!status.active && !status.cancelled);
    assert_eq!(count_in_files(&dir, GONE), 0);
    assert!(count_in_files(&dir, KEPT) > 0);
    check_kept(&kvs, 0..6000);
    // One of one.
    kvs.put(b"secret", GONE).unwrap();
    kvs.delete(b"secret").unwrap();
    db.compact(CompactRequest::Scrub).unwrap();
    assert_eq!(count_in_files(&dir, GONE), 0);
    db.close().unwrap();
    assert_eq!(count_in_files(&dir, GONE), 0);
}

#[test]
fn scrub_is_refused_while_a_reader_keeps_what_was_deleted() {
    let devices = in_memory("readers", [4 << 20, 64 << 20, 64 << 20]);
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    put(&kvs, GONE, 0..500);
    db.ingest().unwrap();
    let snapshot = db.snapshot();
    (0..500).for_each(|n| kvs.delete(key(GONE, n)).unwrap());
    let refused = db.compact(CompactRequest::Scrub).unwrap_err();
    assert!(matches!(refused, KvError::Pinned(_)), "{refused}");
    assert!(refused.to_string().contains("1 snapshot"), "{refused}");
    assert_eq!(snapshot.get(&kvs, key(GONE, 7)).unwrap(), Some(value(GONE, 7).into()));
    drop(snapshot);
    db.compact(CompactRequest::Scrub).unwrap();
    assert_eq!(count(&media_of(&devices), GONE), 0);
}

#[test]
fn writers_that_go_on_lose_nothing_while_others_are_scrubbed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let options = Options::default().with(|set| set.memory_bytes = 32 << 20);
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(options.clone())
        .create()
        .unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    put(&kvs, GONE, 0..4000);
    (0..4000).for_each(|n| kvs.delete(key(GONE, n)).unwrap());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u32)
            .map(|writer| {
                let kvs = kvs.clone();
                scope.spawn(move || put(&kvs, KEPT, writer * 5000..writer * 5000 + 5000))
            })
            .collect();
        (0..3).for_each(|_| assert!(!db.compact(CompactRequest::Scrub).unwrap().cancelled));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    check_kept(&kvs, 0..10_000);
    assert_eq!(count_in_files(&dir, GONE), 0);
    db.close().unwrap();
    assert!(Kvdb::builder(&dir).check().unwrap().findings.is_empty());
    let db = Kvdb::builder(&dir).options(options).open().unwrap();
    check_kept(&db.kvs("a").unwrap(), 0..10_000);
}
