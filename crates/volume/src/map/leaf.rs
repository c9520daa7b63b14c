//! The versions of 512 blocks of a lineage, in memory.
//!
//! Invariants
//! 1. Sorted by block, then by birth.
//! 2. Of a block there are only versions that someone sees; zeroes that hide nothing are not among them.
//! 3. Marks, where there are any, say where the versions of each group of blocks begin: blocks with older versions, and
//!    those that are not there, move the others from their numbers.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::buffer::Points;
use crate::omf::leaf::{Fragment, Page, Place, Version};
use crate::types::id::Seqno;
use esker_base::units::to_usize;

/// Blocks of a leaf that share a mark.
const GROUP: usize = 4;
/// Marks: where the versions of each group begin, and where the last ones end.
const MARKS: usize = 512 / GROUP + 1;
/// Leaves with fewer versions have no marks.
const MARKED: usize = 64;

/// A leaf.
#[derive(Debug)]
pub(crate) struct Leaf {
    versions: Vec<(u16, Version)>,
    marks: Option<Box<[u32; MARKS]>>,
    /// Blocks that were changed since it was written.
    changed: BTreeSet<u16>,
    /// It has to be written as a whole: something that it was written to is to be freed.
    pub(crate) is_whole_wanted: bool,
    pub(crate) is_dirty: bool,
    /// It was used since the clock's hand passed.
    is_warm: bool,
}

impl Leaf {
    /// Bytes of memory of a leaf without versions: itself, and its place among the others.
    pub(crate) const EMPTY_SIZE: usize = size_of::<Leaf>() + 64;

    pub(crate) fn new(versions: Vec<(u16, Version)>) -> Leaf {
        let mut leaf = Leaf {
            versions,
            marks: None,
            changed: BTreeSet::new(),
            is_whole_wanted: false,
            is_dirty: false,
            is_warm: true,
        };
        leaf.mark();
        leaf
    }

    /// Makes the marks anew.
    fn mark(&mut self) {
        self.marks = None;
        if self.versions.len() < MARKED {
            return;
        }
        let mut marks = Box::new([0; MARKS]);
        for (block, _) in &self.versions {
            marks[usize::from(*block) / GROUP + 1] += 1;
        }
        for group in 1..MARKS {
            marks[group] += marks[group - 1];
        }
        self.marks = Some(marks);
    }

    /// Where versions of a block and of its neighbours are, if there are any.
    fn near(&self, block: u16) -> Range<usize> {
        let group = usize::from(block) / GROUP;
        let at = |mark: u32| to_usize(mark.into());
        match &self.marks {
            Some(marks) => at(marks[group])..at(marks[group + 1]),
            None => 0..self.versions.len(),
        }
    }

    /// How many versions are before a place among those of a block.
    fn before(&self, block: u16, is_before: impl Fn(u16, Seqno) -> bool) -> usize {
        let near = self.near(block);
        let within = self.versions[near.clone()]
            .partition_point(|(other, version)| is_before(*other, version.birth));
        near.start + within
    }

    fn put_in(&mut self, at: usize, block: u16, version: Version) {
        self.versions.insert(at, (block, version));
        match &mut self.marks {
            Some(marks) => marks[usize::from(block) / GROUP + 1..].iter_mut().for_each(|m| *m += 1),
            None => self.mark(),
        }
    }

    fn take_out(&mut self, at: usize) {
        let (block, _) = self.versions.remove(at);
        if let Some(marks) = &mut self.marks {
            marks[usize::from(block) / GROUP + 1..].iter_mut().for_each(|m| *m -= 1);
        }
    }

