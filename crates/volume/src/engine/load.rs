//! How much volumes are used, and how much of the drives' time is left to what can wait: rebuilds and scrubs.
//!
//! A share of the time, which shrinks while commands of volumes take longer beside that work than without it, and grows
//! again while they do not.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::to_nanos;

/// Volumes are in use for so long after a command.
const LINGER: Duration = Duration::from_millis(200);
/// The largest share, in thousandths.
const SHARE_MOST: u64 = 1000;
/// More urgent maintenance takes so much time before what waits is looked at.
const TURN: Duration = Duration::from_millis(20);
/// The least share that may be set, and the most, in percent.
const PERCENTS: std::ops::RangeInclusive<u8> = 1..=90;
/// A latency of volumes beside the work, as a part of that without it, up to which its share grows: in percent.
const TOLERATED: u64 = 120;

/// The load, as far as it is known; times in nanoseconds.
#[derive(Debug)]
pub(crate) struct Load {
    /// When a command of a volume ended last; 0 for never.
    last: AtomicU64,
    /// Pieces of work that can wait, begun and ended: odd while one is under way.
    turns: AtomicU32,
    /// Moving averages of the latency of commands, beside such work and without it.
    beside: AtomicU64,
    without: AtomicU64,
    share: AtomicU64,
    /// The least share, so that the work ends; in thousandths.
    least: AtomicU64,
    /// When such work may go on.
    not_before: AtomicU64,
    /// The time that went to such work, and to maintenance that is more urgent, since there is some that waits.
    behind: AtomicU64,
    ahead: AtomicU64,
}

impl Load {
    /// No load; such work gets so many percent at least.
    pub(crate) fn new(percent: u8) -> Load {
        let zero = AtomicU64::default;
        let load = Load {
            last: zero(),
            turns: AtomicU32::default(),
            beside: zero(),
            without: zero(),
            share: AtomicU64::new(SHARE_MOST),
            least: zero(),
            not_before: zero(),
            behind: zero(),
            ahead: zero(),
        };
        load.set_least(percent);
        load
    }

    /// Such work gets so many percent at least.
    pub(crate) fn set_least(&self, percent: u8) {
        let percent = percent.clamp(*PERCENTS.start(), *PERCENTS.end());
        self.least.store(u64::from(percent) * 10, Ordering::Relaxed);
    }

    /// The share that such work gets at least, in percent.
    pub(crate) fn least(&self) -> u8 {
        u8::try_from(self.least.load(Ordering::Relaxed) / 10).unwrap_or(u8::MAX)
    }

    /// Whether more urgent maintenance has taken so much time that the next turn belongs to what waits.
    pub(crate) fn owes(&self) -> bool {
        let get = |time: &AtomicU64| time.load(Ordering::Relaxed);
        let (behind, ahead) = (get(&self.behind), get(&self.ahead));
        ahead >= to_nanos(TURN) && behind * SHARE_MOST < (behind + ahead) * get(&self.least)
    }

    /// Work that waits had a turn of this time; or had nothing to do, and is owed nothing then.
    pub(crate) fn had_turn(&self, took: Duration, is_some: bool) {
        if is_some {
            self.behind.fetch_add(to_nanos(took), Ordering::Relaxed);
        } else {
            self.behind.store(0, Ordering::Relaxed);
            self.ahead.store(0, Ordering::Relaxed);
        }
    }

    /// More urgent maintenance took this time; time that is long past counts less.
    pub(crate) fn went_ahead(&self, took: Duration) {
        for (time, more) in [(&self.behind, 0), (&self.ahead, to_nanos(took))] {
            let old = time.load(Ordering::Relaxed);
            time.store(old - old / 32 + more, Ordering::Relaxed);
        }
    }
}

/// When a command of a volume began, and beside which work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: u64,
    turn: u32,
}

impl Load {
    /// A command of a volume begins.
    pub(crate) fn begin(&self, clock: &Clock) -> Begun {
        Begun { at: clock.now().0, turn: self.turns.load(Ordering::Relaxed) }
    }

