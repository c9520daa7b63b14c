//! The same primitives over those of `shuttle`, with the methods that the engine uses.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use shuttle::sync as scheduled;
pub(crate) use shuttle::sync::{atomic, mpsc};
pub(crate) use shuttle::thread::JoinHandle;

/// Threads of the scheduler.
pub(crate) mod thread {
    use super::JoinHandle;

    pub(crate) fn spawn<T: Send + 'static>(
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        shuttle::thread::Builder::new().name(name.to_owned()).spawn(run)
    }
}

const POISONED: &str = "a thread panicked with the lock, which ends the test";

#[derive(Default)]
pub(crate) struct Mutex<T>(scheduled::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    /// Absent only while a condition is waited for or the lock is given away.
    guard: Option<scheduled::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(scheduled::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { of: self, guard: Some(self.0.lock().expect(POISONED)) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.0.try_lock().ok()?;
        Some(MutexGuard { of: self, guard: Some(guard) })
    }

    /// The time is over at once.
    pub(crate) fn try_lock_for(&self, _timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
    }
}

impl<T> MutexGuard<'_, T> {
    /// The scheduler chooses the next thread.
    pub(crate) fn unlock_fair(this: Self) {
        drop(this);
    }

    pub(crate) fn unlocked<R>(this: &mut Self, run: impl FnOnce() -> R) -> R {
        this.guard = None;
        let result = run();
        this.guard = Some(this.of.0.lock().expect(POISONED));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held")
    }
}

/// Nothing waits for time here: a wait that only its timeout would end is a deadlock, which the
/// scheduler reports.
#[derive(Default)]
pub(crate) struct Condvar(scheduled::Condvar);

/// Result of a wait.
pub(crate) struct Waited;

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> Waited {
        let held = guard.guard.take().expect("held");
        guard.guard = Some(self.0.wait(held).expect(POISONED));
        Waited
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Default)]
pub(crate) struct RwLock<T>(scheduled::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(scheduled::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> scheduled::RwLockReadGuard<'_, T> {
        self.0.read().expect(POISONED)
    }

    pub(crate) fn write(&self) -> scheduled::RwLockWriteGuard<'_, T> {
        self.0.write().expect(POISONED)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISONED)
    }
}

/// A pointer that was loaded.
pub(crate) type Guard<P> = P;

/// A pointer that is loaded and stored at once, as a whole.
#[derive(Default)]
pub(crate) struct ArcSwapAny<P>(scheduled::Mutex<P>);
pub(crate) type ArcSwap<T> = ArcSwapAny<Arc<T>>;
pub(crate) type ArcSwapOption<T> = ArcSwapAny<Option<Arc<T>>>;

impl<P: Clone> ArcSwapAny<P> {
    pub(crate) fn new(pointer: P) -> ArcSwapAny<P> {
        ArcSwapAny(scheduled::Mutex::new(pointer))
    }

    pub(crate) fn load(&self) -> Guard<P> {
        self.load_full()
    }

    pub(crate) fn load_full(&self) -> P {
        self.0.lock().expect(POISONED).clone()
    }

    pub(crate) fn store(&self, pointer: P) {
        let old = std::mem::replace(&mut *self.0.lock().expect(POISONED), pointer);
        drop(old); // its destructor may take locks
    }
}

impl<P: Clone> From<P> for ArcSwapAny<P> {
    fn from(pointer: P) -> ArcSwapAny<P> {
        ArcSwapAny::new(pointer)
    }
}

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwapAny::new(Arc::new(value))
    }
}
