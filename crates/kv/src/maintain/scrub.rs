//! Scrubbing: after a compaction of all, whatever no record and no key takes is erased on the media, so that nothing of
//! what was deleted can be read from them any more.
//!
//! Deleted bytes outlive a compaction in free space that is too small to be discarded, at the ends of extents, in the
//! log, in frames kept for a process that is killed, and in earlier records of the manifest. While they are erased, steps
//! of maintenance and writers wait: what they take then could hold such bytes.

use std::sync::Arc;
use std::time::Duration;

use esker_base::LbaCount;
use esker_base::units::round_up;

use crate::engine::shared::Engine;
use crate::log::frame::is_at;
use crate::manifest::writer::Manifest;
use crate::media::class::Allocation;
use crate::media::runs::Runs;
use crate::omf::frame::{FrameHeader, HEADER_SIZE};
use crate::omf::page::PAGE_SIZE;
use crate::tree::kvset::Kvset;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::ids::BlockId;
use crate::values::block::ValueBlock;

/// How often, and how long, reads under way are waited for.
const READS_END: usize = 50;
const READ_ENDS: Duration = Duration::from_millis(20);

/// The LBAs of each class that hold something.
type HeldRuns = [Runs; MediaClass::ALL.len()];

/// Adds the first `bytes` bytes of an extent.
fn hold(held: &mut HeldRuns, allocation: &Allocation, bytes: u64) {
    let extent = allocation.extent;
    let count = LbaCount::holding(bytes, allocation.media.lba_size).min(extent.count);
    let runs = &mut held[extent.class as usize];
    // Leaves share blocks.
    runs.remove(extent.lba.0, count.0);
    runs.give(extent.lba.0, count.0);
}

fn hold_keys(held: &mut HeldRuns, kvset: &Kvset) {
    let mut left = u64::from(kvset.edit.pages) * PAGE_SIZE as u64 + u64::from(kvset.edit.meta_size);
    for keys in kvset.key_extents() {
        hold(held, keys, left.min(keys.bytes()));
        left = left.saturating_sub(keys.bytes());
    }
}

/// Adds a block of values to its last frame; all of it where its frames do not add up.
fn hold_values(held: &mut HeldRuns, block: &ValueBlock) -> Result<()> {
    let allocation = &block.allocation;
    let (mut end, mut records) = (0, 0);
    while end + HEADER_SIZE as u64 <= allocation.bytes() {
        let (buf, skip) = allocation.read_at(end, HEADER_SIZE)?;
        let header = FrameHeader::decode(&buf[skip..]).ok();
        let Some(header) = header.filter(|header| is_at(header, block, end)) else { break };
        let payload = u64::from(header.payload_size);
        records += payload;
        end = round_up(end + HEADER_SIZE as u64 + payload, allocation.media.lba_size.into());
    }
    let adds_up = !block.is_log() && records == block.bytes;
    hold(held, allocation, if adds_up { end } else { allocation.bytes() });
    Ok(())
}

/// Refuses while readers keep anything. A read under way ends soon.
fn check_unpinned(engine: &Engine) -> Result<()> {
    for _ in 0..READS_END {
        if engine.view.pinned_bytes(&engine.log).iter().sum::<u64>() == 0 {
            return Ok(());
        }
        engine.check_wanted(true)?;
        engine.options.clock.sleep(READ_ENDS);
    }
    let pinned = engine.reader_stats(engine.view.pinned_bytes(&engine.log).iter().sum());
    Err(KvError::Pinned(pinned.in_words()))
}

/// Erases all that no record and no key takes.
pub(crate) fn erase_deleted(engine: &Engine) -> Result<()> {
    let _lanes = engine.scheduler.both_lanes();
    let mut ingested = engine.scheduler.ingest_lane();
    engine.check_wanted(true)?;
    engine.budget.forget_ahead(&engine.view.load());
    engine.scheduler.free_unread(&mut ingested);
    check_unpinned(engine)?;
    let classes = engine.classes.all();
    classes.iter().try_for_each(|media| media.reclaim().map(drop))?;
    // No write of the log is under way.
    let _flushing = engine.log.lead();
    let mut log = engine.log.wait_for_segment(|| engine.life.check_running())?;
    let mut held = HeldRuns::default();
    let view = engine.view.load_full();
    for kvset in view.trees.values().flat_map(|tree| tree.kvsets()) {
        hold_keys(&mut held, kvset);
        kvset.blocks.iter().try_for_each(|(block, _)| hold_values(&mut held, block))?;
    }
    for (segment, written) in log.written() {
        hold(&mut held, &segment.allocation, written);
    }
    let current: Vec<BlockId> = log.segments().map(|segment| segment.id).collect();
    let is_left = |block: &Arc<ValueBlock>| !current.contains(&block.id);
    for block in view.log_blocks().chain([engine.log.replay_from()]).filter(is_left) {
        hold(&mut held, &block.allocation, block.allocation.bytes());
    }
    for media in classes {
        media.erase_rest(&held[media.class as usize], || engine.check_wanted(true))?;
    }
    log.erase_earlier();
    engine.write_manifest(Manifest::renew)
}
