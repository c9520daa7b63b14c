//! Admission: blocks are written only where the pool has room for them. Sees `engine` and what is below, and asks
//! maintenance (`keep`) to make room.

use std::sync::atomic::Ordering;

use crate::drive::Io;
use crate::engine::Shared;
use crate::keep;
use crate::space::Lasting;
use crate::types::BLOCK;
use crate::types::error::VolumeError;

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
    loop {
        let (fits, fits_slack, live, usable) = room(shared, bytes);
        if fits || fits_slack && is_overwrite(io) {
            return Ok(());
        }
        // Blocks that nobody can see any more make room.
        if keep::sweep_on(shared, io)? {
            continue;
        }
        let blocks = bytes / BLOCK;
        let what =
            format!("volumes use {live} of {usable} bytes, and {blocks} blocks more do not fit");
        return Err(VolumeError::NoSpace { pool: shared.name.clone(), what });
    }
}
