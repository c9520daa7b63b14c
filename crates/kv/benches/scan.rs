//! How fast cursors walk over data that is not in DRAM, beside the same drive read in order.
//!
//! ```text
//! cargo bench -p esker-kv --bench scan -- DIRECTORY [GIB] [MEMORY_MIB] [ROUNDS]
//! ```
//!
//! The directory is where the KVDB goes; it has to be on the drive that is measured, and is removed at
//! the end. Values of 1,000 bytes are put in an order of no sense and settle, the KVDB is opened again,
//! and then in turn, each time over another part: the drive by reads of 1 MiB, four in flight, through
//! the engine's own back end; one walk; one walk back; two walks at once. Figures are medians, and shares
//! of the drive's work are medians of the rounds' own. The same again when all has been compacted.

#![allow(clippy::disallowed_methods)] // a program, not a part of the engine
#![allow(clippy::cast_precision_loss)] // figures for people

mod common;

use std::path::Path;
use std::time::Instant;

use common::{argument, directory};
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, FileDevice, FileOptions, Op, Port};
use esker_kv::{CompactRequest, Kvdb, Kvs, Options, Policy};

const VALUE_BYTES: u64 = 1000;
/// Bytes that one walk, or one pass over the drive, reads.
const PART: u64 = 256 << 20;
const TRANSFER: usize = 1 << 20;

fn key(n: u64) -> String {
    format!("user{n:020}")
}

/// Puts `count` keys, each once, in an order that jumps about.
fn load(kvs: &Kvs, count: u64) {
    let stride = (count / 8 * 5..).find(|stride| gcd(*stride, count) == 1).expect("a stride");
    let (mut rng, mut value) = (Rng::new(1), vec![0; to_usize(VALUE_BYTES)]);
    for n in 0..count {
        rng.fill(&mut value);
        let at = n * stride % count;
        kvs.put(key(at).as_bytes(), &value).expect("a put");
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A file of the same drive, as the engine opens its own.
struct Reference {
    device: FileDevice,
    lbas: u64,
}

impl Reference {
    fn write(path: &Path, bytes: u64) -> Reference {
        let device = FileDevice::open(path, &FileOptions::default()).expect("a file");
        let lba_size = u64::from(device.geometry().lba_size);
        let mut port = Port::open(&device, 4).expect("a port");
        let mut rng = Rng::new(2);
        for at in (0..bytes / lba_size).step_by(TRANSFER / to_usize(lba_size)) {
            let mut buf = AlignedBuf::zeroed(TRANSFER);
            rng.fill(&mut buf);
            port.write(Lba(at), buf, None).expect("a write");
        }
        port.flush().expect("a flush");
        drop(port);
        Reference { device, lbas: bytes / lba_size }
    }

    /// Reads the `part`th part of the file; MB/s.
    fn read(&self, part: u64) -> f64 {
        let lba_size = u64::from(self.device.geometry().lba_size);
        let first = part * PART / lba_size % self.lbas;
        let mut port = Port::open(&self.device, 4).expect("a port");
        let step = TRANSFER as u64 / lba_size;
        let reads = (first..first + PART / lba_size).step_by(to_usize(step));
        let reads = reads.map(|at| Op::Read { lba: Lba(at), buf: AlignedBuf::zeroed(TRANSFER) });
        let began = Instant::now();
        port.run_all(reads, |_, result| drop(result.expect("a read"))).expect("reads");
        mb_per_s(PART, began)
    }
}

fn mb_per_s(bytes: u64, began: Instant) -> f64 {
    bytes as f64 / began.elapsed().as_secs_f64() / 1e6
}

/// Walks over `PART` bytes from key `from` on, or back from there.
fn walk(kvs: &Kvs, from: u64, forward: bool) -> u64 {
    let mut cursor = kvs.cursor().expect("a cursor");
    cursor.seek(key(from).as_bytes()).expect("a place");
    let mut bytes = 0;
    while bytes < PART {
        let row = if forward { cursor.next() } else { cursor.prev() };
        let (key, value) = row.expect("a row").expect("a part of that many rows");
        bytes += (key.len() + value.len()) as u64;
    }
    bytes
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn measure(what: &str, kvs: &Kvs, reference: &Reference, count: u64, rounds: u64) {
    let rows = PART / (VALUE_BYTES + 24) + 1;
    let parts = count / rows - 1;
    let mut figures = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let place = |n: u64| (round * 4 + n) % parts * rows;
        let device = reference.read(round);
        let timed = |walk: &dyn Fn() -> u64| {
            let began = Instant::now();
            mb_per_s(walk(), began)
        };
        let both = || {
            std::thread::scope(|scope| {
                let walks = [2, 3].map(|n| scope.spawn(move || walk(kvs, place(n), true)));
                walks.into_iter().map(|walk| walk.join().expect("a thread")).sum()
            })
        };
        let walks: [&dyn Fn() -> u64; 3] =
            [&|| walk(kvs, place(0), true), &|| walk(kvs, place(1) + rows, false), &both];
        figures[0].push(device);
        for (n, walk) in walks.into_iter().enumerate() {
            figures[n + 1].push(timed(walk));
        }
    }
    println!("{what}: the drive {:.0} MB/s", median(figures[0].clone()));
    for (n, name) in ["one walk", "one walk back", "two walks"].into_iter().enumerate() {
        let shares = figures[n + 1].iter().zip(&figures[0]).map(|(walk, drive)| walk / drive);
        let share = median(shares.collect());
        println!("  {name}: {:.0} MB/s, {share:.2} of it", median(figures[n + 1].clone()));
    }
}

fn main() {
    let Some(dir) = directory() else { return };
    let (gib, memory_mib, rounds) = (argument(2, 4), argument(3, 256), argument(4, 7));
    let bytes = gib << 30;
    let count = bytes / (VALUE_BYTES + 24);
    let (path, raw) = (dir.join("scan.kvdb"), dir.join("scan.raw"));
    let reference = Reference::write(&raw, (bytes / 2 / PART).max(1) * PART);
    let options = Options::default().with(|set| set.memory_bytes = memory_mib << 20);
    let db = Kvdb::builder(&path).options(options.clone()).create().expect("a new KVDB");
    let kvs = db.create_kvs("k", Policy::default()).expect("a new KVS");
    let began = Instant::now();
    load(&kvs, count);
    db.ingest().expect("an ingest");
    db.settle().expect("maintenance");
    println!("{gib} GiB put and settled in {:.0} s", began.elapsed().as_secs_f64());
    drop(kvs);
    db.close().expect("a close");
    for (what, compacted) in [("settled", false), ("compacted", true)] {
        let db = Kvdb::builder(&path).options(options.clone()).open().expect("the KVDB");
        let kvs = db.kvs("k").expect("the KVS");
        if compacted {
            db.compact(CompactRequest::Full).expect("a compaction");
        }
        measure(what, &kvs, &reference, count, rounds);
        let stats = db.stats();
        println!("  maintenance {:?}", stats.maintenance);
        drop(kvs);
        db.close().expect("a close");
    }
    drop(reference);
    let _ = (std::fs::remove_dir_all(path), std::fs::remove_file(raw));
}
