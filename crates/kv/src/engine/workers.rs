//! The workers of the second lane of maintenance. The first one runs steps of all kinds; a helper runs steps of leaves
//! beside it for as long as that pays.

use std::time::Duration;

use esker_base::Nanos;

use crate::sync::Mutex;

/// A worker of the second lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    First,
    Helper,
}

impl Worker {
    pub(crate) const ALL: [Worker; 2] = [Worker::First, Worker::Helper];
}

/// How much was done since the KVDB was opened.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Bytes that maintenance has written.
    pub(crate) maintained: u64,
    /// Operations of users.
    pub(crate) served: u64,
}

/// Finds out by trying whether a helper pays: while the first worker has no pause, periods with a helper alternate with
/// periods without one, rarely once both are known.
#[derive(Default)]
pub(crate) struct Trial(Mutex<Periods>);

#[derive(Default)]
struct Periods {
    /// Whether the present one is with a helper.
    helps: bool,
    /// When it began, and the work done by then.
    began: Option<(Nanos, Progress)>,
    /// The progress a second of the last ones without and with a helper.
    known: [Option<Progress>; 2],
    /// Periods until the other way is tried again.
    left: u32,
}

/// How long a period is: several steps.
const PERIOD: Duration = Duration::from_secs(2);

/// So many periods after a trial the other way is tried again.
const AGAIN: u32 = 15;

impl Trial {
    /// Whether a helper is to work now. `is_behind` says whether the first worker has had no pause lately.
    pub(crate) fn helps(&self, now: Nanos, is_behind: bool, progress: Progress) -> bool {
        let mut periods = self.0.lock();
        if !is_behind {
            *periods = Periods::default();
            return false;
        }
        let (began, before) = *periods.began.get_or_insert((now, progress));
        let took = now.since(began);
        if took >= PERIOD {
            periods.ends(took, before, progress);
            periods.began = Some((now, progress));
        }
        periods.helps
    }
}

impl Periods {
    fn ends(&mut self, took: Duration, before: Progress, now: Progress) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = |now: u64, before: u64| (now - before).saturating_mul(1000) / ms;
        self.known[usize::from(self.helps)] = Some(Progress {
            maintained: rate(now.maintained, before.maintained),
            served: rate(now.served, before.served),
        });
        let [Some(alone), Some(helped)] = self.known else {
            self.helps = !self.helps;
            return;
        };
        self.helps = pays(alone, helped);
        if self.left == 0 {
            self.helps = !self.helps;
            self.left = AGAIN;
        } else {
            self.left -= 1;
        }
    }
}

/// Whether with a helper maintenance does a tenth more, and users do not lose that gain.
fn pays(alone: Progress, helped: Progress) -> bool {
    let of = |it: Progress| u128::from(it.maintained) * u128::from(it.served + 1);
    of(helped) * 10 > of(alone) * 11
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a hundred periods are helped, when a second comes to this without and with a helper.
    fn helped(alone: Progress, with: Progress) -> usize {
        let trial = Trial::default();
        let (mut done, mut helped) = (Progress::default(), false);
        let mut count = 0;
        for second in 0..200 {
            let rate = if helped { with } else { alone };
            done.maintained += rate.maintained;
            done.served += rate.served;
            helped = trial.helps(Nanos(second * 1_000_000_000), true, done);
            count += usize::from(helped && second % 2 == 0);
        }
        assert!(!trial.helps(Nanos(1 << 60), false, done), "the first worker has a pause");
        count
    }

    #[test]
    fn helper_works_as_long_as_it_pays() {
        let of = |maintained, served| Progress { maintained, served };
        assert!(helped(of(100 << 20, 5000), of(180 << 20, 5000)) > 90);
        assert!(helped(of(100 << 20, 5000), of(104 << 20, 5000)) < 10, "within noise");
        assert!(helped(of(100 << 20, 5000), of(180 << 20, 2500)) < 10, "users pay for it");
        assert!(helped(of(100 << 20, 0), of(150 << 20, 0)) > 90, "nobody uses it");
    }
}
