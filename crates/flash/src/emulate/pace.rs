//! How an emulation's time passes.

use std::time::Duration;

use esker_base::Clock;

/// How time passes: not at all, as it does, slower, or from event to event. Clones share one clock.
#[derive(Clone, Debug)]
pub struct Pace {
    clock: Option<Clock>,
    /// How many real nanoseconds one of the clock takes.
    factor: u32,
}

impl Pace {
    /// Time is not modelled: commands complete within `submit`. Their work is counted.
    #[must_use]
    pub fn untimed() -> Pace {
        Pace { clock: None, factor: 1 }
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
        let clock = if factor == 1 { Clock::real() } else { Clock::dilated(factor) };
        Pace { clock: Some(clock), factor }
    }

    /// Time stands still until a thread waits, and then passes at once. The clock is virtual and
    /// may be shared with other models and with the code that uses them; one thread at a time may
    /// wait on it.
    ///
    /// # Panics
    /// If the clock is not virtual.
    #[must_use]
    pub fn virtual_time(clock: Clock) -> Pace {
        assert!(clock.is_virtual(), "a clock that moves by itself needs a real or dilated pace");
        Pace { clock: Some(clock), factor: 1 }
    }

    /// The clock; none when time is not modelled.
    #[must_use]
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// How many times slower than real time the clock is.
    pub(super) fn factor(&self) -> u32 {
        self.factor
    }

    /// The real time that a span on the clock takes.
    pub(super) fn in_real_time(&self, span: Duration) -> Duration {
        span.saturating_mul(self.factor)
    }
}
