//! Repair: which segments need it, those first that have lost most, and how. Chunks on drives that are out, that are
//! damaged, or on drives that are being emptied, are rebuilt elsewhere (`rebuild`). Where that cannot be done, because no
//! other drive has a free slot or too much is lost, what lives in the segment is moved.

use crate::drive::Io;
use crate::engine::{Keeper, Shared, add};
use crate::keep::{checkpoint, clean, rebuild, retire, verify};
use crate::omf::label::MemberState;
use crate::space::Segment;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, SegmentId};

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

/// Which drives are not there and are waited for, and which are being emptied.
pub(crate) struct Absent {
    pub(crate) missing: Vec<DriveIndex>,
    pub(crate) draining: Vec<DriveIndex>,
}

impl Absent {
    /// As the configuration has it.
    pub(crate) fn now(shared: &Shared) -> Absent {
        let missing = shared.in_state(MemberState::Missing);
        Absent { missing, draining: shared.in_state(MemberState::Draining) }
    }

    /// The same without drives that are to be emptied, and are used for now.
    pub(crate) fn to_repair(shared: &Shared) -> Absent {
        let mut absent = Absent::now(shared);
        if shared.core.lock().space.uses_emptying() {
            absent.draining.clear();
        }
        absent
    }

    /// Chunks of a segment that are to be rebuilt: those on drives that do not come back.
    pub(crate) fn lost(&self, shared: &Shared, segment: &Segment) -> usize {
        let chunks = segment.row.chunks.iter();
        let is_lost =
            |drive: DriveIndex| shared.fleet.get(drive).is_none() && !self.missing.contains(&drive);
        chunks.filter(|(drive, _)| is_lost(*drive)).count()
    }

    /// Chunks of a segment on drives that are being emptied.
    pub(crate) fn drained(&self, segment: &Segment) -> usize {
        segment.row.chunks.iter().filter(|(drive, _)| self.draining.contains(drive)).count()
    }

    /// How badly a segment needs repair: chunks lost, damage, chunks on drives that are emptied, parities that it was
    /// not given.
    fn need(&self, shared: &Shared, parity: u8, segment: &Segment) -> (usize, bool, usize, u8) {
        let lacking = parity.saturating_sub(segment.row.parity);
        (self.lost(shared, segment), segment.is_damaged, self.drained(segment), lacking)
    }
}

/// The segment that needs repair most, of those that are not being rebuilt and are none of these; and whether it lacks
/// parities.
pub(crate) fn most_degraded(
    shared: &Shared,
    keeper: &Keeper,
    absent: &Absent,
    chosen: &[SegmentId],
) -> Option<(SegmentId, bool)> {
    let core = shared.core.lock();
    let (_, parity) = shared.shape_now(&core.space);
    let closed = core.space.segments().filter(|segment| {
        let id = segment.row.id;
        let is_left = keeper.given_up.contains(&id) || keeper.marked.contains(&id);
        let is_taken = keeper.rebuild.has(id) || chosen.contains(&id);
        !segment.is_open && segment.row.live_bytes > 0 && !is_left && !is_taken
    });
    let needs = closed.map(|segment| (absent.need(shared, parity, segment), segment.row.id));
    let (need, id) = needs.max()?;
    (need > (0, false, 0, 0)).then_some((id, need.3 > 0))
}

/// Moves what lives in a segment elsewhere, or reports that it cannot.
pub(crate) fn move_away(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    id: SegmentId,
) -> Result<(), VolumeError> {
    crate::keep::ensure_space(shared, keeper, io)?;
    let live = shared.core.lock().space.get(id).map_or(0, |segment| segment.row.live_bytes);
    clean::move_out(shared, keeper, io, id)?;
    add(&shared.counts.rebuilt, live);
    // Leaves and nodes move with the next checkpoint, and slots become free with it.
    checkpoint::run(shared, keeper, io, &checkpoint::Want::default())
}
