//! Which unit to clean: the valid pages of every unit, and the candidates of each policy.
//!
//! Every write makes a page invalid somewhere, so that has to be cheap: one decrement and one
//! comparison. Greedy cleaning finds the unit with the fewest valid pages through the minimum of
//! each block of 64 units, which those comparisons keep.

use std::collections::VecDeque;
use std::ops::Range;

use esker_base::Rng;

use super::ids::UnitId;
use super::options::{Cleaning, FtlOptions};
use super::units::Units;

/// Set in the score of a unit that is no candidate, so that it is larger than any other's.
const OUT: u32 = 1 << 31;
/// Units per block, as a shift.
const BLOCK: u32 = 6;

/// Valid pages and candidates.
pub(super) struct Victims {
    /// Valid pages of each unit, with [`OUT`] unless it is a candidate.
    scores: Vec<u32>,
    /// The lowest score of each block of units.
    lows: Vec<u32>,
    order: Order,
    group_units: u32,
}

/// State of a policy besides the scores.
enum Order {
    Greedy,
    CostBenefit,
    /// The candidates of each group, oldest first.
    Fifo(Vec<VecDeque<UnitId>>),
    Choices {
        count: u32,
        rng: Rng,
        /// The candidates of each group, in any order, and where each unit is among them.
        candidates: Vec<Vec<UnitId>>,
        place: Vec<usize>,
    },
}

impl Victims {
    pub(super) fn new(options: &FtlOptions) -> Victims {
        let (units, groups) = (options.units as usize, usize::from(options.groups));
        let order = match options.cleaning {
            Cleaning::Greedy => Order::Greedy,
            Cleaning::CostBenefit => Order::CostBenefit,
            Cleaning::Fifo => Order::Fifo(vec![VecDeque::new(); groups]),
            Cleaning::Choices(count) => Order::Choices {
                count,
                rng: Rng::new(options.seed),
                candidates: vec![Vec::new(); groups],
                place: vec![0; units],
            },
        };
        Victims {
            scores: vec![OUT; units],
            lows: vec![OUT; units.div_ceil(1 << BLOCK)],
            order,
            group_units: options.units / u32::from(options.groups),
        }
    }

    /// Valid pages of a unit.
    pub(super) fn valid(&self, unit: UnitId) -> u32 {
        self.scores[unit.index()] & !OUT
    }

    /// Whether the unit may be chosen: it is closed, and nothing is moving it.
    pub(super) fn has(&self, unit: UnitId) -> bool {
        self.scores[unit.index()] & OUT == 0
    }

    /// A page of the unit is no longer valid.
    #[inline]
    pub(super) fn lose_page(&mut self, unit: UnitId) {
        let score = &mut self.scores[unit.index()];
        *score -= 1;
        let low = &mut self.lows[unit.index() >> BLOCK];
        if *score < *low {
            *low = *score;
        }
    }

    /// So many pages of a unit that is no candidate are no longer valid.
    pub(super) fn lose_pages(&mut self, unit: UnitId, count: u32) {
        debug_assert!(self.scores[unit.index()] & OUT != 0, "cleaned units are no candidates");
        self.scores[unit.index()] -= count;
    }

    /// So many pages of a unit that is no candidate have become valid.
    pub(super) fn gain_pages(&mut self, unit: UnitId, count: u32) {
        debug_assert!(self.scores[unit.index()] & OUT != 0, "open units are no candidates");
        self.scores[unit.index()] += count;
    }

    /// The unit becomes a candidate.
    pub(super) fn close(&mut self, unit: UnitId) {
        let score = &mut self.scores[unit.index()];
        *score &= !OUT;
        let low = &mut self.lows[unit.index() >> BLOCK];
        *low = (*low).min(*score);
        let group = (unit.0 / self.group_units) as usize;
        match &mut self.order {
            Order::Greedy | Order::CostBenefit => {}
            Order::Fifo(queues) => queues[group].push_back(unit),
            Order::Choices { candidates, place, .. } => {
                place[unit.index()] = candidates[group].len();
                candidates[group].push(unit);
            }
        }
    }

