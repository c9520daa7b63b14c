//! Which segments need repair: those first that have lost most.

use crate::config::in_state;
use crate::engine::{Keeper, Shared};
use crate::omf::label::{Config, MemberState};
use crate::space::Segment;
use crate::types::id::{DriveIndex, SegmentId};

/// Drives that are missing and waited for, and drives that are being emptied.
pub(crate) struct Absent {
    pub(crate) missing: Vec<DriveIndex>,
    pub(crate) draining: Vec<DriveIndex>,
}

impl Absent {
    /// As the configuration has it.
    pub(crate) fn of(config: &Config) -> Absent {
        let missing = in_state(config, MemberState::Missing);
        Absent { missing, draining: in_state(config, MemberState::Draining) }
    }

    /// The same without drives that are to be emptied, and are used for now.
    pub(crate) fn to_repair(shared: &Shared) -> Absent {
        let mut absent = Absent::of(&shared.config.lock());
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
