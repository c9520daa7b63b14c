//! The executor of steps: it runs the compactions of a step that was claimed, and installs their output.
//!
//! A step writes its output, flushes it, commits to the manifest and publishes. Until the commit it has changed nothing, so
//! it may fail or be forgotten at any point.

use esker_base::memory::release_unused;

use crate::compaction::plan::{Compacted, Compaction, Rewrite};
use crate::engine::claims::Claimed;
use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::maintain::compact::CompactionRun;
use crate::maintain::install::{edits, replace};
use crate::maintain::picker::Picker;
use crate::maintain::planner::{claim, spilled_after};
use crate::media::writes::Writes;
use crate::omf::manifest::Edit;
use crate::tree::view::Tree;
use crate::types::error::Result;

/// A step that was claimed: the first job, and those grouped with it, each of another KVS.
pub(crate) struct Step<'c> {
    pub(crate) jobs: Vec<(Job, Compaction)>,
    pub(crate) is_small: bool,
    pub(crate) _claimed: Claimed<'c>,
}

/// Runs a step. The lane of the worker is the caller's.
pub(crate) fn run(engine: &Engine, worker: Worker, step: Step<'_>) -> Result<()> {
    engine.pacer.note_backlog(&engine.view);
    let Step { jobs, is_small, _claimed } = step;
    let writes = Writes::new(is_small);
    let (mut done, mut ran) = (Vec::new(), Vec::new());
    for (job, compaction) in jobs {
        let before = writes.count();
        let claim = engine.view.load().tree(job.kvs()).map(|tree| claim(tree, &compaction));
        match compacted(engine, worker, &job, compaction, &writes) {
            Err(damage) if damage.is_damage() => {
                writes.forget(before);
                claim.into_iter().for_each(|it| engine.fence(it.kvs, it.inputs, &damage));
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
    engine.counters.step_bytes.add(written);
    writes.write_out()?;
    install(engine, done)?;
    engine.pacer.note_backlog(&engine.view);
    release_unused();
    engine.budget.worked(worker);
    ran.iter().for_each(|job| count(engine, job));
    if worker == Worker::Helper {
        engine.counters.helped.add(1);
    }
    Ok(())
}

fn count(engine: &Engine, job: &Job) {
    let counters = &engine.counters;
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
    engine: &Engine,
    worker: Worker,
    job: &Job,
    mut compaction: Compaction,
    writes: &Writes,
) -> Result<(Compaction, Compacted)> {
    let before = writes.count();
    let run = |plan: &Compaction| {
        let next_spill = &|| {
            let view = engine.view.load();
            spilled_after(&Picker::new(engine, &view), plan.kvs, &plan.inputs)
        };
        CompactionRun { engine, plan, worker, writes, next_spill }.run()
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
                    if let Some(tree) = engine.view.load().tree(compaction.kvs) {
                        engine.fences.add_values(&claim(tree, &compaction), &damage);
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
fn install(engine: &Engine, mut done: Vec<(Compaction, Compacted)>) -> Result<()> {
    engine.classes.flush()?;
    let view = engine.view.load_full();
    done.retain(|(compaction, _)| view.tree(compaction.kvs).is_some());
    let edits = done.iter().flat_map(|(compaction, compacted)| {
        edits(view.tree(compaction.kvs).expect("retained"), compaction, compacted)
    });
    let edits: Vec<Edit> = edits.collect();
    drop(view);
    if done.is_empty() {
        return Ok(());
    }
    engine.commit(edits)?;
    engine.view.publish(|view| {
        for (compaction, compacted) in &done {
            if let Some(tree) = view.tree(compaction.kvs) {
                let mut tree = Tree::clone(tree);
                replace(&mut tree, compaction, compacted, engine.tuning.block_bytes);
                view.put_tree(tree);
            }
        }
    });
    let moved = done.iter().flat_map(|(_, compacted)| &compacted.moved);
    for record in moved {
        engine.values.cache.rename(record.hash, record.from, record.to);
    }
    engine.balance_memory();
    Ok(())
}