    /// Bytes of memory.
    pub(crate) fn size(&self) -> usize {
        // A set of numbers takes some four bytes for each.
        let changed = 4 * self.changed.len();
        let marks = self.marks.as_ref().map_or(0, |marks| size_of_val(&**marks));
        let versions = self.versions.capacity() * size_of::<(u16, Version)>();
        Leaf::EMPTY_SIZE + changed + marks + versions
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    pub(crate) fn versions(&self) -> &[(u16, Version)] {
        &self.versions
    }

    /// The content of a page on the medium that adds to those before it.
    pub(crate) fn apply(&mut self, page: Page) {
        if self.versions.is_empty() {
            self.versions = page.versions;
        } else {
            self.versions.retain(|(block, _)| !page.replaced.contains(block));
            self.versions.extend(page.versions);
            self.versions.sort_unstable_by_key(|(block, version)| (*block, version.birth));
        }
        self.mark();
    }

    /// The blocks that were changed, with their versions, if they are few beside all.
    pub(crate) fn delta(&self) -> Option<Page> {
        if self.is_whole_wanted || 4 * self.changed.len() > self.versions.len() {
            return None;
        }
        let changed = self.changed.iter();
        let versions = changed.flat_map(|block| &self.versions[self.range(*block)]);
        let versions = versions.copied().collect();
        Some(Page { versions, replaced: self.changed.iter().copied().collect() })
    }

    /// It was written, as a whole or what was changed.
    pub(crate) fn written(&mut self) {
        self.changed.clear();
        self.is_whole_wanted = false;
        self.is_dirty = false;
    }

    pub(crate) fn touch(&mut self) {
        self.is_warm = true;
    }

    /// The clock's hand passes: whether it was used since the last time.
    pub(crate) fn cool(&mut self) -> bool {
        std::mem::take(&mut self.is_warm)
    }

    /// The versions of a block.
    fn range(&self, block: u16) -> Range<usize> {
        let start = self.before(block, |other, _| other < block);
        let count = self.versions[start..].iter().take_while(|(other, _)| *other == block).count();
        start..start + count
    }

    /// The versions of a block, from the oldest on.
    pub(crate) fn versions_of(&self, block: u16) -> Vec<Version> {
        self.versions[self.range(block)].iter().map(|(_, version)| *version).collect()
    }

    /// The newest version of a block up to `at`.
    pub(crate) fn get(&self, block: u16, at: Seqno) -> Option<Version> {
        // Where every block has one version, in the leaf or in the group, it stands at its number.
        let number = usize::from(block);
        let here = match self.versions.len() {
            0..=512 => number,
            _ => self.near(block).start + number % GROUP,
        };
        if let Some((found, version)) = self.versions.get(here)
            && *found == block
            && version.birth <= at
            && self.versions.get(here + 1).is_none_or(|(next, _)| *next != block)
        {
            return Some(*version);
        }
        let newer = self.before(block, |other, birth| (other, birth) <= (block, at));
        let (other, version) = self.versions.get(newer.checked_sub(1)?)?;
        (*other == block).then_some(*version)
    }

    /// Adds a version. Returns those that nobody sees any more.
    pub(crate) fn insert(
        &mut self,
        block: u16,
        version: Version,
        points: &Points,
        keeps_zero: bool,
    ) -> Vec<Version> {
        self.changed.insert(block);
        let at = self.before(block, |other, birth| (other, birth) < (block, version.birth));
        let mut dropped = Vec::new();
        match self.versions.get_mut(at) {
            Some((other, old)) if (*other, old.birth) == (block, version.birth) => {
                dropped.push(std::mem::replace(old, version));
            }
            _ => self.put_in(at, block, version),
        }
        self.prune(block, |birth, next| points.see(birth, next), keeps_zero, &mut dropped);
        dropped
    }

    /// How many versions of a block there are.
    pub(crate) fn count_of(&self, block: u16) -> usize {
        self.range(block).len()
    }

    /// The blocks with versions, each with the birth of its oldest one, ascending.
    pub(crate) fn oldest(&self) -> Vec<(u16, Seqno)> {
        let mut oldest: Vec<(u16, Seqno)> =
            self.versions.iter().map(|(block, version)| (*block, version.birth)).collect();
        oldest.dedup_by_key(|(block, _)| *block);
        oldest
    }

    /// Drops the versions of a block that nobody sees.
    fn prune(
        &mut self,
        block: u16,
        see: impl Fn(Seqno, Option<Seqno>) -> bool,
        keeps_zero: bool,
        dropped: &mut Vec<Version>,
    ) {
        let range = self.range(block);
        let (mut at, mut end) = (range.start, range.end);
        while at < end {
            let version = self.versions[at].1;
            let next = (at + 1 < end).then(|| self.versions[at + 1].1.birth);
            let hides_nothing = at == range.start && version.place == Place::Zero && !keeps_zero;
            if see(version.birth, next) && !hides_nothing {
                at += 1;
            } else {
                dropped.push(version);
                self.take_out(at);
                self.changed.insert(block);
                end -= 1;
            }
        }
    }

    /// Zeroes blocks as of `seqno`. Returns the versions that nobody sees any more.
    pub(crate) fn clear(
        &mut self,
        blocks: Range<u64>,
        seqno: Seqno,
        points: &Points,
        keeps_zero: bool,
    ) -> Vec<Version> {
        let mut cleared: Vec<u16> = match keeps_zero {
            true => (0..512).collect(),
            false => self.versions.iter().map(|(block, _)| *block).collect(),
        };
        cleared.dedup();
        cleared.retain(|block| blocks.contains(&u64::from(*block)));
        let zero = Version { birth: seqno, place: Place::Zero };
        let dropped =
            cleared.iter().flat_map(|block| self.insert(*block, zero, points, keeps_zero));
        dropped.collect()
    }

    /// Drops the versions that nobody sees: of a block, born at a seqno, replaced at another one.
    pub(crate) fn sweep(
        &mut self,
        see: impl Fn(u16, Seqno, Option<Seqno>) -> bool,
        keeps_zero: bool,
    ) -> Vec<Version> {
        let mut blocks: Vec<u16> = self.versions.iter().map(|(block, _)| *block).collect();
        blocks.dedup();
        let mut dropped = Vec::new();
        for block in blocks {
            self.prune(block, |birth, next| see(block, birth, next), keeps_zero, &mut dropped);
        }
        dropped
    }

    /// Another place for a version, if it is still at the old one.
    pub(crate) fn relocate(
        &mut self,
        block: u16,
        birth: Seqno,
        from: &Fragment,
        to: Fragment,
    ) -> bool {
        let range = self.range(block);
        let found = self.versions[range].iter_mut().find(|(_, version)| version.birth == birth);
        match found {
            Some((_, version)) if version.place == Place::Fragment(*from) => {
                version.place = Place::Fragment(to);
                self.changed.insert(block);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::id::SegmentId;

    fn fragment(sector: u32) -> Place {
        Place::Fragment(Fragment { segment: SegmentId(1), sector, sectors: 8, blocks: 1, crc: 0 })
    }

    fn version(birth: u64, place: Place) -> Version {
        Version { birth: Seqno(birth), place }
    }

    fn points(seqnos: &[u64]) -> Points {
        let seqnos = seqnos.iter().map(|&s| Seqno(s)).collect();
        Points { seqnos, has_head: true, has_clones: false }
    }

    #[test]
    fn overwrite_drops_what_no_snapshot_sees() {
        let mut leaf = Leaf::new(Vec::new());
        let at = points(&[5]);
        leaf.insert(7, version(1, fragment(1)), &at, false);
        assert_eq!(leaf.insert(7, version(2, fragment(2)), &at, false).len(), 1);
        assert!(leaf.insert(7, version(6, fragment(6)), &at, false).is_empty());
        assert_eq!(leaf.insert(7, version(8, fragment(8)), &at, false).len(), 1);
        assert_eq!(leaf.get(7, Seqno(5)), Some(version(2, fragment(2))));
        assert_eq!(leaf.get(7, Seqno::HEAD), Some(version(8, fragment(8))));
        assert_eq!(leaf.get(7, Seqno(1)), None);
        assert_eq!((leaf.get(6, Seqno::HEAD), leaf.get(8, Seqno::HEAD)), (None, None));
    }

    #[test]
    fn zeroes_are_kept_only_where_they_hide_something() {
        let mut leaf = Leaf::new(Vec::new());
        let at = points(&[5]);
        leaf.insert(7, version(1, fragment(1)), &at, false);
        assert!(leaf.clear(0..100, Seqno(6), &at, false).is_empty());
        assert_eq!(leaf.get(7, Seqno::HEAD), Some(version(6, Place::Zero)));
        let none = points(&[]);
        assert_eq!(leaf.sweep(|_, birth, next| none.see(birth, next), false).len(), 2);
        assert!(leaf.is_empty());
        leaf.clear(3..5, Seqno(9), &none, true);
        assert_eq!(leaf.versions().len(), 2, "they hide what a parent has");
    }

    /// Every block of a leaf with many versions, and its neighbours, is found by its marks as it is by a search.
    #[test]
    fn marks_find_what_a_search_finds() {
        let mut rng = esker_base::Rng::new(1);
        let block = |rng: &mut esker_base::Rng| u16::try_from(rng.below(512)).unwrap();
        let (mut leaf, mut at) = (Leaf::new(Vec::new()), points(&[]));
        let mut most = 0;
        for birth in 1..3000 {
            match rng.below(20) {
                0 => at.seqnos.push(Seqno(birth)),
                1 => {
                    let start = u64::from(block(&mut rng));
                    leaf.clear(start..start + 9, Seqno(birth), &at, false);
                }
                2 if rng.chance(1, 9) => {
                    at.seqnos.clear();
                    leaf.sweep(|_, birth, next| at.see(birth, next), false);
                }
                _ => drop(leaf.insert(block(&mut rng), version(birth, fragment(1)), &at, false)),
            }
            most = most.max(leaf.versions.len());
            let versions = leaf.versions.clone();
            assert!(versions.is_sorted_by_key(|(block, version)| (*block, version.birth)));
            let (block, seqno) = (block(&mut rng), Seqno(rng.below(birth + 1)));
            let found = versions.iter().rfind(|(b, v)| *b == block && v.birth <= seqno);
            assert_eq!(leaf.get(block, seqno), found.map(|(_, version)| *version));
            let again = Leaf::new(versions);
            assert!(leaf.marks.is_none() || leaf.marks == again.marks || again.marks.is_none());
        }
        assert!(most > 512, "{most} versions");
    }

    #[test]
    fn relocation_of_a_version_that_was_replaced_does_nothing() {
        let mut leaf = Leaf::new(Vec::new());
        let Place::Fragment(from) = fragment(1) else { unreachable!() };
        let Place::Fragment(to) = fragment(2) else { unreachable!() };
        leaf.insert(7, version(1, fragment(1)), &points(&[]), false);
        assert!(leaf.relocate(7, Seqno(1), &from, to));
        assert!(!leaf.relocate(7, Seqno(1), &from, to));
        assert!(!leaf.relocate(7, Seqno(2), &to, from));
    }
}
