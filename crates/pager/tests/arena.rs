//! Arenas: memory that is several times the budget keeps its content, through faults by a thread
//! and by signal, forks, system calls and failing devices.

#![allow(unsafe_code)]

mod support;

use std::io::{Read, Write};
use std::sync::Arc;

use esker_base::Rng;
use esker_device::{Create, Device, FileDevice, FileOptions, MemoryDevice};
use esker_pager::{Arena, Mode, Options, PAGE};
use support::{Slow, arena, in_child, options, refused, uncompressed};

const BOTH: [Mode; 2] = [Mode::Handler, Mode::Signal];

/// Byte that a page is filled with.
fn fill_of(page: usize) -> u8 {
    u8::try_from(page % 251 + 1).unwrap()
}

fn fill(memory: &Slow) {
    for page in 0..memory.len() / PAGE {
        memory.slice(page * PAGE, PAGE).fill(fill_of(page));
    }
}

#[track_caller]
fn check(memory: &Slow) {
    for page in 0..memory.len() / PAGE {
        let bytes = memory.slice(page * PAGE, PAGE);
        assert!(bytes.iter().all(|&b| b == fill_of(page)), "page {page} has {}", bytes[0]);
    }
}

#[test]
fn content_four_times_the_budget_is_kept() {
    let _alone = support::alone();
    for mode in BOTH {
        let Some(arena) = arena(8 << 20, 64 << 20, mode) else { return };
        let memory = Slow::new(&arena, 32 << 20);
        fill(&memory);
        check(&memory);
        // Backwards, and at random.
        let mut rng = Rng::new(5);
        let pages = memory.len() / PAGE;
        for page in (0..pages).rev().chain((0..pages).map(|_| support::below(&mut rng, pages))) {
            assert_eq!(memory.slice(page * PAGE, 1)[0], fill_of(page));
        }
        let stats = arena.stats();
        assert!(stats.resident_pages * PAGE as u64 <= 8 << 20, "{stats:?}");
        assert!(stats.evicted_pages > 3 * (32 << 20) / 2 / PAGE as u64, "{stats:?}");
        assert_eq!((stats.vanished_pages, stats.poisoned_pages), (0, 0), "{stats:?}");
        assert_eq!(arena.reports(), Vec::<String>::new());
    }
}

/// By a thread: one that serves itself does not wait for the arena's, where that gets no processor.
#[test]
fn a_scan_waits_for_no_single_page_once_it_is_seen() {
    let _alone = support::alone();
    let Some(arena) = uncompressed(16 << 20, 64 << 20) else { return };
    let memory = Slow::new(&arena, 64 << 20);
    fill(&memory);
    check(&memory);
    let before = arena.stats();
    check(&memory);
    let (now, pages) = (arena.stats(), (memory.len() / PAGE) as u64);
    let single = now.read_faults - before.read_faults;
    assert!(single < pages / 256, "{single} of {pages}");
    assert!(now.ahead_pages - before.ahead_pages > pages / 10 * 9, "{now:?}");
}

#[test]
fn first_writes_to_clean_pages_are_not_lost() {
    let _alone = support::alone();
    for mode in BOTH {
        let Some(arena) = arena(4 << 20, 64 << 20, mode) else { return };
        let memory = Slow::new(&arena, 16 << 20);
        fill(&memory);
        let pages = memory.len() / PAGE;
        for round in 1..4u8 {
            for page in 0..pages {
                let bytes = memory.slice(page * PAGE, PAGE);
                // Read first, so that the page comes in clean.
                assert_eq!(bytes[0], fill_of(page));
                assert_eq!(bytes[8], if round == 1 { fill_of(page) } else { round - 1 });
                bytes[8] = round;
            }
        }
        assert!(arena.stats().write_faults > 0);
    }
}

#[test]
fn fresh_and_dropped_memory_is_zero() {
    let _alone = support::alone();
    for mode in BOTH {
        let Some(arena) = arena(4 << 20, 64 << 20, mode) else { return };
        let memory = Slow::new(&arena, 16 << 20);
        assert!(memory.slice(0, memory.len()).iter().all(|&b| b == 0));
        assert_eq!(arena.stats().written_pages, 0, "zeroes are not written");
        fill(&memory);
        memory.discard(4 << 20, 8 << 20);
        for page in 0..memory.len() / PAGE {
            let expected = if (1024..3072).contains(&page) { 0 } else { fill_of(page) };
            let bytes = memory.slice(page * PAGE, PAGE);
            assert!(bytes.iter().all(|&b| b == expected), "page {page}");
        }
    }
}

