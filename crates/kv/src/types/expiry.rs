//! When a value stops being there: time to live.
//!
//! A KVS may have a time to live ([`KvsOptions::ttl_ms`](crate::KvsOptions)). A value put into it gets the moment
//! at which it expires, by the wall clock, and keeps it for life: in the log, in the memtable, in key pages.
//! Readers compare it with the moment they look at.

use std::time::Duration;

use esker_base::Clock;
use esker_base::units::to_nanos;

use super::ids::Seqno;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The first moment at which a value is not seen any more, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry(pub(crate) u64);

impl Expiry {
    pub(crate) const NEVER: Expiry = Expiry(u64::MAX);

    /// That of a value put at `now_ms` with a time to live, if it has one.
    pub(crate) fn of_put(now_ms: u64, ttl_ms: Option<u64>) -> Expiry {
        ttl_ms.map_or(Expiry::NEVER, |ttl_ms| Expiry(now_ms.saturating_add(ttl_ms)))
    }

    pub(crate) fn is_never(self) -> bool {
        self == Expiry::NEVER
    }

    pub(crate) fn has_passed(self, now_ms: u64) -> bool {
        now_ms >= self.0 && !self.is_never()
    }
}

/// When the values of a kvset expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiries {
    /// How many entries do.
    pub(crate) count: u64,
    /// The first and the last of them.
    pub(crate) first: Expiry,
    pub(crate) last: Expiry,
}

impl Expiries {
    /// Of no entries.
    pub(crate) const NONE: Expiries = Expiries { count: 0, first: Expiry::NEVER, last: Expiry(0) };

    pub(crate) fn add(&mut self, expiry: Expiry) {
        if !expiry.is_never() {
            self.count += 1;
            (self.first, self.last) = (self.first.min(expiry), self.last.max(expiry));
        }
    }

    /// The share of `entries` that has expired, in percent, as if expiries were spread evenly.
    pub(crate) fn passed_percent(&self, entries: u64, now_ms: u64) -> u64 {
        if self.count == 0 || now_ms < self.first.0 {
            return 0;
        }
        let span = (self.last.0 - self.first.0).max(1);
        let passed = (now_ms - self.first.0).min(span);
        let share = if self.last.has_passed(now_ms) { 1.0 } else { ratio(passed, span) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most 100
        let percent = (100.0 * share * ratio(self.count, entries.max(1))) as u64;
        percent
    }
}

#[allow(clippy::cast_precision_loss)] // an estimate
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// The wall clock of an open KVDB: it never goes back, so nothing that has expired is there again, and never stands
/// still, so a value lives as long as it is to. Where the system's is set back, it goes on as time passes.
pub(crate) struct WallClock {
    clock: Clock,
    /// The most by which the system's wall clock was ahead of the clock that only counts, in nanoseconds.
    ahead: AtomicU64,
}

impl WallClock {
    pub(crate) fn new(clock: &Clock) -> WallClock {
        WallClock { clock: clock.clone(), ahead: AtomicU64::new(0) }
    }

    /// The moment of a read that sees records up to `seqno`.
    pub(crate) fn moment(&self, seqno: Seqno) -> Moment<'_> {
        Moment { seqno, time: Time::Now(self) }
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub(crate) fn now_ms(&self) -> u64 {
        // In this order: time that passes in between makes the difference less, and the most stays true.
        let shown = self.clock.unix_time();
        self.at(self.clock.now().0, shown)
    }

    /// The same when `passed` nanoseconds are counted, and the system's wall clock shows `unix_time`.
    fn at(&self, passed: u64, unix_time: Duration) -> u64 {
        let shown = to_nanos(unix_time);
        let ahead = shown.saturating_sub(passed);
        let most = self.ahead.load(Ordering::Relaxed);
        if ahead > most {
            self.ahead.fetch_max(ahead, Ordering::Relaxed);
        }
        passed.saturating_add(ahead.max(most)) / 1_000_000
    }
}

/// State that a reader sees: records up to a seqno that have not expired.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'e> {
    pub(crate) seqno: Seqno,
    pub(crate) time: Time<'e>,
}

/// When a reader looks.
#[derive(Clone, Copy)]
pub(crate) enum Time<'e> {
    /// As it is when it matters: most values never expire.
    Now(&'e WallClock),
    /// In milliseconds since 1970-01-01 UTC.
    At(u64),
}

impl Moment<'_> {
    pub(crate) fn sees(&self, expiry: Expiry) -> bool {
        expiry.is_never()
            || !expiry.has_passed(match self.time {
                Time::Now(clock) => clock.now_ms(),
                Time::At(ms) => ms,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_until_the_moment_it_expires() {
        let expiry = Expiry::of_put(1000, Some(5));
        assert!(!expiry.has_passed(1004) && expiry.has_passed(1005));
        assert!(Expiry::of_put(1000, None).is_never());
        assert!(!Expiry::NEVER.has_passed(u64::MAX));
        assert!(Expiry::of_put(u64::MAX - 1, Some(100)).is_never());
    }

    #[test]
    fn the_share_that_has_expired_is_known_at_both_ends_and_estimated_between() {
        let mut expiries = Expiries::NONE;
        assert_eq!(expiries.passed_percent(10, u64::MAX), 0);
        for expiry in [Expiry(200), Expiry(100), Expiry::NEVER, Expiry(150)] {
            expiries.add(expiry);
        }
        assert_eq!((expiries.count, expiries.first, expiries.last), (3, Expiry(100), Expiry(200)));
        for (now, percent) in [(0, 0), (99, 0), (150, 50), (200, 100), (u64::MAX, 100)] {
            assert_eq!(expiries.passed_percent(3, now), percent, "{now}");
        }
        assert_eq!(expiries.passed_percent(6, 200), 50);
    }

    #[test]
    fn the_wall_clock_of_a_kvdb_follows_its_clock() {
        let clock = Clock::virtual_time();
        let wall = WallClock::new(&clock);
        assert_eq!(wall.now_ms(), 0);
        clock.advance(Duration::from_micros(1999));
        assert_eq!(wall.now_ms(), 1);
    }

    #[test]
    fn wall_clock_of_a_kvdb_goes_on_when_the_systems_is_set_back() {
        const DAY: u64 = 86_400;
        let wall = WallClock::new(&Clock::virtual_time());
        // Seconds that are counted, that the system's clock shows, and that the KVDB's shows.
        for (passed, shown, seen) in [
            (5, 1000, 1000),
            (7, 1002, 1002),
            (8, 1003 + DAY, 1003 + DAY), // set forward
            (9, 1004, 1004 + DAY),       // and back
            (60, 1055, 1055 + DAY),
            (61, 1056 + 2 * DAY, 1056 + 2 * DAY),
        ] {
            let now = wall.at(passed * 1_000_000_000, Duration::from_secs(shown));
            assert_eq!(now, seen * 1000);
        }
    }
}
