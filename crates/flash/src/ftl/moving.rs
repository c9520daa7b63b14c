//! The units that a group is moving: to clean them, and for the sake of wear.

use super::ids::UnitId;

/// The unit that a group is cleaning, and the one that it moves for the sake of wear.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    pub(super) job: Option<Job>,
    pub(super) leveller: Leveller,
}

/// A unit whose valid pages are being moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    pub(super) unit: UnitId,
    /// The next page to look at.
    pub(super) next: u32,
    /// Pages that were copied so far.
    pub(super) copied: u32,
}

impl Moving {
    /// A unit of which nothing was moved yet.
    pub(super) fn new(unit: UnitId) -> Moving {
        Moving { unit, next: 0, copied: 0 }
    }
}

/// A unit that is being cleaned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) moving: Moving,
    /// Pages to be copied, counted when the unit was chosen.
    pub(super) valid: u32,
    /// Host pages that were written on its account.
    pub(super) paid: u32,
}

/// State of levelling in a group. Nothing of it is kept over a power cut: it follows from the units.
#[derive(Debug, Default)]
pub(super) struct Leveller {
    pub(super) moving: Option<Moving>,
    /// A cold unit with so much that is superseded that it is cleaned instead.
    pub(super) asked: Option<UnitId>,
    /// A unit is to be moved as soon as one more is erased than cleaning keeps.
    pub(super) is_waiting: bool,
    /// Nothing was closed or erased since it was found that nothing is to be done.
    pub(super) is_settled: bool,
}

impl Leveller {
    /// Erased units that it asks cleaning for.
    pub(super) fn wants(&self) -> u32 {
        u32::from(self.is_waiting)
    }

    /// Whether it asks that a unit be cleaned.
    pub(super) fn asks(&self) -> bool {
        self.asked.is_some()
    }

    pub(super) fn take_asked(&mut self) -> Option<UnitId> {
        self.asked.take()
    }

    /// A unit was closed or erased.
    pub(super) fn look_again(&mut self) {
        self.is_settled = false;
    }
}
