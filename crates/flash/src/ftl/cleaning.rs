//! Cleaning: makes erased units out of used ones, at the pace at which the host uses them up.
//!
//! A unit with `v` valid pages of `b` gives the host `b - v` pages for `v` copies. While the pool of
//! erased units is short, each host page is followed by its share of the copies, so that a unit is
//! erased by the time the host has used up the pages that it gave. No write waits for a whole unit.

use super::moving::{Job, Moving};
use super::points::{Point, Writer};
use super::prefetch;
use super::{Array, CleaningPace, Frontier, Ftl, LogicalPage, MediaPage, UnitId};

/// Pages copied at a time: enough accesses to the map in flight to hide the latency of each.
const BATCH: u32 = 32;

impl Ftl {
    /// Makes sure that the point of `handle` has a unit with room, and returns its group: the one
    /// asked for, or where there is space if that has none left.
    pub(super) fn open(&mut self, group: u16, handle: u16, array: &mut impl Array) -> u16 {
        let group = self.group_with_space(group, handle);
        // On a shared frontier the host takes room that cleaning has opened. Before it takes the last of it, cleaning
        // uses as much as it needs, and gives a unit back.
        if self.options.frontier == Frontier::Shared
            && self.pool.count(group) == 0
            && self.job(group, true).is_some()
        {
            self.copy(group, u32::MAX, array);
        }
        // Where nothing can be cleaned, closed units have valid pages alone. They are fewer than all
        // units without the reserve then, and with those that are open they leave three of it.
        while self.points.of(group, Writer::Host(handle)).unit.is_none() {
            if self.pool.count(group) > self.kept_for_cleaning() {
                self.hold_bound(group, array);
            } else if self.end_move(group, array) || self.clean_one(group, array) {
                continue;
            }
            self.open_unit(group, Writer::Host(handle), array);
        }
        group
    }

    /// The unit is full, or has to do as full, and may be cleaned from now on.
    pub(super) fn close(&mut self, unit: UnitId, array: &mut impl Array) {
        array.close(unit);
        self.units.close(unit, self.counts.host);
        self.victims.close(unit);
        self.cleaners[usize::from(self.pool.group_of(unit))].leveller.look_again();
    }

    /// Erased units that only cleaning may open, unless it has nothing to do. Cleaning a unit opens
    /// at most one and erases one, so with one for each of its points it always ends; on a shared
    /// frontier the host may have used up to one turn of the units that cleaning opened.
    fn kept_for_cleaning(&self) -> u32 {
        let points = match self.options.frontier {
            Frontier::Separate => self.options.cleaning_points(),
            Frontier::Shared => 2,
        };
        u32::try_from(points).expect("at most 129 points")
    }

    /// Whether the host may leave a unit unfinished.
    pub(super) fn may_leave(&self, group: u16) -> bool {
        self.options.frontier == Frontier::Separate
            || self.pool.count(group) > self.kept_for_cleaning()
    }

    /// A group whose valid pages leave no unit to be won is full; the emptiest one serves then.
    fn group_with_space(&self, group: u16, handle: u16) -> u16 {
        let is_open = |group| self.points.of(group, Writer::Host(handle)).unit.is_some();
        if self.options.groups == 1 || is_open(group) {
            return group;
        }
        let valid = |group| -> u64 {
            let units = self.pool.units_of(group);
            units.map(|unit| u64::from(self.victims.valid(unit))).sum()
        };
        let groups = u32::from(self.options.groups);
        let usable = (self.options.units - self.options.reserve_units()) / groups;
        if valid(group) < u64::from(usable) * u64::from(self.options.unit_pages) {
            return group;
        }
        (0..self.options.groups).min_by_key(|&other| valid(other)).unwrap_or(group)
    }

    pub(super) fn open_unit(&mut self, group: u16, writer: Writer, array: &mut impl Array) {
        let unit = self
            .pool
            .take(group, writer, self.worn_enough(group))
            .expect("cleaning keeps erased units");
        self.units.open(unit, writer, self.counts.host);
        array.open(unit, writer);
        *self.points.of_mut(group, writer) = Point { unit: Some(unit), next: 0 };
    }

    /// The erased units of a group that cleaning keeps.
    pub(super) fn reserve_of_group(&self) -> u32 {
        self.options.reserve_units() / u32::from(self.options.groups)
    }

    /// Does the share of cleaning and of wear levelling that `placed` host pages ask for.
    pub(super) fn keep_pace(&mut self, group: u16, placed: u32, array: &mut impl Array) {
        self.look_at_wear(group, array);
        let before = self.counts.copied;
        self.keep_clean(group, placed, array);
        let copied = u32::try_from(self.counts.copied - before).unwrap_or(u32::MAX);
        self.keep_level(group, placed.saturating_add(copied), array);
    }

    fn keep_clean(&mut self, group: u16, placed: u32, array: &mut impl Array) {
        let wanted = self.cleaners[usize::from(group)].leveller.wants();
        let reserve = self.reserve_of_group() + wanted;
        if self.options.pace == CleaningPace::WhenNeeded {
            while self.pool.count(group) < reserve && self.job(group, true).is_some() {
                self.copy(group, u32::MAX, array);
            }
            return;
        }
        let mut owed = placed;
        while owed > 0 {
            let is_asked = self.cleaners[usize::from(group)].leveller.asks();
            let is_short = is_asked || self.pool.count(group) < reserve;
            let Some(mut job) = self.job(group, is_short) else { return };
            let gain = self.options.unit_pages - job.valid;
            let paid = owed.min(gain - job.paid);
            owed -= paid;
            job.paid += paid;
            let due = if job.paid == gain {
                u32::MAX
            } else {
                let due = u64::from(job.valid) * u64::from(job.paid) / u64::from(gain);
                u32::try_from(due).expect("at most the valid pages")
                    - job.moving.copied.min(job.valid)
            };
            self.cleaners[usize::from(group)].job = Some(job);
            self.copy(group, due, array);
        }
    }

