//! Memory of a cached block, as the allocator sees it.

#![allow(unsafe_code)] // a global allocator that counts

#[path = "support/rig.rs"]
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_base::policy::Kind;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_cache::omf::Superblock;
use esker_cache::{Admission, Cache, CreateOptions, Layout as EskerLayout, Mode, OpenOptions};
use esker_device::{Device, MemoryDevice, NullDevice, Op, Port};
use esker_sim::{Fate, HookDevice};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
/// The most that was held at once.
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is the system allocator's; it is only counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCKS: u64 = 1 << 20;

/// An origin that stores nothing, and a flash device that keeps the metadata of a cache of [`BLOCKS`] blocks alone.
fn devices() -> (Arc<dyn Device>, Arc<dyn Device>) {
    let bytes = BLOCKS * 4096;
    let origin: Arc<dyn Device> = Arc::new(NullDevice::new(LbaCount(4 * BLOCKS), 4096));
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", bytes, 4096));
    let options = CreateOptions {
        mode: Mode::WriteBack,
        set_bytes: 16 << 20,
        run_bytes: 256 << 10,
        area_bytes: None,
        flash_bytes: None,
        ..rig::create_options(Mode::WriteBack)
    };
    Cache::create(&*origin, &memory, &options).unwrap();
    let head = Port::open(&*memory, 1).unwrap().read(Lba(0), AlignedBuf::zeroed(4096)).unwrap();
    let layout = EskerLayout::of(&Superblock::decode(&head, 0).unwrap());
    // Beyond the first row of slots are tables as well.
    let (first, tables) = (layout.slot(0), layout.tables(0).collect::<Vec<_>>());
    let is_data = move |lba: Lba| {
        let at = lba.0 * 4096;
        at >= first && !tables.iter().any(|&(start, size)| (start..start + size).contains(&at))
    };
    // Metadata are kept, data are not.
    let device = HookDevice::new(memory).on_command(move |op| match op {
        Op::Write { lba, .. } | Op::Read { lba, .. } if is_data(*lba) => Fate::Done,
        _ => Fate::Pass,
    });
    (origin, Arc::new(device))
}

/// One block of every run: so every set is in use, and little is written.
fn touch_all_sets(cache: &Cache) {
    let mut port = Port::open(cache, 1).unwrap();
    for run in 0..BLOCKS / 64 {
        port.run(Op::Read { lba: Lba(run * 64), buf: AlignedBuf::zeroed(4096) }).unwrap();
    }
}

fn share(bytes: usize, cache: &Cache) -> f64 {
    bytes as f64 / cache.figures().slots as f64
}

/// Bytes for each slot of a cache under `policy`: as the allocator sees them, and as the cache says.
fn bytes_per_slot(policy: Kind, admission: Admission) -> (f64, f64) {
    let (origin, flash) = devices();
    let before = HELD.load(Ordering::Relaxed);
    let options = OpenOptions { policy, admission, ..rig::open_options() };
    let cache = Cache::open(origin, flash, options).unwrap();
    touch_all_sets(&cache);
    let held = HELD.load(Ordering::Relaxed) - before;
    let told = usize::try_from(cache.figures().memory_bytes).unwrap();
    (share(held, &cache), share(told, &cache))
}

/// The stated memory holds when a cache that is full, and whose journal is, is attached again: before its sets
/// are used, while they come into use, and afterwards.
fn attached_again() {
    let (origin, flash) = devices();
    let open = || Cache::open(origin.clone(), flash.clone(), rig::open_options()).unwrap();
    let cache = open();
    // Three times, so that the journal has more changes than the cache has slots.
    for round in 0..3 {
        let mut port = Port::open(&cache, 1).unwrap();
        for run in 0..BLOCKS / 64 {
            let lba = Lba(run * 64 + round % 2 * BLOCKS);
            let buf = AlignedBuf::zeroed(64 * 4096);
            port.run(Op::Write { lba, buf, placement: None, fua: false }).unwrap();
            if run % 256 == 255 {
                port.flush().unwrap();
                while cache.step(true).unwrap() {}
            }
        }
    }
    drop(cache);
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let cache = open();
    let opened = share(HELD.load(Ordering::Relaxed) - before, &cache);
    let mut most = 0;
    let mut port = Port::open(&cache, 1).unwrap();
    for run in 0..BLOCKS / 64 {
        port.run(Op::Read { lba: Lba(run * 64), buf: AlignedBuf::zeroed(4096) }).unwrap();
        most = most.max(HELD.load(Ordering::Relaxed) - before);
    }
    let (most, peak) = (share(most, &cache), PEAK.load(Ordering::Relaxed) - before);
    println!(
        "attached again: {opened:.2} bytes a block, {most:.2} with its sets, {peak} bytes at once"
    );
    assert!(opened <= 12.0, "{opened} bytes a block before any set is used");
    assert!(most <= 12.0, "{most} bytes a block");
    // An area of the journal is read at once.
    assert!(peak < 48 << 20, "{peak} bytes at once");
}

#[test]
fn a_cached_block_costs_at_most_twelve_bytes() {
    let all = [Kind::Adaptive, Kind::Lru, Kind::MidPoint(75), Kind::Sieve];
    let all = all.map(|policy| (policy, Admission::All));
    let again = [Kind::Adaptive, Kind::Lru].map(|policy| (policy, Admission::Again));
    for (policy, admission) in all.into_iter().chain(again) {
        let (held, told) = bytes_per_slot(policy, admission);
        println!("{policy}, {admission}: {held:.2} bytes a block, {told:.2} of them for the sets");
        assert!(held <= 12.0, "{policy}: {held} bytes a block");
        assert!((4.0..=12.0).contains(&told), "{policy}: {told} bytes are said of a block");
    }
    // Here, because the allocator counts for all tests at once.
    attached_again();
}
