//! The ends of what a process has open: forks, whose children must not use it, and the exit of the process.
//!
//! A child of `fork` has a copy of this memory and none of its other threads. A lock that another thread held stays
//! locked there, and whatever lies in shared memory or behind a descriptor is still the parent's.
//!
//! Invariants
//! 1. `GENERATION` differs between a process and its forked ancestors from the first [`Owner`] on.
//! 2. `REGISTRY` is free in a child: `prepare` takes it, so that no other thread has it at a fork.
//! 3. The handlers of a fork allocate nothing in the child.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::io::PipeReader;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use crate::Clock;

/// Counts the forks between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { withheld: Vec::new(), at_exit: Vec::new(), last: 0 });

/// Takes the place of withheld descriptors in a child: neither readable nor writable.
static PLUG: OnceLock<Option<PipeReader>> = OnceLock::new();

thread_local! {
    /// The registry, during a fork of this thread.
    static HELD: RefCell<Option<MutexGuard<'static, Registry>>> = const { RefCell::new(None) };
}

type Call = Arc<dyn Fn() + Send + Sync>;

struct Registry {
    withheld: Vec<RawFd>,
    at_exit: Vec<(u64, Owner, Call)>,
    last: u64,
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
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            PLUG.get_or_init(|| std::io::pipe().ok().map(|(reader, _)| reader));
            // SAFETY: the handlers are functions of this library, which unregisters them when it is unloaded. Where
            // they are refused for lack of memory, the process has forks only as before.
            unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
        });
        Owner(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the calling process is this one, and no forked child. It costs one load.
    #[must_use]
    #[inline]
    pub fn is_here(self) -> bool {
        GENERATION.load(Ordering::Relaxed) == self.0
    }
}

/// How many forks there are between the calling process and the first one that asked for its [`Owner`].
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
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
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(registry()));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let _ = HELD.try_with(|held| {
        let Some(mut registry) = held.borrow_mut().take() else { return };
        if let Some(Some(plug)) = PLUG.get() {
            for fd in &registry.withheld {
                // SAFETY: both are open. The number stays in use, so its owner closes nobody else's descriptor.
                unsafe { libc::dup3(plug.as_raw_fd(), *fd, libc::O_CLOEXEC) };
            }
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
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function of this library, which runs it when it is unloaded.
        let _ = unsafe { libc::atexit(exits) };
    });
    let owner = Owner::here();
    let mut registry = registry();
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
    fn dropped_call_is_not_made() {
        let before = registry().at_exit.len();
        let at_exit = at_exit(|| ());
        assert_eq!(registry().at_exit.len(), before + 1);
        drop(at_exit);
        assert_eq!(registry().at_exit.len(), before);
    }
}
