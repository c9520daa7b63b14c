//! Writes: records become durable in the write buffer, then visible, then they are acknowledged. Sees `engine` and
//! what is below, and asks maintenance (`keep`) for room.

use std::sync::atomic::Ordering;

use crate::buffer::ring::Appended;
use crate::commit;
use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep;
use crate::omf::frame::Record;
use crate::space::Lasting;
use crate::types::BLOCK;
use crate::types::error::VolumeError;
use crate::types::id::Seqno;

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
    loop {
        let front = commit::hold(shared);
        let mut log = shared.log.lock();
        shared.check_writable(&shared.core.lock())?;
        let first = log.next_seqno();
        let records = build(first)?;
        match log.append(io, &records) {
            Appended::Durable { failed } => {
                if !failed.is_empty() {
                    // Before the acknowledgement: the copy that missed this frame must not count after a crash.
                    shared.take_out(io, &failed)?;
                }
                commit::apply(shared, first, &records, std::iter::repeat(0));
                return Ok(first);
            }
            Appended::Lost(why) => {
                drop((log, front));
                return Err(shared.stop(format!("the write buffer failed: {why}")));
            }
            Appended::Full => {
                drop((log, front));
                tries += 1;
                if tries > 16 {
                    let what = "the write buffer cannot be emptied".to_owned();
                    return Err(VolumeError::NoSpace { pool: shared.name.clone(), what });
                }
                keep::make_room(shared, keeper.as_deref_mut(), io)?;
            }
        }
    }
}

/// Whether there is room for blocks: as things are, and if what is written over others may go on a little longer; with
/// the figures that say so.
fn room(shared: &Shared, bytes: u64) -> (bool, bool, u64, u64) {
    let core = shared.core.lock();
    let (usable, _) = shared.usable(&core);
    // While drives that are to be emptied are used, nothing is gained by refusing what is written over other blocks.
    let most = match core.space.uses_emptying() {
        true => usable.max(shared.usable_in(core.space.room(Lasting::Used)).0),
        false => usable,
    };
    let live = core.space.live_blocks();
    let admitted = shared.admitted.load(Ordering::Relaxed);
    let wanted = live + core.pending.bytes() + admitted + bytes;
    (wanted <= usable, wanted <= most + Shared::slack(most), live, usable)
}

/// Whether there is room for blocks, without a closer look.
pub(crate) fn fits(shared: &Shared, bytes: u64) -> bool {
    room(shared, bytes).0
}

/// Refuses blocks for which there is no room. What is written over blocks that are there may go on a little longer.
pub(crate) fn admit(
    shared: &Shared,
    io: &mut Io,
    bytes: u64,
    is_overwrite: impl Fn(&mut Io) -> bool,
) -> Result<(), VolumeError> {
    let (_, fits_slack, ..) = room(shared, bytes);
    if fits_slack && is_overwrite(io) {
        return Ok(());
    }
    // Pending blocks may replace what is there, or compress.
    keep::drain(shared, io)?;
    let (fits, fits_slack, live, usable) = room(shared, bytes);
    if fits || fits_slack && is_overwrite(io) {
        return Ok(());
    }
    let blocks = bytes / BLOCK;
    let what = format!("volumes use {live} of {usable} bytes, and {blocks} blocks more do not fit");
    Err(VolumeError::NoSpace { pool: shared.name.clone(), what })
}
