//! The means by which threads share state: the locks of `esker-base`, the pointers of `arc-swap`, atomics and
//! threads. No other file names where they come from, so that with `--cfg shuttle` the same engine
//! runs on primitives whose every use is a choice of a scheduler that tests control
//! (`tests/interleavings.rs`).

#[cfg(not(shuttle))]
pub(crate) use arc_swap::{ArcSwap, ArcSwapOption, Guard};
#[cfg(not(shuttle))]
pub(crate) use esker_base::sync::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{atomic, mpsc};
#[cfg(not(shuttle))]
pub(crate) use std::thread::JoinHandle;

/// Threads of a library: signals are for the program that it is in.
#[cfg(not(shuttle))]
pub(crate) mod thread {
    pub(crate) use esker_base::thread::spawn_unsignalled as spawn;
}

#[cfg(shuttle)]
mod scheduled;
#[cfg(shuttle)]
pub(crate) use scheduled::{
    ArcSwap, ArcSwapOption, Condvar, Guard, JoinHandle, Mutex, MutexGuard, RwLock, atomic, mpsc,
    thread,
};
