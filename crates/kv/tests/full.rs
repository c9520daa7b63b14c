//! A file system that is full, to the last byte: a KVDB on it opens, deletes, drops, compacts and closes, gives space back
//! and takes puts again. On small file systems of its own, which take root to mount.

mod full {
    pub(crate) mod system;
}

use std::process::Command;
use std::time::Duration;

use esker_base::{Clock, ErrorKind, Rng};
use esker_kv::{CompactRequest, ErrorCode, KvError, Kvdb, Kvs, Location, Options, Policy};
use full::system::{Kind, System};

const SIZES: [usize; 3] = [16, 1000, 200_000];

fn options() -> Options {
    Options::default().with(|set| set.memory_bytes = 64 << 20)
}

fn key(n: u64) -> Vec<u8> {
    format!("{:02}-{n:010}", n % 4).into_bytes()
}

fn value(n: u64, size: usize) -> Vec<u8> {
    let mut value = vec![0; size];
    Rng::new(n).fill(&mut value);
    value
}

/// A KVDB on a full file system: records 0 to `end` in the KVS `a`, and as many in `b`.
struct Full {
    db: Kvdb,
    a: Kvs,
    end: u64,
    size: usize,
    system: System,
    /// The reserve when the file system was full: what is freed fills it first.
    reserve: u64,
}

fn reserve(db: &Kvdb) -> u64 {
    db.stats().classes[0].reserve_bytes
}

fn settle(db: &Kvdb) {
    for _ in 0..200 {
        match db.settle() {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                Clock::real().sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Puts records until there is no space; returns how many there are.
fn fill(db: &Kvdb, a: &Kvs, b: &Kvs, size: usize) -> u64 {
    let full = |kvs: &Kvs, n: u64| match kvs.put(key(n), value(n, size)) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            true
        }
    };
    for n in 0.. {
        if full(a, n) || full(b, n) {
            a.delete(key(n)).unwrap();
            db.sync().unwrap();
            return n;
        }
    }
    unreachable!("the file system is finite")
}

impl Full {
    fn new(kind: Kind, size: usize) -> Option<Full> {
        let system = System::mount(kind)?;
        let db = Kvdb::builder(system.dir()).options(options()).create().unwrap();
        let a = db.create_kvs("a", Policy::default()).unwrap();
        let b = db.create_kvs("b", Policy::default()).unwrap();
        let end = fill(&db, &a, &b, size);
        assert!(end * 2 * (size as u64) > 8 << 20, "{end} of {size}: {:?}", db.stats());
        settle(&db);
        system.fill();
        // The log's segment may have room.
        let put = |n: u64| a.put(n.to_be_bytes(), value(n, size));
        let error = (0..2_000_000).find_map(|n| put(n).err()).expect("it is full");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let at = system.mount_point().display().to_string();
        assert!(error.to_string().contains(&at), "{error}");
        a.delete_prefix([0]).unwrap();
        system.fill();
        let reserve = reserve(&db);
        assert!(reserve >= 512 << 10, "{reserve}");
        Some(Full { db, a, end, size, system, reserve })
    }

    /// Space comes back, and puts work.
    fn recovers(&self, least: u64) {
        let _ = self.db.ingest();
        let clock = Clock::real();
        let began = clock.now();
        let free = loop {
            settle(&self.db);
            let gain = reserve(&self.db).saturating_sub(self.reserve);
            let free = self.system.free_bytes() + gain;
            if free >= least || clock.now().since(began) > Duration::from_secs(30) {
                break free;
            }
            Clock::real().sleep(Duration::from_millis(100));
        };
        assert!(free >= least, "{free} free of {least}\n{:?}", self.db.stats());
        for n in 0..8 {
            let put = self.a.put(key(9_000_000 + n), value(n, self.size));
            put.unwrap_or_else(|error| panic!("{error}\n{:?}", self.db.stats()));
        }
        for n in 0..8 {
            assert_eq!(self.a.get(key(9_000_000 + n)).unwrap(), Some(value(n, self.size).into()));
        }
        assert_eq!(self.db.stats().stopped, None);
    }

    fn data(&self) -> u64 {
        self.end * (self.size as u64 + 16)
    }

    fn has(&self, numbers: impl Iterator<Item = u64>) {
        for n in numbers {
            assert_eq!(self.a.get(key(n)).unwrap(), Some(value(n, self.size).into()), "{n}");
        }
    }

    fn delete(&self, numbers: impl Iterator<Item = u64>) {
        for n in numbers {
            let deleted = self.a.delete(key(n));
            deleted.unwrap_or_else(|e| panic!("{n} of {}: {e}\n{:?}", self.end, self.db.stats()));
        }
    }

    fn reopened(self) -> Full {
        let Full { db, a, end, size, system, .. } = self;
        drop(a);
        db.close().unwrap();
        system.fill();
        let db = Kvdb::builder(system.dir()).options(options()).open().unwrap();
        system.fill();
        let (a, reserve) = (db.kvs("a").unwrap(), reserve(&db));
        Full { db, a, end, size, system, reserve }
    }
}

fn each(run: impl Fn(Full)) {
    for kind in [Kind::Tmpfs, Kind::Ext4] {
        // The engine differs with the size, and one kind of file system shows that.
        let sizes = match kind {
            Kind::Tmpfs => &SIZES[..],
            Kind::Ext4 => &SIZES[1..2],
        };
        for size in sizes.iter().copied() {
            let Some(full) = Full::new(kind, size) else {
                println!("SKIPPED: {kind:?}: MOUNTING A SMALL FILE SYSTEM NEEDS ROOT");
                break;
            };
            println!("{kind:?}, {size}: {} records", full.end);
            run(full);
        }
    }
}

#[test]
fn deleting_all_works_and_gives_space_back() {
    each(|full| {
        full.delete(0..full.end);
        full.recovers(full.data() / 4);
    });
}

#[test]
fn deleting_half_works_and_gives_space_back() {
    each(|full| {
        full.delete((0..full.end).filter(|n| n % 2 == 0));
        full.recovers(full.data() / 16);
        full.has((0..full.end).filter(|n| n % 2 == 1).step_by(7));
    });
}

#[test]
fn deleting_prefixes_works_and_gives_space_back() {
    each(|full| {
        for prefix in ["00", "01", "02"] {
            full.a.delete_prefix(prefix.as_bytes()).unwrap();
        }
        full.recovers(full.data() / 8);
        full.has((0..full.end).filter(|n| n % 4 == 3).step_by(7));
    });
}

#[test]
fn dropping_a_kvs_works_and_gives_space_back() {
    each(|full| {
        full.db.drop_kvs("b").unwrap();
        full.recovers(full.data() / 8);
        full.has((0..full.end).step_by(7));
    });
}

#[test]
fn compacting_works_after_deletes() {
    each(|full| {
        full.delete((0..full.end).filter(|n| n % 2 == 0));
        full.db.compact(CompactRequest::Full).unwrap();
        full.recovers(full.data() / 16);
        full.has((0..full.end).filter(|n| n % 2 == 1).step_by(7));
    });
}

#[test]
fn compacting_without_garbage_harms_nothing() {
    each(|full| {
        if let Err(error) = full.db.compact(CompactRequest::SpaceAmplification(1.05)) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        full.delete(0..full.end);
        full.recovers(full.data() / 4);
    });
}

#[test]
fn closing_and_opening_work_again_and_again() {
    each(|mut full| {
        for _ in 0..3 {
            full = full.reopened();
            full.has((0..full.end).step_by(7));
        }
        full.delete(0..full.end);
        full.recovers(full.data() / 4);
    });
}

const CASE: &str = "ESKER_FULL_CASE";

#[test]
#[ignore = "a case of the test below, which runs it in a process of its own"]
fn case_in_a_process() {
    let Some(dir) = std::env::var_os(CASE) else { return };
    let db = Kvdb::builder(&dir).options(options()).open().unwrap();
    let a = db.kvs("a").unwrap();
    // Some deletes, and a kill in the midst of the maintenance after them.
    (0..200).for_each(|n| a.delete(key(n)).unwrap());
    db.sync().unwrap();
    println!("deleted");
    std::process::abort();
}

#[test]
fn opening_works_after_a_kill_and_a_little_space_lets_it_go_on() {
    each(|full| {
        let Full { db, a, end, size, system, .. } = full;
        drop(a);
        db.close().unwrap();
        system.fill();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "case_in_a_process", "--ignored", "--nocapture"])
            .env(CASE, system.dir())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("deleted"), "{said}{complained}");
        system.fill();
        let db = Kvdb::builder(system.dir()).options(options()).open().unwrap();
        let a = db.kvs("a").unwrap();
        assert!((0..200).all(|n| a.get(key(n)).unwrap().is_none()));
        let reserve = reserve(&db);
        let full = Full { db, a, end, size, system, reserve };
        full.has((200..full.end).step_by(7));
        // The one that was killed may have used up the reserve.
        full.system.gives_back(4 << 20);
        full.delete(200..full.end);
        full.recovers(full.data() / 4);
    });
}

