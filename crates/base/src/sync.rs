//! Locks whose state lies in them alone, with the interface of `parking_lot`. That one lists all waiting threads in one
//! table, in their thread-local memory: a forked child, which has none of these threads, hangs or crashes by its entries.
//!
//! Waiters sleep in the kernel (`futex`). A lock that a woken waiter has not got for longer than half a millisecond is handed to
//! one that sleeps, when it is let go of: nobody else gets it in between (fair unlock).
//!
//! Invariants
//! 1. While a thread sleeps, the lock is `AWAITED` or `LONG_AWAITED`, or a thread that was woken has not looked yet.
//! 2. A lock that is `HANDED` is taken by a thread that has waited, or nobody sleeps and it becomes `FREE`.
//! 3. A waiter of a condition is counted before it lets go of the lock.

#![allow(unsafe_code)]

use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use lock_api::{GuardNoSend, RawCondvar, RawCondvarTimed, RawMutex, RawMutexFair, RawMutexTimed};
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

pub use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// A lock for one thread at a time.
pub type Mutex<T> = lock_api::Mutex<FutexMutex, T>;
/// The holder of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, FutexMutex, T>;
/// The holder of a part of what a [`Mutex`] guards.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, FutexMutex, T>;
/// A condition that holders of a [`Mutex`] wait for.
pub type Condvar = lock_api::Condvar<FutexCondvar>;

/// Lets go of a lock whose guard was forgotten.
///
/// # Safety
/// The calling thread has the lock, or had it when it forked and this is the child.
pub unsafe fn let_go<T>(lock: &Mutex<T>) {
    // SAFETY: the caller's promise.
    unsafe { lock.force_unlock(GuardNoSend::new()) };
}

/// After this time a waiter is handed the lock.
const PATIENCE: Duration = Duration::from_micros(500);
/// Looks at a held lock before its waiter sleeps.
const LOOKS: u32 = 100;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep.
const AWAITED: u32 = 2;
/// Held, and the next holder is one that sleeps.
const LONG_AWAITED: u32 = 3;
/// For a thread that has waited.
const HANDED: u32 = 4;

/// Locks are of the real time: the threads of a virtual one take turns, so that none waits.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

/// Sleeps while the word has this value, until it is woken or that time is over; false when it is over.
fn sleep(word: &AtomicU32, value: u32, left: Option<Duration>) -> bool {
    // A time that the kernel cannot have is as good as none.
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let slept = futex::wait(word, Flags::PRIVATE, value, left.as_ref());
    slept != Err(Errno::TIMEDOUT)
}

/// Wakes so many threads that sleep at the word; how many there were.
fn wake(word: &AtomicU32, most: u32) -> usize {
    // It fails for no word that is there.
    futex::wake(word, Flags::PRIVATE, most).unwrap_or(0)
}

/// The word of a [`Mutex`].
#[derive(Debug)]
pub struct FutexMutex(AtomicU32);

impl FutexMutex {
    #[inline]
    fn turn(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn let_go(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Release, Relaxed).is_ok()
    }

