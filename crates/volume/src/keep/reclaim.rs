//! Reclaims space: of the log, whose records go to segments and whose tail moves with a checkpoint; and of segments, which
//! are cleaned.

use esker_base::units::to_u64;

use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep::{checkpoint, clean, destage, mark, output, retire, sweep};
use crate::types::error::VolumeError;

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
            held = shared.keep()?;
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
    checkpoint::run(shared, keeper, io, &checkpoint::Options::default())
}

/// Moves all that is pending into segments.
pub(crate) fn drain(shared: &Shared, io: &mut Io) -> Result<(), VolumeError> {
    let mut keeper = shared.keep()?;
    drain_all(shared, &mut keeper, io)
}

pub(crate) fn drain_all(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<(), VolumeError> {
    loop {
        mark::renew(shared, keeper, io)?;
        ensure_space(shared, keeper, io)?;
        match destage::run(shared, keeper, io) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(VolumeError::NoSpace { .. }) if retire::give_way(shared) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Goes on with a sweep of what nobody can see; false when there is none.
pub(crate) fn sweep_on(shared: &Shared, io: &mut Io) -> Result<bool, VolumeError> {
    let mut keeper = shared.keep()?;
    sweep::step(shared, &mut keeper, io)
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
        checkpoint::run(shared, keeper, io, &checkpoint::Options::default())?;
        clean::note_gain(shared, keeper);
    }
    Ok(())
}
