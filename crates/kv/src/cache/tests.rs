//! The cache against plain oracles: a map for what it returns, policies of `base` for how much.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Barrier};

use esker_base::Rng;
use esker_base::policy::{self, Access, Kind, Policy};

use super::segment::{RECORD_MAX, SEGMENT};
use super::*;

const MIB: u64 = 1 << 20;

fn at(n: u64) -> RecordAddress {
    RecordAddress { block: n >> 20, offset: n & 0xf_ffff }
}

/// The content of the record with this number: `size` bytes that only it has.
fn content(n: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Rng::new(n).fill(&mut bytes);
    bytes
}

/// Forgets a record, as a rename of it does.
fn remove(cache: &RecordCache, address: RecordAddress) -> bool {
    let (shard, hash) = address.hash();
    cache.shards[shard].lock().remove(address, hash)
}

fn fits(cache: &RecordCache) {
    for shard in &cache.shards {
        let stats = shard.lock().stats();
        assert!(stats.bytes <= stats.capacity, "{stats:?}");
    }
}

#[test]
fn a_hit_returns_what_was_inserted_under_that_address() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let cache = RecordCache::new(8 * MIB);
        // What every address must read as, if it is cached; contents never change.
        let mut oracle: BTreeMap<RecordAddress, Vec<u8>> = BTreeMap::new();
        let (mut out, mut hits) = (Vec::new(), 0);
        for _ in 0..15_000 {
            let address = at(rng.below(3000));
            match rng.below(40) {
                0 => {
                    let there = cache.contains(address);
                    assert_eq!(remove(&cache, address), there);
                    assert!(!cache.contains(address));
                }
                1..4 => {
                    let new = at(3000 + rng.below(100_000));
                    let Some(bytes) = oracle.get(&address).cloned() else {
                        continue;
                    };
                    if oracle.insert(new, bytes.clone()).is_some_and(|old| old != bytes) {
                        // The address had another content: maintenance never does that.
                        remove(&cache, new);
                    }
                    let there = cache.contains(address);
                    assert!(there || !cache.rename(address, new));
                    if there && cache.rename(address, new) {
                        assert!(cache.get(new, &mut out) && out == bytes);
                    }
                    assert!(!cache.contains(address));
                    oracle.remove(&address);
                }
                4 => {
                    let capacity = [0, 7, 9, 12, 24][to_usize(rng.below(5))];
                    if rng.chance(1, 20) {
                        cache.set_capacity(capacity * MIB);
                    }
                }
                5..20 => {
                    let most = 1 + rng.below(5000);
                    let size = to_usize(rng.below(most));
                    let bytes = oracle.entry(address).or_insert_with(|| content(rng.u64(), size));
                    let cut = to_usize(rng.below(to_u64(bytes.len()) + 1));
                    cache.insert(address, &[&bytes[..cut], &[], &bytes[cut..]]);
                }
                _ => {
                    let hit = cache.get(address, &mut out);
                    hits += u64::from(hit);
                    assert!(!hit || oracle.get(&address) == Some(&out), "seed {seed}");
                }
            }
            fits(&cache);
        }
        assert!(hits > 500, "seed {seed}: {hits}");
        for (address, bytes) in &oracle {
            assert!(cache.with(*address, |cached| cached == bytes) != Some(false));
        }
    }
}

#[test]
fn a_record_is_cached_until_something_else_needs_its_place() {
    let cache = RecordCache::new(64 * MIB);
    let sizes = [0, 1, 7, 8, 1000, RECORD_MAX];
    for (n, size) in (0..).zip(sizes) {
        assert!(cache.insert(at(n), &[&content(n, size)]));
        assert!(!cache.insert(at(n), &[b"again"]), "it is there already");
    }
    for (n, size) in (0..).zip(sizes) {
        let mut out = vec![1, 2, 3];
        assert!(cache.get(at(n), &mut out));
        assert_eq!(out, content(n, size));
    }
    let mut out = vec![1, 2, 3];
    assert!(!cache.get(at(99), &mut out));
    assert_eq!(out, [1, 2, 3], "a miss leaves the buffer alone");
    assert!(!cache.insert(at(99), &[&vec![0; RECORD_MAX], &[0]]), "too large");
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.inserts), (6, 1, 6));
    assert_eq!((stats.entries, stats.evictions), (6, 0));
}

