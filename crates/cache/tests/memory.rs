//! What a cached block costs in memory, as the allocator sees it.

#![allow(unsafe_code)] // a global allocator that counts

#[path = "support/rig.rs"]
mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker_base::policy::Kind;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_cache::omf::Superblock;
use esker_cache::{Cache, CreateOptions, Layout as EskerLayout, Mode, OpenOptions};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, NullDevice, Op,
    Port, QueuePair,
};

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

/// A flash device that keeps metadata and no data.
struct Hollow {
    memory: Arc<dyn Device>,
    end: Lba,
}

struct HollowQueue {
    inner: Box<dyn QueuePair>,
    end: Lba,
    done: Vec<Completion>,
}

impl Device for Hollow {
    fn name(&self) -> &str {
        "hollow"
    }
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let inner = self.memory.queue_pair(depth)?;
        Ok(Box::new(HollowQueue { inner, end: self.end, done: Vec::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
}

impl QueuePair for HollowQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len();
        let mut kept = VecDeque::new();
        for Command { tag, op } in commands.drain(..) {
            match op {
                Op::Write { lba, buf, .. } | Op::Read { lba, buf } if lba >= self.end => {
                    self.done.push(Completion { tag, result: Ok(()), buf: Some(buf) });
                }
                op => kept.push_back(Command { tag, op }),
            }
        }
        while !kept.is_empty() {
            self.inner.submit(&mut kept)?;
            self.inner.poll(&mut self.done)?;
        }
        Ok(count)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.inner.poll(&mut self.done)?;
        let count = self.done.len();
        done.append(&mut self.done);
        Ok(count)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done)
    }
    fn in_flight(&self) -> usize {
        self.done.len() + self.inner.in_flight()
    }
}

/// Bytes for each slot of a cache under `policy`: as the allocator sees them, and as the cache says.
fn bytes_per_slot(policy: Kind) -> (f64, f64) {
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
    let flash: Arc<dyn Device> = Arc::new(Hollow { memory, end });
    let before = HELD.load(Ordering::Relaxed);
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
    let held = HELD.load(Ordering::Relaxed) - before;
    let held = u64::try_from(held).unwrap();
    let share = |bytes: u64| bytes as f64 / slots as f64;
    (share(held), share(told))
}

/// The default policy is not among these: it needs memory for what it compares.
#[test]
fn a_cached_block_costs_at_most_twelve_bytes_under_policies_of_one_order() {
    for policy in [Kind::Lru, Kind::MidPoint(75), Kind::Sieve] {
        let (held, told) = bytes_per_slot(policy);
        println!("{policy}: {held:.2} bytes a block, {told:.2} of them for the sets");
        assert!(held <= 12.0, "{policy}: {held} bytes a block");
        assert!((4.0..=12.0).contains(&told), "{policy}: {told} bytes are said of a block");
    }
}