#[test]
fn more_than_the_device_holds_is_refused_when_it_is_reserved() {
    let _alone = support::alone();
    let Some(arena) = arena(4 << 20, 16 << 20, Mode::Handler) else { return };
    assert!(arena.allocate_slow(17 << 20, 1).is_none());
    let all = arena.allocate_slow(16 << 20, 1).unwrap();
    assert!(arena.allocate_slow(1, 1).is_none());
    // SAFETY: nobody refers to it.
    assert!(unsafe { arena.free(all) } && !unsafe { arena.free(all) });
    let again = arena.allocate_slow(16 << 20, 1).unwrap();
    // SAFETY: nobody refers to it.
    assert!(unsafe { arena.free(again) });
}

#[test]
fn fast_memory_is_limited_and_never_paged() {
    let _alone = support::alone();
    let Some(options) = options(4 << 20, 16 << 20) else { return };
    let device = Arc::new(MemoryDevice::new("memory", 16 << 20, 4096));
    let arena = Arena::new(device, options, 1 << 20, Mode::Handler).unwrap();
    let fast = arena.allocate_fast(512 << 10, 64).unwrap();
    // SAFETY: allocated with this size.
    unsafe { fast.as_ptr().write_bytes(7, 512 << 10) };
    assert!(arena.allocate_fast(768 << 10, 64).is_none());
    assert_eq!(arena.stats().faults, 0);
    // SAFETY: nobody refers to it.
    assert!(unsafe { arena.free(fast) });
    assert!(arena.allocate_fast(768 << 10, 64).is_some());
}

#[test]
fn system_calls_find_paged_memory() {
    let _alone = support::alone();
    let Some(arena) = arena(4 << 20, 64 << 20, Mode::Handler) else { return };
    let memory = Slow::new(&arena, 16 << 20);
    fill(&memory);
    // Out of memory by now: its beginning.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    for page in 0..64 {
        writer.write_all(memory.slice(page * PAGE, PAGE)).unwrap();
        let other = 1024 + page;
        reader.read_exact(memory.slice(other * PAGE, PAGE)).unwrap();
        assert!(memory.slice(other * PAGE, PAGE).iter().all(|&b| b == fill_of(page)));
    }
}

#[test]
fn threads_share_an_arena() {
    let _alone = support::alone();
    for mode in BOTH {
        let Some(arena) = arena(4 << 20, 64 << 20, mode) else { return };
        let memory = Slow::new(&arena, 16 << 20);
        let quarter = memory.len() / 4;
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let memory = &memory;
                let work = move || {
                    let mut rng = Rng::new(thread as u64);
                    let pages = quarter / PAGE;
                    let mut shadow = vec![0u8; pages];
                    for _ in 0..20_000 {
                        let page = support::below(&mut rng, pages);
                        let bytes = memory.slice(thread * quarter + page * PAGE, PAGE);
                        assert_eq!(bytes[100], shadow[page]);
                        shadow[page] = shadow[page].wrapping_add(1);
                        bytes[100] = shadow[page];
                    }
                };
                esker_base::thread::spawn_scoped(scope, "touch", work).unwrap();
            }
        });
        assert_eq!(arena.stats().vanished_pages, 0);
    }
}

#[test]
fn a_forked_child_has_a_snapshot() {
    let _alone = support::alone();
    let Some(arena) = arena(8 << 20, 128 << 20, Mode::Handler) else { return };
    let memory = Slow::new(&arena, 32 << 20);
    fill(&memory);
    let child = in_child(|| {
        // The parent writes meanwhile; the child sees none of it.
        for _ in 0..2 {
            check(&memory);
        }
        for page in 0..memory.len() / PAGE {
            memory.slice(page * PAGE, 1)[0] = 99;
        }
        (0..memory.len() / PAGE).all(|page| memory.slice(page * PAGE, 1)[0] == 99)
    });
    for page in (0..memory.len() / PAGE).step_by(3) {
        memory.slice(page * PAGE, PAGE).fill(200);
    }
    assert!(child.succeeds());
    for page in 0..memory.len() / PAGE {
        let expected = if page % 3 == 0 { 200 } else { fill_of(page) };
        assert!(memory.slice(page * PAGE, PAGE).iter().all(|&b| b == expected), "page {page}");
    }
    support::until(|| arena.stats().spaces == 1);
    assert_eq!(arena.stats().vanished_pages, 0);
}