/// Reads record `n` of 1,000 bytes, and inserts it on a miss.
fn read(cache: &RecordCache, n: u64) -> bool {
    let hit = cache.with(at(n), |_| ()).is_some();
    if !hit {
        cache.insert(at(n), &[&[7; 1000]]);
    }
    hit
}

fn kept(cache: &RecordCache, records: impl Iterator<Item = u64>) -> usize {
    records.filter(|&n| cache.contains(at(n))).count()
}

#[test]
fn a_smaller_capacity_frees_memory_at_once_and_keeps_the_hottest() {
    let cache = RecordCache::new(64 * MIB);
    for _ in 0..3 {
        (0..40_000).for_each(|n| _ = read(&cache, n));
    }
    (100_000..160_000).for_each(|n| _ = read(&cache, n)); // the main queue has them now
    assert!(kept(&cache, 0..40_000) > 39_000);
    assert!(cache.stats().bytes > 60 * MIB, "{:?}", cache.stats());
    for _ in 0..3 {
        (0..20_000).for_each(|n| _ = read(&cache, 2 * n));
    }
    cache.set_capacity(32 * MIB);
    assert!(cache.stats().bytes <= 32 * MIB);
    let hottest = kept(&cache, (0..20_000).map(|n| 2 * n));
    assert!(hottest > 19_000, "{hottest} of 20,000 were kept");
    cache.set_capacity(0);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.bytes), (0, 0));
    assert!(!cache.insert(at(1), &[b"there is no room"]));
    cache.set_capacity(64 * MIB);
    assert!(cache.insert(at(1), &[b"now there is"]));
}

#[test]
fn the_index_shrinks_with_what_it_indexes() {
    let cache = RecordCache::new(64 * MIB);
    for n in 0..1_000_000 {
        cache.insert(at(n), &[]); // all header and index
    }
    cache.set_capacity(8 * MIB);
    let stats = cache.stats();
    // Sixteen indexes of 4,096 slots, three quarters full, hold 49,152.
    assert!(stats.bytes <= 8 * MIB && stats.entries > 45_000, "{stats:?}");
}

#[test]
fn the_index_grows_within_the_capacity() {
    for capacity in (42..54).map(|n| n * MIB / 4) {
        let cache = RecordCache::new(capacity);
        for n in 0..250_000 {
            cache.insert(at(n), &[]);
            if n % 100 == 0 {
                fits(&cache);
            }
        }
    }
}

#[test]
fn any_capacity_is_kept() {
    for capacity in (0..40).map(|n| n * 777_777).chain([u64::MAX]) {
        let cache = RecordCache::new(capacity);
        for n in 0..5000 {
            let size = [0, 10, 300, 9000][to_usize(n % 4)];
            if !cache.contains(at(n / 2)) {
                cache.insert(at(n / 2), &[&vec![1; size]]);
            }
            fits(&cache);
        }
        assert!(cache.stats().entries > 0 || capacity < 7 * MIB, "{capacity}");
        assert!(cache.stats().entries == 0 || capacity > 16 * 2 * to_u64(SEGMENT));
    }
}

#[test]
fn a_scan_of_cold_records_leaves_the_hot_ones() {
    let cache = RecordCache::new(32 * MIB);
    for _ in 0..4 {
        (0..15_000).for_each(|n| _ = read(&cache, n));
    }
    (100_000..400_000).for_each(|n| _ = read(&cache, n)); // ten times what the cache holds
    let kept = kept(&cache, 0..15_000);
    assert!(kept > 14_500, "{kept} of 15,000 survived the scan");
}

