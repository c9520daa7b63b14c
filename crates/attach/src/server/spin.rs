//! Whether it pays to look again and again before waiting.
//!
//! It does when the awaited event tends to come within the span of looking: waiting costs a sleep
//! and a wake, which take as long. It does not when it comes later; then the core belongs to others.

use std::time::Duration;

use esker_base::Nanos;

/// How much is known at most: so many disappointments end it.
const MOST: u32 = 8;

/// Remembers how it went lately.
#[derive(Debug)]
pub(crate) struct Spin {
    /// How long to look before waiting.
    span: Duration,
    /// When there began to be nothing to do.
    since: Option<Nanos>,
    /// Above zero: look.
    worth: u32,
    /// It was looked in vain this time.
    in_vain: bool,
}

impl Spin {
    pub(crate) fn new(span: Duration) -> Spin {
        Spin { span, since: None, worth: 0, in_vain: false }
    }

    /// The awaited event has come.
    pub(crate) fn came(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            // A wait of up to twice the span would have been shorter without going to sleep.
            self.worth = match !self.in_vain && now - since <= self.span * 2 {
                true => (self.worth + 1).min(MOST),
                false => self.worth.saturating_sub(1),
            };
        }
        self.in_vain = false;
    }

    /// Whether to look again instead of waiting.
    pub(crate) fn is_worth_it(&mut self, now: Nanos) -> bool {
        let since = *self.since.get_or_insert(now);
        if self.worth == 0 || self.in_vain {
            return false;
        }
        if now - since > self.span {
            self.in_vain = true;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Nanos {
        Nanos(n * 1000)
    }

    #[test]
    fn looking_is_given_up_when_it_is_in_vain_and_begun_when_waits_are_short() {
        let mut spin = Spin::new(Duration::from_micros(20));
        assert!(!spin.is_worth_it(us(0)));
        spin.came(us(10));
        assert!(spin.is_worth_it(us(20)));
        assert!(spin.is_worth_it(us(39)));
        assert!(!spin.is_worth_it(us(41)));
        assert!(!spin.is_worth_it(us(42)));
        spin.came(us(5_000));
        assert!(!spin.is_worth_it(us(6_000)));
    }

    #[test]
    fn event_just_after_looking_was_given_up_does_not_count_as_short() {
        let mut spin = Spin::new(Duration::from_micros(20));
        assert!(!spin.is_worth_it(us(0)));
        spin.came(us(30));
        assert!(spin.is_worth_it(us(40)));
        assert!(!spin.is_worth_it(us(61)));
        spin.came(us(70));
        assert!(!spin.is_worth_it(us(80)));
    }

    #[test]
    fn a_span_of_nothing_never_looks() {
        let mut spin = Spin::new(Duration::ZERO);
        for at in 1..50 {
            assert!(!spin.is_worth_it(us(at * 2)));
            spin.came(us(at * 2 + 1));
        }
    }
}
