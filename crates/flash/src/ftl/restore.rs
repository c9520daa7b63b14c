//! A translation layer's state, taken out and put back, and brought up to date event by event.
//!
//! Input from a medium is checked here: a wrong event is an error, never a panic.

use std::fmt;

use super::moving::Cleaner;
use super::points::Point;
use super::units::Phase;
use super::{Ftl, FtlOptions, LogicalPage, MediaPage, NOWHERE, PageCounts, UnitId, Writer};
use crate::FlashError;

/// Something that happened to the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A unit was opened.
    Open {
        /// Which.
        unit: UnitId,
        /// By whom.
        writer: Writer,
    },
    /// Consecutive pages were written by the host to consecutive media pages.
    Program {
        /// The first logical page.
        page: LogicalPage,
        /// The first media page.
        at: MediaPage,
        /// How many.
        count: u32,
    },
    /// Consecutive pages were copied by cleaning to consecutive media pages.
    Copy {
        /// The first logical page.
        page: LogicalPage,
        /// The first media page.
        at: MediaPage,
        /// How many.
        count: u32,
    },
    /// A unit was closed.
    Close {
        /// Which.
        unit: UnitId,
    },
    /// A unit was erased.
    Erase {
        /// Which.
        unit: UnitId,
    },
    /// The host has put a stripe on a die of its choice, which the layer need not know.
    Place {
        /// Which.
        stripe: u32,
        /// The die.
        die: u16,
    },
    /// Consecutive pages were trimmed.
    Trim {
        /// The first.
        page: LogicalPage,
        /// How many.
        count: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Open { unit, .. } => write!(f, "that unit {unit} was opened"),
            Event::Program { page, at, count } => {
                write!(f, "that {count} pages from {page} on were written to media page {at}")
            }
            Event::Copy { page, at, count } => {
                write!(f, "that {count} pages from {page} on were copied to media page {at}")
            }
            Event::Close { unit } => write!(f, "that unit {unit} was closed"),
            Event::Erase { unit } => write!(f, "that unit {unit} was erased"),
            Event::Place { stripe, die } => {
                write!(f, "that stripe {stripe} was put on die {die}")
            }
            Event::Trim { page, count } => {
                write!(f, "that {count} pages from {page} on were trimmed")
            }
        }
    }
}

/// The state of a unit, to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRecord {
    /// Erased, open or closed.
    pub phase: Phase,
    /// The writer that filled it.
    pub writer: Writer,
    /// How often it was erased.
    pub erasures: u32,
    /// In pages written by the host: when it was opened or closed last; of an erased unit, for how
    /// long it had been closed.
    pub closed_at: u64,
    /// Pages programmed, if it is open.
    pub next: u32,
}

impl Ftl {
    /// Where every logical page lies; the page with the number [`u32::MAX`] is nowhere.
    #[must_use]
    pub fn map(&self) -> &[MediaPage] {
        &self.map
    }

