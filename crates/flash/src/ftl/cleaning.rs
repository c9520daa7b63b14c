//! Cleaning: makes erased units out of used ones, at the pace at which the host uses them up.
//!
//! A unit with `v` valid pages of `b` gives the host `b - v` pages for `v` copies. While the pool of
//! erased units is short, each host page is followed by its share of the copies, so that a unit is
//! erased by the time the host has written what it gave. No write waits for a whole unit.

use super::points::{Point, Writer};
use super::prefetch;
use super::{Array, CleaningPace, Frontier, Ftl, UnitId};

/// Pages copied at a time: enough accesses to the map in flight to hide what each one waits.
const BATCH: u32 = 32;

/// How often wear is looked at while each unit is erased once.
const LEVELLINGS: u32 = 16;

/// The unit that a group is cleaning, and what wear asks for next.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    job: Option<Job>,
    worn: Option<UnitId>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    unit: UnitId,
    /// The next page to look at.
    next: u32,
    /// Pages to be copied, counted when the unit was chosen, and those copied.
    valid: u32,
    copied: u32,
    /// Host pages that were written on its account.
    paid: u32,
}

impl Ftl {
    /// Makes sure that the point of `handle` has a unit with room, and returns its group: the one
    /// asked for, or where there is space if that has none left.
    pub(super) fn open(&mut self, group: u16, handle: u16, array: &mut impl Array) -> u16 {
        let group = self.group_with_space(group, handle);
        // On a shared frontier the host takes room that cleaning has opened. Before it takes the
        // last of it, cleaning uses what it needs, and gives a unit back.
        if self.options.frontier == Frontier::Shared
            && self.pool.count(group) == 0
            && self.job(group, true).is_some()
        {
            self.copy(group, u32::MAX, array);
        }
        // Where nothing can be cleaned, closed units have valid pages alone. They are fewer than all
        // units without the reserve then, and with those that are open they leave three of it.
        while self.points.of(group, Writer::Host(handle)).unit.is_none() {
            let is_rich = self.pool.count(group) > self.kept_for_cleaning();
            if is_rich || !self.clean_one(group, array) {
                self.open_unit(group, Writer::Host(handle), array);
            }
        }
        group
    }

    /// Erased units that only cleaning may open, unless it has nothing to do. Cleaning a unit opens at most one and erases one,
    /// so with one for each of its points it always ends; on a shared frontier the host may have
    /// used up to one turn of what cleaning opened.
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

    fn open_unit(&mut self, group: u16, writer: Writer, array: &mut impl Array) {
        let unit = self.pool.take(group, writer).expect("cleaning keeps erased units");
        self.units.open(unit, writer);
        array.open(unit, writer);
        *self.points.of_mut(group, writer) = Point { unit: Some(unit), next: 0 };
    }

    /// Does the share of cleaning that `placed` host pages ask for.
    pub(super) fn keep_pace(&mut self, group: u16, placed: u32, array: &mut impl Array) {
        let reserve = self.options.reserve_units() / u32::from(self.options.groups);
        if self.options.pace == CleaningPace::WhenNeeded {
            while self.pool.count(group) < reserve && self.job(group, true).is_some() {
                self.copy(group, u32::MAX, array);
            }
            return;
        }
        let mut owed = placed;
        while owed > 0 {
            let is_short = self.pool.count(group) < reserve;
            let Some(mut job) = self.job(group, is_short) else { return };
            let gain = self.options.unit_pages - job.valid;
            let paid = owed.min(gain - job.paid);
            owed -= paid;
            job.paid += paid;
            let due = if job.paid == gain {
                u32::MAX
            } else {
                let due = u64::from(job.valid) * u64::from(job.paid) / u64::from(gain);
                u32::try_from(due).expect("at most the valid pages") - job.copied.min(job.valid)
            };
            self.cleaners[usize::from(group)].job = Some(job);
            self.copy(group, due, array);
        }
    }

    /// Cleans one unit to its end, whatever the host has written; false if there is none from which
    /// anything could be won.
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
            let (units, now) = (&self.units, self.counts.host);
            let worn = cleaner.worn.take().filter(|&unit| units.is_closed(unit));
            let asked = if is_interrupted {
                self.victims.emptiest(group, self.options.unit_pages)
            } else {
                worn
            };
            let unit = match asked {
                Some(unit) => {
                    self.victims.take(unit);
                    Some(unit)
                }
                None => self.victims.choose(group, units, self.options.unit_pages, now),
            }?;
            let valid = self.victims.valid(unit);
            cleaner.job = Some(Job { unit, next: 0, valid, copied: 0, paid: 0 });
        }
        cleaner.job
    }

    /// Copies up to `quota` valid pages of the unit being cleaned; at its end, erases it.
    fn copy(&mut self, group: u16, quota: u32, array: &mut impl Array) {
        let Some(mut job) = self.cleaners[usize::from(group)].job.take() else { return };
        let pages = self.options.unit_pages;
        let writer = self.points.successor(self.units.writer(job.unit));
        let start = job.unit * pages;
        let mut left = quota;
        let mut batch = [(0, 0); BATCH as usize];
        while job.next < pages && left > 0 {
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
                && let Some(from) = self.valid.next(start + job.next, start + pages)
            {
                let page = self.content[from as usize];
                prefetch::prefetch(&self.map, page as usize);
                batch[copied as usize] = (from, page);
                job.next = from + 1 - start;
                copied += 1;
            }
            if copied < room {
                job.next = pages;
            }
            let to_start = to_unit * pages + to_next;
            for (&(from, page), to) in batch[..copied as usize].iter().zip(to_start..) {
                self.map[page as usize] = to;
                self.content[to as usize] = page;
                array.copy(from, to, page);
            }
            self.valid.set(to_start..to_start + copied);
            self.victims.lose_pages(job.unit, copied);
            self.victims.gain_pages(to_unit, copied);
            self.counts.copied += u64::from(copied);
            job.copied += copied;
            left -= copied;
            self.points.of_mut(group, writer).next += copied;
            if to_next + copied == pages {
                self.close(to_unit, array);
                *self.points.of_mut(group, writer) = Point::default();
            }
        }
        if job.next == pages {
            self.erase(group, job.unit, array);
        } else {
            self.cleaners[usize::from(group)].job = Some(job);
        }
    }

    fn erase(&mut self, group: u16, unit: UnitId, array: &mut impl Array) {
        debug_assert_eq!(self.victims.valid(unit), 0, "unit {unit} is erased with valid pages");
        let start = unit * self.options.unit_pages;
        self.valid.clear(start..start + self.options.unit_pages);
        self.units.erase(unit);
        self.pool.put(unit, self.units.erasures(unit));
        self.counts.erased += u64::from(self.options.unit_pages);
        array.erase(unit);
        let erasures = self.counts.erased / u64::from(self.options.unit_pages);
        if erasures.is_multiple_of(u64::from(self.options.units / LEVELLINGS).max(1)) {
            self.cleaners[usize::from(group)].worn = self.worn_behind(group);
        }
    }

    /// The closed unit that was erased least, if it lies behind the most worn one by more than is
    /// allowed.
    fn worn_behind(&self, group: u16) -> Option<UnitId> {
        let spread = self.options.wear_spread?;
        let erasures = |unit: &UnitId| self.units.erasures(*unit);
        let most = self.pool.units_of(group).map(|unit| erasures(&unit)).max()?;
        let closed = self.pool.units_of(group).filter(|&unit| self.units.is_closed(unit));
        closed.min_by_key(erasures).filter(|unit| most - erasures(unit) > spread)
    }
}
