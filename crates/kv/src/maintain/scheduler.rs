//! The scheduler of the second lane of maintenance: it picks, plans, runs and installs, one step at a time of each worker.
//!
//! A step writes its output, flushes it, commits to the manifest and publishes. Until the commit it has changed nothing, so
//! it may fail or be forgotten at any point. Ingest, which writers may wait for, is a lane of its own (`ingest.rs`).

use esker_base::memory::release_unused;

use crate::compaction::plan::{Compacted, Compaction, Rewrite};
use crate::engine::backoff::Conditions;
use crate::engine::claims::Claimed;
use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::maintain::compact::CompactionRun;
use crate::maintain::group::{grouped_with, is_small};
use crate::maintain::install::{edits, replace};
use crate::maintain::picker::inputs::pick;
use crate::maintain::picker::{PASSED_BYTES, PASSED_LEAST, Picker};
use crate::maintain::planner::{claim, plan, spilled_after};
use crate::media::writes::Writes;
use crate::omf::manifest::Edit;
use crate::tree::view::{Tree, View};
use crate::types::class::MediaClass;
use crate::types::error::Result;

/// The part of a memtable that ingest writes, at most: its keys.
const KEYS_PART: u64 = 4;

/// A step that was claimed: the first job, and those grouped with it, each of another KVS.
struct Step<'c> {
    jobs: Vec<(Job, Compaction)>,
    is_small: bool,
    _claimed: Claimed<'c>,
}

impl Engine {
    /// Runs the step that is due; false when none is.
    pub(crate) fn maintain(&self) -> Result<bool> {
        let _lane = self.scheduler.first_lane();
        self.check_wanted(false)?;
        self.reclaim(Worker::First)?;
        Ok(self.run_first(Worker::First, |view| pick(self, view), false)?
            || self.freeze_for_walks()
            || self.freeze_for_space())
    }

    /// Freezes the memtable when the file system is full and nobody writes: deletes in it may free some. Whether it did.
    fn freeze_for_space(&self) -> bool {
        let is_due = || {
            let view = self.view.load();
            view.frozen.is_empty() && !view.active.is_empty()
        };
        if !self.pacer.is_quiet() || !is_due() || !self.reserve.has_log() {
            return false;
        }
        let mut log = self.log.tail();
        let freezes = is_due();
        if freezes {
            self.view.rotate(&mut log, self.tuning.memtable_bytes);
            self.scheduler.notify();
        }
        freezes
    }

    /// Freezes the memtable when walks have passed over so much in it that it is worth a kvset, while writers fill
    /// it slowly or not at all. Whether it did.
    fn freeze_for_walks(&self) -> bool {
        let is_due = |view: &View| {
            let passed = view.active.passed();
            let is_worth = passed * PASSED_BYTES >= view.active.bytes() / KEYS_PART;
            passed >= PASSED_LEAST && is_worth && view.frozen.is_empty() && !view.active.is_empty()
        };
        if !self.pacer.is_quiet() || !is_due(&self.view.load()) {
            return false;
        }
        let mut log = self.log.tail();
        // Another one may have frozen it meanwhile.
        let freezes = is_due(&self.view.load());
        if freezes {
            self.view.rotate(&mut log, self.tuning.memtable_bytes);
            self.scheduler.notify();
        }
        freezes
    }

    /// Runs a step of a leaf that is due and in nobody's way, beside the first worker; false when there is none.
    pub(crate) fn help(&self) -> Result<bool> {
        let _lane = self.scheduler.helper_lane();
        self.check_wanted(false)?;
        // A compaction that somebody asked for has both lanes.
        if self.scheduler.manual.is_active() {
            return Ok(false);
        }
        self.reclaim(Worker::Helper)?;
        let of_leaves = |view: &View| pick(self, view).into_iter().filter(Job::is_of_leaf);
        self.run_first(Worker::Helper, of_leaves, false)
    }

    /// Runs the first of the steps that `choose` names which finds room and is in nobody's way, and with a small one
    /// others; false when there is none of them. The lane of the worker is the caller's.
    pub(crate) fn run_first<J: IntoIterator<Item = Job>>(
        &self,
        worker: Worker,
        choose: impl Fn(&View) -> J,
        asked: bool,
    ) -> Result<bool> {
        let mut outcome = Ok(false);
        let mut before = self.conditions();
        let mut tried: Vec<Job> = Vec::new();
        loop {
            let step = match self.claim_first(&choose, &tried, (&before, asked)) {
                Ok(Some(step)) => step,
                Ok(None) => break,
                Err(full) => {
                    outcome = Err(full);
                    break;
                }
            };
            let job = step.jobs[0].0.clone();
            outcome =
                self.caught("a step of maintenance", || self.run(worker, step).map(|()| true));
            self.ran(worker, &outcome)?;
            // A step that finds no room may be helped by another step, which makes some.
            let Err(full) = &outcome else { break };
            if !full.lacks_space() {
                break;
            }
            let after = self.conditions();
            self.scheduler.found_no_room(job.clone(), (&before, &after), full);
            tried.push(job);
            before = after;
        }
        self.fail_stop(outcome)
    }

