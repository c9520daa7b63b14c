//! Wear levelling: data that is hardly ever written again rests on the most worn units.
//!
//! A unit that holds such data is not erased, and all others wear in its place. When the most worn
//! erased unit of a group is ahead of a cold one by nearly the bound, the pages of the cold unit are
//! moved to the worn one, and the host fills the young unit next. That is the swap of the dual-pool
//! algorithm (Chang 2007). A unit is moved as a whole and to a unit of its own: neither handles are
//! mixed, nor cold data with the pages that cleaning copies.
//!
//! Cost: with the share `c` of the units at rest and the bound `D`, a unit takes part in `D / c` erasures
//! before it rests again, and each rest is one more unit written and erased. So `c / D` of all writes to the
//! media is the least that holds the bound, and at most 1 % for a bound of 100. Moving begins at [`early`] of
//! it and keeps a pace, so that no write waits for a whole unit. Where that is too slow, the host's next unit
//! waits for a whole move.

use super::moving::{Leveller, Moving};
use super::points::{Point, Writer};
use super::{Array, CleaningPace, Ftl, UnitId};

/// Media pages written for each page that is moved.
const PAGES_A_MOVE: u64 = 8;
/// How many times as long as units that were just erased a cold one has rested.
const COLD: u64 = 4;

/// The difference in erasures from which on units are moved: an eighth before the bound.
fn early(bound: u32) -> u32 {
    (bound - bound / 8).max(1)
}

impl Ftl {
    /// Erasures from which on a unit is not for cleaning, which would wear it further.
    pub(super) fn worn_enough(&self, group: u16) -> u32 {
        let Some(bound) = self.options.wear_spread else { return u32::MAX };
        let youngest = self.units.closed_by_wear(group).next();
        youngest.map_or(u32::MAX, |unit| self.units.erasures(unit).saturating_add(early(bound)))
    }

    /// Begins to move a unit if wear asks for it.
    pub(super) fn look_at_wear(&mut self, group: u16, array: &mut impl Array) {
        let Some(bound) = self.options.wear_spread else { return };
        let leveller = self.leveller(group);
        if leveller.moving.is_some() || leveller.is_settled {
            return;
        }
        let Some(worn) = self.pool.most_worn(group) else { return };
        self.leave_behind(group, worn, early(bound), array);
        let cold = self.cold_one(group, worn, early(bound));
        let can_start = self.pool.count(group) >= self.reserve_of_group();
        let leveller = self.leveller(group);
        leveller.is_waiting = cold.is_some() && !can_start;
        leveller.is_settled = cold.is_none();
        if let Some(unit) = cold.filter(|_| can_start) {
            self.relieve(group, unit, array);
        }
    }

    /// Moves the share that `written` pages, the last that were written to the media, ask for.
    pub(super) fn keep_level(&mut self, group: u16, written: u32, array: &mut impl Array) {
        let media = self.counts.media();
        let due = media / PAGES_A_MOVE - (media - u64::from(written)) / PAGES_A_MOVE;
        let quota = match self.options.pace {
            CleaningPace::Steady => u32::try_from(due).unwrap_or(u32::MAX),
            CleaningPace::WhenNeeded => u32::MAX,
        };
        self.go_on_moving(group, quota, array);
    }

    /// Before the host opens a unit: where even the least worn one is ahead by the bound, a unit is
    /// moved at once, and leaves a younger one.
    pub(super) fn hold_bound(&mut self, group: u16, array: &mut impl Array) {
        let Some(bound) = self.options.wear_spread else { return };
        let Some(young) = self.pool.least_worn(group) else { return };
        let Some(unit) = self.cold_one(group, young, bound.max(1)) else { return };
        if self.leveller(group).moving.is_none() {
            self.relieve(group, unit, array);
        }
        self.go_on_moving(group, u32::MAX, array);
    }

    /// Ends the move that has begun, which gives a unit back; false if there is none.
    pub(super) fn end_move(&mut self, group: u16, array: &mut impl Array) -> bool {
        let is_moving = self.leveller(group).moving.is_some();
        self.go_on_moving(group, u32::MAX, array);
        is_moving
    }