#[test]
fn a_page_that_cannot_be_read_is_told_and_kills_whoever_touches_it() {
    let _alone = support::alone();
    let Some(options) = options(4 << 20, 32 << 20) else { return };
    let options = Options { compress: false, ..options };
    let (device, failing) = support::failing(32 << 20);
    let arena = Arena::new(device, options, 0, Mode::Handler).unwrap();
    let memory = Slow::new(&arena, 16 << 20);
    fill(&memory);
    failing.fail_reads(true);
    let child = in_child(|| memory.slice(0, 1)[0] == fill_of(0));
    assert_eq!(child.signal(), Some(libc::SIGBUS));
    failing.fail_reads(false);
    let reports = arena.reports();
    let addr = format!("{:#x}", memory.addr());
    let is_told = |report: &String| report.contains(&addr) && report.contains("LBA");
    assert!(reports.iter().any(is_told), "{addr}: {reports:?}");
    // It was the child's page that was lost.
    check(&memory);
}

#[test]
fn a_write_that_fails_keeps_the_page_and_is_tried_again() {
    let _alone = support::alone();
    let Some(options) = options(4 << 20, 32 << 20) else { return };
    let (device, failing) = support::failing(32 << 20);
    let arena = Arena::new(device, options, 0, Mode::Handler).unwrap();
    let memory = Slow::new(&arena, 16 << 20);
    failing.fail_writes(usize::MAX);
    let slow = failing.clone();
    let heal = esker_base::thread::spawn("heal", move || {
        esker_base::Clock::real().sleep(std::time::Duration::from_millis(300));
        slow.fail_writes(0);
    });
    fill(&memory);
    heal.unwrap().join().unwrap();
    check(&memory);
    assert!(arena.stats().failed_writes > 0 && !arena.reports().is_empty());
}

#[test]
fn wrong_options_are_refused_with_a_reason() {
    let _alone = support::alone();
    let make = |budget: usize, slow: usize| {
        let device = Arc::new(MemoryDevice::new("memory", 16 << 20, 4096));
        assert!(device.geometry().capacity.0 > 0);
        let options =
            Options { budget_bytes: budget, slow_bytes: slow, read_ahead: true, compress: true };
        refused(Arena::new(device, options, 0, Mode::Handler))
    };
    let Some(small) = make(1 << 20, 16 << 20) else { return };
    assert!(small.contains("a budget of 1048576 bytes"), "{small}");
    let large = make(4 << 20, 17 << 20).unwrap();
    assert!(large.contains("the device holds 16777216"), "{large}");
}

/// A table of pointers to entries, which point to values in no order, as a server's hash table.
struct Table<'a> {
    table: Slow<'a>,
    entries: Slow<'a>,
    values: Slow<'a>,
    count: usize,
}

const VALUE: usize = 1024;

impl Table<'_> {
    fn new(arena: &Arena, count: usize) -> Table<'_> {
        let table = Slow::new(arena, count * 8);
        let entries = Slow::new(arena, count * 16);
        let values = Slow::new(arena, count * VALUE);
        let mut order: Vec<usize> = (0..count).collect();
        let mut rng = Rng::new(4);
        (1..count).rev().for_each(|n| order.swap(n, support::below(&mut rng, n + 1)));
        let set = |slow: &Slow, at: usize, value: usize| {
            slow.slice(at, 8).copy_from_slice(&value.to_ne_bytes());
        };
        for (n, &to) in order.iter().enumerate() {
            set(&entries, to * 16 + 8, values.addr() + to * VALUE);
            set(&table, n * 8, entries.addr() + to * 16);
            values.slice(to * VALUE, VALUE).fill(fill_of(n));
        }
        Table { table, entries, values, count }
    }

    /// Follows the table; whether each value is the one that belongs there.
    fn is_right(&self) -> bool {
        let word = |slow: &Slow, at: usize| {
            usize::from_ne_bytes(slow.slice(at, 8).try_into().expect("eight bytes"))
        };
        (0..self.count).all(|n| {
            let entry = word(&self.table, n * 8) - self.entries.addr();
            let value = word(&self.entries, entry + 8) - self.values.addr();
            self.values.slice(value, VALUE).iter().all(|&byte| byte == fill_of(n))
        })
    }
}