    /// Claims the first of the steps that `choose` names, with those grouped with it. The error of one that is known to
    /// find no room, where there is no other.
    fn claim_first<J: IntoIterator<Item = Job>>(
        &self,
        choose: &impl Fn(&View) -> J,
        tried: &[Job],
        (before, asked): (&Conditions, bool),
    ) -> Result<Option<Step<'_>>> {
        let claims = self.scheduler.choosing();
        // All of it holds for one view: changes that others publish now are on nodes that are theirs until the lock
        // is free.
        let view = &self.view.load_full();
        let mut none = Ok(None);
        let mut jobs = choose(view).into_iter().filter(|job| !tried.contains(job));
        while let Some(job) = jobs.next() {
            if !asked && let Some(full) = self.scheduler.why_not_now(&job, before) {
                none = Err(full);
                continue;
            }
            let planned = |job: &Job| {
                let mut compaction = plan(&Picker::new(self, view), job, &self.ids, asked);
                let keeps_values = |leaf| self.fences.keep_values(job.kvs(), leaf);
                if !matches!(compaction.rewrite, Rewrite::None)
                    && job.leaf().is_some_and(keeps_values)
                {
                    // Their keys are merged all the same, if there is something to merge.
                    compaction.rewrite = Rewrite::None;
                    if compaction.inputs.len() < 2 {
                        return None;
                    }
                }
                let tree = view.tree(job.kvs()).expect("a job names a KVS that exists");
                let claim = claim(tree, &compaction);
                claims.allow(&claim).then_some((compaction, claim))
            };
            let Some((compaction, claim)) = planned(&job) else { continue };
            let spill_bytes = self.pacer.spill_bytes();
            let is_small = is_small(view, &job, spill_bytes);
            let others = grouped_with(&job, &mut jobs, view, spill_bytes);
            let (mut group, mut of) = (vec![(job, compaction)], vec![claim]);
            for job in others {
                if let Some((compaction, claim)) = planned(&job) {
                    group.push((job, compaction));
                    of.push(claim);
                }
            }
            let claimed = self.scheduler.claim(claims, of);
            return Ok(Some(Step { jobs: group, is_small, _claimed: claimed }));
        }
        none
    }

    /// Ends a step, or a try: space that it has freed, or taken in vain, is free for the next plan.
    fn ran(&self, worker: Worker, outcome: &Result<bool>) -> Result<()> {
        self.reclaim(worker)?;
        if matches!(outcome, Ok(true)) {
            self.counters.steps.add(1);
            self.scheduler.notify();
        }
        Ok(())
    }

    fn reclaim(&self, worker: Worker) -> Result<()> {
        if worker == Worker::First {
            self.budget.forget_ahead(&self.view.load());
        }
        let classes = self.classes.all();
        classes.iter().try_for_each(|media| self.fail_stop(media.reclaim()).map(drop))?;
        if worker == Worker::First {
            self.fail_stop(self.reserve.keep(&self.view, 0))
        } else {
            Ok(())
        }
    }

    /// Runs a step. The lane of the worker is the caller's.
    fn run(&self, worker: Worker, step: Step<'_>) -> Result<()> {
        self.pacer.note_backlog(&self.view);
        let Step { jobs, is_small, _claimed } = step;
        let writes = Writes::new(is_small);
        let (mut done, mut ran) = (Vec::new(), Vec::new());
        for (job, compaction) in jobs {
            let before = writes.count();
            let claim = self.view.load().tree(job.kvs()).map(|tree| claim(tree, &compaction));
            match self.compacted(worker, &job, compaction, &writes) {
                Err(damage) if damage.is_damage() => {
                    writes.forget(before);
                    claim.into_iter().for_each(|it| self.fence(it.kvs, it.inputs, &damage));
                    continue;
                }
                // It will be the first one day.
                Err(full) if full.lacks_space() && !done.is_empty() => {
                    writes.forget(before);
                    break;
                }
                result => done.push(result?),
            }
            ran.push(job);
        }
        let written = done.iter().map(|(_, compacted)| compacted.written_bytes()).sum();
        self.counters.step_bytes.add(written);
        writes.write_out()?;
        self.install(done)?;
        self.pacer.note_backlog(&self.view);
        release_unused();
        self.budget.worked(worker);
        ran.iter().for_each(|job| self.count(job));
        if worker == Worker::Helper {
            self.counters.helped.add(1);
        }
        Ok(())
    }

    fn count(&self, job: &Job) {
        let counters = &self.counters;
        match job {
            Job::Spill { .. } => counters.spills.add(1),
            Job::Merge { .. } | Job::Compact { .. } => counters.compactions.add(1),
            Job::Split { .. } => counters.splits.add(1),
            Job::Join { .. } => counters.joins.add(1),
            Job::Collect { blocks, .. } if blocks.is_empty() => counters.compactions.add(1),
            Job::Collect { .. } => counters.collections.add(1),
            Job::Sort { .. } => counters.sorts.add(1),
            Job::Expire { .. } => counters.expirations.add(1),
        }
    }

    /// Writes the output of a job. It is not durable yet, and nobody knows of it.
    fn compacted(
        &self,
        worker: Worker,
        job: &Job,
        mut compaction: Compaction,
        writes: &Writes,
    ) -> Result<(Compaction, Compacted)> {
        let before = writes.count();
        let run = |plan: &Compaction| {
            let next_spill = &|| {
                let view = self.view.load();
                spilled_after(&Picker::new(self, &view), plan.kvs, &plan.inputs)
            };
            CompactionRun { engine: self, plan, worker, writes, next_spill }.run()
        };
        let compacted = match run(&compaction) {
            // No room for the values: their keys alone go to the leaves. That takes less, if there are
            // values, and frees the values that they hide there.
            Err(error)
                if error.lacks_space()
                    && matches!(job, Job::Spill { .. })
                    && compaction.inputs.iter().any(|kvset| !kvset.blocks.is_empty()) =>
            {
                writes.forget(before);
                compaction.rewrite = Rewrite::None;
                run(&compaction)?
            }
            // It may have been damaged on its way.
            Err(damage) if damage.is_damage() => {
                writes.forget(before);
                match run(&compaction) {
                    // Or a value is damaged and its key sound: then values stay where they are.
                    Err(damage)
                        if damage.is_damage() && !matches!(compaction.rewrite, Rewrite::None) =>
                    {
                        writes.forget(before);
                        compaction.rewrite = Rewrite::None;
                        let compacted = run(&compaction)?;
                        if let Some(tree) = self.view.load().tree(compaction.kvs) {
                            self.fences.add_values(&claim(tree, &compaction), &damage);
                        }
                        compacted
                    }
                    result => result?,
                }
            }
            result => result?,
        };
        Ok((compaction, compacted))
    }

    /// Makes the output of compactions durable and visible, all or none, and lets go of their inputs. Each is of another
    /// KVS.
    fn install(&self, mut done: Vec<(Compaction, Compacted)>) -> Result<()> {
        self.classes.flush()?;
        let view = self.view.load_full();
        done.retain(|(compaction, _)| view.tree(compaction.kvs).is_some());
        let edits = done.iter().flat_map(|(compaction, compacted)| {
            edits(view.tree(compaction.kvs).expect("retained"), compaction, compacted)
        });
        let edits: Vec<Edit> = edits.collect();
        drop(view);
        if done.is_empty() {
            return Ok(());
        }
        self.commit(edits)?;
        self.view.publish(|view| {
            for (compaction, compacted) in &done {
                if let Some(tree) = view.tree(compaction.kvs) {
                    let mut tree = Tree::clone(tree);
                    replace(&mut tree, compaction, compacted, self.tuning.block_bytes);
                    view.put_tree(tree);
                }
            }
        });
        let moved = done.iter().flat_map(|(_, compacted)| &compacted.moved);
        for record in moved {
            self.values.cache.rename(record.hash, record.from, record.to);
        }
        self.balance_memory();
        Ok(())
    }

    /// Reads some key pages ahead of need, roots first, because they are searched first; false when all
    /// are in DRAM or no more fit. A KVDB opens without its pages, so that opening takes no longer with
    /// more keys.
    pub(crate) fn preload(&self) -> bool {
        let _lane = self.scheduler.first_lane();
        let view = self.view.load_full();
        let trees = || view.trees.values();
        let roots = trees().flat_map(|tree| &tree.root);
        let leaves = trees().flat_map(|tree| tree.leaves.iter().flat_map(|leaf| &leaf.kvsets));
        // An unreadable kvset is an error for the reader that needs it.
        let loaded = roots.chain(leaves).any(|kvset| kvset.preload().unwrap_or(true));
        if loaded {
            self.balance_memory();
        }
        loaded
    }

    /// One step of whatever is due, the timed flush of the log included; false when nothing is.
    pub(crate) fn step(&self) -> Result<bool> {
        Ok(self.step_for_space()? || self.preload())
    }

    /// The same, of steps that may make room: key pages that are loaded ahead make none.
    pub(crate) fn step_for_space(&self) -> Result<bool> {
        // Stopped or not: acknowledged writes are to be durable in time.
        self.flush_when_due()?;
        self.life.check_running()?;
        self.transactions.end_late(&self.options);
        Ok(self.ingest_or_make_room()? || self.maintain()?)
    }

    /// Ingests the oldest memtable, or runs another step when there is no room for that: it may make some.
    pub(crate) fn ingest_or_make_room(&self) -> Result<bool> {
        match self.ingest_oldest() {
            Err(full) if full.lacks_space() && self.make_room()? => Ok(true),
            result => result,
        }
    }

    /// Turns the content of the memtables into kvsets now, full or not; false when they are empty.
    pub(crate) fn ingest_all(&self) -> Result<bool> {
        let mut worked = false;
        while self.ingest_with_room()? {
            worked = true;
        }
        {
            let mut log = self.log.tail();
            let view = self.view.load();
            // Another thread may have frozen one meanwhile; then that one goes next.
            if view.frozen.is_empty() && !view.active.is_empty() {
                self.view.rotate(&mut log, self.tuning.memtable_bytes);
            }
        }
        Ok(self.ingest_with_room()? || worked)
    }

    /// Ingests the oldest memtable, after as many steps as make room for it.
    pub(crate) fn ingest_with_room(&self) -> Result<bool> {
        loop {
            match self.ingest_oldest() {
                Err(full) if full.lacks_space() && self.make_room()? => {}
                result => return result,
            }
        }
    }

    /// Runs a step; whether there is room now shows when it is asked for again.
    pub(crate) fn make_room(&self) -> Result<bool> {
        let worked = self.maintain()?;
        if worked {
            self.scheduler.set_ingest_lacks(None);
        }
        Ok(worked)
    }
}

