use std::collections::BTreeSet;

use super::*;

fn small() -> MysqlOptions {
    MysqlOptions {
        data_bytes: 512 * MIB,
        pool_bytes: 32 * MIB,
        redo_capacity_bytes: MIB,
        scan_bytes: 16 * MIB,
        scan_every: 500,
        ..MysqlOptions::default()
    }
}

#[test]
fn the_same_seed_gives_the_same_requests() {
    let take = |seed: u64| -> Vec<Request> {
        MysqlLoad::new(MysqlOptions { seed, ..small() }).unwrap().take(50_000).collect()
    };
    assert_eq!(take(1), take(1));
    assert_ne!(take(1), take(2));
}

#[test]
fn requests_keep_to_their_areas_and_their_times_do_not_go_back() {
    let load = MysqlLoad::new(small()).unwrap();
    let (layout, end, page) = (load.layout().clone(), load.device_bytes(), load.options.page_bytes);
    let mut last = 0;
    let mut seen = BTreeSet::new();
    for request in load.take(200_000) {
        assert!(request.time_ns >= last && request.offset + request.length <= end);
        last = request.time_ns;
        let areas = [&layout.data, &layout.doublewrite, &layout.redo, &layout.binlog];
        if request.op == Op::Flush {
            continue;
        }
        let within = |area: &&Range<u64>| {
            area.start <= request.offset && request.offset + request.length <= area.end
        };
        let area = areas.iter().position(within).unwrap_or_else(|| panic!("{request:?}"));
        seen.insert((area, request.op));
        match area {
            0 => assert!(request.length == page && request.offset % page == 0),
            1 => assert!(request.offset % page == 0),
            2 => assert!(request.length % REDO_BLOCK == 0),
            _ => assert!(request.length % BINLOG_BLOCK == 0),
        }
    }
    let expected = [(0, Op::Read), (0, Op::Write), (1, Op::Write), (2, Op::Write), (3, Op::Write)];
    assert_eq!(seen, expected.into_iter().collect());
}

/// Invariant 1: between a page's copy and the page there is a flush, and there are as many pages as
/// copies.
#[test]
fn pages_go_through_the_doublewrite_area_first() {
    let load = MysqlLoad::new(small()).unwrap();
    let (layout, page) = (load.layout().clone(), load.options.page_bytes);
    let (mut copied, mut durable, mut batches) = (0, 0, 0);
    for request in load.take(300_000) {
        let is_in = |area: &Range<u64>| area.contains(&request.offset);
        match request.op {
            Op::Write if is_in(&layout.doublewrite) => {
                assert_eq!(copied + durable, 0, "the batch before was not written");
                copied = request.length / page;
                batches += 1;
            }
            Op::Flush => durable += std::mem::take(&mut copied),
            Op::Write if is_in(&layout.data) => {
                assert!(durable > 0, "a page without a durable copy: {request:?}");
                durable -= 1;
            }
            _ => {}
        }
    }
    assert!(batches > 100, "{batches}");
}

/// Invariant 2, and bursts: the age of the checkpoint falls by a quarter of the log at once.
#[test]
fn the_log_never_overtakes_the_pages() {
    let mut load = MysqlLoad::new(MysqlOptions { clean_pages_per_s: 0, ..small() }).unwrap();
    let capacity = load.options.redo_capacity_bytes;
    let (mut before, mut bursts) = (0, 0);
    for _ in 0..300_000 {
        load.next();
        let age = load.checkpoint_age_bytes();
        assert!(age <= capacity, "{age}");
        if age + capacity / 5 < before {
            bursts += 1;
        }
        before = age;
    }
    assert!(bursts >= 3, "{bursts}");
    assert!(load.redo_end > 2 * capacity, "the log went round");
}

#[test]
fn a_larger_pool_leaves_fewer_reads_and_scans_are_sequential() {
    let reads = |pool_bytes: u64| {
        let options = MysqlOptions { pool_bytes, scan_every: 0, read_only_percent: 100, ..small() };
        let mut load = MysqlLoad::new(options).unwrap();
        let mut transactions = 0;
        let mut reads = 0;
        while transactions < 20_000 {
            load.step();
            transactions += 1;
            reads += load.ready.len();
            assert!(load.ready.iter().all(|request| request.op == Op::Read));
            load.ready.clear();
        }
        reads
    };
    let (small_pool, large_pool) = (reads(16 * MIB), reads(256 * MIB));
    assert!(large_pool * 2 < small_pool, "{large_pool} and {small_pool}");

    let options = MysqlOptions { scan_every: 1, ..small() };
    let mut requests: Vec<Request> = MysqlLoad::new(options).unwrap().take(20_000).collect();
    requests.retain(|request| request.op == Op::Read);
    let goes_on = |pair: &&[Request]| pair[0].offset + pair[0].length == pair[1].offset;
    let sequential = requests.windows(2).filter(goes_on).count();
    assert!(sequential * 10 > requests.len() * 6, "{sequential} of {}", requests.len());
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let refused = |options: MysqlOptions, word: &str| {
        let error = MysqlLoad::new(options).err().expect(word).to_string();
        assert!(error.contains(word), "no '{word}' in: {error}");
    };
    refused(MysqlOptions { page_bytes: 5000, ..small() }, "power of two");
    refused(MysqlOptions { data_bytes: 0, ..small() }, "1,024 pages");
    refused(MysqlOptions { pool_bytes: 1, ..small() }, "64 pages");
    refused(MysqlOptions { batch_pages: 0, ..small() }, "1 to 1,024");
    refused(MysqlOptions { theta: f64::NAN, ..small() }, "0 to 2");
    refused(MysqlOptions { changes: 99, ..small() }, "at most as many");
    refused(MysqlOptions { read_only_percent: 101, ..small() }, "only read");
    refused(MysqlOptions { transactions_per_s: 0.0, ..small() }, "a second");
    refused(MysqlOptions { redo_capacity_bytes: 0, ..small() }, "1 MiB");
    refused(MysqlOptions { scan_bytes: 1 << 40, ..small() }, "longer than the table");
}
