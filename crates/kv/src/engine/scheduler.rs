//! The scheduler of maintenance: its lanes, the nodes that steps under way work on, and the steps that wait. The room
//! `maintain` picks, plans and runs steps; this knows none of that.
//!
//! Three lanes run a step at a time each: ingest, the first worker of the second lane, and its helper. A compaction that
//! somebody asked for takes both workers' lanes step by step.

use std::collections::BTreeSet;
use std::time::Duration;

use esker_base::{Clock, Nanos};

use crate::engine::backoff::{Backoff, Conditions};
use crate::engine::claims::{Claim, Claimed, Claims};
use crate::engine::job::Job;
use crate::engine::manual::ManualCompaction;
use crate::engine::workers::{Progress, Trial, Worker};
use crate::log::open::IDLE;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::tree::view::Table;
use crate::types::error::KvError;
use crate::types::ids::{KvsId, LeafId};
use crate::types::options::Options;

/// Scheduler of a KVDB's maintenance.
pub(crate) struct Scheduler {
    clock: Clock,
    /// How many workers the second lane is to have, whatever pays.
    workers: usize,
    /// Held by the first worker of the second lane during a step.
    compacting: Mutex<()>,
    /// Held by the helper during a step.
    helping: Mutex<()>,
    /// Held during an ingest. Tables that were ingested, as long as somebody may read them: freeing one takes longer
    /// than a put or a get may, so it is for the lane to do.
    ingesting: Mutex<Vec<Table>>,
    /// Bytes of these tables.
    ingested_bytes: AtomicU64,
    /// The nodes that the steps of both workers work on.
    claims: Mutex<Claims>,
    /// Steps of the second lane that need not be tried now.
    backoff: Mutex<Backoff>,
    /// Set while ingest cannot go on for lack of space.
    no_space: Mutex<Option<KvError>>,
    trial: Trial,
    /// When the first worker last found nothing to do, in nanoseconds of the clock.
    paused_ns: AtomicU64,
    pub(crate) manual: ManualCompaction,
    work: Work,
}

/// Wakes maintenance threads.
#[derive(Default)]
struct Work {
    generation: Mutex<u64>,
    changed: Condvar,
}

/// The second lane is behind when its first worker has had no pause for so long.
const BEHIND: Duration = Duration::from_secs(1);

impl Scheduler {
    pub(crate) fn new(options: &Options) -> Scheduler {
        Scheduler {
            clock: options.clock.clone(),
            workers: options.tuning().workers,
            compacting: Mutex::default(),
            helping: Mutex::default(),
            ingesting: Mutex::default(),
            ingested_bytes: AtomicU64::new(0),
            claims: Mutex::default(),
            backoff: Mutex::default(),
            no_space: Mutex::default(),
            trial: Trial::default(),
            paused_ns: AtomicU64::new(0),
            manual: ManualCompaction::default(),
            work: Work::default(),
        }
    }

    // ---- lanes -------------------------------------------------------------------------------

    /// The lane of the first worker.
    pub(crate) fn first_lane(&self) -> MutexGuard<'_, ()> {
        self.compacting.lock()
    }

    /// The lane of the helper.
    pub(crate) fn helper_lane(&self) -> MutexGuard<'_, ()> {
        self.helping.lock()
    }

    /// The lanes of both workers.
    pub(crate) fn both_lanes(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>) {
        (self.compacting.lock(), self.helping.lock())
    }

    /// The lane of ingest, with the tables that it is to free.
    pub(crate) fn ingest_lane(&self) -> MutexGuard<'_, Vec<Table>> {
        self.ingesting.lock()
    }

    /// Whether an ingest is under way.
    #[cfg(test)]
    pub(crate) fn is_ingesting(&self) -> bool {
        self.ingesting.try_lock().is_none()
    }

    /// Frees tables that nobody else has: those that were ingested, when nobody reads them any more. Counts the others.
    pub(crate) fn free_unread(&self, ingested: &mut Vec<Table>) {
        ingested.retain(Table::is_shared);
        let bytes = ingested.iter().map(Table::bytes).sum();
        self.ingested_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of memtables that were ingested, and that somebody still reads.
    pub(crate) fn ingested_bytes(&self) -> u64 {
        self.ingested_bytes.load(Ordering::Relaxed)
    }

    /// Has the lanes look for work.
    pub(crate) fn notify(&self) {
        *self.work.generation.lock() += 1;
        self.work.changed.notify_all();
    }

    /// How often they were to look so far.
    pub(crate) fn generation(&self) -> u64 {
        *self.work.generation.lock()
    }

    /// Waits until they are to look again, after the time that is `seen`, or for a while.
    pub(crate) fn wait_for_work(&self, seen: u64) {
        let mut generation = self.work.generation.lock();
        if *generation == seen {
            self.work.changed.wait_for(&mut generation, IDLE);
        }
    }

    // ---- steps -------------------------------------------------------------------------------

    /// The claims, which others wait for while a step is chosen and planned.
    pub(crate) fn choosing(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock()
    }

    /// Claims the nodes that the steps of one worker need, until the claim is dropped.
    pub(crate) fn claim<'s>(
        &'s self,
        claims: MutexGuard<'s, Claims>,
        of: Vec<Claim>,
    ) -> Claimed<'s> {
        Claims::add(claims, &self.claims, of)
    }

    /// Keeps damaged nodes from all steps for good.
    pub(crate) fn keep_nodes(&self, kvs: KvsId, nodes: BTreeSet<LeafId>) {
        self.claims.lock().keep(kvs, nodes);
    }

    /// The error of a step that need not be tried now.
    pub(crate) fn why_not_now(&self, job: &Job, now: &Conditions) -> Option<KvError> {
        self.backoff.lock().reason_to_wait(job, now)
    }

    /// Notes that a step found no room.
    pub(crate) fn found_no_room(
        &self,
        job: Job,
        (before, after): (&Conditions, &Conditions),
        full: &KvError,
    ) {
        self.backoff.lock().add(job, before, after, full);
    }

    /// Has all steps tried again: their work has changed.
    pub(crate) fn try_all_again(&self) {
        self.backoff.lock().clear();
    }

    /// The error of an ingest that waits for space.
    pub(crate) fn ingest_lacks(&self) -> Option<KvError> {
        self.no_space.lock().clone()
    }

    /// Notes the error of an ingest that found no space, or that it may be tried again.
    pub(crate) fn set_ingest_lacks(&self, full: Option<KvError>) {
        *self.no_space.lock() = full;
    }

    // ---- workers -----------------------------------------------------------------------------

    /// Notes that the first worker has nothing to do now.
    pub(crate) fn first_pauses(&self) {
        self.paused_ns.store(self.clock.now().0, Ordering::Relaxed);
    }

    /// Whether a helper is to work beside the first worker now.
    pub(crate) fn help_pays(&self, progress: Progress) -> bool {
        let now = self.clock.now();
        let paused = Nanos(self.paused_ns.load(Ordering::Relaxed));
        self.trial.helps(now, now.since(paused) >= BEHIND, progress)
            || self.workers == Worker::ALL.len()
    }
}
