//! The ends of what a process has open: forks, whose children must not use it, and the exit of the process.
//!
//! A child of `fork` has a copy of this memory and none of its other threads. A lock that another thread held stays
//! locked there, and whatever lies in shared memory or behind a descriptor is still the parent's.
//!
//! Invariants
//! 1. `GENERATION` differs between a process and its forked ancestors from the first [`Owner`] on.
//! 2. `REGISTRY` is free in a child: `prepare` takes it, so that no other thread has it at a fork.
//! 3. The handlers of a fork allocate nothing in the child, and bear to be registered twice.
//! 4. No thread waits here for one that a child may lack: what is made once per process is made by each thread that
//!    misses it, and one is kept.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Clock;
use crate::checksum::crc32c;

/// Counts the forks between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { withheld: Vec::new(), at_exit: Vec::new(), last: 0, exits: false });

/// Takes the place of withheld descriptors in a child: neither readable nor writable.
static PLUG: AtomicI32 = AtomicI32::new(-1);

/// `REGISTERED` when forks call the handlers; before that 0, or the process of which a thread registers them.
static HANDLERS: AtomicU32 = AtomicU32::new(0);
const REGISTERED: u32 = u32::MAX;

thread_local! {
    /// The registry, during a fork of this thread.
    static HELD: RefCell<Option<MutexGuard<'static, Registry>>> = const { RefCell::new(None) };
}

type Call = Arc<dyn Fn() + Send + Sync>;

struct Registry {
    withheld: Vec<RawFd>,
    at_exit: Vec<(u64, Owner, Call)>,
    last: u64,
    /// Whether the exit of the process calls `exits`.
    exits: bool,
}

