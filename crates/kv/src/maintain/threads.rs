//! The threads of a KVDB: two lanes of maintenance, the timed flush of the log, and the opening of log segments ahead of
//! need. [`Builder::open`](crate::Builder::open) starts them; closing the KVDB ends them.

use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::engine::workers::{Progress, Worker};
use crate::sync::{JoinHandle, thread};
use crate::types::error::{KvError, Result};

impl Engine {
    pub(crate) fn flush_loop(&self) {
        while let Some(seqno) = self.log.wait_for_due(|| self.life.is_over()) {
            // An error stops the engine, and every writer is told why.
            let _ = self.flush_through(seqno);
        }
        // The last one acknowledged before the engine stopped. A caller that closes the KVDB flushes by itself.
        if self.life.stopped().is_some() {
            let seqno = self.log.tail().last_seqno();
            let _ = self.flush_through(seqno);
        }
    }

    pub(crate) fn open_loop(&self) {
        self.log.open_all_ahead(|| self.life.is_over(), || self.open_next_segment());
    }

    pub(crate) fn lane_loop(&self, step: impl Fn(&Engine) -> Result<bool>) {
        loop {
            // First: a caller that closes or stops the engine sets that, and then makes a new generation.
            let seen = self.scheduler.generation();
            if self.life.is_over() {
                break;
            }
            // An error was noted where it happened: it stops the engine, or waits for space.
            if matches!(step(self), Ok(true)) {
                continue;
            }
            self.scheduler.wait_for_work(seen);
        }
    }

    /// Starts the threads of a KVDB. They end when it closes.
    pub(crate) fn start_threads(self: &Arc<Self>) -> std::io::Result<Vec<JoinHandle<()>>> {
        type Run = fn(&Engine);
        let threads: [(&str, Run); 5] = [
            ("esker-flush", Engine::flush_loop),
            ("esker-open", Engine::open_loop),
            ("esker-ingest", |engine| engine.lane_loop(Engine::ingest_oldest)),
            ("esker-age", |engine| engine.lane_loop(Engine::age_step)),
            ("esker-help", |engine| {
                engine.lane_loop(Engine::help_step);
                // Why it stopped, if it has.
                engine.tell_remarks(Vec::new());
            }),
        ];
        let start = |(name, run): (&'static str, Run)| {
            let engine = self.clone();
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
    pub(crate) fn age_step(&self) -> Result<bool> {
        self.balance_memory();
        self.transactions.end_late(&self.options);
        let maintained = self.maintain();
        // A step that finds no room keeps nobody else waiting.
        if maintained.as_ref().is_ok_and(|worked| !worked)
            || maintained.as_ref().is_err_and(KvError::lacks_space)
        {
            if self.preload() {
                return Ok(true);
            }
            self.budget.rest(Worker::First, &self.view);
        }
        if !matches!(maintained, Ok(true)) {
            self.scheduler.first_pauses();
        }
        maintained
    }

    /// A step of the helper, if that pays. It has the most time of all threads, and tells remarks.
    pub(crate) fn help_step(&self) -> Result<bool> {
        self.tell_in_time();
        let helped = if self.help_pays() { self.help() } else { Ok(false) };
        if !matches!(helped, Ok(true)) {
            self.budget.rest(Worker::Helper, &self.view);
        }
        helped
    }

    fn help_pays(&self) -> bool {
        let counters = &self.counters;
        self.scheduler.help_pays(Progress {
            maintained: self.classes.all().iter().map(|media| media.written_by_maintenance()).sum(),
            served: counters.reads() + counters.puts.get() + counters.deletes.get(),
        })
    }
}