    /// Chooses a unit of the group and takes it out of the candidates. None if there is none, or
    /// none from which anything could be won by a policy that looks.
    pub(super) fn choose(
        &mut self,
        group: u16,
        units: &Units,
        unit_pages: u32,
        now: u64,
    ) -> Option<UnitId> {
        let first = u32::from(group) * self.group_units;
        let range = first..first + self.group_units;
        let chosen = match &mut self.order {
            Order::Greedy => self.lowest(range),
            Order::CostBenefit => self.best_value(range, units, unit_pages, now),
            Order::Fifo(queues) => {
                let oldest = *queues[usize::from(group)].front()?;
                // It may be full, as long as it comes to one that is not.
                let is_full = |unit: UnitId| self.scores[unit.index()] == unit_pages;
                if is_full(oldest) && self.lowest(range).is_none_or(is_full) {
                    return None;
                }
                if let Order::Fifo(queues) = &mut self.order {
                    queues[usize::from(group)].pop_front();
                }
                self.leave(oldest);
                return Some(oldest);
            }
            Order::Choices { count, rng, candidates, .. } => {
                let candidates = &candidates[usize::from(group)];
                let among = candidates.len() as u64;
                let draws = if among == 0 { 0 } else { *count };
                let drawn = (0..draws).map(|_| {
                    let index = esker_base::units::to_usize(rng.below(among));
                    candidates[index]
                });
                drawn.min_by_key(|&unit| self.scores[unit.index()])
            }
        };
        let is_worth_it = |unit: &UnitId| self.scores[unit.index()] < unit_pages;
        let chosen = match chosen.filter(is_worth_it) {
            // All draws were full units: the rare case is settled by looking at all.
            None if matches!(self.order, Order::Choices { .. }) => self
                .lowest(first..first + self.group_units)
                .filter(|unit| self.scores[unit.index()] < unit_pages),
            chosen => chosen,
        }?;
        self.take(chosen);
        Some(chosen)
    }

    /// Takes a unit out of the candidates.
    pub(super) fn take(&mut self, unit: UnitId) {
        self.leave(unit);
        let group = (unit.0 / self.group_units) as usize;
        match &mut self.order {
            Order::Greedy | Order::CostBenefit => {}
            Order::Fifo(queues) => queues[group].retain(|&other| other != unit),
            Order::Choices { candidates, place, .. } => {
                let at = place[unit.index()];
                candidates[group].swap_remove(at);
                if let Some(&moved) = candidates[group].get(at) {
                    place[moved.index()] = at;
                }
            }
        }
    }

    /// Its score is no longer a candidate's.
    fn leave(&mut self, unit: UnitId) {
        self.scores[unit.index()] |= OUT;
        let block = unit.index() >> BLOCK;
        let start = block << BLOCK;
        let end = (start + (1 << BLOCK)).min(self.scores.len());
        self.lows[block] = self.scores[start..end].iter().copied().min().unwrap_or(OUT);
    }

    /// The candidate of a group with the fewest valid pages, if it has a page to be won.
    pub(super) fn emptiest(&self, group: u16, unit_pages: u32) -> Option<UnitId> {
        let first = u32::from(group) * self.group_units;
        let found = self.lowest(first..first + self.group_units);
        found.filter(|&unit| self.valid(unit) < unit_pages)
    }

    /// The candidate with the lowest score in a range of units.
    fn lowest(&self, range: Range<u32>) -> Option<UnitId> {
        let (start, end) = (range.start as usize, range.end as usize);
        let size = 1usize << BLOCK;
        // A block at the edge of the range may have its minimum outside.
        let low_of = |block: usize| {
            let whole = block * size..((block + 1) * size).min(self.scores.len());
            if start <= whole.start && whole.end <= end {
                self.lows[block]
            } else {
                let inside = whole.start.max(start)..whole.end.min(end);
                self.scores[inside].iter().copied().min().unwrap_or(OUT)
            }
        };
        let blocks = start / size..end.div_ceil(size);
        let block = blocks.min_by_key(|&block| low_of(block))?;
        let inside = (block * size).max(start)..((block + 1) * size).min(end);
        let unit = inside.min_by_key(|&unit| self.scores[unit])?;
        let is_candidate = self.scores[unit] & OUT == 0;
        is_candidate.then(|| UnitId(u32::try_from(unit).expect("units are numbered in 32 bits")))
    }

    fn best_value(
        &self,
        range: Range<u32>,
        units: &Units,
        unit_pages: u32,
        now: u64,
    ) -> Option<UnitId> {
        let value = |unit: UnitId| {
            let used = f64::from(self.valid(unit)) / f64::from(unit_pages);
            #[allow(clippy::cast_precision_loss)] // compared with other ages only
            let age = (now - units.clock(unit)) as f64 + 1.0;
            (1.0 - used) * age / (1.0 + used)
        };
        let candidates = UnitId::all(range).filter(|&unit| self.scores[unit.index()] & OUT == 0);
        candidates.max_by(|&a, &b| value(a).total_cmp(&value(b)).then(b.cmp(&a)))
    }
}
