//! Time, as a value that is passed in.
//!
//! A [`Clock`] is *real*, *dilated* (its time passes `factor` times slower than real time, so that
//! two cores can stand for a big server) or *virtual* (it stands still until told to advance).

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::units::to_nanos;

/// A moment, in nanoseconds since its clock began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, span: Duration) -> Nanos {
        Nanos(self.0.saturating_add(to_nanos(span)))
    }
}

impl Sub for Nanos {
    type Output = Duration;
    fn sub(self, earlier: Nanos) -> Duration {
        self.since(earlier)
    }
}

/// A source of time, cheap to clone; clones tell the same time.
#[derive(Clone)]
pub struct Clock(Arc<Kind>);

enum Kind {
    Real {
        origin: Instant,
    },
    /// `unix` is the wall clock's time at the origin.
    Dilated {
        origin: Instant,
        unix: Duration,
        factor: u32,
    },
    Virtual {
        now: AtomicU64,
    },
}

impl Clock {
    /// Monotonic real time, from zero.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // the one place that asks the operating system
    pub fn real() -> Clock {
        Clock(Arc::new(Kind::Real { origin: Instant::now() }))
    }

    /// Real time divided by `factor`: a span of one second on this clock takes `factor` real ones.
    ///
    /// # Panics
    /// If `factor` is zero.
    #[must_use]
    #[allow(clippy::disallowed_methods)]
    pub fn dilated(factor: u32) -> Clock {
        assert!(factor > 0, "a clock cannot be dilated by zero");
        Clock(Arc::new(Kind::Dilated { origin: Instant::now(), unix: unix_time(), factor }))
    }

    /// A clock that stands at zero until [`Clock::advance`].
    #[must_use]
    pub fn virtual_time() -> Clock {
        Clock(Arc::new(Kind::Virtual { now: AtomicU64::new(0) }))
    }

    /// This moment.
    #[must_use]
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> Nanos {
        let nanos = |origin: &Instant| to_nanos(origin.elapsed());
        Nanos(match &*self.0 {
            Kind::Real { origin } => nanos(origin),
            Kind::Dilated { origin, factor, .. } => nanos(origin) / u64::from(*factor),
            Kind::Virtual { now } => now.load(Ordering::Acquire),
        })
    }

    /// The wall clock as this clock has it: time since 1970-01-01 UTC. It outlives the process, and
    /// may be set back. A dilated clock's goes on from the real one at its own pace; a virtual clock
    /// begins in 1970.
    #[must_use]
    pub fn unix_time(&self) -> Duration {
        match &*self.0 {
            Kind::Real { .. } => unix_time(),
            Kind::Dilated { unix, .. } => *unix + self.now().since(Nanos(0)),
            Kind::Virtual { .. } => self.now().since(Nanos(0)),
        }
    }

    /// Lets `span` pass: blocks the thread, or moves a virtual clock.
    #[allow(clippy::disallowed_methods)]
    pub fn sleep(&self, span: Duration) {
        match &*self.0 {
            Kind::Real { .. } => std::thread::sleep(span),
            Kind::Dilated { factor, .. } => std::thread::sleep(span * *factor),
            Kind::Virtual { .. } => self.advance(span),
        }
    }

    /// Moves a virtual clock forward; the others move by themselves and ignore it.
    pub fn advance(&self, span: Duration) {
        if let Kind::Virtual { now } = &*self.0 {
            now.fetch_add(to_nanos(span), Ordering::AcqRel);
        }
    }

    /// Whether this clock moves only when told to.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(&*self.0, Kind::Virtual { .. })
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.0 {
            Kind::Real { .. } => "real",
            Kind::Dilated { .. } => "dilated",
            Kind::Virtual { .. } => "virtual",
        };
        write!(f, "Clock({kind}, {:?})", self.now())
    }
}

/// The wall clock: time since 1970-01-01 UTC. For names, seeds, reports and moments that outlive the
/// process, never for intervals.
#[must_use]
#[allow(clippy::disallowed_methods)]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_when_told() {
        let clock = Clock::virtual_time();
        assert_eq!(clock.now(), Nanos(0));
        clock.sleep(Duration::from_millis(3));
        clock.clone().advance(Duration::from_nanos(1));
        assert_eq!(clock.now(), Nanos(3_000_001));
    }

    #[test]
    fn a_virtual_clock_begins_in_1970_and_a_real_one_now() {
        let clock = Clock::virtual_time();
        clock.advance(Duration::from_secs(3));
        assert_eq!(clock.unix_time(), Duration::from_secs(3));
        let (before, slow) = (unix_time(), Clock::dilated(1000));
        assert!(Clock::real().unix_time() >= before && slow.unix_time() >= before);
    }

    #[test]
    fn a_dilated_clock_is_slower_than_a_real_one() {
        let (real, slow) = (Clock::real(), Clock::dilated(100));
        real.sleep(Duration::from_millis(5));
        assert!(slow.now() - Nanos(0) < (real.now() - Nanos(0)) / 10);
    }
}
