//! How long a device had something to do: the time in which a command or more was in flight.

use esker_base::Clock;

use crate::sync::atomic::{AtomicU64, Ordering};

/// The time in which commands were in flight on a device. Where the first one begins at the very moment at which the
/// last one ends, that moment may count or not.
pub(crate) struct Busy {
    clock: Clock,
    in_flight: AtomicU64,
    since_ns: AtomicU64,
    before_ns: AtomicU64,
}

impl Busy {
    pub(crate) fn new(clock: &Clock) -> Busy {
        let zero = || AtomicU64::new(0);
        Busy { clock: clock.clone(), in_flight: zero(), since_ns: zero(), before_ns: zero() }
    }

    /// Notes that so many commands were submitted.
    pub(crate) fn begin(&self, commands: usize) {
        if commands > 0 && self.in_flight.fetch_add(commands as u64, Ordering::Relaxed) == 0 {
            self.since_ns.store(self.clock.now().0, Ordering::Relaxed);
        }
    }

    /// Notes that so many of them have ended.
    pub(crate) fn end(&self, commands: usize) {
        let commands = commands as u64;
        if commands > 0 && self.in_flight.fetch_sub(commands, Ordering::Relaxed) == commands {
            self.before_ns.fetch_add(self.running_ns(), Ordering::Relaxed);
        }
    }

    fn running_ns(&self) -> u64 {
        self.clock.now().0.saturating_sub(self.since_ns.load(Ordering::Relaxed))
    }

    /// All of that time, in nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        let is_busy = self.in_flight.load(Ordering::Relaxed) > 0;
        let running = if is_busy { self.running_ns() } else { 0 };
        self.before_ns.load(Ordering::Relaxed) + running
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_counts_once_however_many_commands_are_in_flight() {
        let clock = Clock::virtual_time();
        let busy = Busy::new(&clock);
        let pass = |ms| clock.advance(Duration::from_millis(ms));
        pass(1);
        busy.begin(1);
        pass(2);
        busy.begin(3);
        pass(4);
        busy.end(3);
        assert_eq!(busy.ns(), 6_000_000);
        pass(8);
        busy.end(1);
        pass(16);
        assert_eq!(busy.ns(), 14_000_000);
    }
}