fn registry() -> MutexGuard<'static, Registry> {
    // Nothing panics under it.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process that opened something, in contrast to its forked children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// The calling process.
    #[must_use]
    pub fn here() -> Owner {
        if HANDLERS.load(Ordering::Acquire) != REGISTERED {
            register();
        }
        Owner(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the calling process is this one, and no forked child. It costs one load.
    #[must_use]
    #[inline]
    pub fn is_here(self) -> bool {
        GENERATION.load(Ordering::Relaxed) == self.0
    }
}

#[cold]
fn register() {
    let process = std::process::id();
    loop {
        match HANDLERS.load(Ordering::Acquire) {
            REGISTERED => return,
            begun if begun == process => std::thread::yield_now(),
            // Nobody has begun, or a thread of the parent that this child lacks.
            before => {
                let (to, order) = (process, Ordering::AcqRel);
                if HANDLERS.compare_exchange(before, to, order, Ordering::Relaxed).is_err() {
                    continue;
                }
                if let Ok((plug, _)) = std::io::pipe() {
                    PLUG.store(plug.into_raw_fd(), Ordering::Relaxed);
                }
                // SAFETY: the handlers are functions of this library, which unregisters them when it is unloaded. Where
                // they are refused for lack of memory, the process has forks only as before.
                unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
                // The first checksum makes tables for all, which no fork may interrupt.
                let held = registry();
                let _ = crc32c(b"");
                drop(held);
                HANDLERS.store(REGISTERED, Ordering::Release);
            }
        }
    }
}

/// A value that each process makes for itself when it is first asked for. A forked child leaves that of its parent as it
/// is, for threads that the child lacks may have held its locks.
pub struct PerProcess<T> {
    made: AtomicPtr<(Owner, T)>,
    make: fn() -> T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// A value that `make` makes. Threads that ask at once may each make one, of which one is kept.
    #[must_use]
    pub const fn new(make: fn() -> T) -> PerProcess<T> {
        PerProcess { made: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// The value of the calling process, which stays until its end.
    #[inline]
    pub fn get(&'static self) -> &'static T {
        // SAFETY: null, or a value that is never freed.
        match unsafe { self.made.load(Ordering::Acquire).as_ref() } {
            Some((owner, value)) if owner.is_here() => value,
            _ => self.made_here(),
        }
    }

    #[cold]
    fn made_here(&'static self) -> &'static T {
        let before = self.made.load(Ordering::Acquire);
        // SAFETY: null, or a value that is never freed.
        if let Some((owner, value)) = unsafe { before.as_ref() }
            && owner.is_here()
        {
            return value;
        }
        let made = Box::into_raw(Box::new((Owner::here(), (self.make)())));
        let (is, else_is) = (Ordering::AcqRel, Ordering::Acquire);
        match self.made.compare_exchange(before, made, is, else_is) {
            // SAFETY: it is never freed from now on.
            Ok(_) => unsafe { &(*made).1 },
            Err(kept) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: a value that another thread of this process made, and that is never freed.
                unsafe { &(*kept).1 }
            }
        }
    }
}

/// A descriptor that forked children do not get: see [`withhold`].
#[derive(Debug)]
pub struct Withheld {
    fd: RawFd,
    owner: Owner,
}

/// Keeps a descriptor from children that are forked until the result is dropped: there its number leads nowhere, so
/// that the child neither uses it nor holds its locks. The owner drops the result before the descriptor.
#[must_use]
pub fn withhold(descriptor: impl AsFd) -> Withheld {
    let owner = Owner::here();
    let fd = descriptor.as_fd().as_raw_fd();
    registry().withheld.push(fd);
    Withheld { fd, owner }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        if self.owner.is_here() {
            let withheld = &mut registry().withheld;
            if let Some(at) = withheld.iter().position(|fd| *fd == self.fd) {
                withheld.swap_remove(at);
            }
        }
    }
}

extern "C" fn prepare() {
    // A thread that is ending has no such cell any more; then nothing is withheld.
    let _ = HELD.try_with(|held| {
        held.borrow_mut().get_or_insert_with(registry);
    });
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    HANDLERS.store(REGISTERED, Ordering::Relaxed);
    let _ = HELD.try_with(|held| {
        let Some(mut registry) = held.borrow_mut().take() else { return };
        let plug = PLUG.load(Ordering::Relaxed);
        for fd in &registry.withheld {
            // SAFETY: both are open, or there is no plug, which the call refuses. The number stays in use, so its owner
            // closes nobody else's descriptor.
            unsafe { libc::dup3(plug, *fd, libc::O_CLOEXEC) };
        }
        registry.withheld.clear();
    });
}

/// A call that the exit of the process makes, until this is dropped: see [`at_exit`].
pub struct AtExit(u64);

/// Has `call` made when the process ends by `exit` or by returning from `main`, while other threads still run. No exit
/// makes it in a forked child, nor after `_exit`, an abort or a signal. A panic of it is passed over.
#[must_use]
pub fn at_exit(call: impl Fn() + Send + Sync + 'static) -> AtExit {
    let owner = Owner::here();
    let mut registry = registry();
    if !registry.exits {
        // Under the lock, so that no thread forks meanwhile and leaves the C library's list locked in its child.
        // SAFETY: the handler is a function of this library, which runs it when it is unloaded.
        registry.exits = unsafe { libc::atexit(exits) } == 0;
    }
    registry.last += 1;
    let id = registry.last;
    registry.at_exit.push((id, owner, Arc::new(call)));
    AtExit(id)
}

impl Drop for AtExit {
    fn drop(&mut self) {
        let mut registry = registry();
        let at = registry.at_exit.iter().position(|(id, ..)| *id == self.0);
        let call = at.map(|at| registry.at_exit.swap_remove(at));
        // Whatever the call holds may ask for the registry when it goes.
        drop(registry);
        drop(call);
    }
}

/// Tries to take the registry, a millisecond apart: a signal's handler may have called `exit` in a thread that has it.
const TRIES: u32 = 1000;

extern "C" fn exits() {
    let taken = (0..TRIES).find_map(|_| {
        REGISTRY.try_lock().ok().or_else(|| {
            Clock::real().sleep(Duration::from_millis(1));
            None
        })
    });
    let Some(registry) = taken else { return };
    let here = registry.at_exit.iter().filter(|(_, owner, _)| owner.is_here());
    let calls: Vec<Call> = here.map(|(.., call)| call.clone()).collect();
    drop(registry);
    for call in calls {
        let _ = catch_unwind(AssertUnwindSafe(|| call()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    /// Forks, runs `child` in the child, which ends then, and returns the child's code.
    fn in_fork(child: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child makes system calls and ends.
        match unsafe { libc::fork() } {
            // SAFETY: it ends the child at once.
            0 => unsafe { libc::_exit(child()) },
            pid => {
                let mut status = 0;
                // SAFETY: `status` is writable, and the child is this process's own.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                libc::WEXITSTATUS(status)
            }
        }
    }

    #[test]
    fn child_is_not_its_parent_and_owns_what_it_opens() {
        let owner = Owner::here();
        assert!(owner.is_here());
        let code = in_fork(|| {
            let own = Owner::here();
            let grandchild = in_fork(|| i32::from(own.is_here() || owner.is_here()));
            i32::from(owner.is_here() || !own.is_here()) + 2 * grandchild
        });
        assert_eq!(code, 0);
        assert!(owner.is_here());
    }

    #[test]
    fn withheld_descriptor_leads_nowhere_in_a_child() {
        let path = std::env::temp_dir().join(format!("esker-withheld-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.lock().unwrap();
        let writes = |file: &mut File| i32::from(file.write_all(b"child").is_ok());
        let withheld = withhold(&file);
        assert_eq!(in_fork(|| writes(&mut file)), 0);
        drop(withheld);
        assert_eq!(in_fork(|| writes(&mut file)), 1, "the child has it again");
        let mut content = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "child");
    }

    #[test]
    fn value_is_one_for_all_threads_and_another_one_in_a_child() {
        static VALUE: PerProcess<AtomicU32> = PerProcess::new(|| AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let add = || VALUE.get().fetch_add(1, Ordering::Relaxed);
                crate::thread::spawn_scoped(scope, "adder", add).unwrap();
            }
        });
        let of_the_child = || i32::from(VALUE.get().fetch_add(1, Ordering::Relaxed) != 0);
        assert_eq!(in_fork(of_the_child), 0);
        assert_eq!(VALUE.get().load(Ordering::Relaxed), 8);
    }

    #[test]
    fn handlers_bear_to_be_registered_by_a_child_whose_parent_had_begun() {
        let owner = Owner::here();
        let code = in_fork(|| {
            HANDLERS.store(1, Ordering::Relaxed); // as that of a thread that is not there
            let own = Owner::here();
            i32::from(!own.is_here() || in_fork(|| i32::from(own.is_here())) != 0)
        });
        assert_eq!(code, 0);
        assert!(owner.is_here());
    }

    #[test]
    fn dropped_call_is_not_made() {
        let before = registry().at_exit.len();
        let at_exit = at_exit(|| ());
        assert_eq!(registry().at_exit.len(), before + 1);
        drop(at_exit);
        assert_eq!(registry().at_exit.len(), before);
    }
}