#[test]
fn a_record_that_comes_back_soon_stays() {
    let cache = RecordCache::new(32 * MIB);
    (100_000..200_000).for_each(|n| _ = read(&cache, n));
    (0..500).for_each(|n| _ = read(&cache, n));
    (200_000..234_000).for_each(|n| _ = read(&cache, n)); // a little more than it holds
    assert_eq!(kept(&cache, 0..500), 0);
    (0..500).for_each(|n| _ = read(&cache, n));
    (300_000..400_000).for_each(|n| _ = read(&cache, n));
    let kept = kept(&cache, 0..500);
    assert!(kept > 450, "{kept} of 500 survived the scan");
}

#[test]
fn addresses_with_the_same_hash_are_different_records() {
    let mut seen = BTreeMap::new();
    let twins = (0..).find_map(|n| seen.insert(at(n).hash(), n).map(|other| [other, n]));
    let [a, b] = twins.expect("36 bits collide among a million addresses");
    let cache = RecordCache::new(8 * MIB);
    assert!(cache.insert(at(a), &[b"one"]));
    assert!(!cache.contains(at(b)) && !cache.rename(at(b), at(7)) && !remove(&cache, at(b)));
    assert!(cache.insert(at(b), &[b"other"]));
    assert_eq!(cache.with(at(a), <[u8]>::to_vec).unwrap(), b"one");
    assert_eq!(cache.with(at(b), <[u8]>::to_vec).unwrap(), b"other");
    assert!(remove(&cache, at(b)) && cache.contains(at(a)));
}

#[test]
fn a_renamed_record_is_as_hot_as_it_was() {
    let cache = RecordCache::new(16 * MIB);
    for n in 0..1000 {
        cache.insert(at(n), &[&content(n, 900)]);
        for _ in 0..3 {
            assert!(cache.with(at(n), |_| ()).is_some());
        }
    }
    for n in 0..1000 {
        assert!(cache.rename(at(n), at(1_000_000 + n)));
        assert!(!cache.rename(at(n), at(2_000_000 + n)), "it is gone from there");
    }
    for n in 0..30_000 {
        cache.insert(at(3_000_000 + n), &[&[7; 900]]);
    }
    let mut out = Vec::new();
    let kept = (0..1000).filter(|&n| {
        let hit = cache.get(at(1_000_000 + n), &mut out);
        assert!(!hit || out == content(n, 900));
        hit
    });
    assert!(kept.count() > 950);
    assert!(cache.rename(at(1_000_000), at(1_000_000)));
    assert_eq!(cache.stats().inserts, 31_000);
}

/// Numbers below a bound, by rank, with the frequencies of Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    #[allow(clippy::cast_precision_loss)]
    fn new(count: u64, theta: f64) -> Zipf {
        let mut sum = 0.0;
        Zipf(
            (1..=count)
                .map(|rank| {
                    sum += (rank as f64).powf(-theta);
                    sum
                })
                .collect(),
        )
    }

    fn next(&self, rng: &mut Rng) -> u64 {
        let point = rng.unit() * self.0.last().unwrap();
        to_u64(self.0.partition_point(|&sum| sum < point))
    }
}

/// A cache of as many records under a policy of `base`, which names single records.
struct Slots {
    policy: Box<dyn Policy>,
    keys: Vec<u64>,
    slot_of: BTreeMap<u64, u32>,
}

struct Keys<'a>(&'a [u64]);

impl policy::Slots for Keys<'_> {
    fn key(&self, slot: u32) -> u64 {
        self.0[usize::try_from(slot).unwrap()]
    }
}

impl Slots {
    fn new(kind: Kind, slots: u64) -> Slots {
        let policy = kind.build(u32::try_from(slots).unwrap());
        Slots { policy, keys: Vec::new(), slot_of: BTreeMap::new() }
    }

    fn touch(&mut self, key: u64) -> bool {
        if let Some(&slot) = self.slot_of.get(&key) {
            self.policy.hit(slot, key, Access::Read);
            return true;
        }
        let mut slot = u32::try_from(self.keys.len()).unwrap();
        if slot < self.policy.capacity() {
            self.keys.push(key);
        } else {
            slot = self.policy.evict(key, &Keys(&self.keys)).unwrap();
            let at = usize::try_from(slot).unwrap();
            let old = std::mem::replace(&mut self.keys[at], key);
            self.slot_of.remove(&old);
        }
        self.slot_of.insert(key, slot);
        self.policy.insert(slot, key, Access::Read);
        false
    }
}

