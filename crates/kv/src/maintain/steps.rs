//! The steps of maintenance: which one is due is picked, planned, claimed and run, one at a time of each worker.
//!
//! Ingest, which writers may wait for, is a lane of its own (`ingest.rs`). Where it lacks space, steps make some.

use crate::compaction::plan::Rewrite;
use crate::engine::backoff::Conditions;
use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::maintain::executor::{self, Step};
use crate::maintain::group::{grouped_with, is_small};
use crate::maintain::ingest;
use crate::maintain::picker::inputs::pick;
use crate::maintain::picker::{PASSED_BYTES, PASSED_LEAST, Picker};
use crate::maintain::planner::{claim, plan};
use crate::tree::view::View;
use crate::types::class::MediaClass;
use crate::types::error::Result;

/// The part of a memtable that ingest writes, at most: its keys.
const KEYS_PART: u64 = 4;

/// Runs the step that is due; false when none is.
pub(crate) fn maintain(engine: &Engine) -> Result<bool> {
    let _lane = engine.scheduler.first_lane();
    engine.check_wanted(false)?;
    reclaim(engine, Worker::First)?;
    Ok(run_first(engine, Worker::First, |view| pick(engine, view), false)?
        || freeze_for_walks(engine)
        || freeze_for_space(engine))
}

/// Freezes the memtable when the file system is full and nobody writes: deletes in it may free some. Whether it did.
fn freeze_for_space(engine: &Engine) -> bool {
    let is_due = || {
        let view = engine.view.load();
        view.frozen.is_empty() && !view.active.is_empty()
    };
    if !engine.pacer.is_quiet() || !is_due() || !engine.reserve.bears_log() {
        return false;
    }
    let mut log = engine.log.tail();
    let freezes = is_due();
    if freezes {
        engine.view.rotate(&mut log, engine.tuning.memtable_bytes);
        engine.scheduler.notify();
    }
    freezes
}

/// Freezes the memtable when walks have passed over so much in it that it is worth a kvset, while writers fill
/// it slowly or not at all. Whether it did.
fn freeze_for_walks(engine: &Engine) -> bool {
    let is_due = |view: &View| {
        let passed = view.active.passed();
        let is_worth = passed * PASSED_BYTES >= view.active.bytes() / KEYS_PART;
        passed >= PASSED_LEAST && is_worth && view.frozen.is_empty() && !view.active.is_empty()
    };
    if !engine.pacer.is_quiet() || !is_due(&engine.view.load()) {
        return false;
    }
    let mut log = engine.log.tail();
    // Another one may have frozen it meanwhile.
    let freezes = is_due(&engine.view.load());
    if freezes {
        engine.view.rotate(&mut log, engine.tuning.memtable_bytes);
        engine.scheduler.notify();
    }
    freezes
}

/// Runs a step of a leaf that is due and in nobody's way, beside the first worker; false when there is none.
pub(crate) fn help(engine: &Engine) -> Result<bool> {
    let _lane = engine.scheduler.helper_lane();
    engine.check_wanted(false)?;
    // A compaction that somebody asked for has both lanes.
    if engine.scheduler.manual.is_active() {
        return Ok(false);
    }
    reclaim(engine, Worker::Helper)?;
    let of_leaves = |view: &View| pick(engine, view).into_iter().filter(Job::is_of_leaf);
    run_first(engine, Worker::Helper, of_leaves, false)
}

/// Runs the first of the steps that `choose` names which finds room and is in nobody's way, and with a small one
/// others; false when there is none of them. The lane of the worker is the caller's.
pub(crate) fn run_first<J: IntoIterator<Item = Job>>(
    engine: &Engine,
    worker: Worker,
    choose: impl Fn(&View) -> J,
    asked: bool,
) -> Result<bool> {
    let mut outcome = Ok(false);
    let mut before = conditions(engine);
    let mut tried: Vec<Job> = Vec::new();
    loop {
        let step = match claim_first(engine, &choose, &tried, (&before, asked)) {
            Ok(Some(step)) => step,
            Ok(None) => break,
            Err(full) => {
                outcome = Err(full);
                break;
            }
        };
        let job = step.jobs[0].0.clone();
        outcome = engine
            .caught("a step of maintenance", || executor::run(engine, worker, step).map(|()| true));
        ran(engine, worker, &outcome)?;
        // A step that finds no room may be helped by another step, which makes some.
        let Err(full) = &outcome else { break };
        if !full.lacks_space() {
            break;
        }
        let after = conditions(engine);
        engine.scheduler.found_no_room(job.clone(), (&before, &after), full);
        tried.push(job);
        before = after;
    }
    engine.fail_stop(outcome)
}

/// Claims the first of the steps that `choose` names, with those grouped with it. The error of one that is known to
/// find no room, where there is no other.
fn claim_first<'e, J: IntoIterator<Item = Job>>(
    engine: &'e Engine,
    choose: &impl Fn(&View) -> J,
    tried: &[Job],
    (before, asked): (&Conditions, bool),
) -> Result<Option<Step<'e>>> {
    let claims = engine.scheduler.choosing();
    // All of it holds for one view: changes that others publish now are on nodes that are theirs until the lock
    // is free.
    let view = &engine.view.load_full();
    let mut none = Ok(None);
    let mut jobs = choose(view).into_iter().filter(|job| !tried.contains(job));
    while let Some(job) = jobs.next() {
        if !asked && let Some(full) = engine.scheduler.why_not_now(&job, before) {
            none = Err(full);
            continue;
        }
        let planned = |job: &Job| {
            let mut compaction = plan(&Picker::new(engine, view), job, &engine.ids, asked);
            let keeps_values = |leaf| engine.fences.keep_values(job.kvs(), leaf);
            if !matches!(compaction.rewrite, Rewrite::None) && job.leaf().is_some_and(keeps_values)
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
        let spill_bytes = engine.pacer.spill_bytes();
        let is_small = is_small(view, &job, spill_bytes);
        let others = grouped_with(&job, &mut jobs, view, spill_bytes);
        let (mut group, mut of) = (vec![(job, compaction)], vec![claim]);
        for job in others {
            if let Some((compaction, claim)) = planned(&job) {
                group.push((job, compaction));
                of.push(claim);
            }
        }
        let claimed = engine.scheduler.claim(claims, of);
        return Ok(Some(Step { jobs: group, is_small, _claimed: claimed }));
    }
    none
}

