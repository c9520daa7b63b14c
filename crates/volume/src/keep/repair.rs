//! Repair, one step at a time: missing drives are given up after a while, chunks are rebuilt (`rebuild`), emptied drives
//! retire (`retire`), and segments are verified (`verify`).

use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep::{rebuild, retire, verify};
use crate::omf::label::MemberState;
use crate::types::error::VolumeError;
use crate::types::id::DriveIndex;

/// Goes on with what is to be repaired or verified; false when nothing is.
pub(crate) fn step(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    if give_up_missing(shared, io)? || rebuild::step(shared, keeper, io)? {
        return Ok(true);
    }
    if retire::retire_emptied(shared, keeper, io)? {
        return Ok(true);
    }
    verify::step(shared, keeper, io)
}

/// Takes drives out of the pool that were waited for long enough: what they have is rebuilt from now on.
fn give_up_missing(shared: &Shared, io: &mut Io) -> Result<bool, VolumeError> {
    let now = shared.options.clock.unix_time().as_secs();
    let grace = shared.options.missing_grace.as_secs();
    let over: Vec<_> = {
        let config = shared.config.lock();
        let members = (0..).map(DriveIndex).zip(&config.members);
        let is_over = |gone_at: u64| now >= gone_at.saturating_add(grace);
        let over = members.filter(|(_, m)| m.state == MemberState::Missing && is_over(m.gone_at));
        over.map(|(index, _)| (index, MemberState::Faulted)).collect()
    };
    if over.is_empty() {
        return Ok(false);
    }
    shared.set_states(io, &over)?;
    Ok(true)
}
