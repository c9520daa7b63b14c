//! The reclaim units: the state of each, how often it was erased, and the pool of erased ones.

use std::collections::BTreeSet;

use super::ids::{MediaPage, UnitId};
use super::points::Writer;
use super::victims::Victims;

/// The state of a reclaim unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// Erased.
    Free {
        /// How often.
        erasures: u32,
    },
    /// Being filled.
    Open {
        /// By whom.
        writer: Writer,
        /// Pages with data that is not superseded.
        valid: u32,
        /// How often it was erased before.
        erasures: u32,
    },
    /// Full, or given up before; cleaning may have begun.
    Closed {
        /// The writer that filled it.
        writer: Writer,
        /// Pages with data that is not superseded.
        valid: u32,
        /// How often it was erased before.
        erasures: u32,
    },
}

impl UnitState {
    /// How often the unit was erased.
    #[must_use]
    pub fn erasures(&self) -> u32 {
        match *self {
            UnitState::Free { erasures }
            | UnitState::Open { erasures, .. }
            | UnitState::Closed { erasures, .. } => erasures,
        }
    }
}

/// Where a unit is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Full, or given up before.
    Closed,
}

/// The units, by number.
pub(super) struct Units {
    phase: Vec<Phase>,
    writer: Vec<Writer>,
    erasures: Vec<u32>,
    /// In pages written by the host: when a unit was opened or closed last; for how long an erased
    /// one had been closed.
    clock: Vec<u64>,
    /// The closed units of each group: the least worn one first, among equals the one that has been
    /// closed for longest.
    by_wear: Vec<BTreeSet<(u32, u64, UnitId)>>,
    group_units: u32,
    /// 2^64 ÷ pages per unit, rounded up; zero for units of one page.
    reciprocal: u64,
}

impl Units {
    pub(super) fn new(units: u32, unit_pages: u32, groups: u16) -> Units {
        let count = units as usize;
        Units {
            phase: vec![Phase::Free; count],
            writer: vec![Writer::default(); count],
            erasures: vec![0; count],
            clock: vec![0; count],
            by_wear: vec![BTreeSet::new(); usize::from(groups)],
            group_units: units / u32::from(groups),
            reciprocal: (u64::MAX / u64::from(unit_pages)).wrapping_add(1),
        }
    }

    /// The unit of a page: a division by multiplication, exact for 32 bits (Lemire, Kaser and
    /// Kurz 2019, theorem 1), since every write asks.
    #[inline]
    pub(super) fn of(&self, at: MediaPage) -> UnitId {
        if self.reciprocal == 0 {
            return UnitId(at.0);
        }
        let product = u128::from(self.reciprocal) * u128::from(at.0);
        #[allow(clippy::cast_possible_truncation)] // at most `at`
        let unit = (product >> 64) as u32;
        UnitId(unit)
    }

    pub(super) fn open(&mut self, unit: UnitId, writer: Writer, now: u64) {
        debug_assert_eq!(self.phase[unit.index()], Phase::Free, "unit {unit} is in use");
        self.phase[unit.index()] = Phase::Open;
        self.writer[unit.index()] = writer;
        self.clock[unit.index()] = now;
    }

    pub(super) fn close(&mut self, unit: UnitId, now: u64) {
        debug_assert_eq!(self.phase[unit.index()], Phase::Open, "unit {unit} is not open");
        self.phase[unit.index()] = Phase::Closed;
        self.clock[unit.index()] = now;
        let key = self.key(unit);
        self.by_wear[(unit.0 / self.group_units) as usize].insert(key);
    }

    fn key(&self, unit: UnitId) -> (u32, u64, UnitId) {
        (self.erasures(unit), self.clock(unit), unit)
    }

