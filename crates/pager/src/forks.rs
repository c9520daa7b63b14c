//! Forks of a process that has arenas: their threads are told before, and children make their
//! copies of the regions their own.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use esker_base::sync::Mutex;

use crate::client::Client;
use crate::heap::Heaps;
use crate::shared::Shared;

struct Forked {
    client: &'static Client,
    shared: Arc<Shared>,
    heaps: Arc<Heaps>,
}

/// A thread forks, or changes the list.
static BUSY: AtomicBool = AtomicBool::new(false);
static FORKED: Mutex<Vec<Forked>> = Mutex::new(Vec::new());

/// Has forks find this arena prepared.
pub(crate) fn add(client: &'static Client, shared: Arc<Shared>, heaps: Arc<Heaps>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers live as long as the process.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
    take();
    FORKED.lock().push(Forked { client, shared, heaps });
    BUSY.store(false, Ordering::Release);
}

/// The arena has ended.
pub(crate) fn remove(client: &'static Client) {
    take();
    FORKED.lock().retain(|forked| !std::ptr::eq(forked.client, client));
    BUSY.store(false, Ordering::Release);
}

/// Waits until no other thread forks, or changes the list.
fn take() {
    while BUSY.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// No arena comes or goes until the fork is done.
extern "C" fn before() {
    take();
    let forked = FORKED.lock();
    // A thread that holds a heap may wait for the engine, which then goes on.
    forked.iter().for_each(|forked| forked.heaps.hold());
    forked.iter().for_each(|forked| forked.shared.before_fork());
}

extern "C" fn in_parent() {
    for forked in FORKED.lock().iter() {
        forked.shared.after_fork();
        // SAFETY: held before the fork.
        unsafe { forked.heaps.let_go() };
    }
    BUSY.store(false, Ordering::Release);
}

extern "C" fn in_child() {
    // Nobody held the lock when the process forked: only a thread that has taken the list locks it.
    for forked in FORKED.lock().iter() {
        forked.client.after_fork();
        // SAFETY: held before the fork.
        unsafe { forked.heaps.let_go() };
    }
    BUSY.store(false, Ordering::Release);
}
