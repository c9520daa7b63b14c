//! Waits for short reads that begin by looking, and sleep only then.
//!
//! Flash answers within tens of microseconds. To sleep meanwhile costs as much again: the processor
//! goes idle, a virtual one is given back to its host, and all of that has to be undone by an
//! interrupt. So a thread that waits for short reads and nothing else busy-polls first, unless
//! - more threads wait so at times than there are processors: those that look would keep the others
//!   from sending the drive their next read, and a drive works best on many;
//! - it has been in vain lately, because this drive is slow: one wait in [`RETRIED`] finds out then
//!   whether it still is.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::Duration;

use esker_base::Clock;
use esker_base::process::PerProcess;

/// The largest read that is short, in bytes.
pub(super) const SHORT: usize = 64 << 10;
/// Trust in a device that a look with success adds.
const GAIN: u32 = 256;
/// Trust that a look in vain up to the limit takes away, a shorter look in proportion: looking pays
/// where more than four of five looks succeed.
const LOSS: u32 = 4 * GAIN;
/// The most trust there is, and how much there is at first.
const TRUST: u32 = 64 * GAIN;
/// Without trust, one wait of so many looks.
const RETRIED: u32 = 64;
/// After so many waits it is forgotten how many waited at once.
const FORGOTTEN: u32 = 256;
/// Looks between two looks at the clock.
const LOOKS: usize = 8;

/// The threads of this process that wait for short reads, on any device.
static CROWD: PerProcess<Crowd> = PerProcess::new(|| Crowd::new(processors()));

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Threads that wait for short reads, and the processors that they share.
struct Crowd {
    waiting: AtomicUsize,
    /// How many waited at once lately.
    most: AtomicUsize,
    joined: AtomicU32,
    processors: usize,
}

/// A thread that waits for short reads, until this is dropped.
pub(super) struct Waiting<'a>(&'a Crowd);

impl Waiting<'_> {
    /// Joins the others of this process.
    pub(super) fn join() -> Waiting<'static> {
        CROWD.get().join()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Crowd {
    const fn new(processors: usize) -> Crowd {
        let (waiting, most, joined) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU32::new(0));
        Crowd { waiting, most, joined, processors }
    }

    fn join(&self) -> Waiting<'_> {
        let waiting = self.waiting.fetch_add(1, Relaxed) + 1;
        let forgets = self.joined.fetch_add(1, Relaxed).is_multiple_of(FORGOTTEN);
        if forgets || waiting > self.most.load(Relaxed) {
            self.most.store(waiting, Relaxed);
        }
        Waiting(self)
    }

    /// Whether each of them can have a processor, and others one of several now and then.
    fn has_room(&self) -> bool {
        self.processors > 1 && self.most.load(Relaxed) <= self.processors
    }
}

/// Experience of a device with looking.
pub(super) struct Spin {
    limit: Duration,
    trust: AtomicU32,
    declined: AtomicU32,
}

impl Spin {
    /// Looks for `limit` at most.
    pub(super) fn new(limit: Duration) -> Spin {
        Spin { limit, trust: AtomicU32::new(TRUST), declined: AtomicU32::new(0) }
    }