    fn leveller(&mut self, group: u16) -> &mut Leveller {
        &mut self.cleaners[usize::from(group)].leveller
    }

    /// The least worn closed unit that an erased one is ahead of by so many erasures, that nothing is
    /// moving, and that is cold or holds nothing.
    fn cold_one(&self, group: u16, erased: UnitId, by: u32) -> Option<UnitId> {
        let closed = self.units.closed_by_wear(group);
        let mut behind = closed.take_while(|&unit| self.is_behind(unit, erased, by));
        behind.find(|&unit| {
            self.victims.has(unit) && (self.victims.valid(unit) == 0 || self.is_cold(group, unit))
        })
    }

    /// Whether a unit was erased less often than an erased one, by so many times or more.
    fn is_behind(&self, unit: UnitId, erased: UnitId, by: u32) -> bool {
        self.units.erasures(unit).saturating_add(by) <= self.units.erasures(erased)
    }

    /// Whether a unit has been at rest for much longer than any of the erased ones was before. Data that was just
    /// written may die as soon as the data in those did.
    fn is_cold(&self, group: u16, unit: UnitId) -> bool {
        let longest = self.pool.erased(group).map(|erased| self.units.clock(erased)).max();
        let rest = self.counts.host - self.units.clock(unit);
        rest >= longest.unwrap_or(0).saturating_mul(COLD)
    }

    /// Closes cold units that are open and behind: their writers may never write again.
    fn leave_behind(&mut self, group: u16, erased: UnitId, by: u32, array: &mut impl Array) {
        for writer in self.points.writers() {
            let Point { unit: Some(unit), .. } = *self.points.of(group, writer) else { continue };
            let is_left = self.is_behind(unit, erased, by) && self.is_cold(group, unit);
            if is_left && self.may_leave(group) {
                self.close(unit, array);
                *self.points.of_mut(group, writer) = Point::default();
                if let Writer::Host(handle) = writer {
                    array.turn(group, handle);
                }
            }
        }
    }

    /// Begins to empty a cold unit. Where it would soon be the one to be cleaned, its data is not worth a unit of its
    /// own.
    fn relieve(&mut self, group: u16, unit: UnitId, array: &mut impl Array) {
        let (pages, valid) = (self.options.unit_pages, self.victims.valid(unit));
        let emptiest = self.victims.emptiest(group, pages);
        let least = emptiest.map_or(pages, |unit| self.victims.valid(unit));
        if valid > 0 && valid - least < pages - valid {
            *self.leveller(group) =
                Leveller { asked: Some(unit), is_settled: true, ..Leveller::default() };
            return;
        }
        self.victims.take(unit);
        if valid == 0 {
            self.erase(group, unit, array);
            return;
        }
        let writer = self.points.levelled(self.units.writer(unit));
        // Open only if a power cut has ended the last move.
        if let Point { unit: Some(left), next } = *self.points.of(group, writer)
            && (self.units.writer(left) != writer || pages - next < valid)
        {
            self.close(left, array);
            *self.points.of_mut(group, writer) = Point::default();
        }
        if self.points.of(group, writer).unit.is_none() {
            self.open_unit(group, writer, array);
        }
        let moving = Some(Moving::new(unit));
        *self.leveller(group) = Leveller { moving, ..Leveller::default() };
    }

    fn go_on_moving(&mut self, group: u16, quota: u32, array: &mut impl Array) {
        let Some(mut moving) = self.leveller(group).moving.take() else { return };
        let writer = self.points.levelled(self.units.writer(moving.unit));
        self.carry(group, &mut moving, writer, quota, array);
        if moving.next < self.options.unit_pages {
            self.leveller(group).moving = Some(moving);
            return;
        }
        if let Some(unit) = std::mem::take(self.points.of_mut(group, writer)).unit {
            self.close(unit, array);
        }
        self.erase_moved(group, moving, array);
    }
}
