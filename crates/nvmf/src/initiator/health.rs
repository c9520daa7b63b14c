//! Whether a path is worth a try: how often it has failed since a command last succeeded over it,
//! and until when it rests.
//!
//! Connecting proves nothing: a path whose commands fail connects as well as any. So a failure
//! makes it rest, twice as long each time up to a bound, and nothing but a command that succeeds
//! makes it as good as new.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::sync::Mutex;
use esker_base::{Nanos, Rng};

use super::config::InitiatorConfig;
use crate::socket::random;

/// The longest rest, unless `retry` is longer.
const MOST: Duration = Duration::from_secs(2);
/// At least so many attempts fit into the time after which commands give up.
const ATTEMPTS: u32 = 4;

/// How long paths rest.
pub(crate) struct Pauses {
    first: Duration,
    most: Duration,
    /// Hosts that lost the same target do not all come back at the same moments.
    rng: Mutex<Rng>,
}

impl Pauses {
    pub(crate) fn new(config: &InitiatorConfig) -> Pauses {
        let mut seed = [0; 8];
        // The host's identity is random, too, if the system has no more random numbers.
        if random(&mut seed).is_err() {
            seed.copy_from_slice(&config.host_id[..8]);
        }
        let first = config.retry.max(Duration::from_millis(1));
        let most = MOST.min(config.give_up / ATTEMPTS).max(first);
        Pauses { first, most, rng: Mutex::new(Rng::new(u64::from_le_bytes(seed))) }
    }

    /// The rest after so many failures: between half of it and all of it.
    fn after(&self, failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.most);
        let half_ns = u64::try_from(whole.as_nanos() / 2).unwrap_or(u64::MAX);
        whole / 2 + Duration::from_nanos(self.rng.lock().below(half_ns.saturating_add(1)))
    }
}

/// The health of a path.
#[derive(Default)]
pub(crate) struct Health {
    failures: AtomicU32,
    rests_until_ns: AtomicU64,
    why: Mutex<String>,
}

impl Health {
    /// It has failed. Failures while it rests are those of commands that were under way: they
    /// count as one.
    pub(crate) fn failed(&self, now: Nanos, pauses: &Pauses, why: &dyn fmt::Display) {
        let mut reason = self.why.lock();
        if self.rests(now) {
            return;
        }
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        *reason = why.to_string();
        self.failures.store(failures, Ordering::Relaxed);
        let until = now + pauses.after(failures);
        self.rests_until_ns.store(until.0, Ordering::Relaxed);
    }

    /// A command has succeeded.
    pub(crate) fn works(&self) {
        if self.has_failed() {
            self.failures.store(0, Ordering::Relaxed);
            self.rests_until_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Whether it has failed since a command last succeeded.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    /// Whether it is not to be tried now.
    pub(crate) fn rests(&self, now: Nanos) -> bool {
        now.0 < self.rests_until_ns.load(Ordering::Relaxed)
    }

    /// How often it has failed, and why the last time; `None` when it is well.
    pub(crate) fn remark(&self) -> Option<String> {
        let failures = self.failures.load(Ordering::Relaxed);
        let times = if failures == 1 { "once" } else { "times" };
        let count = if failures == 1 { times.to_owned() } else { format!("{failures} {times}") };
        (failures > 0).then(|| format!("has failed {count} without success: {}", self.why.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Nanos {
        Nanos(count * 1_000_000)
    }

    fn pauses() -> Pauses {
        let at = "127.0.0.1:4420".parse().unwrap();
        let config = InitiatorConfig::new(vec![at], "nqn.2026-01.io.esker:test", 1).unwrap();
        Pauses::new(&InitiatorConfig { retry: Duration::from_millis(100), ..config })
    }

    #[test]
    fn rest_doubles_with_each_failure_up_to_a_bound() {
        let (pauses, health) = (pauses(), Health::default());
        let mut now = ms(0);
        for most_ms in [100, 200, 400, 800, 1600, 2000, 2000, 2000] {
            assert!(!health.rests(now));
            health.failed(now, &pauses, &"broken");
            let most = Duration::from_millis(most_ms);
            assert!(health.rests(now + (most / 2 - Duration::from_millis(1))), "{most:?}");
            assert!(!health.rests(now + most), "{most:?}");
            now = now + most;
        }
        for _ in 0..100 {
            health.failed(now, &pauses, &"broken");
            now = now + Duration::from_secs(3);
        }
        assert!(health.remark().unwrap().contains("108 times"), "{:?}", health.remark());
    }

    #[test]
    fn success_makes_it_as_good_as_new() {
        let (pauses, health) = (pauses(), Health::default());
        for second in 0..5 {
            health.failed(ms(second * 10_000), &pauses, &"broken");
        }
        health.works();
        assert!(!health.rests(ms(40_000)) && health.remark().is_none());
        health.failed(ms(40_000), &pauses, &"broken");
        assert!(!health.rests(ms(40_100)));
    }

    #[test]
    fn failures_of_commands_that_were_under_way_together_count_once() {
        let (pauses, health) = (pauses(), Health::default());
        (0..100).for_each(|_| health.failed(ms(1), &pauses, &"broken"));
        assert!(health.remark().unwrap().contains("failed once"), "{:?}", health.remark());
    }
}