    /// A command of a volume ended.
    pub(crate) fn end(&self, clock: &Clock, begun: Begun) {
        let (Begun { at: start, turn }, end) = (begun, clock.now().0.max(1));
        let is_beside = turn % 2 == 1 || turn != self.turns.load(Ordering::Relaxed);
        let average = if is_beside { &self.beside } else { &self.without };
        let (old, new) = (average.load(Ordering::Relaxed), end.saturating_sub(start));
        let next = if old == 0 { new } else { old - old / 16 + new / 16 };
        average.store(next, Ordering::Relaxed);
        self.last.store(end, Ordering::Relaxed);
    }

    /// Whether volumes are in use.
    pub(crate) fn is_busy(&self, clock: &Clock) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last > 0 && clock.now().0.saturating_sub(last) < to_nanos(LINGER)
    }

    /// Runs a piece of work that can wait, and says when the next one may begin. Where there was none to do, nothing is
    /// waited for: the caller would look again at once, and again.
    pub(crate) fn run_behind<E>(
        &self,
        clock: &Clock,
        work: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let start = clock.now();
        self.turns.fetch_add(1, Ordering::Relaxed);
        let done = work();
        self.turns.fetch_add(1, Ordering::Relaxed);
        let end = clock.now();
        if matches!(done, Ok(false)) {
            self.not_before.store(0, Ordering::Relaxed);
            return done;
        }
        let share = self.next_share(clock);
        let rest = (end.0.saturating_sub(start.0)).saturating_mul(SHARE_MOST - share) / share;
        self.not_before.store(end.0.saturating_add(rest), Ordering::Relaxed);
        done
    }

    fn next_share(&self, clock: &Clock) -> u64 {
        if !self.is_busy(clock) {
            return SHARE_MOST; // what it was when volumes were in use is kept
        }
        let get = |average: &AtomicU64| average.load(Ordering::Relaxed);
        let (beside, without, share) = (get(&self.beside), get(&self.without), get(&self.share));
        let is_slowed = without > 0 && beside > without.saturating_mul(TOLERATED) / 100;
        let next = if is_slowed { share * 7 / 10 } else { share + share / 20 + 1 };
        let next = next.clamp(get(&self.least), SHARE_MOST);
        self.share.store(next, Ordering::Relaxed);
        next
    }

    /// How long such work has to wait.
    pub(crate) fn wait(&self, clock: &Clock) -> Duration {
        let not_before = self.not_before.load(Ordering::Relaxed);
        Duration::from_nanos(not_before.saturating_sub(clock.now().0))
    }

    /// The share that such work has now, in thousandths.
    pub(crate) fn share(&self, clock: &Clock) -> u64 {
        match self.is_busy(clock) {
            true => self.share.load(Ordering::Relaxed),
            false => SHARE_MOST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_waits_gets_its_share_of_the_turns() {
        for percent in [1, 20, 90] {
            let load = Load::new(percent);
            let (mut behind, mut all) = (0u32, 0u32);
            for _ in 0..20_000 {
                all += 1;
                if load.owes() {
                    behind += 1;
                    load.had_turn(Duration::from_millis(5), true);
                } else {
                    load.went_ahead(Duration::from_millis(5));
                }
            }
            let share = f64::from(behind) * 100.0 / f64::from(all);
            assert!((share - f64::from(percent)).abs() < 6.0, "{percent} %: {share}");
        }
    }

    #[test]
    fn nothing_to_do_makes_nobody_wait() {
        let (clock, load) = (Clock::virtual_time(), Load::new(5));
        clock.advance(Duration::from_secs(1));
        let work = |is_some| {
            load.end(&clock, load.begin(&clock));
            load.share.store(50, Ordering::Relaxed);
            load.run_behind(&clock, || {
                clock.advance(Duration::from_micros(5));
                Ok::<bool, ()>(is_some)
            })
        };
        assert_eq!(work(true), Ok(true));
        assert!(load.wait(&clock) > Duration::from_micros(50));
        assert_eq!(work(false), Ok(false));
        assert_eq!(load.wait(&clock), Duration::ZERO);
    }
}
