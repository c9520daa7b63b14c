//! Maintenance: moving what the write buffer holds into segments, checkpoints, and deciding what is due. Sees `engine`
//! and what is below.

pub(crate) mod bundle;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod destage;
pub(crate) mod output;
pub(crate) mod rebuild;
pub(crate) mod repair;
pub(crate) mod retire;
pub(crate) mod salvage;
pub(crate) mod sweep;
pub(crate) mod verify;

use std::sync::atomic::Ordering;

use esker_base::units::to_u64;

use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::types::error::VolumeError;

/// Does what is most urgent; false when nothing is due. Rebuilds and scrubs only where `may_repair`.
pub(crate) fn step(shared: &Shared, io: &mut Io, may_repair: bool) -> Result<bool, VolumeError> {
    let mut keeper = shared.keeper.lock();
    match most_urgent(shared, &mut keeper, io, may_repair) {
        Err(VolumeError::NoSpace { .. }) if retire::give_way(shared) => Ok(true),
        result => result,
    }
}

fn most_urgent(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    may_repair: bool,
) -> Result<bool, VolumeError> {
    shared.check_writable(&shared.core.lock())?;
    // Those that did not answer are out already; the labels have to say so, too.
    let out = shared.fleet.out();
    shared.take_out(io, &out)?;
    if verify::newest(shared, keeper, io)? {
        return Ok(true);
    }
    ensure_space(shared, keeper, io)?;
    if shared.log_is_degraded.load(Ordering::Acquire) || checkpoint::log_may_move(shared) {
        drain_all(shared, keeper, io)?;
        checkpoint::run(shared, keeper, io, &checkpoint::Want { new_log: true, is_clean: false })?;
        return Ok(true);
    }
    let (used, size) = {
        let log = shared.log.lock();
        (log.used(), log.bytes)
    };
    let (pending, has_freed) = {
        let core = shared.core.lock();
        (core.pending.bytes(), core.space.has_freed() || core.space.empty_segments() > 0)
    };
    let is_filling = pending >= destage::segment_bytes(shared)
        || used > size / 2
        || retire::may_be_let_go_on(shared);
    if is_filling && destage::run(shared, keeper, io)? {
        return Ok(true);
    }
    if used > size / 2 {
        checkpoint::run(shared, keeper, io, &checkpoint::Want::default())?;
        return Ok(true);
    }
    if clean::is_due(shared) && !keeper.gain.is_vain(clean::content(shared)) {
        if clean::run(shared, keeper, io)? {
            return Ok(true);
        }
        if has_freed {
            // Segments that are empty become free with it.
            checkpoint::run(shared, keeper, io, &checkpoint::Want::default())?;
            clean::note_gain(shared, keeper);
            return Ok(true);
        }
    }
    let repair = || repair::step(shared, keeper, io);
    if may_repair && shared.load.run_behind(&shared.options.clock, repair)? {
        return Ok(true);
    }
    sweep::step(shared, keeper, io)
}

/// Makes room in the log: what it holds goes to segments, and a checkpoint moves its tail.
pub(crate) fn make_room(
    shared: &Shared,
    keeper: Option<&mut Keeper>,
    io: &mut Io,
) -> Result<(), VolumeError> {
    let mut held;
    let keeper = match keeper {
        Some(keeper) => keeper,
        None => {
            held = shared.keeper.lock();
            &mut *held
        }
    };
    let (used, size) = {
        let log = shared.log.lock();
        (log.used(), log.bytes)
    };
    if used < size / 2 {
        return Ok(()); // somebody else has made room
    }
    drain_all(shared, keeper, io)?;
    checkpoint::run(shared, keeper, io, &checkpoint::Want::default())
}

/// Moves all that is pending into segments.
pub(crate) fn drain(shared: &Shared, io: &mut Io) -> Result<(), VolumeError> {
    let mut keeper = shared.keeper.lock();
    drain_all(shared, &mut keeper, io)
}

pub(crate) fn drain_all(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<(), VolumeError> {
    loop {
        ensure_space(shared, keeper, io)?;
        match destage::run(shared, keeper, io) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(VolumeError::NoSpace { .. }) if retire::give_way(shared) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Segments that a checkpoint makes free.
fn emptied(shared: &Shared, keeper: &Keeper) -> u64 {
    shared.core.lock().space.empty_segments() + to_u64(keeper.marked.len())
}

/// Segments emptied before a checkpoint makes them free: several times as many as it takes itself.
fn enough(keeper: &Keeper) -> u64 {
    6 + 3 * keeper.checkpoint_segments
}

/// Cleans until segments can be allocated, as far as there is garbage; where that is not enough, drives that are being
/// emptied are used.
pub(crate) fn ensure_space(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<(), VolumeError> {
    retire::weigh(shared, keeper, io)?;
    clean_up(shared, keeper, io)?;
    retire::give_way_if_short(shared, keeper);
    Ok(())
}

fn clean_up(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    for _ in 0..32 {
        if !clean::is_urgent(shared) || keeper.gain.is_vain(clean::content(shared)) {
            return Ok(());
        }
        output::close_optional(shared, keeper, io)?;
        while emptied(shared, keeper) < enough(keeper) {
            match clean::run(shared, keeper, io) {
                Ok(true) => {}
                // Segments cleaned so far become free with the checkpoint, and there is room to go on.
                Ok(false) | Err(VolumeError::NoSpace { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        if emptied(shared, keeper) == 0 && !shared.core.lock().space.has_freed() {
            return Ok(());
        }
        checkpoint::run(shared, keeper, io, &checkpoint::Want::default())?;
        clean::note_gain(shared, keeper);
    }
    Ok(())
}
