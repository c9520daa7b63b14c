//! `kill -9` of a process under load, over and over on the same directory: the state found afterwards
//! is a prefix of the writes, and holds everything that was promised.
//!
//! A child process writes from two threads. Each thread, a *lane*, has a history of its own: write
//! *n* is a batch or a transaction over both KVSs that is known from *n* alone, so the state after write *n* is known
//! too (`history`). The lane appends its acknowledged writes to a plain file outside the KVDB,
//! whose growth the parent watches by its own clock (`watch`). Then the parent kills the child at a
//! random moment, checks, opens, compares (`judge`), and starts the next child, which goes on where
//! the history ends.
//!
//! A kill loses the process's memory, never data that it had handed to the kernel: where the engine keeps its newest
//! frames there, no acknowledged write is lost. After every other kill the parent removes them, as a start of the machine
//! does; then the durability window holds. Other losses of such a start are left to the crash tests of the engine, on a
//! device that forgets.
//!
//! For hours: `cargo test --release -p esker-tests --test kill -- --ignored hundreds --nocapture`

mod common;
#[path = "kill/history.rs"]
mod history;
#[path = "kill/judge.rs"]
mod judge;
#[path = "kill/watch.rs"]
mod watch;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::{Clock, ErrorKind, Rng, thread};
use esker_kv::{Kvdb, Location, Maintenance, Medium, Options, Policy};

use history::{LANES, Lane};
use judge::Judge;
use watch::{Acknowledged, Watch};

const BUDGET: u64 = 16 << 20;
/// The file in which the engine keeps frames that no flush has taken.
const KEPT: &str = "tail.esker";
/// The durability window of the children, unless a test says otherwise.
const DURABILITY_MS: u64 = 50;

const DURABILITY: &str = "ESKER_TEST_DURABILITY_MS";
/// Microseconds that a lane rests after each write, and whether it ever syncs.
const REST: &str = "ESKER_TEST_REST_US";
const SYNCS: &str = "ESKER_TEST_SYNCS";

/// How the children of a test write.
#[derive(Clone, Copy)]
struct Load {
    durability_ms: u64,
    rest_us: u64,
    syncs: bool,
}

const LOAD: Load = Load { durability_ms: DURABILITY_MS, rest_us: 100, syncs: true };

fn options(durability_ms: u64, maintenance: Maintenance) -> Options {
    Options::default().with(|set| {
        set.memory_bytes = BUDGET;
        set.durability.ms = durability_ms;
        set.durability.bytes = BUDGET / 4;
        set.maintenance = maintenance;
    })
}

// ---- the parent ----------------------------------------------------------------------------------

/// A directory that children are killed on.
struct Victim {
    scratch: tempfile::TempDir,
    load: Load,
    judge: Judge,
    rng: Rng,
    kills: u64,
    /// Whether the file system lets the engine keep frames.
    keeps: bool,
}

impl Victim {
    fn new(load: Load, seed: u64) -> Victim {
        let scratch = tempfile::tempdir().unwrap();
        let probe = scratch.path().join("probe");
        let db = Kvdb::builder(&probe).options(options(1, Maintenance::Manual)).create().unwrap();
        let keeps = probe.join(KEPT).exists();
        db.close().unwrap();
        Victim {
            scratch,
            load,
            judge: Judge::new(load.durability_ms),
            rng: Rng::new(seed),
            kills: 0,
            keeps,
        }
    }

    /// Loses what the kernel has kept, as a start of the machine does.
    fn lose_kept(&self) {
        let _ = std::fs::remove_file(self.db_dir().join(KEPT));
    }

    fn db_dir(&self) -> PathBuf {
        self.scratch.path().join("db")
    }

    /// Runs a child and kills it after `life`, or a little later: once it has acknowledged
    /// something, if `busy`.
    fn kill(&mut self, life: Duration, busy: bool) {
        let dir = self.scratch.path();
        for lane in 0..LANES {
            File::create(log_path(dir, lane)).unwrap();
        }
        let mut command = common::command("child", dir);
        command
            .env(DURABILITY, self.load.durability_ms.to_string())
            .env(REST, self.load.rest_us.to_string())
            .env(SYNCS, u64::from(self.load.syncs).to_string())
            .stdout(std::process::Stdio::null());
        let mut watch = Watch::start((0..LANES).map(|lane| log_path(dir, lane)).collect());
        let mut child = command.spawn().unwrap();
        watch.run(life, busy);
        assert_eq!(child.try_wait().unwrap(), None, "the child ended by itself");
        watch.note_end();
        child.kill().unwrap();
        child.wait().unwrap();
        self.kills += 1;
        for (lane, acknowledged) in (0..).zip(watch.finish()) {
            self.judge.hear(lane, &acknowledged);
        }
    }