#[test]
fn a_childs_walk_along_pointers_is_read_ahead() {
    let _alone = support::alone();
    let Some(arena) = uncompressed(8 << 20, 128 << 20) else { return };
    let table = Table::new(&arena, 24_000);
    let before = arena.stats().ahead_pages;
    let child = in_child(|| (0..4).all(|_| table.is_right()));
    // The parent's writes are not the child's.
    for n in (0..table.count).step_by(7) {
        table.values.slice(n * VALUE, 8).fill(0xee);
    }
    assert!(child.succeeds());
    let stats = arena.stats();
    assert!(stats.ahead_pages > before + 2000, "{stats:?}");
    assert!(stats.resident_pages * PAGE as u64 <= 8 << 20, "{stats:?}");
}

/// A device with the file system's cost of a read.
fn file(size: usize) -> FileDevice {
    let folder = tempfile::tempdir().unwrap();
    let capacity_bytes = Some(size as u64);
    let options = FileOptions { create: Create::New, capacity_bytes, ..FileOptions::default() };
    FileDevice::open(folder.path().join("swap"), &options).unwrap()
}

#[test]
fn pages_that_compress_come_back_without_reads() {
    const WORDS: usize = PAGE / 8;
    let _alone = support::alone();
    for mode in BOTH {
        let (budget, size) = (8 << 20, 16 << 20);
        // Each place of it is written several times.
        let slow = 20 << 20;
        let Some(options) = options(budget, slow) else { return };
        let arena = Arena::new(Arc::new(file(slow)), options, 0, mode).unwrap();
        let memory = Slow::new(&arena, size);
        let (mut rng, pages) = (Rng::new(3), size / PAGE);
        let mut known: Vec<[u64; WORDS / 4]> = vec![[0; WORDS / 4]; pages];
        for (page, words) in known.iter_mut().enumerate() {
            // A quarter of each page does not compress.
            words.fill_with(|| rng.below(u64::MAX));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            memory.slice(page * PAGE, bytes.len()).copy_from_slice(&bytes);
        }
        let is_right = |page: usize, words: &[u64]| {
            let bytes = memory.slice(page * PAGE, PAGE);
            let is_rest_zero = bytes[words.len() * 8..].iter().all(|&byte| byte == 0);
            let found = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            is_rest_zero && found.take(words.len()).eq(words.iter().copied())
        };
        for step in 0..40_000 {
            let (page, word) =
                (support::below(&mut rng, pages), support::below(&mut rng, WORDS / 4));
            assert!(is_right(page, &known[page]), "page {page}, step {step}");
            if step % 3 == 0 {
                known[page][word] = step;
                memory.slice(page * PAGE + word * 8, 8).copy_from_slice(&step.to_ne_bytes());
            }
            if step == 30_000 && mode == Mode::Handler {
                let child =
                    in_child(|| (0..pages).step_by(3).all(|page| is_right(page, &known[page])));
                memory.slice(0, 8).fill(0xee);
                assert!(child.succeeds());
                known[0][0] = u64::from_ne_bytes([0xee; 8]);
            }
        }
        let stats = arena.stats();
        assert!(stats.restored_pages > 2 * stats.read_faults, "{stats:?}");
        let taken = stats.resident_pages * PAGE as u64 + stats.compressed_bytes;
        assert!(taken <= budget as u64, "{stats:?}");
        // With twice as many pages as memory for them.
        assert!(stats.compressed_bytes > budget as u64 / 4, "{stats:?}");
        assert_eq!((stats.vanished_pages, stats.poisoned_pages), (0, 0), "{stats:?}");
    }
}

/// Memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn arenas_that_have_ended_leave_no_memory() {
    let _alone = support::alone();
    let one = |mode| {
        let Some(options) = options(4 << 20, 8 << 20) else { return false };
        let device = Arc::new(MemoryDevice::new("memory", 8 << 20, 4096));
        let arena = Arena::new(device, options, 0, mode).unwrap();
        let memory = Slow::new(&arena, 8 << 20);
        fill(&memory);
        check(&memory);
        true
    };
    let some = |count| (0..count).all(|_| one(Mode::Handler) && one(Mode::Signal));
    if !some(20) {
        return;
    }
    let before = resident();
    some(50);
    let more = resident().saturating_sub(before);
    assert!(more < 32 << 20, "{more} bytes more after a hundred arenas");
}
