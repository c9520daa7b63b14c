//! The backoff of steps of maintenance that found no room. A step finds that out when it has written most of its output,
//! so it is not tried again at once: only when another step has ended well, ingests included, when more is free than
//! was, or when some time has passed, twice as much after each try. `maintain/steps.rs` asks and tells.

use std::time::Duration;

use esker_base::Nanos;

use crate::engine::job::Job;
use crate::types::class::MediaClass;
use crate::types::error::KvError;

/// Conditions for a step that may find no room.
#[derive(Clone, Copy)]
pub(crate) struct Conditions {
    /// Steps that have ended well.
    pub(crate) steps: u64,
    /// Bytes that are free, in each class.
    pub(crate) free: [u64; MediaClass::ALL.len()],
    pub(crate) now: Nanos,
}

/// A step that found no room.
struct FailedStep {
    job: Job,
    full: KvError,
    /// Before it, or after it where that is less: others may have had some meanwhile.
    free: [u64; MediaClass::ALL.len()],
    ended: Nanos,
    wait: Duration,
}

/// Backoff of the steps that found no room since one ended well.
#[derive(Default)]
pub(crate) struct Backoff {
    steps: u64,
    failed: Vec<FailedStep>,
}

/// How long the first wait is, for changes that cannot be seen: space that others held for a moment, values that
/// have expired.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// And how long any wait is at most.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

impl Backoff {
    /// The error of a step that need not be tried now.
    pub(crate) fn reason_to_wait(&self, job: &Job, now: &Conditions) -> Option<KvError> {
        let same = |one: &&FailedStep| self.steps == now.steps && one.job == *job;
        let one = self.failed.iter().find(same)?;
        let more = now.free.iter().zip(one.free).any(|(&free, then)| free > then);
        let soon = now.now.since(one.ended) < one.wait;
        (soon && !more).then(|| one.full.clone())
    }

    /// Notes that a step found no room.
    pub(crate) fn add(
        &mut self,
        job: Job,
        before: &Conditions,
        after: &Conditions,
        full: &KvError,
    ) {
        if self.steps != before.steps {
            self.clear();
            self.steps = before.steps;
        }
        let again = self.failed.iter().position(|one| one.job == job);
        let waited = again.map(|at| self.failed.swap_remove(at).wait);
        let wait = waited.map_or(FIRST_WAIT, |wait| (2 * wait).min(LONGEST_WAIT));
        let mut free = before.free;
        free.iter_mut().zip(after.free).for_each(|(free, after)| *free = after.min(*free));
        self.failed.push(FailedStep { job, full: full.clone(), free, ended: after.now, wait });
    }

    /// Forgets all: the work of steps has changed.
    pub(crate) fn clear(&mut self) {
        self.failed.clear();
    }
}

#[cfg(test)]
mod tests {
    use esker_base::Rng;

    use super::*;
    use crate::maintain::picker::inputs::pick;
    use crate::maintain::steps;
    use crate::media::space::Purpose;
    use crate::recover::devices::Devices;
    use crate::testing::{device, kvdb_on, small_blocks};
    use crate::types::options::Tuning;
    use crate::types::stream::Stream;

    #[test]
    fn step_without_room_is_not_repeated_before_a_change() {
        let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
        let tuning =
            Tuning { allocation_bytes: 4096, key_extent_bytes: 64 << 10, ..small_blocks() };
        let (db, kvs, clock) = kvdb_on(devices, tuning);
        let mut rng = Rng::new(1);
        for _ in 0..2 {
            for _ in 0..15_000 {
                kvs.put(rng.below(u64::MAX).to_be_bytes().repeat(4), [7; 8]).unwrap();
            }
            db.ingest().unwrap();
            steps::run_job(&db.engine, Job::Spill { kvs: kvs.id }).unwrap();
        }
        let capacity = db.engine.classes.capacity.clone();
        let mut taken = Vec::new();
        while capacity.free_bytes() > 600 << 10 {
            taken.push(capacity.allocate(Stream::Log, 16 << 10, Purpose::Maintenance).unwrap());
        }
        assert!(matches!(
            pick(&db.engine, &db.engine.view.load())[..],
            [Job::Compact { newest: 2, .. }]
        ));
        let written = || capacity.traffic(Stream::OldKeys).2;
        let fails = || {
            let before = written();
            assert!(db.step().unwrap_err().lacks_space());
            written() - before
        };
        assert!(fails() > 400 << 10);
        assert_eq!(fails(), 0);
        for wait in 0..3 {
            clock.advance(FIRST_WAIT * (1 << wait) - Duration::from_nanos(1));
            assert_eq!(fails(), 0);
            clock.advance(Duration::from_nanos(1));
            assert!(fails() > 400 << 10);
        }
        // Not enough, but more.
        taken.pop();
        assert!(fails() > 400 << 10);
        assert_eq!(fails(), 0);
        // Another step may do something for it.
        kvs.put(b"k", b"v").unwrap();
        db.ingest().unwrap();
        assert!(db.step().unwrap(), "a spill");
        assert!(fails() > 400 << 10);
        assert_eq!(fails(), 0);
        drop(taken);
        assert!(db.step().unwrap());
    }
}