    /// Takes the lock by the deadline; whether it did.
    #[cold]
    fn wait(&self, deadline: Option<Instant>) -> bool {
        for _ in 0..LOOKS {
            match self.0.load(Relaxed) {
                FREE if self.turn(FREE, HELD) => return true,
                FREE | HELD => std::hint::spin_loop(),
                _ => break,
            }
        }
        let (mut began, mut mark) = (None, AWAITED);
        loop {
            let mut state = self.0.load(Relaxed);
            // Others may sleep, so the lock is awaited when it is had (invariant 1).
            if state == FREE || state == HANDED && began.is_some() {
                if self.turn(state, AWAITED) {
                    return true;
                }
                continue;
            }
            let now = now();
            if now - *began.get_or_insert(now) >= PATIENCE {
                mark = LONG_AWAITED;
            }
            if state < mark {
                // Also before it gives up: the wake that it got may have been the only one.
                if !self.turn(state, mark) {
                    continue;
                }
                state = mark;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            sleep(&self.0, state, left);
        }
    }

    #[cold]
    fn unlock_awaited(&self, is_fair: bool) {
        loop {
            match self.0.load(Relaxed) {
                HELD if self.let_go(HELD, FREE) => return,
                AWAITED if !is_fair && self.let_go(AWAITED, FREE) => {
                    wake(&self.0, 1);
                    return;
                }
                state if (is_fair || state == LONG_AWAITED) && self.let_go(state, HANDED) => {
                    if wake(&self.0, 1) == 0 && self.let_go(HANDED, FREE) {
                        // A thread may have gone to sleep between the two.
                        wake(&self.0, 1);
                    }
                    return;
                }
                _ => {}
            }
        }
    }
}

// SAFETY: from `FREE` or `HANDED` one thread at a time turns it to a state of being held, and only that thread turns it
// back.
unsafe impl RawMutex for FutexMutex {
    const INIT: FutexMutex = FutexMutex(AtomicU32::new(FREE));
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        if !self.turn(FREE, HELD) {
            self.wait(None);
        }
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.turn(FREE, HELD).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        if !self.let_go(HELD, FREE) {
            self.unlock_awaited(false);
        }
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}

// SAFETY: as above.
unsafe impl RawMutexFair for FutexMutex {
    unsafe fn unlock_fair(&self, _guard: GuardNoSend) {
        self.unlock_awaited(true);
    }
}

// SAFETY: as above.
unsafe impl RawMutexTimed for FutexMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        // No deadline is one that is too far away.
        let taken = self.turn(FREE, HELD) || self.wait(now().checked_add(timeout));
        taken.then(GuardNoSend::new)
    }

    fn try_lock_until(&self, deadline: Instant) -> Option<GuardNoSend> {
        (self.turn(FREE, HELD) || self.wait(Some(deadline))).then(GuardNoSend::new)
    }
}

/// The words of a [`Condvar`]. A wait may end without a notification, and a notification does not tell how many it woke.
#[derive(Debug)]
pub struct FutexCondvar {
    /// Rises with each notification, so that nobody falls asleep after one.
    turn: AtomicU32,
    waiting: AtomicU32,
}

impl FutexCondvar {
    /// Waits without the lock, and takes it again; false when the deadline was there first.
    fn wait_by(
        &self,
        mutex: &FutexMutex,
        guard: &mut GuardNoSend,
        deadline: Option<Instant>,
    ) -> bool {
        self.waiting.fetch_add(1, SeqCst);
        let turn = self.turn.load(SeqCst);
        // SAFETY: the guard says that this thread holds the lock; it is replaced before anybody sees it.
        unsafe { mutex.unlock(GuardNoSend::new()) };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
        let woken = sleep(&self.turn, turn, left);
        self.waiting.fetch_sub(1, SeqCst);
        *guard = mutex.lock();
        woken
    }

    #[inline]
    fn notify(&self, most: u32) {
        if self.waiting.load(SeqCst) > 0 {
            self.turn.fetch_add(1, SeqCst);
            wake(&self.turn, most);
        }
    }
}

// SAFETY: a wait lets go of the lock that its caller holds, and has it again when it returns.
unsafe impl RawCondvar for FutexCondvar {
    const INIT: FutexCondvar = FutexCondvar { turn: AtomicU32::new(0), waiting: AtomicU32::new(0) };
    type RawMutex = FutexMutex;

    unsafe fn wait(&self, mutex: &FutexMutex, guard: &mut GuardNoSend) {
        self.wait_by(mutex, guard, None);
    }

    fn notify_one(&self) -> bool {
        self.notify(1);
        false
    }

    fn notify_all(&self) -> usize {
        self.notify(i32::MAX.unsigned_abs());
        0
    }
}

// SAFETY: as above.
unsafe impl RawCondvarTimed for FutexCondvar {
    fn checked_duration_to_instant(timeout: &Duration) -> Option<Instant> {
        now().checked_add(*timeout)
    }

    unsafe fn wait_until(
        &self,
        mutex: &FutexMutex,
        guard: &mut GuardNoSend,
        deadline: &Instant,
    ) -> bool {
        !self.wait_by(mutex, guard, Some(*deadline))
    }
}

