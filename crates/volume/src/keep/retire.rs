//! Drives that are being emptied: whether what is stored fits without them, and what is done while it does not.
//!
//! Invariants
//! 1. A drive begins to be emptied only where what is stored fits those that stay, with its parities, the spare and what
//!    cleaning needs ([`check`]).
//! 2. From then on new blocks are refused as in a full pool when the drives that stay have no room for them.
//! 3. Where room runs out all the same, because another drive failed or garbage cannot be cleaned, nothing is moved off the
//!    drive until there is room, and it is used meanwhile: like the others while what is stored does not fit them, else
//!    where they have no segment left. A pool is never worse off than if nobody had asked.
//! 4. Data that is moved off the drive only comes back where they have no segment left, so that emptying it comes to an end.

use std::sync::atomic::Ordering;

use crate::drive::Io;
use crate::engine::{Core, Gain, Keeper, Shared};
use crate::keep::{checkpoint, output};
use crate::omf::label::MemberState;
use crate::space::{Class, Lasting, Room, Segment, is_empty};
use crate::types::error::VolumeError;
use crate::types::id::DriveIndex;

/// Free segments that the drives that stay keep, beside those for pages of the map: with fewer cleaning has too little to
/// work with, and new blocks could not leave the write buffer.
const LEAST: u64 = 5;

/// Why drives are not emptied for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) drives: Vec<DriveIndex>,
    /// Bytes that are stored beyond what fits the drives that stay; 0 where they fit, and cleaning gains nothing.
    pub(crate) excess: u64,
}

/// Refuses to take a drive out when what is stored does not fit those that stay, of which one with `coming` bytes is to be
/// another one. A pool that gets no smaller by it is not made worse.
pub(crate) fn check(
    shared: &Shared,
    core: &Core,
    leaving: DriveIndex,
    coming: Option<u64>,
) -> Result<(), VolumeError> {
    let layout = &shared.fleet.layout;
    let width = layout.shape.width;
    let (before, _) = shared.usable(core);
    let stay = core.space.slots_for(Lasting::Stay).into_iter();
    let mut slots: Vec<u64> =
        stay.filter(|(drive, _)| *drive != leaving).map(|(_, slots)| slots).collect();
    slots.extend(coming.map(|bytes| u64::from(layout.slots(bytes))));
    let room = shared.usable_in(Room::of(&slots, width)).0;
    let stored = stored(shared, core);
    if room >= before || stored <= room {
        return Ok(());
    }
    let fits_with = |more: u64| {
        let slots: Vec<u64> = slots.iter().copied().chain([more]).collect();
        shared.usable_in(Room::of(&slots, width)).0 >= stored
    };
    // One as large as what all have together holds as much as any.
    let most = slots.iter().sum::<u64>() + core.space.slots_of(leaving).1;
    let drive = smallest(most, fits_with).map(|slots| layout.bytes_for(slots));
    let trashed = core.catalog.volumes.values().filter(|row| row.trashed.is_some());
    let trashed: Vec<&str> = trashed.map(|row| row.name.as_str()).collect();
    Err(VolumeError::NoRoomElsewhere {
        pool: shared.name.clone(),
        drive: leaving,
        stored,
        room,
        cure: cure(drive, stored - room, &trashed),
    })
}

/// Bytes of blocks as they are stored, with those that are on their way.
fn stored(shared: &Shared, core: &Core) -> u64 {
    let admitted = shared.admitted.load(Ordering::Relaxed);
    core.space.live_blocks() + core.pending.bytes() + admitted
}

