//! Helpers of the tests of arenas.

#![allow(unsafe_code, dead_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use esker_base::{Clock, Rng};
use esker_device::{Device, MemoryDevice, Op};
use esker_pager::{Arena, Mode, Options, PagerError};

/// Held by a test that has the process to itself: a child is a snapshot of the arenas of other tests, too, and one of them
/// that runs out of room for it ends it.
pub(crate) fn alone() -> esker_base::sync::MutexGuard<'static, ()> {
    static ALONE: esker_base::sync::Mutex<()> = esker_base::sync::Mutex::new(());
    ALONE.lock()
}

pub(crate) fn options(budget_bytes: usize, slow_bytes: usize) -> Option<Options> {
    match esker_pager::client::open() {
        Ok(_) => Some(Options { budget_bytes, slow_bytes, read_ahead: true, compress: true }),
        Err(error) => {
            eprintln!("SKIPPED: userfaultfd is refused: {error:?}");
            None
        }
    }
}

/// An arena without compressed copies: what leaves memory is read from the device.
pub(crate) fn uncompressed(budget: usize, slow: usize) -> Option<Arena> {
    let device = Arc::new(MemoryDevice::new("memory", slow as u64, 4096));
    let options = Options { compress: false, ..options(budget, slow)? };
    Some(Arena::new(device, options, 0, Mode::Handler).unwrap())
}

pub(crate) fn arena(budget: usize, slow: usize, mode: Mode) -> Option<Arena> {
    let device = Arc::new(MemoryDevice::new("memory", slow as u64, 4096));
    Some(Arena::new(device, options(budget, slow)?, 0, mode).unwrap())
}

/// Why an arena was refused; none where userfaultfd is.
pub(crate) fn refused(arena: Result<Arena, PagerError>) -> Option<String> {
    match arena {
        Err(PagerError::Refused(error)) => {
            eprintln!("SKIPPED: userfaultfd is refused: {error:?}");
            None
        }
        Err(error) => Some(error.to_string()),
        Ok(_) => panic!("it was not refused"),
    }
}

pub(crate) fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

/// Waits for something that comes soon.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(20);
    while !holds() {
        assert!(clock.now() < end, "it did not come");
        clock.sleep(Duration::from_millis(5));
    }
}

/// Slow memory that threads and children share as they like.
pub(crate) struct Slow<'a> {
    arena: &'a Arena,
    memory: NonNull<u8>,
    size: usize,
}

// SAFETY: tests use different parts of it in different threads.
unsafe impl Sync for Slow<'_> {}

impl Slow<'_> {
    pub(crate) fn new(arena: &Arena, size: usize) -> Slow<'_> {
        let memory = arena.allocate_slow(size, 4096).expect("there is room");
        Slow { arena, memory, size }
    }

    pub(crate) fn len(&self) -> usize {
        self.size
    }

    pub(crate) fn addr(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    #[allow(clippy::mut_from_ref)] // as for shared memory: tests keep threads apart
    pub(crate) fn slice(&self, offset: usize, size: usize) -> &mut [u8] {
        assert!(offset + size <= self.size);
        // SAFETY: within the allocation; see above.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(offset), size) }
    }

    pub(crate) fn discard(&self, offset: usize, size: usize) {
        assert!(offset + size <= self.size);
        // SAFETY: within the allocation, and nobody uses it meanwhile.
        unsafe { self.arena.discard(self.memory.add(offset), size) }.unwrap();
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody refers to it any more.
        assert!(unsafe { self.arena.free(self.memory) });
    }
}

/// A forked child.
pub(crate) struct Child(i32);

/// Runs `work` in a forked child, which succeeds if that gives true.
pub(crate) fn in_child(work: impl FnOnce() -> bool) -> Child {
    // SAFETY: the child runs `work` alone, which takes no lock that another thread may hold, and ends
    // without running anything else.
    match unsafe { libc::fork() } {
        0 => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the process.
            unsafe { libc::_exit(if outcome.unwrap_or(false) { 0 } else { 1 }) }
        }
        pid => {
            assert!(pid > 0);
            Child(pid)
        }
    }
}

impl Child {
    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: the status is writable.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(pid, self.0);
        status
    }

    pub(crate) fn succeeds(self) -> bool {
        self.wait() == 0
    }

    pub(crate) fn status(self) -> i32 {
        self.wait()
    }

    pub(crate) fn signal(self) -> Option<i32> {
        let status = self.wait();
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }
}

/// What fails of a device.
#[derive(Default)]
pub(crate) struct Failing {
    reads: AtomicBool,
    /// How many more writes.
    writes: AtomicUsize,
}

/// Memory whose reads or writes fail when told.
pub(crate) fn failing(size: usize) -> (Arc<dyn Device>, Arc<Failing>) {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("failing", size as u64, 4096));
    let failing = Arc::new(Failing::default());
    let told = failing.clone();
    let device = esker_sim::refusing(&memory, move |op| match op {
        Op::Read { .. } => told.reads.load(Ordering::SeqCst),
        Op::Write { .. } => {
            let less = |left: usize| left.checked_sub(1);
            told.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        }
        _ => false,
    });
    (device, failing)
}

impl Failing {
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.reads.store(fail, Ordering::SeqCst);
    }

    pub(crate) fn fail_writes(&self, count: usize) {
        self.writes.store(count, Ordering::SeqCst);
    }
}
