//! Whether it pays to look again and again before waiting.
//!
//! It does when what is waited for tends to come within [`SPAN`]: waiting costs a sleep and a wake,
//! which take longer. It does not when it comes later; then the core belongs to others.

use std::time::Duration;

use esker_base::Nanos;

/// How long to look before waiting.
const SPAN: Duration = Duration::from_micros(20);
/// How much is known at most: so many disappointments end it.
const MOST: u32 = 8;

/// Remembers how it went lately.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// When there began to be nothing to do.
    since: Option<Nanos>,
    /// Above zero: look.
    worth: u32,
    /// It was looked in vain this time.
    in_vain: bool,
}

impl Spin {
    /// What was waited for is there.
    pub(crate) fn came(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            // A wait that was short would have been shorter without going to sleep.
            self.worth = match now - since <= SPAN * 2 {
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
        if now - since > SPAN {
            self.in_vain = true;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_given_up_when_it_is_in_vain_and_begun_when_waits_are_short() {
        let mut spin = Spin::default();
        let us = |n: u64| Nanos(n * 1000);
        assert!(!spin.is_worth_it(us(0)));
        spin.came(us(10));
        assert!(spin.is_worth_it(us(20)));
        assert!(spin.is_worth_it(us(39)));
        assert!(!spin.is_worth_it(us(41)));
        assert!(!spin.is_worth_it(us(42)));
        spin.came(us(5_000));
        assert!(!spin.is_worth_it(us(6_000)));
    }
}
