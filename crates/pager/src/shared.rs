//! State that a pager's threads and its owner share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use esker_base::sync::{Condvar, Mutex, MutexGuard};

use crate::engine::Engine;

/// State that the pager's thread shares with its owner, and with the one that follows walks.
pub(crate) struct Shared {
    pub(crate) engine: Mutex<Engine>,
    pub(crate) stop: AtomicBool,
    pub(crate) waker: OwnedFd,
    /// Threads of this process that are forking.
    pub(crate) forks: AtomicU32,
    /// The thread takes no lock and allocates nothing while a process forks.
    pub(crate) parked: AtomicBool,
    /// The thread that follows walks waits for the engine.
    pub(crate) is_awaited: AtomicBool,
    /// That thread has something to look at, or has to end.
    roused: Mutex<bool>,
    bell: Condvar,
    stop_chasing: AtomicBool,
}

impl Shared {
    pub(crate) fn new(engine: Engine, waker: OwnedFd) -> Shared {
        Shared {
            engine: Mutex::new(engine),
            stop: AtomicBool::new(false),
            waker,
            forks: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            roused: Mutex::new(false),
            bell: Condvar::new(),
            stop_chasing: AtomicBool::new(false),
        }
    }

    /// The engine, for the thread that follows walks: it gets its turn even while the pager's is busy.
    pub(crate) fn turn(&self) -> MutexGuard<'_, Engine> {
        self.is_awaited.store(true, Ordering::Relaxed);
        let engine = self.engine.lock();
        self.is_awaited.store(false, Ordering::Relaxed);
        engine
    }

    /// Has the thread that follows walks look at the engine.
    pub(crate) fn rouse(&self) {
        *self.roused.lock() = true;
        self.bell.notify_one();
    }

    /// Waits until that thread is roused, at most so long.
    pub(crate) fn rest(&self, span: Duration) {
        let mut roused = self.roused.lock();
        if !*roused {
            self.bell.wait_for(&mut roused, span);
        }
        *roused = false;
    }

    pub(crate) fn has_stopped_chasing(&self) -> bool {
        self.stop_chasing.load(Ordering::Acquire)
    }

    /// Has the thread that follows walks end. It may wait for the pager's, which has to end later.
    pub(crate) fn stop_chasing(&self) {
        self.stop_chasing.store(true, Ordering::Release);
        self.rouse();
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Called before this process forks. `fork` holds the allocator's locks while it waits for the thread to read
    /// that the process forks; so the thread must not allocate.
    pub(crate) fn before_fork(&self) {
        self.forks.fetch_add(1, Ordering::SeqCst);
        self.wake();
        while !self.parked.load(Ordering::SeqCst) && !self.stop.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Called when this process has forked. The child's state is the parent's of that moment: before this returns
    /// nobody can change it.
    pub(crate) fn after_fork(&self) {
        self.forks.fetch_sub(1, Ordering::SeqCst);
        while self.parked.load(Ordering::SeqCst) && !self.stop.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Has the thread look at the engine.
    pub(crate) fn wake(&self) {
        // It can only fail when it is awake anyway.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}
