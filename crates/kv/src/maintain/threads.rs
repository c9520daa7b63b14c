//! The threads of a KVDB: two lanes of maintenance, the timed flush of the log, and the opening of log segments ahead of
//! need. [`Builder::open`](crate::Builder::open) starts them; closing the KVDB ends them.

use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::engine::workers::{Progress, Worker};
use crate::maintain::ingest;
use crate::maintain::steps;
use crate::sync::{JoinHandle, thread};
use crate::types::error::{KvError, Result};

pub(crate) fn flush_loop(engine: &Engine) {
    while let Some(seqno) = engine.log.wait_for_due(|| engine.life.is_over()) {
        // An error stops the engine, and every writer is told why.
        let _ = engine.flush_through(seqno);
    }
    // The last one acknowledged before the engine stopped. A caller that closes the KVDB flushes by itself.
    if engine.life.stopped().is_some() {
        let seqno = engine.log.tail().last_seqno();
        let _ = engine.flush_through(seqno);
    }
}

pub(crate) fn open_loop(engine: &Engine) {
    engine.log.open_all_ahead(|| engine.life.is_over(), || engine.open_next_segment());
}

pub(crate) fn lane_loop(engine: &Engine, step: impl Fn(&Engine) -> Result<bool>) {
    loop {
        // First: a caller that closes or stops the engine sets that, and then makes a new generation.
        let seen = engine.scheduler.generation();
        if engine.life.is_over() {
            break;
        }
        // An error was noted where it happened: it stops the engine, or waits for space.
        if matches!(step(engine), Ok(true)) {
            continue;
        }
        engine.scheduler.wait_for_work(seen);
    }
}

/// Starts the threads of a KVDB. They end when it closes.
pub(crate) fn start_threads(engine: &Arc<Engine>) -> std::io::Result<Vec<JoinHandle<()>>> {
    type Run = fn(&Engine);
    let threads: [(&str, Run); 5] = [
        ("esker-flush", flush_loop),
        ("esker-open", open_loop),
        ("esker-ingest", |engine| lane_loop(engine, ingest::ingest_oldest)),
        ("esker-age", |engine| lane_loop(engine, age_step)),
        ("esker-help", |engine| {
            lane_loop(engine, help_step);
            // Why it stopped, if it has.
            engine.tell_remarks(Vec::new());
        }),
    ];
    let start = |(name, run): (&'static str, Run)| {
        let engine = engine.clone();
        // A panic stops the engine, so that nobody relies on the thread.
        thread::spawn(name, move || {
            let _ = engine.caught(&format!("the thread {name}"), || {
                run(&engine);
                Ok(())
            });
        })
    };
    threads.into_iter().map(start).collect()
}

/// A step of the second lane.
pub(crate) fn age_step(engine: &Engine) -> Result<bool> {
    engine.balance_memory();
    engine.transactions.end_late(&engine.options);
    let maintained = steps::maintain(engine);
    // A step that finds no room keeps nobody else waiting.
    if maintained.as_ref().is_ok_and(|worked| !worked)
        || maintained.as_ref().is_err_and(KvError::lacks_space)
    {
        if steps::preload(engine) {
            return Ok(true);
        }
        engine.budget.rest(Worker::First, &engine.view);
    }
    if !matches!(maintained, Ok(true)) {
        engine.scheduler.first_pauses();
    }
    maintained
}

/// A step of the helper, if that pays. It has the most time of all threads, and tells remarks.
pub(crate) fn help_step(engine: &Engine) -> Result<bool> {
    engine.tell_in_time();
    let helped = if help_pays(engine) { steps::help(engine) } else { Ok(false) };
    if !matches!(helped, Ok(true)) {
        engine.budget.rest(Worker::Helper, &engine.view);
    }
    helped
}

fn help_pays(engine: &Engine) -> bool {
    let counters = &engine.counters;
    engine.scheduler.help_pays(Progress {
        maintained: engine.classes.all().iter().map(|media| media.written_by_maintenance()).sum(),
        served: counters.reads() + counters.puts.get() + counters.deletes.get(),
    })
}