    /// Cleans one unit to its end, regardless of the host's writes; false if there is none from which anything could be
    /// won.
    fn clean_one(&mut self, group: u16, array: &mut impl Array) -> bool {
        let is_there = self.job(group, true).is_some();
        self.copy(group, u32::MAX, array);
        is_there
    }

    /// The unit being cleaned, or if `may_start` a new one.
    ///
    /// Which unit was being cleaned is not kept over a power cut. If units that only cleaning may
    /// open are in use then, the one with the fewest valid pages has no more of them than the one
    /// that was interrupted, and so fits where that was copied to, as a policy's choice may not.
    fn job(&mut self, group: u16, may_start: bool) -> Option<Job> {
        let is_interrupted = self.pool.count(group) < self.kept_for_cleaning();
        let cleaner = &mut self.cleaners[usize::from(group)];
        if cleaner.job.is_none() && may_start {
            let (pages, now) = (self.options.unit_pages, self.counts.host);
            let worn = cleaner.leveller.take_asked().filter(|&unit| self.victims.has(unit));
            let asked = if is_interrupted { self.victims.emptiest(group, pages) } else { worn };
            let unit = match asked {
                Some(unit) => {
                    self.victims.take(unit);
                    Some(unit)
                }
                None => self.victims.choose(group, &self.units, pages, now),
            }?;
            let valid = self.victims.valid(unit);
            cleaner.job = Some(Job { moving: Moving::new(unit), valid, paid: 0 });
        }
        cleaner.job
    }

    /// Copies up to `quota` valid pages of the unit being cleaned; at its end, erases it.
    fn copy(&mut self, group: u16, quota: u32, array: &mut impl Array) {
        let Some(mut job) = self.cleaners[usize::from(group)].job.take() else { return };
        let writer = self.points.successor(self.units.writer(job.moving.unit));
        self.carry(group, &mut job.moving, writer, quota, array);
        if job.moving.next == self.options.unit_pages {
            self.erase_moved(group, job.moving, array);
        } else {
            self.cleaners[usize::from(group)].job = Some(job);
        }
    }

    /// Copies up to `quota` valid pages of a unit to where `writer` writes.
    pub(super) fn carry(
        &mut self,
        group: u16,
        moving: &mut Moving,
        writer: Writer,
        quota: u32,
        array: &mut impl Array,
    ) {
        let pages = self.options.unit_pages;
        let start = moving.unit.first_page(pages);
        let mut left = quota;
        let mut batch = [(MediaPage(0), LogicalPage(0)); BATCH as usize];
        while moving.next < pages && left > 0 {
            if self.valid.next(start + moving.next, start + pages).is_none() {
                moving.next = pages;
                break;
            }
            if self.points.of(group, writer).unit.is_none() {
                self.open_unit(group, writer, array);
            }
            let Point { unit: Some(to_unit), next: to_next } = *self.points.of(group, writer)
            else {
                unreachable!("opened above")
            };
            let room = left.min(pages - to_next).min(BATCH);
            // First ask for the map's entries of a batch, then write them.
            let mut copied = 0;
            while copied < room
                && let Some(from) = self.valid.next(start + moving.next, start + pages)
            {
                let page = LogicalPage(self.content[from.index()]);
                prefetch::prefetch(&self.map, page.index());
                batch[copied as usize] = (from, page);
                moving.next = from + 1 - start;
                copied += 1;
            }
            if copied < room {
                moving.next = pages;
            }
            let to_start = to_unit.first_page(pages) + to_next;
            for (&(from, page), to) in batch[..copied as usize].iter().zip(to_start.0..) {
                let to = MediaPage(to);
                self.map[page.index()] = to;
                self.content[to.index()] = page.0;
                array.copy(from, to, page);
            }
            self.valid.set(to_start..to_start + copied);
            self.victims.lose_pages(moving.unit, copied);
            self.victims.gain_pages(to_unit, copied);
            self.counts.copied += u64::from(copied);
            left -= copied;
            self.points.of_mut(group, writer).next += copied;
            if to_next + copied == pages {
                self.close(to_unit, array);
                *self.points.of_mut(group, writer) = Point::default();
            }
        }
        moving.copied += quota - left;
    }

    /// Erases a unit whose valid pages were moved.
    pub(super) fn erase_moved(&mut self, group: u16, moved: Moving, array: &mut impl Array) {
        if moved.copied > 0 {
            array.moved(group, self.units.writer(moved.unit), moved.copied);
        }
        self.erase(group, moved.unit, array);
    }

    /// Erases a unit that has no valid page left.
    pub(super) fn erase(&mut self, group: u16, unit: UnitId, array: &mut impl Array) {
        debug_assert_eq!(self.victims.valid(unit), 0, "unit {unit} is erased with valid pages");
        let start = unit.first_page(self.options.unit_pages);
        self.valid.clear(start..start + self.options.unit_pages);
        self.units.erase(unit, self.counts.host);
        self.pool.put(unit, self.units.erasures(unit));
        self.counts.erased += u64::from(self.options.unit_pages);
        array.erase(unit);
        self.cleaners[usize::from(group)].leveller.look_again();
    }
}
