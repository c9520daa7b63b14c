//! Writes: records become durable in the write buffer, then visible, then they are acknowledged. Sees `engine` and
//! what is below, and asks maintenance (`keep`) for room.

use std::sync::Arc;

use crate::buffer::ring::Appended;
use crate::drive::Io;
use crate::engine::{Keeper, Shared, add};
use crate::keep;
use crate::omf::frame::Record;
use crate::stats::Stage;
use crate::types::error::VolumeError;
use crate::types::id::{Block, Seqno};
use crate::types::{BLOCK, BLOCK_SIZE};
use esker_base::units::to_u64;

/// Makes records durable and applies them; all or none of them, if there is a crash.
///
/// `build` is called with the seqno of the first record and says which they are: catalogue changes depend on it.
///
/// A caller that is the keeper passes itself, for it is the keeper who makes room in the log.
pub(crate) fn commit<'a>(
    shared: &Shared,
    mut keeper: Option<&mut Keeper>,
    io: &mut Io,
    mut build: impl FnMut(Seqno) -> Result<Vec<Record<&'a [u8]>>, VolumeError>,
) -> Result<Seqno, VolumeError> {
    let mut tries = 0;
    let clock = &shared.options.clock;
    loop {
        let start = clock.now();
        let mut log = shared.log.lock();
        shared.check_writable(&shared.core.lock())?;
        let first = log.next_seqno;
        let records = build(first)?;
        let appended = log.append(io, &records);
        io.spent.add(Stage::Log, clock.now().since(start));
        match appended {
            Appended::Durable { failed } => {
                if !failed.is_empty() {
                    // Before the acknowledgement: the copy that missed this frame must not count after a crash.
                    shared.take_out(io, &failed)?;
                }
                apply(shared, first, &records);
                return Ok(first);
            }
            Appended::Lost(why) => {
                drop(log);
                return Err(shared.stop(format!("the write buffer failed: {why}")));
            }
            Appended::Full => {
                drop(log);
                tries += 1;
                if tries > 16 {
                    let what = "the write buffer cannot be emptied".to_owned();
                    return Err(VolumeError::NoSpace { pool: shared.name.clone(), what });
                }
                let start = clock.now();
                keep::make_room(shared, keeper.as_deref_mut(), io)?;
                io.spent.add(Stage::Buffer, clock.now().since(start));
            }
        }
    }
}

/// Makes records visible. The log is locked, so that they become so in their order.
fn apply(shared: &Shared, first: Seqno, records: &[Record<&[u8]>]) {
    let mut core = shared.core.lock();
    for (seqno, record) in (first.0..).map(Seqno).zip(records) {
        match record {
            Record::Write { lineage, block, data } => {
                add(&shared.counts.user_written, to_u64(data.len()));
                for (at, bytes) in (block.0..).zip(data.chunks(BLOCK_SIZE)) {
                    core.take_block(*lineage, Block(at), seqno, Some(Arc::from(bytes)));
                }
            }
            Record::Zero { lineage, block, blocks, at_once: false } => {
                for at in block.0..block.0 + blocks {
                    core.take_block(*lineage, Block(at), seqno, None);
                }
            }
            Record::Zero { lineage, block, blocks, at_once: true } => {
                if let Some(points) = core.catalog.points(*lineage) {
                    core.pending.clear(*lineage, block.0..block.0 + blocks, seqno, &points);
                }
            }
            Record::Change(change) => core.take_change(change),
        }
    }
}

/// Refuses blocks for which there is no room. What is written over blocks that are there may go on a little longer.
pub(crate) fn admit(
    shared: &Shared,
    io: &mut Io,
    bytes: u64,
    is_overwrite: impl Fn(&mut Io) -> bool,
) -> Result<(), VolumeError> {
    let room = |shared: &Shared| {
        let core = shared.core.lock();
        let (usable, _) = shared.usable(&core);
        let live = core.space.live_blocks();
        let wanted = live + core.pending.bytes() + bytes;
        (wanted <= usable, wanted <= usable + Shared::slack(usable), live, usable)
    };
    let (fits, fits_slack, ..) = room(shared);
    if fits || fits_slack && is_overwrite(io) {
        return Ok(());
    }
    // What is pending may replace what is there, or compress.
    let start = shared.options.clock.now();
    keep::drain(shared, io)?;
    io.spent.add(Stage::Buffer, shared.options.clock.now().since(start));
    let (fits, fits_slack, live, usable) = room(shared);
    if fits || fits_slack && is_overwrite(io) {
        return Ok(());
    }
    let blocks = bytes / BLOCK;
    let what = format!("volumes use {live} of {usable} bytes, and {blocks} blocks more do not fit");
    Err(VolumeError::NoSpace { pool: shared.name.clone(), what })
}