    /// Opens the database and judges it.
    fn verdict(&self) -> Result<(String, [u64; 2]), String> {
        let report = match Kvdb::builder(self.db_dir()).check() {
            Ok(report) => report,
            // Killed while it was created, when nothing can have been acknowledged.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let _ = std::fs::remove_dir_all(self.db_dir());
                return self
                    .judge
                    .check_nothing_promised()
                    .map(|()| ("nothing yet".into(), [0; 2]));
            }
            Err(error) => return Err(format!("check: {error}")),
        };
        if !report.findings.is_empty() {
            return Err(format!("check finds {:?}", report.findings));
        }
        let db = Kvdb::builder(self.db_dir())
            .options(options(DURABILITY_MS, Maintenance::Manual))
            .open()
            .map_err(|error| format!("open: {error}"))?;
        let states = self.judge.check(&db)?;
        let shape: Vec<String> = db
            .stats()
            .kvss
            .iter()
            .map(|kvs| {
                let (root, leaves, old) = (kvs.root_kvsets, kvs.leaves, kvs.leaf_kvsets);
                format!("{}: {root} in the root, {old} in {leaves} leaves", kvs.name)
            })
            .collect();
        let (records, shape) = (report.log_records, shape.join("; "));
        let found = format!("states {states:?}, {records} log records; {shape}");
        Ok((found, states))
    }

    /// A kill at any moment, sometimes of a child that is still busy opening the database that the last one
    /// left; then judgement.
    fn round(&mut self) {
        // Fast, so that much happens; or slowly and for longer than the window and the judge's
        // margin, so that it is time alone that flushes the log.
        let slow = self.rng.chance(1, 3);
        let (rest_us, least) = if slow { (6000, 500) } else { (100, 10) };
        self.load = Load { rest_us, syncs: !slow, ..self.load };
        let life = Duration::from_millis(least + self.rng.below(700));
        self.kill(life, false);
        if self.rng.chance(1, 3) {
            let life = Duration::from_millis(self.rng.below(80));
            self.kill(life, false);
        }
        let is_kept = self.keeps && self.rng.chance(1, 2);
        if !is_kept {
            self.lose_kept();
        }
        let lost = self.judge.lost_writes();
        match self.verdict() {
            Ok((found, states)) => {
                println!("kill {}: {found}", self.kills);
                assert!(!is_kept || self.judge.lost_writes() == lost, "{}", self.judge);
                self.judge.settle(states);
            }
            Err(why) => panic!("after kill {}: {why}\n{}", self.kills, self.judge),
        }
    }
}

fn log_path(dir: &Path, lane: u64) -> PathBuf {
    dir.join(format!("lane-{lane}.log"))
}

fn kill_often(rounds: u64, seed: u64) {
    let mut victim = Victim::new(LOAD, seed);
    for _ in 0..rounds {
        victim.round();
    }
    println!("{}", victim.judge);
    // A load that never reached the leaves, or a kill that never cost anything, tests little.
    let db = Kvdb::builder(victim.db_dir())
        .options(options(DURABILITY_MS, Maintenance::Manual))
        .open()
        .unwrap();
    let kvss = db.stats().kvss;
    assert!(kvss.iter().all(|kvs| kvs.leaf_kvsets > 0), "{kvss:?}");
    assert!(victim.judge.lost_writes() > 0, "no kill ever lost a write");
}

#[test]
fn promised_writes_survive_a_dozen_kills() {
    kill_often(12, 1);
}

#[test]
#[ignore = "takes a quarter of an hour; see the head of this file"]
fn promised_writes_survive_hundreds_of_kills() {
    for seed in 2..22 {
        kill_often(40, seed);
    }
}

/// The judge is no rubber stamp: a shorter window does not allow a loss that a longer one allows.
#[test]
fn a_loss_is_noticed_and_allowed_only_within_the_durability_window() {
    let hour = Load { durability_ms: 3_600_000, rest_us: 20_000, syncs: false };
    let mut victim = Victim::new(hour, 99);
    victim.kill(Duration::from_millis(1200), true);
    victim.lose_kept();
    let (found, _) = victim.verdict().expect("an hour's window allows the loss");
    assert!(victim.judge.lost_writes() > 0, "nothing was lost: {found}");
    victim.judge.promise(DURABILITY_MS);
    let why = victim.verdict().expect_err("a loss past the window");
    assert!(why.contains("was promised"), "{why}");
}

