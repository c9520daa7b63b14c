//! Frames that a killed process had not flushed, back from the file that they are kept in (`log/kept.rs`).
//!
//! Their records get the seqnos that they had: they are written behind those that replay has found.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::log::frame::read_frame;
use crate::log::kept::{KeptFrames, LeftFrames, remove_left};
use crate::manifest::state::State;
use crate::media::space::Purpose;
use crate::omf::frame::Record;
use crate::types::error::Result;
use crate::types::expiry::Expiry;
use crate::types::ids::{BlockId, RecordAddress};
use crate::values::block::ValueBlock;
use crate::write::put;

/// Frames left in `dir` of the log that ends in `blocks`, unless that was written to since by a process that did not
/// know of them.
pub(crate) fn left(
    dir: &Path,
    state: &State,
    blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
) -> Result<Option<LeftFrames>> {
    let Some(left) = LeftFrames::read(dir, state.uuid) else {
        return Ok(None);
    };
    if state.log_first > left.segment {
        return Ok(None);
    }
    for (id, block) in blocks.range(state.log_first..) {
        if *id > left.segment && block.is_log() && read_frame(block, 0)?.is_some() {
            return Ok(None);
        }
    }
    Ok(Some(left))
}

/// Writes what was left anew, as far as there is room, and keeps the frames of this process in `dir`.
pub(crate) fn take_up(engine: &Engine, dir: &Path, left: Option<&LeftFrames>) -> Result<()> {
    if let Some(left) = left {
        let written = left.behind(engine.log.visible(), |records| {
            let size = records.iter().map(Record::size).sum();
            put::write(engine, size, Purpose::Opening, records.iter().copied(), |_| Ok(()))
                .map(drop)
        });
        match written {
            // A full KVDB opens all the same.
            Err(error) if error.lacks_space() => {}
            written => written?,
        }
        engine.flush_through(engine.log.visible())?;
    }
    remove_left(dir);
    let limit = engine.options.durability_limit();
    if engine.options.durability.ms > 0
        && limit > 0
        && let Some(kept) =
            KeptFrames::create(dir, engine.manifest.uuid(), (engine.tuning.frame_bytes, limit))
    {
        engine.log.tail().keep_in(kept);
    }
    Ok(())
}

/// Shows what was left, in a KVDB that is read only.
pub(crate) fn show_left(engine: &Engine, left: &LeftFrames) -> Result<()> {
    let view = engine.view.load();
    left.behind(engine.log.visible(), |records| {
        let mut expiry = Expiry::NEVER;
        for record in records {
            let seqno = engine.log.visible().next();
            expiry = view.active.apply(record, expiry, seqno, RecordAddress::NOWHERE);
            engine.log.show(seqno);
        }
        Ok(())
    })
}
