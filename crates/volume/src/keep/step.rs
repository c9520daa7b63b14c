//! One step of maintenance: decides what is due, and does it.

use std::sync::atomic::Ordering;

use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep::reclaim::{drain_all, ensure_space};
use crate::keep::{checkpoint, clean, destage, mark, repair, retire, sweep, verify};
use crate::types::error::VolumeError;

/// Does what is most urgent; false when nothing is due. Rebuilds and scrubs only where `may_repair`.
pub(crate) fn run(shared: &Shared, io: &mut Io, may_repair: bool) -> Result<bool, VolumeError> {
    let mut keeper = shared.keep()?;
    let clock = &shared.options.clock;
    let start = clock.now();
    let mut result = Ok(shared.load.owes());
    if matches!(result, Ok(true)) {
        result = waiting(shared, &mut keeper, io);
    }
    if matches!(result, Ok(false)) {
        result = most_urgent(shared, &mut keeper, io, may_repair);
        if matches!(result, Ok(true)) {
            shared.load.went_ahead(clock.now().since(start));
        }
    }
    if matches!(result, Err(VolumeError::NoSpace { .. })) && retire::give_way(shared) {
        result = Ok(true);
    }
    keeper.is_vain = keeper.gain.is_vain(clean::content(shared));
    result
}

/// Does what has waited for more urgent maintenance for too long: repairs, or goes on with a sweep; false when there is
/// nothing.
fn waiting(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    prepare(shared, keeper, io)?;
    ensure_space(shared, keeper, io)?;
    let clock = &shared.options.clock;
    let start = clock.now();
    let repair = || repair::step(shared, keeper, io);
    let is_busy = shared.load.run_behind(clock, repair)? || sweep::step(shared, keeper, io)?;
    shared.load.had_turn(clock.now().since(start), is_busy);
    Ok(is_busy)
}

/// Work that nothing else may come before.
fn prepare(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    shared.check_writable(&shared.core.lock())?;
    // Those that did not answer are out already; the labels have to say so, too.
    let out = shared.fleet.out();
    shared.take_out(io, &out)?;
    shared.find_spare();
    mark::renew(shared, keeper, io)
}

fn most_urgent(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    may_repair: bool,
) -> Result<bool, VolumeError> {
    prepare(shared, keeper, io)?;
    if verify::newest(shared, keeper, io)? {
        return Ok(true);
    }
    ensure_space(shared, keeper, io)?;
    let has_caught_up = sweep::catch_up(shared, keeper, io)?;
    if shared.log_is_degraded.load(Ordering::Acquire) || checkpoint::log_may_move(shared) {
        drain_all(shared, keeper, io)?;
        checkpoint::run(
            shared,
            keeper,
            io,
            &checkpoint::Options { new_log: true, is_clean: false },
        )?;
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
        checkpoint::run(shared, keeper, io, &checkpoint::Options::default())?;
        return Ok(true);
    }
    if clean::is_due(shared) && !keeper.gain.is_vain(clean::content(shared)) {
        if clean::run(shared, keeper, io)? {
            return Ok(true);
        }
        if has_freed {
            // Segments that are empty become free with it.
            checkpoint::run(shared, keeper, io, &checkpoint::Options::default())?;
            clean::note_gain(shared, keeper);
            return Ok(true);
        }
    }
    let repair = || repair::step(shared, keeper, io);
    if may_repair && shared.load.run_behind(&shared.options.clock, repair)? {
        return Ok(true);
    }
    Ok(sweep::step(shared, keeper, io)? || has_caught_up)
}