/// A lock for several readers or one writer: that of the standard library, which lies in itself alone as well. A panic of
/// its holder does not poison it.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    /// Waits for the writer.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for readers and the writer.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, which nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;
    use crate::Clock;
    use crate::thread::spawn_scoped;

    const BRIEF: Duration = Duration::from_millis(20);

    #[test]
    fn lock_is_held_by_one_thread_at_a_time_and_no_wake_is_lost() {
        let (lock, fair) = (Mutex::new(0_u64), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for n in 0..6_u64 {
                let (lock, fair) = (&lock, &fair);
                let work = move || {
                    for round in 0..20_000 {
                        let held = match (round + n) % 5 {
                            0 => lock.try_lock_for(Duration::from_micros(round % 50)),
                            1 => lock.try_lock(),
                            _ => Some(lock.lock()),
                        };
                        let Some(mut held) = held else { continue };
                        let before = *held;
                        std::hint::black_box(&mut held);
                        *held = before + 1;
                        fair.fetch_add(1, Relaxed);
                        if round % 3 == 0 {
                            MutexGuard::unlock_fair(held);
                        }
                    }
                };
                spawn_scoped(scope, "holder", work).unwrap();
            }
        });
        assert_eq!(*lock.lock(), fair.load(Relaxed));
    }

    #[test]
    fn greedy_thread_does_not_starve_a_waiter() {
        let (lock, stop) = (Mutex::new(()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let greedy = || {
                while !stop.load(Relaxed) {
                    let held = lock.lock();
                    Clock::real().sleep(Duration::from_micros(200));
                    drop(held);
                }
            };
            spawn_scoped(scope, "greedy", greedy).unwrap();
            let had = (0..50).filter(|_| lock.try_lock_for(50 * BRIEF).is_some()).count();
            stop.store(true, Relaxed);
            assert_eq!(had, 50);
        });
    }

    #[test]
    fn fair_unlock_hands_lock_to_waiter() {
        let (lock, order) = (Mutex::new(()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let held = lock.lock();
            let waits = || {
                let _held = lock.lock();
                order.lock().push("waiter");
            };
            let waiter = spawn_scoped(scope, "waiter", waits).unwrap();
            while lock_state(&lock) < AWAITED {
                Clock::real().sleep(Duration::from_micros(100));
            }
            Clock::real().sleep(BRIEF);
            MutexGuard::unlock_fair(held);
            let again = lock.lock();
            order.lock().push("again");
            drop(again);
            waiter.join().unwrap();
        });
        assert_eq!(*order.lock(), ["waiter", "again"]);
    }

    fn lock_state<T>(lock: &Mutex<T>) -> u32 {
        // SAFETY: it is only looked at.
        unsafe { lock.raw() }.0.load(Relaxed)
    }

    #[test]
    fn timed_wait_ends_without_the_lock_and_leaves_it_usable() {
        let lock = Mutex::new(1);
        let held = lock.lock();
        std::thread::scope(|scope| {
            let tries = || assert!(lock.try_lock_for(BRIEF).is_none());
            spawn_scoped(scope, "tries", tries).unwrap();
        });
        drop(held);
        assert_eq!(*lock.try_lock_for(Duration::MAX).unwrap(), 1);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn condition_wakes_one_or_all_and_its_wait_ends_in_time() {
        let (lock, given, taken) = (Mutex::new(0), Condvar::new(), Condvar::new());
        assert!(given.wait_for(&mut lock.lock(), BRIEF).timed_out());
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (lock, given, taken) = (&lock, &given, &taken);
                let take = move || {
                    for _ in 0..5000 {
                        let mut count = lock.lock();
                        while *count == 0 {
                            if n == 0 {
                                given.wait_for(&mut count, 100 * BRIEF);
                            } else {
                                given.wait(&mut count);
                            }
                        }
                        *count -= 1;
                        drop(count);
                        taken.notify_all();
                    }
                };
                spawn_scoped(scope, "taker", take).unwrap();
            }
            for _ in 0..20_000 {
                let mut count = lock.lock();
                while *count >= 3 {
                    taken.wait(&mut count);
                }
                *count += 1;
                drop(count);
                given.notify_one();
            }
        });
        assert_eq!(*lock.lock(), 0);
    }

    #[test]
    fn panic_of_a_holder_does_not_poison() {
        let lock = RwLock::new(1);
        let panics = || {
            let _held = lock.write();
            panic!("as it is meant to");
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(*lock.read(), 1);
    }
}
