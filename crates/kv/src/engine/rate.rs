//! The estimators of the rates at which stages of maintenance really drain: writers are slowed to them.

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

/// Estimator of how long ingests take.
#[derive(Default)]
pub(crate) struct IngestRate {
    /// How long ingests take lately: nanoseconds for 1,024 bytes of a memtable.
    lately_ns: AtomicU64,
    /// When the ingest under way began, in nanoseconds; 0 when none is.
    began_ns: AtomicU64,
    /// When the last one ended, in nanoseconds.
    ended_ns: AtomicU64,
}

impl IngestRate {
    /// Notes that an ingest begins.
    pub(crate) fn begins(&self, now: Nanos) {
        self.began_ns.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Learns from an ingest of `bytes` how long they take.
    pub(crate) fn ends(&self, now: Nanos, bytes: u64) {
        let ns = self.under_way_ns(now, bytes.max(1 << 20));
        self.began_ns.store(0, Ordering::Relaxed);
        self.ended_ns.store(now.0, Ordering::Relaxed);
        // The first one says more than nothing does.
        let lately = match self.lately_ns.load(Ordering::Relaxed) {
            0 => ns,
            before => (3 * before + ns) / 4,
        };
        self.lately_ns.store(lately, Ordering::Relaxed);
    }

    /// Whether none is under way, nor was one for so long that writers are quiet.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        let ended = Nanos(self.ended_ns.load(Ordering::Relaxed));
        self.began_ns.load(Ordering::Relaxed) == 0 && now.since(ended) >= QUIET
    }

    /// How long the ingest of `bytes` that is under way has taken, in nanoseconds for 1,024 of them.
    fn under_way_ns(&self, now: Nanos, bytes: u64) -> u64 {
        match self.began_ns.load(Ordering::Relaxed) {
            0 => 0,
            began => now.0.saturating_sub(began).saturating_mul(1024) / bytes.max(1),
        }
    }

    /// How long an ingest of `bytes` takes, in nanoseconds for 1,024 of them: as lately, or longer when it has.
    pub(crate) fn ns(&self, now: Nanos, bytes: u64) -> u64 {
        let lately = self.lately_ns.load(Ordering::Relaxed);
        lately.max(self.under_way_ns(now, bytes)).max(INGEST_NS)
    }
}

/// An ingest is never believed to be quicker than this, in nanoseconds for 1,024 bytes: 200 MB/s.
const INGEST_NS: u64 = 5_000;
/// Writers are quiet when nothing was ingested for so long.
const QUIET: Duration = Duration::from_secs(5);

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

    #[test]
    fn the_first_ingest_tells_how_long_they_take_and_others_change_that_slowly() {
        let rate = IngestRate::default();
        let lately = || rate.lately_ns.load(Ordering::Relaxed);
        let ingest = |ms: u64| {
            rate.begins(Nanos(7));
            rate.ends(Nanos(7 + ms * 1_000_000), 10 << 20);
        };
        ingest(400);
        assert_eq!(lately(), 39_062);
        ingest(800);
        assert_eq!(lately(), 48_827);
    }

    #[test]
    fn an_ingest_that_takes_longer_than_others_did_slows_writers_before_it_ends() {
        let rate = IngestRate::default();
        assert_eq!(rate.ns(Nanos(1 << 40), 10 << 20), INGEST_NS);
        rate.begins(Nanos(7));
        assert_eq!(rate.ns(Nanos(8), 10 << 20), INGEST_NS);
        assert_eq!(rate.ns(Nanos(400_000_007), 10 << 20), 39_062);
    }
}