/// The smallest number up to `most` that suffices, if one does; larger ones do then, too.
fn smallest(most: u64, suffices: impl Fn(u64) -> bool) -> Option<u64> {
    if !suffices(most) {
        return None;
    }
    let (mut low, mut high) = (1, most.max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if suffices(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

fn cure(drive: Option<u64>, excess: u64, trashed: &[&str]) -> String {
    let add = match drive {
        Some(bytes) => format!("add a drive of {bytes} bytes or more"),
        None => "add drives".to_owned(),
    };
    let trash = match trashed {
        [] => String::new(),
        [name] => format!("; volume '{name}' is in the trash, and can be deleted for good"),
        [name, ..] => {
            let count = trashed.len();
            format!(
                "; {count} volumes are in the trash, such as '{name}', and can be deleted for good"
            )
        }
    };
    format!("{add}, or discard or delete what takes {excess} bytes{trash}")
}

/// Decides whether drives that are being emptied are used meanwhile: from the moment on at which what is stored does not
/// fit the others, until it does and they have room to move it to.
pub(crate) fn weigh(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    let drives = {
        let mut core = shared.core.lock();
        let core = &mut *core;
        if !core.space.has_emptying() {
            return Ok(());
        }
        if !core.space.uses_emptying() {
            let (usable, _) = shared.usable(core);
            let is_over = core.space.live_blocks() > usable + Shared::slack(usable);
            core.space.use_emptying(is_over);
            return Ok(());
        }
        let (free, pages) = shared.free_elsewhere(core);
        if !shared.fits_elsewhere(core) || free < LEAST + pages {
            return Ok(());
        }
        core.space.use_emptying(false);
        core.space.emptying()
    };
    close_on(shared, keeper, io, &drives)
}

/// Closes the open segments that have a chunk on one of these drives.
fn close_on(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    drives: &[DriveIndex],
) -> Result<(), VolumeError> {
    for class in Class::ALL {
        let chunks = keeper.writers.get(&class).map(|writer| &writer.row.chunks);
        if chunks.is_some_and(|chunks| chunks.iter().any(|(drive, _)| drives.contains(drive))) {
            output::close(shared, keeper, io, class)?;
        }
    }
    Ok(())
}

/// Where the drives that stay have no more room than cleaning needs, nothing is moved there.
pub(crate) fn give_way_if_short(shared: &Shared, keeper: &mut Keeper) {
    let is_short = {
        let core = shared.core.lock();
        let is_emptying = core.space.has_emptying() && !core.space.uses_emptying();
        is_emptying && {
            let (free, pages) = shared.free_elsewhere(&core);
            free < LEAST + pages
        }
    };
    if is_short && give_way(shared) {
        keeper.gain = Gain::default(); // what was moved has left other garbage
    }
}

/// There is no space: drives that are being emptied are used from now on. False when they are already, or there are none.
pub(crate) fn give_way(shared: &Shared) -> bool {
    let mut core = shared.core.lock();
    if !core.space.has_emptying() || core.space.uses_emptying() {
        return false;
    }
    core.space.use_emptying(true);
    true
}

/// Why drives are not emptied for now, if they are not.
pub(crate) fn waiting(shared: &Shared, core: &Core, is_vain: bool) -> Option<Waiting> {
    let excess = core.space.live_blocks().saturating_sub(shared.usable(core).0);
    let is_waiting = core.space.uses_emptying() && (excess > 0 || is_vain);
    is_waiting.then(|| Waiting { drives: core.space.emptying(), excess })
}

/// Whether drives wait for room that what is in the write buffer may make: blocks that it replaces or discards.
pub(crate) fn may_be_let_go_on(shared: &Shared) -> bool {
    let core = shared.core.lock();
    let is_waiting = core.space.uses_emptying() && !shared.fits_elsewhere(&core);
    is_waiting && core.pending.oldest().is_some()
}

/// Retires drives that are emptied and hold nothing any more.
pub(crate) fn retire_emptied(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<bool, VolumeError> {
    let draining = shared.in_state(MemberState::Draining);
    if draining.is_empty() {
        return Ok(false);
    }
    let holding = |is_wanted: fn(&Segment) -> bool| -> Vec<DriveIndex> {
        let core = shared.core.lock();
        let wanted = core.space.segments().filter(|segment| is_wanted(segment));
        wanted.flat_map(|segment| segment.row.chunks.iter().map(|(drive, _)| *drive)).collect()
    };
    let (all, full) = (holding(|_| true), holding(|segment| !is_empty(segment)));
    let (emptied, left): (Vec<DriveIndex>, Vec<DriveIndex>) =
        draining.into_iter().partition(|drive| !all.contains(drive));
    if emptied.is_empty() {
        // Segments that hold only garbage are in the table until a checkpoint.
        let is_left = left.iter().any(|drive| !full.contains(drive));
        if is_left {
            checkpoint::run(shared, keeper, io, &checkpoint::Options::default())?;
        }
        return Ok(is_left);
    }
    // The log moves off them, and no checkpoint names them.
    let mut failed = Vec::new();
    {
        let mut core = shared.core.lock();
        let mut config = shared.config.lock();
        let epoch = config.epoch.0 + 1;
        config.epoch.0 = epoch;
        for drive in &emptied {
            let member = &mut config.members[drive.index()];
            member.state = MemberState::Retired;
            member.since.0 = epoch;
            core.space.forget_drive(*drive);
        }
    }
    for drive in emptied.iter().filter_map(|drive| shared.fleet.any(*drive)) {
        drive.take_out();
    }
    checkpoint::run(shared, keeper, io, &checkpoint::Options { new_log: true, is_clean: false })?;
    let mut config = shared.config.lock();
    shared.write_config(io, &mut config, &mut failed);
    drop(config);
    shared.take_out(io, &failed)?;
    Ok(true)
}
