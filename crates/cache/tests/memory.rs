//! What a cached block costs in memory, as the allocator sees it.

#![allow(unsafe_code)] // a global allocator that counts

#[path = "support/answering.rs"]
mod answering;
#[path = "support/rig.rs"]
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use answering::Answering;
use esker_base::policy::Kind;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_cache::omf::Superblock;
use esker_cache::{Admission, Cache, CreateOptions, Layout as EskerLayout, Mode, OpenOptions};
use esker_device::{Device, MemoryDevice, NullDevice, Op, Port};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is the system allocator's; it is only counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
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

/// Bytes for each slot of a cache under `policy`: as the allocator sees them, and as the cache says.
fn bytes_per_slot(policy: Kind, admission: Admission) -> (f64, f64) {
    let blocks: u64 = 1 << 20;
    let bytes = blocks * 4096;
    let origin: Arc<dyn Device> = Arc::new(NullDevice::new(LbaCount(4 * blocks), 4096));
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
    // Beyond it are tables as well, which nobody writes here.
    let end = Lba(layout.slot(0) / 4096);
    // Metadata are kept, data are not.
    let answer = move |op| match op {
        Op::Write { lba, buf, .. } | Op::Read { lba, buf } if lba >= end => Ok(buf),
        op => Err(op),
    };
    let flash: Arc<dyn Device> = Arc::new(Answering { inner: memory, answer });
    let before = HELD.load(Ordering::Relaxed);
    let cache =
        Cache::open(origin, flash, OpenOptions { policy, admission, ..rig::open_options() })
            .unwrap();
    // One block of every run: so every set is in use, and little is written.
    let mut port = Port::open(&cache, 1).unwrap();
    for run in 0..blocks / 64 {
        let buf = AlignedBuf::zeroed(4096);
        let lba = Lba(run * 64);
        port.run(Op::Read { lba, buf }).unwrap();
    }
    let slots = cache.figures().slots;
    let told = cache.figures().memory_bytes;
    drop(port);
    let held = HELD.load(Ordering::Relaxed) - before;
    let held = u64::try_from(held).unwrap();
    let share = |bytes: u64| bytes as f64 / slots as f64;
    (share(held), share(told))
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
}
