//! A KVDB of many KVSs, most of which are written to seldom: their space and memory are bounded,
//! and the few that are busy are as fast as ever.
//!
//! The figures: `cargo test --release -p esker-tests --test many_kvss -- --ignored --nocapture`

use std::sync::LazyLock;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{Clock, Nanos, Rng};
use esker_kv::{Kvdb, Kvs, Location, Medium, Options, Policy, Stats};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 100;
/// So many KVSs are busy.
const HOT: usize = 8;
/// Keys of a busy KVS, and of another one.
const HOT_KEYS: u64 = 20_000;
const COLD_KEYS: u64 = 100;

#[test]
fn three_hundred_kvss_take_little_more_than_what_they_hold() {
    const KVSS: usize = 300;
    let scratch = tempfile::tempdir().unwrap();
    let options = Options::default().with(|set| set.memory_bytes = 32 * MIB);
    let db = Kvdb::builder(Location::dir(scratch.path().join("db")).staging(Medium::InDir))
        .options(options)
        .create()
        .unwrap();
    let mut load = Load::new(&db, KVSS);
    load.puts(100_000);
    db.settle().unwrap();
    let stats = db.stats();
    let kvsets = kvsets(&stats);
    assert!(kvsets <= 5 * KVSS, "{kvsets} kvsets");
    let places = stats.kvss.iter().skip(HOT).flat_map(|kvs| &kvs.places);
    let keys = places.map(|place| place.young_keys_bytes + place.old_keys_bytes).sum::<u64>();
    assert!(keys <= 5 * (KVSS - HOT) as u64 * (16 << 10), "{keys} bytes of keys");
    assert!((1..2 * MIB).contains(&stats.dram.structure_bytes), "{:?}", stats.dram);
    db.close().unwrap();
}

/// A number that the user of the test may set.
fn number<T: std::str::FromStr>(variable: &str, usual: T) -> T {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
#[ignore = "takes minutes"]
fn thousand() {
    let puts: u64 = number("ESKER_TEST_PUTS", 2_500_000);
    let scratch = tempfile::tempdir().unwrap();
    let options = Options::default().with(|set| set.memory_bytes = 64 * MIB);
    let db = Kvdb::builder(Location::dir(scratch.path().join("db")).staging(Medium::InDir))
        .options(options)
        .create()
        .unwrap();
    let mut load = Load::new(&db, number("ESKER_TEST_KVSS", 1000));
    println!(
        "{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>11}",
        "puts", "kvsets", "space", "resident", "counted", "puts/s", "longest ms", "MB written"
    );
    for done in (puts / 10..=puts).step_by(to_usize(puts / 10)) {
        let began = now();
        let longest = load.puts(puts / 10);
        let rate = puts / 10 * 1000 / u64::try_from(since(began).as_millis()).unwrap().max(1);
        let stats = db.stats();
        println!(
            "{done:>9}{:>9}{:>9.2}{:>9}{:>9}{rate:>9}{:>11}{:>11}",
            kvsets(&stats),
            space(&stats, load.live_bytes()),
            resident_bytes() / MIB,
            stats.dram.total_bytes() / MIB,
            longest.as_millis(),
            stats.device_written_bytes / 1_000_000,
        );
    }
    let maintenance = db.stats().maintenance;
    println!("{maintenance:?}\n{:?}", db.stats().stalls);
    let began = now();
    db.settle().unwrap();
    let stats = db.stats();
    println!(
        "settled in {:?}: {} kvsets, space {:.2}, resident {} MiB",
        since(began),
        kvsets(&stats),
        space(&stats, load.live_bytes()),
        resident_bytes() / MIB
    );
    db.close().unwrap();
}

#[test]
#[ignore = "takes a minute"]
fn two_thousand_kvss_open_with_little_memory() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let options = || Options::default().with(|set| set.memory_bytes = 64 * MIB);
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    let kvss: Vec<Kvs> =
        (0..2000).map(|n| db.create_kvs(&format!("kvs-{n}"), Policy::default()).unwrap()).collect();
    let mut rng = Rng::new(1);
    for n in 0..100u64 {
        for kvs in &kvss {
            let mut value = [0; VALUE_BYTES];
            rng.fill(&mut value);
            kvs.put(n.to_be_bytes(), value).unwrap();
        }
    }
    drop(kvss);
    db.close().unwrap();
    let before = resident_bytes();
    let began = now();
    let db = Kvdb::builder(&dir).options(options()).open().unwrap();
    let opened = since(began);
    Clock::real().sleep(Duration::from_secs(3));
    let stats = db.stats();
    println!(
        "opened in {opened:?}: {} kvsets, resident {} MiB (before {}), counted {} MiB, used {} MiB",
        kvsets(&stats),
        resident_bytes() / MIB,
        before / MIB,
        stats.dram.total_bytes() / MIB,
        stats.classes.iter().map(|class| class.used_bytes).sum::<u64>() / MIB
    );
    db.close().unwrap();
}

fn now() -> Nanos {
    static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::real);
    CLOCK.now()
}

fn since(began: Nanos) -> Duration {
    now().since(began)
}

/// Writes of which one in a hundred goes to one of many KVSs, and the others to a few.
struct Load {
    kvss: Vec<Kvs>,
    rng: Rng,
}

impl Load {
    /// A KVDB's new KVSs, each of which holds a few keys.
    fn new(db: &Kvdb, kvss: usize) -> Load {
        let create = |n| db.create_kvs(&format!("kvs-{n}"), Policy::default()).unwrap();
        let mut load = Load { kvss: (0..kvss).map(create).collect(), rng: Rng::new(7) };
        for kvs in 0..kvss {
            (0..COLD_KEYS).for_each(|key| load.put(kvs, key));
        }
        load
    }

    fn put(&mut self, kvs: usize, key: u64) {
        let mut value = [0; VALUE_BYTES];
        self.rng.fill(&mut value);
        self.kvss[kvs].put(key.to_be_bytes(), value).unwrap();
    }

    /// How long the longest took.
    fn puts(&mut self, puts: u64) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..puts {
            let (some, keys) = match self.rng.below(100) {
                0 => (self.kvss.len(), COLD_KEYS),
                _ => (HOT, HOT_KEYS),
            };
            let kvs = to_usize(self.rng.below(some as u64));
            let key = self.rng.below(keys);
            let began = now();
            self.put(kvs, key);
            longest = longest.max(since(began));
        }
        longest
    }

    /// Keys and values that there are, at most.
    fn live_bytes(&self) -> u64 {
        let keys = HOT as u64 * HOT_KEYS + (self.kvss.len() - HOT) as u64 * COLD_KEYS;
        keys * (8 + VALUE_BYTES as u64)
    }
}

fn kvsets(stats: &Stats) -> usize {
    stats.kvss.iter().map(|kvs| kvs.root_kvsets + kvs.leaf_kvsets).sum()
}

/// The bytes that the classes hold for each live byte.
#[allow(clippy::cast_precision_loss)] // a ratio for people
fn space(stats: &Stats, live_bytes: u64) -> f64 {
    let used: u64 = stats.classes.iter().map(|class| class.used_bytes).sum();
    used as f64 / live_bytes as f64
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}
