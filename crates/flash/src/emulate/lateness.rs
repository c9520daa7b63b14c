//! How late sleeps end on this machine, and how much of a wait is spun therefore.
//!
//! A sleeping thread is woken some microseconds after the moment it asked for: by the slack of its
//! timer, by the way back onto a processor, by others who run there. The rest of a wait, when the thread wakes early
//! enough, is spun. Where time is dilated, a delay shrinks with the factor on the model's clock, and spinning for it
//! costs more than it is worth.

use std::time::Duration;

/// No sleep is cut short by more than this, in real time.
const MOST: Duration = Duration::from_micros(200);
/// Harmless lateness of a sleep on a dilated clock, in real time, for each time by which that is slower.
const HARMLESS: Duration = Duration::from_micros(25);
/// A mean covers about as many sleeps as this.
const MEMORY: u32 = 64;
/// Nearly all sleeps end within so many times the mean delay.
const TAIL: u32 = 4;

/// Delays of sleeps that were seen.
#[derive(Clone, Debug)]
pub(super) struct Lateness {
    harmless: Duration,
    mean: Duration,
}

impl Lateness {
    /// For sleeps on a clock that is `factor` times slower than real time.
    pub(super) fn new(factor: u32) -> Lateness {
        // The kernel's default slack, until something is seen.
        Lateness { harmless: HARMLESS * (factor - 1), mean: MOST / TAIL }
    }

    /// A sleep ended so late, in real time.
    pub(super) fn saw(&mut self, late: Duration) {
        // A thread that was away for long tells of its processor's load, not of timers.
        let late = late.min(MOST);
        self.mean = (self.mean * (MEMORY - 1) + late) / MEMORY;
    }

    /// How much earlier than needed a sleep is to end, in real time; the rest is spun.
    pub(super) fn spin(&self) -> Duration {
        (self.mean * TAIL).min(MOST).saturating_sub(self.harmless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_spun_as_far_as_sleeps_were_late_and_the_clock_is_fast() {
        let after = |factor: u32, late: u64| {
            let mut lateness = Lateness::new(factor);
            (0..1000).for_each(|_| lateness.saw(Duration::from_micros(late)));
            lateness.spin().as_micros()
        };
        assert_eq!(Lateness::new(1).spin(), MOST);
        assert!((36..=44).contains(&after(1, 10)), "{}", after(1, 10));
        assert_eq!((after(1, 0), after(2, 0)), (0, 0));
        assert_eq!(after(1, 5_000), 200);
        assert!(after(3, 20) < after(1, 20));
        assert_eq!([after(3, 10), after(12, 60), after(48, 5_000)], [0, 0, 0]);
    }
}