    /// The units, to be kept.
    pub fn unit_records(&self) -> impl Iterator<Item = UnitRecord> + '_ {
        UnitId::all(0..self.options.units).map(|unit| UnitRecord {
            phase: self.units.phase(unit),
            writer: self.units.writer(unit),
            erasures: self.units.erasures(unit),
            closed_at: self.units.clock(unit),
            next: self.points.of_unit(unit).map_or(0, |point| point.next),
        })
    }

    /// A layer in a state that was kept.
    ///
    /// # Errors
    /// When the parts contradict each other or the options.
    pub fn restore(
        options: FtlOptions,
        map: Vec<MediaPage>,
        records: &[UnitRecord],
        counts: PageCounts,
    ) -> Result<Ftl, FlashError> {
        let mut ftl = Ftl::new(options)?;
        if map.len() != ftl.map.len() || records.len() != ftl.options.units as usize {
            return corrupt(format!(
                "a map of {} pages and {} units do not fit the drive",
                map.len(),
                records.len()
            ));
        }
        ftl.counts = counts;
        for (unit, record) in (0..).map(UnitId).zip(records) {
            if record.erasures > u32::MAX / 2 || record.closed_at > counts.host {
                return corrupt(format!(
                    "unit {unit} was erased {} times, and closed after {} of {} pages",
                    record.erasures, record.closed_at, counts.host
                ));
            }
            ftl.units.set_erasures(unit, record.erasures);
            ftl.units.set_clock(unit, record.closed_at);
            ftl.pool.wear(unit, record.erasures);
        }
        let in_phase = |phase| {
            let numbered = (0..).map(UnitId).zip(records);
            numbered.filter(move |(_, record): &(UnitId, &UnitRecord)| record.phase == phase)
        };
        for (unit, record) in in_phase(Phase::Closed) {
            ftl.replay(Event::Open { unit, writer: record.writer })?;
            ftl.forget_point(unit);
        }
        for (unit, record) in in_phase(Phase::Open) {
            ftl.replay(Event::Open { unit, writer: record.writer })?;
            if record.next >= ftl.options.unit_pages {
                return corrupt(format!("unit {unit} is open and full"));
            }
            ftl.points.of_mut(ftl.pool.group_of(unit), record.writer).next = record.next;
            ftl.units.set_clock(unit, record.closed_at);
        }
        for (page, &at) in (0..).map(LogicalPage).zip(&map) {
            if at == NOWHERE {
                continue;
            }
            let is_new = ftl.content.get(at.index()).is_some() && !ftl.valid.has(at);
            if !is_new || ftl.units.phase(ftl.units.of(at)) == Phase::Free {
                return corrupt(format!(
                    "page {page} is mapped to media page {at}, where it is not"
                ));
            }
            ftl.set(page, at);
        }
        let mut closed: Vec<_> =
            in_phase(Phase::Closed).map(|(unit, record)| (record.closed_at, unit)).collect();
        closed.sort_unstable();
        for (closed_at, unit) in closed {
            ftl.units.close(unit, closed_at);
            ftl.victims.close(unit);
        }
        Ok(ftl)
    }

    /// The layer with these options on units as worn as this one's, and with nothing written: units
    /// in use are erased.
    ///
    /// # Errors
    /// As [`Ftl::new`].
    pub fn reformat(&self, options: FtlOptions) -> Result<Ftl, FlashError> {
        let mut records: Vec<_> = self.unit_records().collect();
        let mut counts = self.counts;
        for record in records.iter_mut().filter(|record| record.phase != Phase::Free) {
            record.phase = Phase::Free;
            record.closed_at = 0;
            record.erasures += 1;
            counts.erased += u64::from(self.options.unit_pages);
        }
        let map = vec![NOWHERE; options.logical_pages as usize];
        Ftl::restore(options, map, &records, counts)
    }

    /// Repeats an event.
    ///
    /// # Errors
    /// When it cannot have happened in this state.
    pub fn replay(&mut self, event: Event) -> Result<(), FlashError> {
        let impossible =
            || FlashError::Corrupt(format!("its journal is wrong: {event} cannot have happened"));
        match event {
            Event::Open { unit, writer } => {
                self.phase_is(unit, Phase::Free).ok_or_else(impossible)?;
                let handle = usize::from(writer.handle().unwrap_or(0));
                let group = self.pool.group_of(unit);
                let may_open = handle < self.options.handles.len()
                    && self.points.of(group, writer).unit.is_none();
                if !may_open || !self.pool.remove(unit, self.units.erasures(unit)) {
                    return Err(impossible());
                }
                self.units.open(unit, writer, self.counts.host);
                *self.points.of_mut(group, writer) = Point { unit: Some(unit), next: 0 };
            }
            Event::Program { page, at, count } | Event::Copy { page, at, count } => {
                let unit = self.units.of(at);
                self.phase_is(unit, Phase::Open).ok_or_else(impossible)?;
                let (group, writer) = (self.pool.group_of(unit), self.units.writer(unit));
                let point = *self.points.of(group, writer);
                let fits = u64::from(point.next) + u64::from(count)
                    <= u64::from(self.options.unit_pages)
                    && u64::from(page) + u64::from(count) <= u64::from(self.options.logical_pages);
                let goes_on = at == unit.first_page(self.options.unit_pages) + point.next;
                if !fits || !goes_on || point.unit != Some(unit) {
                    return Err(impossible());
                }
                for index in 0..count {
                    self.forget(page + index);
                    self.set(page + index, at + index);
                }
                self.points.of_mut(group, writer).next += count;
                let counter = match event {
                    Event::Program { .. } => &mut self.counts.host,
                    _ => &mut self.counts.copied,
                };
                *counter += u64::from(count);
            }
            Event::Place { .. } => {}
            Event::Close { unit } => {
                self.phase_is(unit, Phase::Open).ok_or_else(impossible)?;
                self.forget_point(unit);
                self.units.close(unit, self.counts.host);
                self.victims.close(unit);
            }
            Event::Erase { unit } => {
                self.phase_is(unit, Phase::Closed).ok_or_else(impossible)?;
                if self.victims.valid(unit) > 0 {
                    return Err(impossible());
                }
                self.victims.take(unit);
                self.units.erase(unit, self.counts.host);
                self.pool.put(unit, self.units.erasures(unit));
                self.counts.erased += u64::from(self.options.unit_pages);
            }
            Event::Trim { page, count } => {
                let end = page.0.checked_add(count).ok_or_else(impossible)?;
                if end > self.options.logical_pages {
                    return Err(impossible());
                }
                self.trim(page, count);
            }
        }
        for cleaner in &mut self.cleaners {
            *cleaner = Cleaner::default();
        }
        Ok(())
    }

    fn phase_is(&self, unit: UnitId, phase: Phase) -> Option<()> {
        (unit.0 < self.options.units && self.units.phase(unit) == phase).then_some(())
    }

    fn forget_point(&mut self, unit: UnitId) {
        let (group, writer) = (self.pool.group_of(unit), self.units.writer(unit));
        *self.points.of_mut(group, writer) = Point::default();
    }

    fn forget(&mut self, page: LogicalPage) {
        let old = std::mem::replace(&mut self.map[page.index()], NOWHERE);
        if old != NOWHERE {
            self.valid.remove(old);
            self.victims.lose_page(self.units.of(old));
        }
    }

    fn set(&mut self, page: LogicalPage, at: MediaPage) {
        self.map[page.index()] = at;
        self.content[at.index()] = page.0;
        self.valid.set(at..at + 1);
        self.victims.gain_pages(self.units.of(at), 1);
    }
}

fn corrupt<T>(what: String) -> Result<T, FlashError> {
    Err(FlashError::Corrupt(what))
}