/// The cache evicts whole segments, so it cannot follow a policy that names single records. What that
/// costs is held against such policies with as many records.
#[test]
fn evicting_by_segments_costs_next_to_no_hits() {
    const RECORDS: u64 = 60_000;
    const READS: usize = 400_000;
    for with_scans in [false, true] {
        let zipf = Zipf::new(RECORDS, 0.99);
        let (mut rng, mut scan) = (Rng::new(17), RECORDS);
        let trace: Vec<u64> = (0..READS)
            .map(|_| {
                if with_scans && rng.chance(1, 5) {
                    scan += 1;
                    return scan;
                }
                zipf.next(&mut rng)
            })
            .collect();
        let measured = |touch: &mut dyn FnMut(u64) -> bool| {
            let hits = trace.iter().map(|&n| touch(n)).collect::<Vec<bool>>();
            hits[READS / 2..].iter().filter(|&&hit| hit).count()
        };
        // Room for about a quarter of the records.
        let cache = RecordCache::new(24 * MIB);
        let ours = measured(&mut |n| read(&cache, n));
        let entries = cache.stats().entries;
        assert!((RECORDS / 5..RECORDS / 3).contains(&entries), "{entries}");
        let of = |kind| {
            let mut slots = Slots::new(kind, entries);
            measured(&mut |n| slots.touch(n))
        };
        let (lru, s3_fifo, adaptive) = (of(Kind::Lru), of(Kind::S3Fifo), of(Kind::Adaptive));
        println!(
            "{entries} of {RECORDS} records, scans {with_scans}: {ours} hits of {} reads; LRU {lru}, \
             S3-FIFO by record {s3_fifo}, adaptive {adaptive}",
            READS / 2
        );
        assert!(ours >= lru, "{ours} hits, LRU has {lru}");
        let best = s3_fifo.max(adaptive);
        assert!(
            ours + READS / 200 > best,
            "{ours} hits, the best has {best}: more than a point lost"
        );
    }
}

#[test]
fn threads_may_do_everything_at_once() {
    let cache = Arc::new(RecordCache::new(10 * MIB));
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let cache = cache.clone();
            let run = move || {
                let mut rng = Rng::new(seed);
                let mut out = Vec::new();
                let mut log = VecDeque::new();
                for _ in 0..30_000 {
                    // Threads share addresses, and content is a function of the address, but for
                    // those that one thread alone renames to.
                    let n = rng.below(2000);
                    if cache.get(at(n), &mut out) {
                        assert_eq!(out, content(n, 700));
                    } else {
                        cache.insert(at(n), &[&content(n, 700)]);
                    }
                    match rng.below(50) {
                        0 => cache.set_capacity((6 + rng.below(8)) * MIB),
                        1..10 => {
                            let new = (seed + 1) << 40 | rng.u64() >> 32;
                            if cache.rename(at(n), at(new)) {
                                log.push_back((new, n));
                            }
                        }
                        10 => _ = remove(&cache, at(n)),
                        _ => {}
                    }
                    if log.len() > 100 {
                        let (new, n) = log.pop_front().unwrap();
                        if cache.get(at(new), &mut out) {
                            assert_eq!(out, content(n, 700));
                        }
                    }
                }
            };
            esker_base::thread::spawn("cache-test", run).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    fits(&cache);
}

#[test]
fn renaming_to_and_fro_between_shards_does_not_deadlock() {
    let cache = Arc::new(RecordCache::new(8 * MIB));
    let (a, b) = (at(0), at((1..).find(|&n| at(n).hash().0 != at(0).hash().0).unwrap()));
    cache.insert(a, &[b"one"]);
    let start = Arc::new(Barrier::new(2));
    let threads = [(a, b), (b, a)].map(|(old, new)| {
        let (cache, start) = (cache.clone(), start.clone());
        let run = move || {
            start.wait();
            (0..500_000).for_each(|_| _ = cache.rename(old, new));
        };
        esker_base::thread::spawn("cache-test", run).unwrap()
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(cache.contains(a) != cache.contains(b));
}
