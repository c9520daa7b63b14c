//! Sets of LBAs within one command: which of them are there after a tear.
//!
//! Invariant: the ranges are not empty, ascending, and neither overlap nor touch.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use esker_base::Rng;

/// A set of LBA indexes, counted from the first LBA of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LbaSet(Vec<(u64, u64)>);

impl LbaSet {
    /// All indexes in `range`.
    #[must_use]
    pub fn range(range: Range<u64>) -> LbaSet {
        if range.is_empty() {
            return LbaSet::default();
        }
        LbaSet(vec![(range.start, range.end)])
    }

    /// A random subset of the first `count` indexes, made of at most 16 runs or of single indexes.
    #[must_use]
    pub fn random(count: u64, rng: &mut Rng) -> LbaSet {
        let longest = (count / 8).max(1);
        let mut set = LbaSet::default();
        let mut at = 0;
        while at < count {
            let end = (at + 1 + rng.below(longest)).min(count);
            if rng.chance(1, 2) {
                set.push(at..end);
            }
            at = end;
        }
        set
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The maximal runs of indexes, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|&(start, end)| start..end)
    }

    /// How many indexes are in it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// The indexes that are in both.
    #[must_use]
    pub fn intersection(&self, other: &LbaSet) -> LbaSet {
        let mut both = LbaSet::default();
        for (start, end) in &self.0 {
            for (from, to) in &other.0 {
                both.push(*start.max(from)..*end.min(to));
            }
        }
        both
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut rest = LbaSet::default();
        for (start, end) in &self.0 {
            rest.push(*start..*end.min(&range.start));
            rest.push(*start.max(&range.end)..*end);
        }
        *self = rest;
    }

    /// Adds a range that starts at or after the end of the last one; an empty one adds nothing.
    fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.1 == range.start => last.1 = range.end,
            _ => self.0.push((range.start, range.end)),
        }
    }
}

impl fmt::Display for LbaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (start, end)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if end - start == 1 {
                write!(f, "{comma}{start}")?;
            } else {
                write!(f, "{comma}{start}-{}", end - 1)?;
            }
        }
        Ok(())
    }
}

impl FromStr for LbaSet {
    type Err = std::num::ParseIntError;

    /// Reads `0-3,7` as [`LbaSet`] is displayed.
    fn from_str(text: &str) -> Result<LbaSet, Self::Err> {
        let mut set = LbaSet::default();
        for run in text.split(',') {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last) = (first.parse::<u64>()?, last.parse::<u64>()?);
            // A run out of order is not one that is ever displayed: the set stays well-formed.
            let start = first.max(set.0.last().map_or(0, |last| last.1));
            set.push(start..last.saturating_add(1));
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: &LbaSet) -> Vec<u64> {
        set.runs().flatten().collect()
    }

    #[test]
    fn sets_agree_with_lists_of_their_members() {
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let count = 1 + rng.below(40);
            let (a, b) = (LbaSet::random(count, &mut rng), LbaSet::random(count, &mut rng));
            let both: Vec<u64> =
                members(&a).into_iter().filter(|m| members(&b).contains(m)).collect();
            assert_eq!(members(&a.intersection(&b)), both);
            let cut = rng.below(count)..rng.below(count + 1);
            let mut rest = a.clone();
            rest.remove(&cut);
            let expected: Vec<u64> = members(&a).into_iter().filter(|m| !cut.contains(m)).collect();
            assert_eq!(members(&rest), expected, "{a} without {cut:?}");
            assert_eq!(a.count(), members(&a).len() as u64);
            if !a.is_empty() {
                assert_eq!(a.to_string().parse::<LbaSet>(), Ok(a));
            }
        }
    }
}