#[test]
fn nothing_is_lost_that_the_kernel_keeps_whatever_the_window() {
    let hour = Load { durability_ms: 3_600_000, rest_us: 2_000, syncs: false };
    let mut victim = Victim::new(hour, 98);
    victim.kill(Duration::from_millis(1200), true);
    let (found, states) = victim.verdict().unwrap();
    assert!(states[0] > 0);
    assert!(!victim.keeps || victim.judge.lost_writes() == 0, "{found}\n{}", victim.judge);
}

#[test]
fn a_torn_batch_and_a_stale_value_are_noticed() {
    let lane = Lane::new(0);
    let mut victim = Victim::new(LOAD, 100);
    let open = |victim: &Victim| {
        let options = options(DURABILITY_MS, Maintenance::Manual);
        let db = Kvdb::builder(victim.db_dir()).options(options).open().unwrap();
        let state = history::state_of(&db, 0).unwrap();
        (db, state)
    };
    // On a busy machine it takes a while until each key has had two values.
    for _ in 0..100 {
        victim.kill(Duration::from_millis(700), true);
        victim.verdict().unwrap();
        if open(&victim).1 > 2 * history::KEYS {
            break;
        }
    }
    let tamper = |change: &dyn Fn(&Kvdb, u64)| {
        let (db, state) = open(&victim);
        change(&db, state);
        victim.judge.check(&db).expect_err("a state that never was")
    };
    let put = |kvs: &str, n: u64| {
        let (kvs, key) = (kvs.to_owned(), lane.key(n));
        move |db: &Kvdb, value: &[u8]| db.kvs(&kvs).unwrap().put(&key, value).unwrap()
    };
    let last_put = |state: u64| (1..=state).rev().find(|&n| !lane.deletes(n)).unwrap();
    // One half of the last batch missing.
    let why = tamper(&|db, state| {
        let n = last_put(state);
        let key = lane.key(n);
        db.kvs(history::NAMES[1]).unwrap().delete(&key).unwrap();
    });
    assert!(why.contains("missing"), "{why}");
    // An older value in its place.
    let why = tamper(&|db, state| {
        let n = last_put(state);
        put(history::NAMES[1], n)(db, &lane.value(n, 1));
        put(history::NAMES[0], n)(db, &lane.value(n - history::KEYS, 0));
    });
    assert!(why.contains("write"), "{why}");
}

// ---- the child -----------------------------------------------------------------------------------

#[test]
#[ignore = "the child of the other tests"]
fn child() {
    if let Some(dir) = common::dir() {
        write_until_killed(&dir);
    }
}

/// Opens or creates the KVDB, and goes on with the history of each lane for ever.
fn write_until_killed(dir: &Path) {
    let options = options(common::number(DURABILITY), Maintenance::Threads);
    let db_dir = dir.join("db");
    let db = match Kvdb::builder(&db_dir).options(options.clone()).open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let _ = std::fs::remove_dir_all(&db_dir);
            Kvdb::builder(Location::dir(&db_dir).staging(Medium::InDir)).options(options).create()
        }
        opened => opened,
    }
    .expect("a KVDB that opens");
    let kvss = history::NAMES.map(|name| match db.kvs(name) {
        Ok(kvs) => kvs,
        Err(_) => db.create_kvs(name, Policy::default()).unwrap(),
    });
    let rest = Duration::from_micros(common::number(REST));
    let syncs = common::number(SYNCS) == 1;
    let clock = Clock::real();
    let acknowledged = Acknowledged::default();
    std::thread::scope(|scope| {
        for number in 0..LANES {
            let (db, kvss, clock, acknowledged) = (&db, &kvss, &clock, &acknowledged);
            let mut log = File::options().append(true).open(log_path(dir, number)).unwrap();
            let run = move || {
                let lane = Lane::new(number);
                let mut rng = Rng::new(number);
                let first = history::state_of(db, number).unwrap() + 1;
                for n in first.. {
                    lane.write(db, kvss, n, acknowledged.of_others(number)).unwrap();
                    log.write_all(&watch::entry(false, n)).unwrap();
                    acknowledged.set(number, n);
                    if syncs && rng.chance(1, 200) {
                        db.sync().unwrap();
                        log.write_all(&watch::entry(true, n)).unwrap();
                    }
                    if !rest.is_zero() {
                        clock.sleep(rest);
                    }
                }
            };
            thread::spawn_scoped(scope, "lane", run).unwrap();
        }
    });
}
