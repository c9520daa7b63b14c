//! The run of a compaction: its reader and its writer in turn, with the memory, the pauses and the rates that the engine
//! has for them. Its plan names all inputs and outputs; it chooses none itself.

use std::sync::Arc;

use crate::compaction::plan::{Compacted, Compaction, Rewrite};
use crate::compaction::reader::{InputReader, gathered_bytes};
use crate::compaction::scratch::Scratch;
use crate::compaction::window::Windows;
use crate::compaction::writer::OutputWriter;
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::maintain::limiter::IoLimiter;
use crate::media::writes::Writes;
use crate::sync::MutexGuard;
use crate::tree::kvset::Kvset;
use crate::types::error::Result;

/// Run of a compaction.
pub(crate) struct CompactionRun<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) plan: &'a Compaction,
    pub(crate) worker: Worker,
    pub(crate) writes: &'a Writes,
    /// Inputs of the spill after this one; empty when none is due then. The plan cannot name them: the root takes in
    /// memtables while this spill runs. So they are asked for just before the last window is written. A reader that
    /// began with other inputs than the next spill has would be of no use to it.
    pub(crate) next_spill: &'a dyn Fn() -> Vec<Arc<Kvset>>,
}

impl<'a> CompactionRun<'a> {
    /// Writes the output of the compaction.
    pub(crate) fn run(&self) -> Result<Compacted> {
        let CompactionRun { engine, plan, worker, writes, .. } = *self;
        if plan.targets.is_empty() {
            return Ok(Compacted { forgets: true, ..Compacted::default() });
        }
        let spilled = if plan.is_spill() { gathered_bytes(&plan.inputs) } else { 0 };
        let (mut scratch, mut reader) = self.begin(spilled)?;
        let Scratch { windows, packer, packed, ahead } = &mut *scratch;
        packer.begin(plan.compression);
        let parts = engine.builder_context(writes);
        let mut writer = OutputWriter::new(plan, parts, &engine.ids, (packer, packed));
        // A sort can wait: scans have borne the waste so far and can bear it a little longer. Other steps pause
        // only while staging can hold the data that does not spill: else a spill is in the way for four times as
        // long, and reads wait no less for it (docs/compare.md).
        let mut limiter = IoLimiter::new(engine, plan.sorts() && !plan.asked);
        let mut written = 0;
        let context = || engine.gather_context();
        while let Some(window) = reader.next_window(context(), windows, &mut || limiter.share())? {
            engine.check_wanted(plan.asked)?;
            // While the last window is written, the first one of the next spill is gathered.
            if reader.is_at_end() {
                *ahead = self.begin_next(windows)?;
            }
            let mut behind = if reader.is_at_end() { ahead.as_mut() } else { Some(&mut reader) };
            writer.write(&window, &mut || {
                let share = limiter.share();
                writes.set_at_a_time(share.commands);
                behind.as_mut().map_or(Ok(()), |reader| reader.read_on(context(), share))
            })?;
            if plan.is_spill() {
                let bytes = window.bytes() as u64;
                written += bytes;
                engine.pacer.spill_wrote(bytes);
            }
            engine.balance_memory();
            windows.give_back(window);
        }
        if written > 0 {
            let drained = plan.inputs.iter().map(|kvset| kvset.bytes()).sum();
            engine.pacer.spill_ends(drained, written);
        }
        let done = writer.finish()?;
        engine.budget.end_spill(worker, &mut scratch, &engine.takers());
        Ok(done)
    }

    /// The memory for it, and its reader. The first window tells whether the record cache has lost the values of a spill:
    /// then it begins again, with memory for all of them.
    fn begin(&self, spilled: u64) -> Result<(MutexGuard<'a, Scratch>, InputReader)> {
        let CompactionRun { engine, plan, worker, .. } = *self;
        loop {
            let mut scratch = engine.budget.scratch(worker, spilled, &engine.takers());
            let Scratch { windows, ahead, .. } = &mut *scratch;
            if let Some(begun) = ahead.take().filter(|it| it.is_of(plan.kvs, &plan.inputs)) {
                return Ok((scratch, begun));
            }
            let bytes = engine.budget.spill_windows();
            let context = engine.gather_context();
            let reader =
                InputReader::begin(context, plan.kvs, &plan.inputs, &plan.rewrite, windows)?;
            if spilled == 0 || engine.budget.spill_windows() <= bytes {
                return Ok((scratch, reader));
            }
        }
    }

    /// The reader of the spill after this one, as far as that can be told now.
    fn begin_next(&self, windows: &mut Windows) -> Result<Option<InputReader>> {
        if !self.plan.is_spill() {
            return Ok(None);
        }
        let inputs = (self.next_spill)();
        let context = self.engine.gather_context();
        if inputs.is_empty() || !InputReader::may_overlap(context, &inputs, windows) {
            return Ok(None);
        }
        InputReader::begin(context, self.plan.kvs, &inputs, &Rewrite::All, windows).map(Some)
    }
}

#[cfg(test)]
mod tests;