    /// Calls `look` for a while, at most for `left`, until it finds something; whether it did. Does
    /// not call it where that is not worth it.
    pub(super) fn look<E>(
        &self,
        clock: &Clock,
        waiting: &Waiting<'_>,
        left: Option<Duration>,
        mut look: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let crowd = waiting.0;
        if self.limit.is_zero() || !crowd.has_room() || !self.is_worth_it() {
            return Ok(false);
        }
        let start = clock.now();
        while crowd.has_room() {
            for _ in 0..LOOKS {
                if look()? {
                    self.has_paid();
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            let past = clock.now().since(start);
            if past >= self.limit || left.is_some_and(|left| past >= left) {
                self.was_in_vain(past);
                break;
            }
        }
        Ok(false)
    }

    fn is_worth_it(&self) -> bool {
        self.trust.load(Relaxed) > 0 || self.declined.fetch_add(1, Relaxed) % RETRIED == RETRIED - 1
    }

    // Two threads may overwrite each other's trust: it is an estimate.

    fn has_paid(&self) {
        let trust = self.trust.load(Relaxed);
        if trust < TRUST {
            self.trust.store((trust + GAIN).min(TRUST), Relaxed);
        }
    }

    fn was_in_vain(&self, past: Duration) {
        let loss = u128::from(LOSS) * past.as_nanos() / self.limit.as_nanos();
        let loss = u32::try_from(loss).map_or(LOSS, |loss| loss.min(LOSS));
        let trust = self.trust.load(Relaxed);
        self.trust.store(trust.saturating_sub(loss), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(1);

    fn crowd(processors: usize) -> Crowd {
        Crowd::new(processors)
    }

    /// How many of `waits` waits look at all, when nothing is there or when it is there at once.
    fn looks(spin: &Spin, waits: u32, crowd: &Crowd, is_there: bool) -> u32 {
        let (clock, waiting) = (Clock::real(), crowd.join());
        let wait = |_| {
            let mut has_looked = false;
            let look = || {
                has_looked = true;
                Ok::<bool, ()>(is_there)
            };
            let found = spin.look(&clock, &waiting, None, look).unwrap();
            assert_eq!(found, has_looked && is_there);
            u32::from(has_looked)
        };
        (0..waits).map(wait).sum()
    }

    #[test]
    fn a_slow_device_is_looked_at_seldom_and_a_fast_one_always() {
        let (spin, crowd) = (Spin::new(LIMIT), crowd(2));
        assert_eq!(looks(&spin, 1000, &crowd, true), 1000);
        let in_vain = looks(&spin, 64_000, &crowd, false);
        assert!((900..1100).contains(&in_vain), "{in_vain}");
        // As soon as one look succeeds, the next ones are taken.
        assert!(looks(&spin, 1000, &crowd, true) > 1000 - RETRIED);
    }

    #[test]
    fn nobody_looks_in_a_crowd_on_one_processor_or_without_a_limit() {
        let spin = Spin::new(LIMIT);
        let two = crowd(2);
        assert_eq!(looks(&Spin::new(Duration::ZERO), 10, &two, true), 0);
        assert_eq!(looks(&spin, 10, &crowd(1), true), 0);
        let _second = two.join();
        assert_eq!(looks(&spin, 10, &two, true), 10);
        let third = two.join();
        assert_eq!(looks(&spin, 10, &two, true), 0);
        drop(third);
        assert_eq!(looks(&spin, 10, &two, true), 0, "it may be back at once");
        (0..FORGOTTEN).for_each(|_| drop(two.join()));
        assert_eq!(looks(&spin, 10, &two, true), 10);
    }

    #[test]
    fn looking_thread_makes_room_when_others_come() {
        let (spin, crowd) = (Spin::new(Duration::from_secs(3600)), crowd(2));
        let (waiting, _second) = (crowd.join(), crowd.join());
        let mut third = None;
        let look = || {
            third.get_or_insert_with(|| crowd.join());
            Ok::<bool, ()>(false)
        };
        assert_eq!(spin.look(&Clock::real(), &waiting, None, look), Ok(false));
        assert_eq!(spin.trust.load(Relaxed), TRUST);
    }

    #[test]
    fn it_ends_with_the_time_that_is_left() {
        let (spin, crowd) = (Spin::new(Duration::from_secs(3600)), crowd(2));
        let nothing = || Ok::<bool, ()>(false);
        let left = Some(Duration::from_millis(1));
        assert_eq!(spin.look(&Clock::real(), &crowd.join(), left, nothing), Ok(false));
        assert_eq!(spin.trust.load(Relaxed), TRUST);
    }

    #[test]
    fn short_looks_in_vain_count_in_proportion() {
        let (limit, clock) = (Duration::from_micros(320), Clock::virtual_time());
        let (spin, crowd) = (Spin::new(limit), crowd(2));
        let looks = |left: Duration| {
            let start = clock.now();
            let nothing = || {
                clock.advance(Duration::from_micros(1));
                Ok::<bool, ()>(false)
            };
            assert_eq!(spin.look(&clock, &crowd.join(), Some(left), nothing), Ok(false));
            clock.now() > start
        };
        assert!(looks(limit / 4));
        assert_eq!(spin.trust.load(Relaxed), TRUST - LOSS / 4);
        let count = (0..6400).filter(|_| looks(limit / 4)).count();
        let expected = 4 * (TRUST / LOSS) - 1 + 6400 / RETRIED;
        assert!(expected.abs_diff(u32::try_from(count).unwrap()) <= 2, "{count}");
    }
}