#[test]
fn backup_to_a_full_file_system_names_it() {
    let Some(system) = System::mount(Kind::Tmpfs) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(scratch.path().join("db")).options(options()).create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (0..100).for_each(|n| kvs.put(key(n), value(n, 10_000)).unwrap());
    for leaves in [0, 300 << 10] {
        system.fill();
        system.gives_back(leaves);
        let error = db.backup(&Location::dir(system.dir())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let at = system.mount_point().display().to_string();
        assert!(error.to_string().contains(&at), "{error}");
        assert!(!matches!(error, KvError::Stopped { .. }));
    }
    kvs.put(b"goes on", b"v").unwrap();
}

#[test]
fn kvdb_that_may_not_be_written_names_the_way_to_read_it() {
    let Some(system) = System::mount(Kind::Tmpfs) else { return };
    let db = Kvdb::builder(system.dir()).options(options()).create().unwrap();
    db.create_kvs("a", Policy::default()).unwrap().put(b"k", b"v").unwrap();
    drop(db);
    system.protect();
    let builder = || Kvdb::builder(system.dir()).options(options());
    for error in [builder().open().unwrap_err(), builder().destroy().unwrap_err()] {
        assert_eq!(error.code(), ErrorCode::ReadOnly, "{error}");
        assert!(error.to_string().contains("open_read_only"), "{error}");
    }
    let db = builder().open_read_only().unwrap();
    assert_eq!(db.kvs("a").unwrap().get(b"k").unwrap().unwrap(), b"v");
}
