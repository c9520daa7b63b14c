use super::*;
use crate::types::page_of;
use esker_base::Rng;
use std::collections::BTreeSet;

const BASE: usize = 1 << 30;
const RECORDS: usize = 6000;
const BUCKETS: usize = 8192;
const VALUE: usize = 1024;

/// A hash table as a server's: buckets, chained entries (key, value, next), objects, values.
struct Table {
    words: Vec<u64>,
    here: BTreeSet<usize>,
    fetched: BTreeSet<usize>,
    /// The values in the order of a walk.
    order: Vec<usize>,
}

impl Table {
    fn new(seed: u64) -> Table {
        let mut rng = Rng::new(seed);
        let sizes = [BUCKETS * 8, RECORDS * 32, RECORDS * 16, RECORDS * 16, RECORDS * VALUE];
        let mut starts = Vec::new();
        let mut end = BASE + PAGE;
        for size in sizes {
            starts.push(end);
            end = (end + size).next_multiple_of(PAGE);
        }
        let mut words = vec![0u64; (end - BASE) / 8];
        let mut set = |addr: usize, value: usize| words[(addr - BASE) / 8] = value as u64;
        let mut buckets = vec![Vec::new(); BUCKETS];
        for n in 0..RECORDS {
            let (entry, key) = (starts[1] + n * 32, starts[2] + n * 16);
            let (object, value) = (starts[3] + n * 16, starts[4] + n * VALUE);
            set(entry, key + 1);
            set(entry + 8, object);
            set(object + 8, value + 5);
            (0..VALUE / 8).for_each(|at| set(value + at * 8, usize::MAX / 3 + at * n));
            buckets[usize::try_from(rng.below(BUCKETS as u64)).unwrap()].push((entry, value));
        }
        let mut order = Vec::new();
        for (n, bucket) in buckets.iter().enumerate() {
            let mut before = starts[0] + n * 8;
            for &(entry, value) in bucket {
                set(before, entry);
                before = entry + 16;
                order.push(value);
            }
        }
        // All but the values is in memory.
        let here = (BASE / PAGE..starts[4] / PAGE).collect();
        Table { words, here, fetched: BTreeSet::new(), order }
    }
}

impl Memory for Table {
    fn region(&self) -> std::ops::Range<usize> {
        BASE + PAGE..BASE + self.words.len() * 8
    }
    fn fetch(&mut self, wants: &[Want]) -> Vec<Near> {
        let fetch = |want: &Want| {
            let page = want.addr / PAGE;
            if self.here.contains(&page) {
                return Near::Here;
            }
            // It has come when it is asked for again.
            let is_new = self.fetched.insert(page);
            if is_new {
                return Near::Coming;
            }
            self.here.insert(page);
            Near::Here
        };
        wants.iter().map(fetch).collect()
    }
    fn is_here(&mut self, addrs: &[usize]) -> Vec<bool> {
        addrs.iter().map(|addr| self.here.contains(&(addr / PAGE))).collect()
    }
    fn read(&mut self, ranges: &[(usize, usize)], to: &mut Vec<u8>) -> usize {
        for &(addr, size) in ranges {
            let at = (addr - BASE) / 8;
            let words = &self.words[at..(at + size.div_ceil(8)).min(self.words.len())];
            to.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }
        to.len()
    }
    fn scan(&mut self, each: &mut dyn FnMut(usize, &[u64])) {
        for &page in &self.here {
            let at = (page * PAGE - BASE) / 8;
            each(page * PAGE, &self.words[at..at + PAGE / 8]);
        }
    }
}

/// Follows the table as a program would, and counts the pages that were not there.
fn walk(table: &mut Table, walk: &mut Walk, from: usize) -> usize {
    let mut missed = 0;
    for n in from..table.order.len() {
        let value = table.order[n];
        if !table.here.contains(&(value / PAGE)) {
            missed += usize::from(!table.fetched.contains(&(value / PAGE)));
            table.here.insert(value / PAGE);
            walk.fault(value + 4);
        }
        walk.go_on(table);
    }
    missed
}

#[test]
fn a_hash_table_is_learned_and_followed() {
    for seed in 0..4 {
        let mut table = Table::new(seed);
        let faults: Vec<usize> = table.order[100..164].iter().map(|value| value + 4).collect();
        let shape = learn(&mut table, &faults).unwrap();
        assert_eq!((shape.offsets.as_slice(), shape.delta), (&[8, 8][..], -1));
        let mut follower = Walk::new(shape, 200, &[]);
        let missed = walk(&mut table, &mut follower, 164);
        assert!(missed < table.order.len() / 50, "{missed} of {}", table.order.len());
    }
}

#[test]
fn it_stays_close_to_the_program() {
    let mut table = Table::new(9);
    let faults: Vec<usize> = table.order[100..164].iter().map(|value| value + 4).collect();
    let mut follower = Walk::new(learn(&mut table, &faults).unwrap(), 200, &[]);
    (0..50).for_each(|_| follower.go_on(&mut table));
    assert!(table.fetched.len() < 400, "{}", table.fetched.len());
    assert!(follower.is_idle());
}

#[test]
fn a_program_that_has_gone_on_is_found_again() {
    let mut table = Table::new(7);
    let faults: Vec<usize> = table.order[100..164].iter().map(|value| value + 4).collect();
    let shape = learn(&mut table, &faults).unwrap();
    let since: Vec<usize> = table.order[3000..3200].iter().map(|value| value + 4).collect();
    let mut follower = Walk::new(shape, 200, &since);
    let missed = walk(&mut table, &mut follower, 3200);
    assert!(missed < 200, "{missed}");
    assert!(table.fetched.len() < 1500, "{}", table.fetched.len());
}

#[test]
fn faults_in_no_order_teach_nothing() {
    let mut table = Table::new(3);
    let mut rng = Rng::new(3);
    let mut any = || table.order[usize::try_from(rng.below(RECORDS as u64)).unwrap()];
    // Words that nothing points to.
    let faults: Vec<usize> = (0..LEARNED_FROM).map(|_| any() + 600).collect();
    assert_eq!(learn(&mut table, &faults), None);
}

#[test]
fn a_walk_that_foresees_nothing_gives_up() {
    let mut table = Table::new(5);
    let faults: Vec<usize> = table.order[100..164].iter().map(|value| value + 4).collect();
    let mut follower = Walk::new(learn(&mut table, &faults).unwrap(), 50, &[]);
    let first = page_of(BASE / PAGE) as usize + (1 << 20);
    let gave_up = (0..2000).position(|n| {
        follower.fault((first + n * 3) * PAGE);
        follower.go_on(&mut table);
        follower.failed().is_some()
    });
    assert!(gave_up.is_some_and(|after| after < 1000), "{gave_up:?}");
    // Fetches in vain are bounded.
    assert!(table.fetched.len() < 1000, "{}", table.fetched.len());
}
