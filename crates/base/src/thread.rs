//! Threads, named, so that a profile and `top -H` can be read.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};

/// Starts a thread called `name` (Linux shows the first 15 bytes).
///
/// # Errors
/// The operating system's, when it has no thread to give.
#[allow(clippy::disallowed_methods)] // one of the places where threads start
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Starts a thread called `name` that takes no signals, for a library: signals sent to the process are for the threads
/// of the program that it is in. It takes those that its own faults raise, and that of a profiler.
///
/// # Errors
/// As [`spawn`].
#[allow(clippy::disallowed_methods)]
pub fn spawn_unsignalled<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    /// Those that a thread raises by a fault; blocked, they would end the process whatever handles them.
    const TAKEN: [libc::c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGPROF,
    ];
    let builder = std::thread::Builder::new().name(name.to_owned());
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call makes the set, and the others change it; `before` is written before it is read.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in TAKEN {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        // A thread begins with the mask of the one that starts it.
        let set =
            libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr()) == 0;
        let started = builder.spawn(run);
        if set {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
        started
    }
}

/// Starts a thread called `name` inside a [`std::thread::scope`]: it may borrow data that outlives the
/// scope, and has ended when the scope ends.
///
/// # Errors
/// The operating system's, when it has no thread to give.
#[allow(clippy::disallowed_methods)]
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run)
}

/// Lets the calling thread's sleeps and timed waits end when they should, instead of up to the 50 µs
/// later by which Linux gathers wake-ups. It lasts as long as the thread. Where it is refused,
/// sleeps end as late as before.
pub fn sleep_exactly() {
    thread_local! {
        static IS_EXACT: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_EXACT.replace(true) {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Returns the message of a panic, out of the result of joining the thread.
#[must_use]
pub fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "nothing that can be shown".to_owned())
}
