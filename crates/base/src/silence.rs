//! Waiting by progress: a device or target that answers is slow, and one that answers nothing is silent.
//!
//! The age of a command tells neither: under a deep queue a slow device takes its time for each. So a waiter asks how
//! long *nothing* was answered ([`Silence::lasts`]), and, since a command may be lost while others are answered, whether
//! so many were answered since that this one never will be ([`Silence::has_lost`]).

use std::time::Duration;

use crate::Nanos;

/// A command is lost when so many times the queue's depth were answered after it was given.
const PASSED: u64 = 16;

/// The commands of one device, target or connection: how many it was given, and when it answered last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// The last answer, or when it was given a command while it had none.
    since: Nanos,
    given: u64,
    answered: u64,
}

/// A command that was given: when, and after how many answers.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The moment.
    pub at: Nanos,
    /// Commands that were answered until then.
    answered: u64,
}

impl Silence {
    /// A command was given.
    pub fn give(&mut self, now: Nanos) -> Given {
        if self.given == self.answered {
            self.since = now;
        }
        self.given += 1;
        Given { at: now, answered: self.answered }
    }

    /// A command was answered, with success or an error.
    pub fn answer(&mut self, now: Nanos) {
        debug_assert!(self.answered < self.given, "an answer to nothing");
        self.answered += 1;
        self.since = now;
    }

    /// A command was taken back: it has no answer, and nobody waits for one.
    pub fn take_back(&mut self) {
        debug_assert!(self.answered < self.given, "nothing to take back");
        self.given -= 1;
    }

    /// The time for which commands were there and none was answered; zero when there are none.
    #[must_use]
    pub fn lasts(&self, now: Nanos) -> Duration {
        if self.given == self.answered { Duration::ZERO } else { now.since(self.since) }
    }

    /// Whether this command is lost: older than `patience`, and passed over by 16 times `depth`.
    #[must_use]
    pub fn has_lost(&self, given: Given, now: Nanos, patience: Duration, depth: usize) -> bool {
        let passed = self.answered - given.answered;
        let most = PASSED.saturating_mul(u64::try_from(depth).unwrap_or(u64::MAX));
        now.since(given.at) >= patience && passed >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn secs(count: u64) -> Nanos {
        Nanos(0) + SECOND * u32::try_from(count).unwrap()
    }

    #[test]
    fn silence_lasts_from_the_last_answer_or_the_first_command() {
        let mut silence = Silence::default();
        assert_eq!(silence.lasts(secs(100)), Duration::ZERO, "nothing was asked");
        silence.give(secs(100));
        silence.give(secs(105));
        assert_eq!(silence.lasts(secs(110)), SECOND * 10);
        silence.answer(secs(110));
        assert_eq!(silence.lasts(secs(112)), SECOND * 2, "one is left");
        silence.answer(secs(112));
        assert_eq!(silence.lasts(secs(200)), Duration::ZERO, "none is left");
        silence.give(secs(200));
        assert_eq!(silence.lasts(secs(201)), SECOND, "idle time is not silence");
    }

    #[test]
    fn command_that_was_taken_back_is_neither_waited_for_nor_answered() {
        let mut silence = Silence::default();
        silence.give(secs(0));
        silence.give(secs(5));
        silence.take_back();
        assert_eq!(silence.lasts(secs(10)), SECOND * 10);
        silence.take_back();
        assert_eq!(silence.lasts(secs(10)), Duration::ZERO);
    }

    #[test]
    fn slow_device_under_a_deep_queue_is_never_silent() {
        let mut silence = Silence::default();
        let given: Vec<Given> = (0..128).map(|_| silence.give(secs(0))).collect();
        for (second, given) in (1..).zip(given) {
            assert!(silence.lasts(secs(second)) <= SECOND);
            assert!(!silence.has_lost(given, secs(second), SECOND, 128));
            silence.answer(secs(second));
        }
    }

    #[test]
    fn command_that_all_others_pass_is_lost() {
        let mut silence = Silence::default();
        let lost = silence.give(secs(0));
        for second in 1..=64 {
            assert!(!silence.has_lost(lost, secs(second), SECOND, 4), "{second}");
            silence.give(secs(second));
            silence.answer(secs(second));
        }
        assert!(silence.has_lost(lost, secs(64), SECOND, 4));
        assert!(!silence.has_lost(lost, secs(64), SECOND * 65, 4), "patience is not over");
    }
}
