//! How an emulation's time passes.

use std::time::Duration;

use esker_base::Clock;

/// A sleeping thread may be woken so much late (timer slack, scheduler): the rest is spun.
const LATE_NS: u32 = 200_000;

/// How time passes: not at all, as it does, slower, or from event to event. Clones share one clock.
#[derive(Clone, Debug)]
pub struct Pace {
    clock: Option<Clock>,
    spin: Duration,
}

impl Pace {
    /// Time is not modelled: commands complete within `submit`. What they did is counted.
    #[must_use]
    pub fn untimed() -> Pace {
        Pace { clock: None, spin: Duration::ZERO }
    }

    /// Commands take the time that the model says.
    #[must_use]
    pub fn real() -> Pace {
        Pace::dilated(1)
    }

    /// Commands take `factor` times as long.
    ///
    /// # Panics
    /// If `factor` is zero.
    #[must_use]
    pub fn dilated(factor: u32) -> Pace {
        let spin = Duration::from_nanos(u64::from(LATE_NS.div_ceil(factor)));
        let clock = if factor == 1 { Clock::real() } else { Clock::dilated(factor) };
        Pace { clock: Some(clock), spin }
    }

    /// Time stands still until somebody waits, and then passes at once. The clock is virtual and
    /// may be shared with other models and with the code that uses them; one thread at a time may
    /// wait on it.
    ///
    /// # Panics
    /// If the clock is not virtual.
    #[must_use]
    pub fn virtual_time(clock: Clock) -> Pace {
        assert!(clock.is_virtual(), "a clock that moves by itself needs a real or dilated pace");
        Pace { clock: Some(clock), spin: Duration::ZERO }
    }

    /// The clock; none when time is not modelled.
    #[must_use]
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// How long before an event a thread must stop sleeping to be in time for it, on the clock.
    pub(super) fn spin(&self) -> Duration {
        self.spin
    }
}
