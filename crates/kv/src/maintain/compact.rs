//! The run of a compaction: its reader and its writer in turn, with the memory, the pauses and the rates that the engine
//! has for them.

use crate::compaction::plan::{Compacted, Compaction, Rewrite};
use crate::compaction::reader::{InputReader, gathered_bytes};
use crate::compaction::scratch::Scratch;
use crate::compaction::window::Windows;
use crate::compaction::writer::OutputWriter;
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::maintain::giving_way::GivingWay;
use crate::media::writes::Writes;
use crate::sync::MutexGuard;
use crate::types::error::Result;

impl Compaction {
    pub(crate) fn run(
        &self,
        engine: &Engine,
        worker: Worker,
        writes: &Writes,
    ) -> Result<Compacted> {
        if self.targets.is_empty() {
            return Ok(Compacted { forgets: true, ..Compacted::default() });
        }
        let spilled = if self.is_spill() { gathered_bytes(&self.inputs) } else { 0 };
        let (mut scratch, mut reader) = self.begin(engine, worker, spilled)?;
        let Scratch { windows, packer, packed, ahead } = &mut *scratch;
        packer.begin(self.compression);
        let kvsets = engine.shop(writes);
        let mut writer = OutputWriter::new(self, kvsets, &engine.ids, (packer, packed));
        // A sort can wait: scans have borne the waste so far and can bear it a little longer. Other steps pause
        // only while staging can hold the data that does not spill: else a spill is in the way for four times as
        // long, and reads wait no less for it (docs/compare.md).
        let mut way = GivingWay::new(engine, self.sorts() && !self.asked);
        let mut written = 0;
        let context = || engine.gather_context();
        while let Some(window) = reader.next_window(context(), windows, &mut || way.share())? {
            engine.check_wanted(self.asked)?;
            // While the last window is written, the first one of the next spill is gathered.
            if reader.is_at_end() {
                *ahead = self.next_spill(engine, windows)?;
            }
            let mut behind = if reader.is_at_end() { ahead.as_mut() } else { Some(&mut reader) };
            writer.write(&window, &mut || {
                let share = way.share();
                writes.set_at_a_time(share.commands);
                behind.as_mut().map_or(Ok(()), |reader| reader.read_on(context(), share))
            })?;
            if self.is_spill() {
                let bytes = window.bytes() as u64;
                written += bytes;
                engine.pace.spills.wrote(engine.options.clock.now(), bytes);
            }
            engine.balance_memory();
            windows.give_back(window);
        }
        if written > 0 {
            let drained = self.inputs.iter().map(|kvset| kvset.bytes()).sum();
            engine.pace.spills.learn(drained, written);
        }
        let done = writer.finish()?;
        engine.end_spill(worker, &mut scratch);
        Ok(done)
    }

    /// The memory for it, and its reader. The first window tells whether the record cache has lost the values of a spill:
    /// then it begins again, with memory for all of them.
    fn begin<'e>(
        &self,
        engine: &'e Engine,
        worker: Worker,
        spilled: u64,
    ) -> Result<(MutexGuard<'e, Scratch>, InputReader)> {
        loop {
            let mut scratch = engine.scratch(worker, spilled);
            let Scratch { windows, ahead, .. } = &mut *scratch;
            if let Some(begun) = ahead.take().filter(|it| it.is_of(self.kvs, &self.inputs)) {
                return Ok((scratch, begun));
            }
            let bytes = engine.spill_windows();
            let context = engine.gather_context();
            let reader =
                InputReader::begin(context, self.kvs, &self.inputs, &self.rewrite, windows)?;
            if spilled == 0 || engine.spill_windows() <= bytes {
                return Ok((scratch, reader));
            }
        }
    }

    /// The reader of the spill after this one, as far as that can be told now.
    fn next_spill(&self, engine: &Engine, windows: &mut Windows) -> Result<Option<InputReader>> {
        if !self.is_spill() {
            return Ok(None);
        }
        let inputs = engine.spilled_after(self.kvs, &self.inputs);
        let context = engine.gather_context();
        if inputs.is_empty() || !InputReader::may_overlap(context, &inputs, windows) {
            return Ok(None);
        }
        InputReader::begin(context, self.kvs, &inputs, &Rewrite::All, windows).map(Some)
    }
}

#[cfg(test)]
mod tests;
