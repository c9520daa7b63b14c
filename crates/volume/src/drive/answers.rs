//! Whether a drive answers what it is asked, and whether the pool can do without it.
//!
//! A drive is *silent* while it has commands and answers none, and it *refuses* while its commands end because it is not
//! there. Either way it is in doubt, and the other drives are asked something. It is taken out once its time is over, if
//! the others answer meanwhile and have all that it has. Where they do not, nothing is taken out: what is asked of it
//! waits until it returns.

use std::time::Duration;

use esker_base::Nanos;
use esker_base::silence::{Given, Silence};
use esker_base::sync::Mutex;

use crate::drive::fleet::{Drive, Fleet};
use crate::omf::label::Role;
use crate::types::id::DriveIndex;

/// The longest that a drive may refuse before it is taken out.
const REFUSING: Duration = Duration::from_millis(250);

/// The answers of a drive; moments are those of the fleet's `watch`.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    silence: Silence,
    last: Nanos,
    /// Since when it refuses, and its words; and when it did last.
    refusal: Option<(Nanos, String)>,
    refused: Nanos,
    /// Since when the others are asked whether they answer.
    doubted: Option<Nanos>,
    /// When it was last waited for because others did not answer either.
    waited: Option<Nanos>,
}

/// A drive that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswering {
    /// For how long.
    pub span: Duration,
    /// The error with which it refuses; none if it is silent.
    pub words: Option<String>,
}

impl Answers {
    /// A command is given to it.
    pub(crate) fn give(&self, now: Nanos) -> Given {
        self.0.lock().silence.give(now)
    }

    /// It answered so many commands.
    pub(crate) fn answer(&self, now: Nanos, count: usize) {
        let state = &mut *self.0.lock();
        (0..count).for_each(|_| state.silence.answer(now));
        (state.last, state.refusal) = (now, None);
        (state.doubted, state.waited) = (None, None);
    }

    /// A command could not be given to it, or ended because it is not there.
    pub(crate) fn refuse(&self, now: Nanos, was_given: bool, words: String) {
        let state = &mut *self.0.lock();
        if was_given {
            state.silence.answer(now);
        }
        state.refusal.get_or_insert((now, words));
        state.refused = now;
        state.doubted.get_or_insert(now);
    }

    /// Nothing was answered for half of the patience.
    pub(crate) fn doubt(&self, now: Nanos) {
        self.0.lock().doubted.get_or_insert(now);
    }

    pub(crate) fn doubted(&self) -> Option<Nanos> {
        self.0.lock().doubted
    }

    /// For how long it has answered nothing.
    pub(crate) fn silence(&self, now: Nanos) -> Duration {
        self.0.lock().silence.lasts(now)
    }

    pub(crate) fn has_lost(
        &self,
        given: Given,
        now: Nanos,
        patience: Duration,
        depth: usize,
    ) -> bool {
        self.0.lock().silence.has_lost(given, now, patience, depth)
    }

    /// Whether it has answered anything since then.
    pub(crate) fn has_since(&self, then: Nanos) -> bool {
        self.0.lock().last >= then
    }

    pub(crate) fn refuses(&self) -> bool {
        self.0.lock().refusal.is_some()
    }

    /// The words of a drive that has refused for as long as one may, and still did after a moment.
    pub(crate) fn refused(
        &self,
        after: Option<Nanos>,
        now: Nanos,
        patience: Duration,
    ) -> Option<String> {
        let state = self.0.lock();
        let (since, words) = state.refusal.as_ref()?;
        let is_over = now.since(*since) >= REFUSING.min(patience / 4);
        (is_over && after.is_none_or(|after| state.refused > after)).then(|| words.clone())
    }

    /// How it does not answer, if it does not.
    pub(crate) fn missing(&self, now: Nanos) -> Option<Unanswering> {
        let state = self.0.lock();
        state.doubted?;
        let (span, words) = match &state.refusal {
            Some((since, words)) => (now.since(*since), Some(words.clone())),
            None => (state.silence.lasts(now), None),
        };
        Some(Unanswering { span, words })
    }
}

/// The drives that a pool can do without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spare {
    /// So many of those that serve may go, and every block can be computed.
    pub(crate) drives: usize,
    /// Drives that served, and that counted for the majority, when that was found out.
    pub(crate) serving: usize,
    pub(crate) voters: usize,
    /// The copies of the write buffer.
    pub(crate) log: Vec<DriveIndex>,
}

impl Fleet {
    /// Whether a drive can be taken out at this moment: the others have answered since then, and have what it has. One that
    /// was waited for with others has as long as the patience when those return.
    pub(crate) fn spares(&self, drive: &Drive, since: Nanos, now: Nanos) -> bool {
        if self.has_others(drive, since) {
            let waited = drive.answers.0.lock().waited;
            return waited.is_none_or(|waited| now.since(waited) >= self.patience);
        }
        let all = self.unanswering();
        if all.len() > 1 {
            for (index, _) in all {
                self.any(index).inspect(|drive| drive.answers.0.lock().waited = Some(now));
            }
        }
        false
    }

    /// Whether the others have answered since then, and have what a drive has.
    fn has_others(&self, drive: &Drive, since: Nanos) -> bool {
        let spare = self.spare.lock();
        let answers = |other: &Drive| !other.is_out() && other.answers.has_since(since);
        let has_copy = |index: &DriveIndex| {
            *index != drive.index && self.any(*index).is_some_and(|other| answers(&other))
        };
        if spare.log.contains(&drive.index) && !spare.log.iter().any(has_copy) {
            return false;
        }
        if drive.role == Role::Buffer {
            return true;
        }
        let serving = self.serving(Role::Drive);
        let answering =
            serving.iter().filter(|other| other.index != drive.index && answers(other)).count();
        let gone = serving.len().max(spare.serving) - answering;
        gone <= spare.drives && 2 * answering >= spare.voters
    }

    /// Those that have answered nothing for so long, each time that is over.
    pub(crate) fn idle(&self, span: Duration) -> Vec<DriveIndex> {
        let now = self.watch.now();
        let called = &mut *self.called.lock();
        if now.since(*called) < span {
            return Vec::new();
        }
        *called = now;
        let all = [Role::Buffer, Role::Drive].into_iter().flat_map(|role| self.serving(role));
        let idle = all.filter(|drive| now.since(drive.answers.0.lock().last) >= span);
        idle.map(|drive| drive.index).collect()
    }

    /// Those that do not answer, and are waited for.
    pub(crate) fn unanswering(&self) -> Vec<(DriveIndex, Unanswering)> {
        let now = self.watch.now();
        let serving = [Role::Buffer, Role::Drive].into_iter().flat_map(|role| self.serving(role));
        serving.filter_map(|drive| Some((drive.index, drive.answers.missing(now)?))).collect()
    }
}
