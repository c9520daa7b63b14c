//! What a cached block costs in memory, as the allocator sees it.

#![allow(unsafe_code)] // a global allocator that counts

#[path = "support/rig.rs"]
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_base::policy::Kind;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_cache::{Cache, CreateOptions, Mode, OpenOptions};
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

#[test]
fn a_cached_block_costs_at_most_twelve_bytes() {
    // Metadata is kept, data is not: most of the flash device needs no memory.
    let blocks: u64 = 128 << 10;
    let bytes = blocks * 4096;
    let origin: Arc<dyn Device> = Arc::new(NullDevice::new(LbaCount(blocks), 4096));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", bytes, 4096));
    let options = CreateOptions {
        mode: Mode::WriteBack,
        set_bytes: 16 << 20,
        run_bytes: 256 << 10,
        area_bytes: None,
        ..rig::create_options(Mode::WriteBack)
    };
    Cache::create(&*origin, &flash, &options).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    let policy = Kind::Lru;
    let cache = Cache::open(origin, flash, OpenOptions { policy, ..rig::open_options() }).unwrap();
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
    let data = (blocks / 64) * (64 << 10); // chunks of the memory device that were filled in
    let held = HELD.load(Ordering::Relaxed) - before;
    let held = u64::try_from(held).unwrap().saturating_sub(data);
    assert!(held <= slots * 12, "{held} bytes for {slots} blocks: {}", held as f64 / slots as f64);
    assert!(told <= slots * 12 && told > slots * 4, "{told} bytes are said of {slots} blocks");
}
