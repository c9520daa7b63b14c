//! A fixed rate: when each operation of a thread should start.
//!
//! The schedule does not wait for the store. An operation that starts late because the one before
//! it was slow keeps its place, and its latency counts from there: nothing that a client would
//! have had to wait for is left out ("coordinated omission", Gil Tene).

use std::time::Duration;

use esker_base::{Clock, Nanos};

use crate::zipf::floor;

/// A sleeping thread wakes up to this late (timer slack and scheduling), so the end of every wait
/// is spent yielding the processor instead.
const WAKE_UP: Duration = Duration::from_micros(100);

/// The schedule of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    begin: Nanos,
    first_ns: f64,
    interval_ns: f64,
    scheduled: u64,
}

impl Pace {
    /// Thread `worker` of `workers` that together start `ops_per_s` operations a second, evenly.
    pub(crate) fn new(begin: Nanos, ops_per_s: f64, worker: usize, workers: usize) -> Pace {
        let between_all = 1e9 / ops_per_s;
        Pace {
            begin,
            first_ns: between_all * worker as f64,
            interval_ns: between_all * workers as f64,
            scheduled: 0,
        }
    }

    /// When the next operation should start.
    pub(crate) fn next_start(&self) -> Nanos {
        let after = self.first_ns + self.interval_ns * self.scheduled as f64;
        self.begin + Duration::from_nanos(floor(after))
    }

    /// The next operation has started.
    pub(crate) fn advance(&mut self) {
        self.scheduled += 1;
    }

    /// Leaves out operations that should have started before `moment` and have not.
    pub(crate) fn skip_to(&mut self, moment: Nanos) {
        if self.next_start() >= moment {
            return;
        }
        let before = moment.since(self.begin).as_nanos() as f64 - self.first_ns;
        self.scheduled = floor(before / self.interval_ns);
        while self.next_start() < moment {
            self.scheduled += 1;
        }
    }

    /// How many operations should have started before `end` and have not.
    pub(crate) fn unstarted(&self, end: Nanos) -> u64 {
        let left = end.since(self.next_start()).as_nanos() as f64;
        floor((left / self.interval_ns).ceil())
    }
}

/// Waits until `moment`, or until `give_up` says so (asked at least every 50 ms), and returns the
/// time then.
pub(crate) fn wait_until(clock: &Clock, moment: Nanos, give_up: impl Fn() -> bool) -> Nanos {
    loop {
        let now = clock.now();
        if now >= moment || give_up() {
            return now;
        }
        let left = moment - now;
        if clock.is_virtual() {
            clock.sleep(left);
        } else if left > WAKE_UP {
            clock.sleep((left - WAKE_UP).min(Duration::from_millis(50)));
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_rate_evenly() {
        let begin = Nanos(1_000);
        let mut starts: Vec<u64> = Vec::new();
        for worker in 0..4 {
            let mut pace = Pace::new(begin, 1e6, worker, 4);
            for _ in 0..3 {
                starts.push(pace.next_start().0);
                pace.advance();
            }
        }
        starts.sort_unstable();
        let expected: Vec<u64> = (0..12).map(|i| 1_000 + i * 1_000).collect();
        assert_eq!(starts, expected);
    }

    #[test]
    fn operations_the_time_limit_cut_off_are_counted() {
        let mut pace = Pace::new(Nanos(0), 1_000.0, 0, 1);
        assert_eq!(pace.unstarted(Nanos(10_000_000)), 10);
        pace.advance();
        assert_eq!(pace.unstarted(Nanos(10_000_000)), 9);
        assert_eq!(pace.unstarted(Nanos(0)), 0);
    }

    #[test]
    fn skipped_operations_leave_others_in_their_places() {
        for rate in [1_000.0, 3_000.0, 7e6] {
            for worker in 0..3 {
                let mut pace = Pace::new(Nanos(500), rate, worker, 3);
                let moment = Nanos(1_000_500);
                let mut expected = pace.clone();
                while expected.next_start() < moment {
                    expected.advance();
                }
                pace.skip_to(moment);
                assert_eq!(pace.next_start(), expected.next_start(), "{rate} {worker}");
                pace.advance();
                let next = pace.next_start();
                pace.skip_to(moment);
                assert_eq!(pace.next_start(), next, "nothing was late");
            }
        }
    }

    #[test]
    fn a_wait_ends_on_time_or_when_told() {
        let clock = Clock::virtual_time();
        assert_eq!(wait_until(&clock, Nanos(5_000), || false), Nanos(5_000));
        assert_eq!(wait_until(&clock, Nanos(9_000), || true), Nanos(5_000));
        let clock = Clock::real();
        let moment = clock.now() + Duration::from_millis(2);
        assert!(wait_until(&clock, moment, || false) >= moment);
    }
}
