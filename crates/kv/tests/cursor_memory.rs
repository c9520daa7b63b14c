//! The memory that many open cursors take is what the statistics say, by an allocator that counts.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::OnDevices;
use common::{in_memory, medium_tuning, test_options};
use esker_kv::{Cursor, Kvdb, Policy};

struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u32 = 40_000;
const CURSORS: u32 = 10_000;

#[test]
fn memory_of_many_cursors_is_counted() {
    // In DRAM, and read from the media.
    count_with(100, 64 << 20);
    count_with(1000, 4 << 20);
}

fn count_with(value: usize, memory_bytes: u64) {
    let options = test_options(medium_tuning()).with(|set| set.memory_bytes = memory_bytes);
    let devices = in_memory("memory", [4 << 20, 256 << 20, 128 << 20]);
    let db = Kvdb::create_on(devices, options).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    (0..KEYS).for_each(|n| kvs.put(n.to_be_bytes(), vec![7; value]).unwrap());
    db.ingest().unwrap();
    db.settle().unwrap();
    (0..KEYS / 10).for_each(|n| kvs.put(n.to_be_bytes(), vec![8; value]).unwrap());
    db.ingest().unwrap();
    // All pages are in DRAM: no more of them come.
    let mut all = kvs.cursor().unwrap();
    while all.next().unwrap().is_some() {}
    drop(all);
    for rows in [0, 1, 20, 200] {
        let (before, counted) = (LIVE.load(Ordering::Relaxed), db.stats().dram);
        let cursors: Vec<Cursor> = (0..CURSORS)
            .map(|n| {
                let mut cursor = kvs.cursor().unwrap();
                if rows > 0 {
                    cursor.seek(&(n % (KEYS - 300)).to_be_bytes()).unwrap();
                    (0..rows).for_each(|_| assert!(cursor.next().unwrap().is_some()));
                }
                cursor
            })
            .collect();
        let (live, dram) = (LIVE.load(Ordering::Relaxed), db.stats().dram);
        let pages = dram.key_page_bytes as i64 - counted.key_page_bytes as i64;
        let records = dram.record_cache_bytes as i64 - counted.record_cache_bytes as i64;
        let taken = (live - before) as i64 - pages - records;
        // Windows lie in memory that the allocator does not give.
        let said = dram.cursor_bytes as i64;
        println!(
            "values of {value} bytes, {rows} rows: {} bytes each, {} said, and {} of windows",
            taken / i64::from(CURSORS),
            said / i64::from(CURSORS),
            dram.window_bytes / u64::from(CURSORS),
        );
        assert!((said - taken).abs() <= taken / 5, "{rows} rows: {taken} bytes, {said} said");
        drop(cursors);
        let dram = db.stats().dram;
        assert_eq!(dram.cursor_bytes + dram.window_bytes, 0);
    }
}
