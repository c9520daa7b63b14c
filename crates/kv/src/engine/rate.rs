//! The estimator of the rate at which a stage of maintenance really drains: writers are slowed to it.

use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::to_nanos;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Estimator of the rate of a stage: bytes drained lately, and their time.
#[derive(Default)]
pub(crate) struct RateEstimator {
    recent: Mutex<Recent>,
    /// Nanoseconds for 1,000 bytes; 0 as long as too little is known. Each write asks.
    ns: AtomicU64,
}

#[derive(Default)]
struct Recent {
    /// When the stage was looked at last, if it had work then.
    since: Option<Nanos>,
    bytes: u64,
    took: Duration,
    /// Bytes that go for 1,000 that are written: hidden ones are not written. 0 as long as nothing is known.
    gone: u64,
}

/// Time over which drained bytes change a rate.
const LEARNT_IN: Duration = Duration::from_millis(250);

impl RateEstimator {
    /// Notes that the stage has work from now on.
    pub(crate) fn begins(&self, now: Nanos) {
        self.recent.lock().since.get_or_insert(now);
    }

    /// Notes that the stage has drained `bytes` bytes more by now.
    pub(crate) fn drained(&self, now: Nanos, bytes: u64) {
        let mut recent = self.recent.lock();
        let Some(since) = recent.since.replace(now) else {
            return;
        };
        recent.bytes += bytes;
        recent.took += now.since(since);
        // The first that is known says more than nothing does.
        let before = self.ns.load(Ordering::Relaxed);
        if (recent.took >= LEARNT_IN || before == 0) && recent.bytes > 0 {
            let took = to_nanos(recent.took);
            let ns = (took.saturating_mul(1000) / recent.bytes).max(1);
            let ns = if before == 0 { ns } else { before / 4 * 3 + ns / 4 };
            self.ns.store(ns, Ordering::Relaxed);
            (recent.bytes, recent.took) = (0, Duration::ZERO);
        }
    }

    /// Notes that the stage has written `bytes` bytes more by now. Hidden bytes drain with them in the proportion
    /// seen lately.
    pub(crate) fn wrote(&self, now: Nanos, bytes: u64) {
        let gone = self.recent.lock().gone.max(1000);
        self.drained(now, bytes.saturating_mul(gone) / 1000);
    }

    /// Notes that in all `drained` bytes are gone for `written` ones.
    pub(crate) fn learn(&self, drained: u64, written: u64) {
        let gone = (drained.saturating_mul(1000) / written.max(1)).clamp(1000, 20_000);
        let mut recent = self.recent.lock();
        recent.gone = if recent.gone == 0 { gone } else { (recent.gone + gone) / 2 };
    }

    /// Notes that the stage has nothing to do.
    pub(crate) fn rests(&self) {
        self.recent.lock().since = None;
    }

    /// Nanoseconds that 1,000 bytes take lately; `None` as long as too little is known.
    pub(crate) fn ns(&self) -> Option<u64> {
        Some(self.ns.load(Ordering::Relaxed)).filter(|&ns| ns > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_only_time_with_work() {
        let rate = RateEstimator::default();
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        rate.begins(ms(1000));
        rate.drained(ms(1200), 500_000);
        assert_eq!(rate.ns(), Some(400_000));
        rate.rests();
        rate.drained(ms(5000), 500_000);
        rate.rests();
        rate.begins(ms(6000));
        rate.drained(ms(6100), 500_000);
        assert_eq!(rate.ns(), Some(400_000), "too little is known");
        rate.drained(ms(6500), 500_000);
        assert_eq!(rate.ns(), Some(425_000), "it changes slowly");
    }
}
