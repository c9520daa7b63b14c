//! Which die holds each stripe, where the host chooses that.
//!
//! A reclaim unit has its blocks on the dies in turn, and is filled row by row: a row has one stripe for
//! each die of the unit. Within a row the host is free, and gives a stripe to the die that has least to do
//! among those that still take one. So the blocks of a unit fill evenly, each from its first page to its
//! last, and a program does not wait for a die that is busy while another one of the row is not.
//!
//! Invariants
//! 1. No two stripes of a row are on one die.
//! 2. A stripe that nobody has placed, because time was not modelled, is on the die whose turn it was.

use crate::FlashError;
use crate::ftl::UnitId;

/// No die was chosen.
const IN_TURN: u16 = u16::MAX;

/// The die of each stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    dies: Vec<u16>,
    in_all: u32,
    unit_stripes: u32,
    /// The dies of a row that are taken; memory for one choice.
    taken: Vec<bool>,
}

impl Places {
    /// For `units` units of `unit_stripes` stripes on so many dies, which [`super::Parameters`] bounds.
    pub(crate) fn new(units: u32, unit_stripes: u32, dies: u32) -> Places {
        let stripes = units as usize * unit_stripes as usize;
        let taken = vec![false; dies as usize];
        Places { dies: vec![IN_TURN; stripes], in_all: dies, unit_stripes, taken }
    }

    /// The die that holds a stripe.
    pub(crate) fn die_of(&self, stripe: u32) -> u32 {
        match self.dies[stripe as usize] {
            IN_TURN => stripe % self.in_all,
            die => u32::from(die),
        }
    }

    /// The other stripes of the same row.
    fn row_of(&self, stripe: u32) -> std::ops::Range<u32> {
        let unit = stripe / self.unit_stripes * self.unit_stripes;
        let first = unit + (stripe - unit) / self.in_all * self.in_all;
        first..(first + self.in_all).min(unit + self.unit_stripes)
    }

    /// Puts a stripe on the die of its row with the least `load`; among equals on the one whose turn comes
    /// first.
    pub(crate) fn choose(&mut self, stripe: u32, load: impl Fn(u32) -> u32) -> u32 {
        let row = self.row_of(stripe);
        // Dies of stripes that are placed, and of those that lie in turn because they were written before.
        let mut taken = std::mem::take(&mut self.taken);
        taken.fill(false);
        for other in row.clone().filter(|&other| other != stripe) {
            if other < stripe || self.dies[other as usize] != IN_TURN {
                taken[self.die_of(other) as usize] = true;
            }
        }
        let from_here = (stripe..row.end).chain(row.start..stripe).map(|other| other % self.in_all);
        let free = from_here.filter(|&die| !taken[die as usize]);
        let die = free.min_by_key(|&die| load(die)).unwrap_or(stripe % self.in_all);
        self.taken = taken;
        self.dies[stripe as usize] = u16::try_from(die).unwrap_or(IN_TURN);
        die
    }

    /// A unit is erased.
    pub(crate) fn forget(&mut self, unit: UnitId) {
        let first = unit.index() * self.unit_stripes as usize;
        self.dies[first..first + self.unit_stripes as usize].fill(IN_TURN);
    }

    /// The dies that a checkpoint keeps.
    pub(crate) fn records(&self) -> &[u16] {
        &self.dies
    }

    /// Restores a die from a checkpoint or a journal.
    pub(crate) fn restore(&mut self, stripe: u32, die: u16) -> Result<(), FlashError> {
        let wrong = || FlashError::Corrupt(format!("stripe {stripe} cannot lie on die {die}"));
        let place = self.dies.get_mut(stripe as usize).ok_or_else(wrong)?;
        if die != IN_TURN && u32::from(die) >= self.in_all {
            return Err(wrong());
        }
        *place = die;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn a_row_has_each_of_its_dies_once() {
        let mut rng = Rng::new(1);
        for (unit_stripes, dies) in [(12, 5), (3, 8), (8, 8), (1, 4)] {
            let mut places = Places::new(6, unit_stripes, dies);
            for unit in 0..6 {
                let first = unit * unit_stripes;
                for stripe in first..first + unit_stripes {
                    places.choose(stripe, |_| u32::try_from(rng.clone().below(4)).unwrap());
                    rng.u64();
                }
                for row in (first..first + unit_stripes).collect::<Vec<_>>().chunks(dies as usize) {
                    let turns: BTreeSet<u32> = row.iter().map(|stripe| stripe % dies).collect();
                    let chosen: BTreeSet<u32> =
                        row.iter().map(|&stripe| places.die_of(stripe)).collect();
                    assert_eq!(turns, chosen);
                }
            }
        }
    }

    #[test]
    fn a_stripe_goes_to_the_idlest_die_and_to_the_next_in_turn_among_equals() {
        let mut places = Places::new(1, 8, 4);
        assert_eq!(places.choose(0, |die| u32::from(die != 2)), 2);
        assert_eq!(places.choose(1, |_| 0), 1);
        // Die 2 is taken, however idle.
        assert_eq!(places.choose(2, |die| u32::from(die != 2)), 3);
        assert_eq!(places.choose(3, |_| 7), 0);
        places.forget(UnitId(0));
        assert_eq!(
            (0..8).map(|stripe| places.die_of(stripe)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 0, 1, 2, 3]
        );
        assert!(places.restore(8, 0).is_err() && places.restore(0, 4).is_err());
        places.restore(0, 3).unwrap();
        assert_eq!(places.die_of(0), 3);
    }
}