    /// The closed units of a group: the least worn one first, among equals the one that has been
    /// closed for longest.
    pub(super) fn closed_by_wear(&self, group: u16) -> impl Iterator<Item = UnitId> + '_ {
        self.by_wear[usize::from(group)].iter().map(|&(_, _, unit)| unit)
    }

    pub(super) fn set_clock(&mut self, unit: UnitId, clock: u64) {
        debug_assert_ne!(self.phase[unit.index()], Phase::Closed, "unit {unit} is in order");
        self.clock[unit.index()] = clock;
    }

    pub(super) fn erase(&mut self, unit: UnitId, now: u64) {
        debug_assert_eq!(self.phase[unit.index()], Phase::Closed, "unit {unit} is not closed");
        let key = self.key(unit);
        self.by_wear[(unit.0 / self.group_units) as usize].remove(&key);
        self.phase[unit.index()] = Phase::Free;
        self.erasures[unit.index()] += 1;
        self.clock[unit.index()] = now - self.clock[unit.index()];
    }

    pub(super) fn phase(&self, unit: UnitId) -> Phase {
        self.phase[unit.index()]
    }

    pub(super) fn set_erasures(&mut self, unit: UnitId, erasures: u32) {
        self.erasures[unit.index()] = erasures;
    }

    pub(super) fn writer(&self, unit: UnitId) -> Writer {
        self.writer[unit.index()]
    }

    pub(super) fn erasures(&self, unit: UnitId) -> u32 {
        self.erasures[unit.index()]
    }

    /// In pages written by the host: when it was opened or closed last; of an erased unit, for how
    /// long it had been closed.
    pub(super) fn clock(&self, unit: UnitId) -> u64 {
        self.clock[unit.index()]
    }

    pub(super) fn state(&self, unit: UnitId, victims: &Victims) -> UnitState {
        let (writer, erasures) = (self.writer(unit), self.erasures(unit));
        let valid = victims.valid(unit);
        match self.phase[unit.index()] {
            Phase::Free => UnitState::Free { erasures },
            Phase::Open => UnitState::Open { writer, valid, erasures },
            Phase::Closed => UnitState::Closed { writer, valid, erasures },
        }
    }
}

/// The erased units of each group, by wear.
pub(super) struct Pool {
    groups: Vec<BTreeSet<(u32, UnitId)>>,
    group_units: u32,
}

impl Pool {
    /// All `units` are erased, none was before.
    pub(super) fn new(units: u32, groups: u16) -> Pool {
        let group_units = units / u32::from(groups);
        let of_group = |group: u16| {
            let first = u32::from(group) * group_units;
            UnitId::all(first..first + group_units).map(|unit| (0, unit)).collect()
        };
        Pool { groups: (0..groups).map(of_group).collect(), group_units }
    }

    pub(super) fn group_of(&self, unit: UnitId) -> u16 {
        u16::try_from(unit.0 / self.group_units).expect("groups are numbered in 16 bits")
    }

    pub(super) fn units_of(&self, group: u16) -> impl Iterator<Item = UnitId> + use<> {
        let first = u32::from(group) * self.group_units;
        UnitId::all(first..first + self.group_units)
    }

    pub(super) fn count(&self, group: u16) -> u32 {
        u32::try_from(self.groups[usize::from(group)].len()).expect("units are numbered in 32 bits")
    }

    /// Takes an erased unit. The host gets the least worn one, since its writes die young; cleaning
    /// the most worn one, since surviving pages tend to stay. But cleaning gets none that was
    /// erased `limit` times as long as there is another. Levelling gets the most worn one of all.
    pub(super) fn take(&mut self, group: u16, writer: Writer, limit: u32) -> Option<UnitId> {
        let pool = &mut self.groups[usize::from(group)];
        let taken = match writer {
            Writer::Host(_) => pool.first(),
            Writer::Cleaning | Writer::CleaningOf(_) => {
                pool.range(..(limit, UnitId(0))).next_back().or(pool.first())
            }
            Writer::Levelling | Writer::LevellingOf(_) => pool.last(),
        };
        let taken = *taken?;
        pool.remove(&taken);
        Some(taken.1)
    }

    /// The erased units of a group, the least worn one first.
    pub(super) fn erased(&self, group: u16) -> impl Iterator<Item = UnitId> + '_ {
        self.groups[usize::from(group)].iter().map(|&(_, unit)| unit)
    }

    /// The least worn erased unit.
    pub(super) fn least_worn(&self, group: u16) -> Option<UnitId> {
        self.groups[usize::from(group)].first().map(|&(_, unit)| unit)
    }

    /// The most worn erased unit.
    pub(super) fn most_worn(&self, group: u16) -> Option<UnitId> {
        self.groups[usize::from(group)].last().map(|&(_, unit)| unit)
    }

    /// Takes this unit, if it is in the pool.
    pub(super) fn remove(&mut self, unit: UnitId, erasures: u32) -> bool {
        let group = usize::from(self.group_of(unit));
        self.groups[group].remove(&(erasures, unit))
    }

    /// Says how often a unit was erased that was never before.
    pub(super) fn wear(&mut self, unit: UnitId, erasures: u32) {
        if self.remove(unit, 0) {
            self.put(unit, erasures);
        }
    }

    pub(super) fn put(&mut self, unit: UnitId, erasures: u32) {
        let group = usize::from(self.group_of(unit));
        self.groups[group].insert((erasures, unit));
    }
}
