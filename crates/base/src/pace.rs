//! Limits of operations and bytes a second.
//!
//! Each limit is a moment up to which what was let through is paid for. Something is let through when that moment is
//! not more than a burst ahead of now, and moves it on by what it costs; so over any span the rate is exact, but for
//! one burst and one command.

use std::time::Duration;

use crate::Nanos;

/// The burst that may come at once after a pause, as time.
const BURST_NS: u64 = 10_000_000;

/// The most a second. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How far something with a limit is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    operations_paid_ns: u64,
    bytes_paid_ns: u64,
}

impl Pace {
    /// Lets so many operations and bytes through, and says how long they have to wait.
    pub fn pass(&mut self, rate: Rate, now: Nanos, operations: u64, bytes: u64) -> Duration {
        let operations = pay(&mut self.operations_paid_ns, now, operations, rate.operations);
        let bytes = pay(&mut self.bytes_paid_ns, now, bytes, rate.bytes);
        operations.max(bytes)
    }
}

fn pay(paid_ns: &mut u64, now: Nanos, amount: u64, limit: u64) -> Duration {
    if limit == 0 {
        return Duration::ZERO;
    }
    let start = (*paid_ns).max(now.0.saturating_sub(BURST_NS));
    let cost = u128::from(amount) * 1_000_000_000 / u128::from(limit);
    *paid_ns = start.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
    Duration::from_nanos(start.saturating_sub(now.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_exact_over_ten_seconds() {
        let rate = Rate { operations: 1000, bytes: 0 };
        let (mut pace, mut now, mut operations) = (Pace::default(), Nanos(5_000_000_000), 0_u64);
        let end = now + Duration::from_secs(10);
        while now < end {
            now = now + pace.pass(rate, now, 4, 1 << 20);
            operations += 4;
        }
        assert!((9_990..=10_030).contains(&operations), "{operations}");
    }

    #[test]
    fn the_tighter_limit_holds() {
        let rate = Rate { operations: 1_000_000, bytes: 4096 * 100 };
        let (mut pace, mut now, mut blocks) = (Pace::default(), Nanos(0), 0_u64);
        while now < Nanos(10_000_000_000) {
            now = now + pace.pass(rate, now, 1, 4096);
            blocks += 1;
        }
        assert!((998..=1003).contains(&blocks), "{blocks}");
        assert_eq!(pace.pass(Rate::default(), now, 1 << 40, 1 << 50), Duration::ZERO);
    }
}