impl Engine {
    /// The conditions for a step, now.
    fn conditions(&self) -> Conditions {
        let free = |class| self.classes.taking(class).map_or(0, |media| media.free_bytes_now());
        Conditions {
            steps: self.counters.steps.get(),
            free: MediaClass::ALL.map(free),
            now: self.options.clock.now(),
        }
    }
}

#[cfg(test)]
impl Engine {
    /// Runs this step, due or not.
    pub(crate) fn run_job(&self, job: Job) -> Result<bool> {
        self.run_first(Worker::First, |_| [job.clone()], false)
    }
}

#[cfg(test)]
mod tests {
    use crate::api::kvs::Kvs;
    use crate::maintain::manual::CompactRequest;
    use crate::media::space::Purpose;
    use crate::testing::kvdb;
    use crate::types::ids::Seqno;
    use crate::types::policy::KvsOptions;
    use crate::types::stream::Stream;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn writer_without_room_for_a_memtable_gets_expired_space() {
        for asks in [|kvs: &Kvs| kvs.put(b"k", b"v"), |kvs: &Kvs| kvs.engine.ingest_all().map(drop)]
        {
            let (db, kvs, clock) = kvdb();
            let options = KvsOptions { ttl_ms: Some(1000), ..KvsOptions::default() };
            let expires = db.create_kvs("expires", options).unwrap();
            (0..200u64).for_each(|n| expires.put(n.to_be_bytes(), [1; 10_000]).unwrap());
            db.compact(CompactRequest::Full).unwrap();
            let is_full = || {
                let view = db.engine.view.load();
                !view.frozen.is_empty() && view.active.bytes() >= db.engine.tuning.memtable_bytes
            };
            for n in (0..10_000u64).take_while(|_| !is_full()) {
                kvs.put(n.to_be_bytes(), [1; 1000]).unwrap();
            }
            let capacity = db.engine.classes.all()[0].clone();
            let mut taken = Vec::new();
            for bytes in [1 << 20, 64 << 10, 4 << 10] {
                while let Ok(more) = capacity.allocate(Stream::Log, bytes, Purpose::Maintenance) {
                    taken.push(more);
                }
            }
            assert!(asks(&kvs).unwrap_err().lacks_space());
            clock.advance(Duration::from_secs(2));
            asks(&kvs).unwrap();
        }
    }

    #[test]
    fn a_memtable_is_freed_by_its_lane_and_not_by_the_last_who_reads_it() {
        let (db, kvs, _) = kvdb();
        kvs.put(b"k", b"v").unwrap();
        let view = db.engine.view.load_full();
        let table = Arc::downgrade(&view.active);
        assert!(db.engine.ingest_all().unwrap());
        assert_eq!(view.active.last_seqno(), Seqno(1));
        drop(view);
        assert!(table.upgrade().is_some(), "freed where it was read");
        assert!(!db.engine.ingest_oldest().unwrap());
        assert!(table.upgrade().is_none(), "never freed");
    }
}