/// Ends a step, or a try: space that it has freed, or taken in vain, is free for the next plan.
fn ran(engine: &Engine, worker: Worker, outcome: &Result<bool>) -> Result<()> {
    reclaim(engine, worker)?;
    if matches!(outcome, Ok(true)) {
        engine.counters.steps.add(1);
        engine.scheduler.notify();
    }
    Ok(())
}

fn reclaim(engine: &Engine, worker: Worker) -> Result<()> {
    if worker == Worker::First {
        engine.budget.forget_ahead(&engine.view.load());
    }
    let classes = engine.classes.all();
    classes.iter().try_for_each(|media| engine.fail_stop(media.reclaim()).map(drop))?;
    if worker == Worker::First {
        engine.fail_stop(engine.reserve.keep(&engine.view, 0))
    } else {
        Ok(())
    }
}

/// Reads some key pages ahead of need, roots first, because they are searched first; false when all
/// are in DRAM or no more fit. A KVDB opens without its pages, so that opening takes no longer with
/// more keys.
pub(crate) fn preload(engine: &Engine) -> bool {
    let _lane = engine.scheduler.first_lane();
    let view = engine.view.load_full();
    let trees = || view.trees.values();
    let roots = trees().flat_map(|tree| &tree.root);
    let leaves = trees().flat_map(|tree| tree.leaves.iter().flat_map(|leaf| &leaf.kvsets));
    // An unreadable kvset is an error for the reader that needs it.
    let loaded = roots.chain(leaves).any(|kvset| kvset.preload().unwrap_or(true));
    if loaded {
        engine.balance_memory();
    }
    loaded
}

/// One step of whatever is due, the timed flush of the log included; false when nothing is.
pub(crate) fn step(engine: &Engine) -> Result<bool> {
    Ok(step_for_space(engine)? || preload(engine))
}

/// The same, of steps that may make room: key pages that are loaded ahead make none.
pub(crate) fn step_for_space(engine: &Engine) -> Result<bool> {
    // Stopped or not: acknowledged writes are to be durable in time.
    engine.flush_when_due()?;
    engine.life.check_running()?;
    engine.transactions.end_late(&engine.options);
    Ok(ingest_or_make_room(engine)? || maintain(engine)?)
}

/// Ingests the oldest memtable, or runs another step when there is no room for that: it may make some.
pub(crate) fn ingest_or_make_room(engine: &Engine) -> Result<bool> {
    match ingest::ingest_oldest(engine) {
        Err(full) if full.lacks_space() && make_room(engine)? => Ok(true),
        result => result,
    }
}

/// Turns the content of the memtables into kvsets now, full or not; false when they are empty.
pub(crate) fn ingest_all(engine: &Engine) -> Result<bool> {
    let mut worked = false;
    while ingest_with_room(engine)? {
        worked = true;
    }
    {
        let mut log = engine.log.tail();
        let view = engine.view.load();
        // Another thread may have frozen one meanwhile; then that one goes next.
        if view.frozen.is_empty() && !view.active.is_empty() {
            engine.view.rotate(&mut log, engine.tuning.memtable_bytes);
        }
    }
    Ok(ingest_with_room(engine)? || worked)
}

/// Ingests the oldest memtable, after as many steps as make room for it.
pub(crate) fn ingest_with_room(engine: &Engine) -> Result<bool> {
    loop {
        match ingest::ingest_oldest(engine) {
            Err(full) if full.lacks_space() && make_room(engine)? => {}
            result => return result,
        }
    }
}

/// Runs a step; whether there is room now shows when it is asked for again.
pub(crate) fn make_room(engine: &Engine) -> Result<bool> {
    let worked = maintain(engine)?;
    if worked {
        engine.scheduler.set_ingest_lacks(None);
    }
    Ok(worked)
}

/// The conditions for a step, now.
fn conditions(engine: &Engine) -> Conditions {
    let free = |class| engine.classes.taking(class).map_or(0, |media| media.free_bytes_now());
    Conditions {
        steps: engine.counters.steps.get(),
        free: MediaClass::ALL.map(free),
        now: engine.options.clock.now(),
    }
}

#[cfg(test)]
/// Runs this step, due or not.
pub(crate) fn run_job(engine: &Engine, job: Job) -> Result<bool> {
    run_first(engine, Worker::First, |_| [job.clone()], false)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for asks in [|kvs: &Kvs| kvs.put(b"k", b"v"), |kvs: &Kvs| ingest_all(&kvs.engine).map(drop)]
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
        assert!(ingest_all(&db.engine).unwrap());
        assert_eq!(view.active.last_seqno(), Seqno(1));
        drop(view);
        assert!(table.upgrade().is_some(), "freed where it was read");
        assert!(!ingest::ingest_oldest(&db.engine).unwrap());
        assert!(table.upgrade().is_none(), "never freed");
    }
}
