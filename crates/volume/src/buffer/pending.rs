//! Versions of blocks that were acknowledged and are not in the map yet, by block and by age.
//!
//! Invariants
//! 1. `by_age` names every version, in the order in which they came; and some that are gone.
//! 2. Of a block there are the newest version and those that a snapshot or a clone sees; no others.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use esker_base::units::to_u64;

use crate::types::id::{Block, LineageId, Seqno};

/// The content of a version: `None` is zeroes.
pub(crate) type Data = Option<Arc<[u8]>>;

/// The seqnos at which someone looks at a lineage, ascending; and whether a volume does at its head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Points {
    pub(crate) seqnos: Vec<Seqno>,
    pub(crate) has_head: bool,
    /// Other lineages go on from it. Each sees only the blocks that it has no version of.
    pub(crate) has_clones: bool,
}

impl Points {
    /// Whether anyone sees a version that was born at `birth` and replaced at `next`.
    pub(crate) fn see(&self, birth: Seqno, next: Option<Seqno>) -> bool {
        let after = self.seqnos.partition_point(|point| *point < birth);
        match (self.seqnos.get(after), next) {
            (Some(point), Some(next)) => *point < next,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.has_head,
        }
    }
}

/// A version of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingVersion {
    pub(crate) seqno: Seqno,
    pub(crate) data: Data,
    /// The placement handle that it was written with; 0 for none.
    pub(crate) stream: u8,
}

/// The versions of a block; nearly always there is one.
#[derive(Debug)]
struct Versions {
    older: Vec<PendingVersion>,
    newest: PendingVersion,
}

impl Versions {
    fn get(&self, seqno: Seqno) -> Option<&PendingVersion> {
        if self.newest.seqno == seqno {
            return Some(&self.newest);
        }
        self.older.iter().find(|version| version.seqno == seqno)
    }
}

/// Versions of blocks that are in the write buffer only.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    blocks: BTreeMap<(LineageId, Block), Versions>,
    by_age: VecDeque<(Seqno, LineageId, Block)>,
    bytes: u64,
}

impl Pending {
    /// Bytes of data.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest record that is in the write buffer only.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        self.by_age().next().map(|(_, _, version)| version.seqno)
    }

    /// Adds a version, the newest of all, and drops those that nobody sees any more.
    pub(crate) fn insert(
        &mut self,
        lineage: LineageId,
        block: Block,
        version: PendingVersion,
        points: &Points,
    ) {
        let seqno = version.seqno;
        debug_assert!(self.by_age.back().is_none_or(|(newest, ..)| *newest <= seqno));
        let added = size(&version.data);
        match self.blocks.entry((lineage, block)) {
            Entry::Vacant(place) => {
                place.insert(Versions { older: Vec::new(), newest: version });
            }
            Entry::Occupied(place) => {
                let versions = place.into_mut();
                if versions.newest.seqno >= seqno {
                    return;
                }
                versions.older.push(std::mem::replace(&mut versions.newest, version));
                let mut dropped = 0;
                let mut at = 0;
                while at < versions.older.len() {
                    let next = versions.older.get(at + 1).map_or(seqno, |next| next.seqno);
                    if points.see(versions.older[at].seqno, Some(next)) {
                        at += 1;
                    } else {
                        dropped += size(&versions.older.remove(at).data);
                    }
                }
                self.bytes -= dropped;
            }
        }
        self.bytes += added;
        self.by_age.push_back((seqno, lineage, block));
    }

    /// The newest version up to `at`.
    pub(crate) fn get(&self, lineage: LineageId, block: Block, at: Seqno) -> Option<&Data> {
        let Versions { older, newest } = self.blocks.get(&(lineage, block))?;
        if newest.seqno <= at {
            return Some(&newest.data);
        }
        older.iter().rev().find(|version| version.seqno <= at).map(|version| &version.data)
    }

    /// The oldest version of a block.
    pub(crate) fn first(&self, lineage: LineageId, block: Block) -> Option<&PendingVersion> {
        let Versions { older, newest } = self.blocks.get(&(lineage, block))?;
        Some(older.first().unwrap_or(newest))
    }

    /// Versions from the oldest on.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = (LineageId, Block, &PendingVersion)> {
        self.by_age.iter().filter_map(|&(seqno, lineage, block)| {
            let version = self.blocks.get(&(lineage, block))?.get(seqno)?;
            Some((lineage, block, version))
        })
    }

    /// Whether a lineage has versions here.
    pub(crate) fn has_lineage(&self, lineage: LineageId) -> bool {
        let range = (lineage, Block(0))..=(lineage, Block(u64::MAX));
        self.blocks.range(range).next().is_some()
    }

    /// Forgets a version: the map has it, or nobody sees it.
    pub(crate) fn remove(&mut self, seqno: Seqno, lineage: LineageId, block: Block) {
        let Entry::Occupied(mut place) = self.blocks.entry((lineage, block)) else { return };
        let versions = place.get_mut();
        let removed = if versions.newest.seqno != seqno {
            let at = versions.older.iter().position(|version| version.seqno == seqno);
            at.map(|at| versions.older.remove(at))
        } else if let Some(older) = versions.older.pop() {
            Some(std::mem::replace(&mut versions.newest, older))
        } else {
            Some(place.remove().newest)
        };
        self.bytes -= removed.map_or(0, |version| size(&version.data));
        while let Some((seqno, lineage, block)) = self.by_age.front() {
            let versions = self.blocks.get(&(*lineage, *block));
            if versions.is_some_and(|versions| versions.get(*seqno).is_some()) {
                break;
            }
            self.by_age.pop_front();
        }
    }

    /// The first block of a lineage at or behind this one.
    pub(crate) fn next_block(&self, lineage: LineageId, from: u64) -> Option<u64> {
        let range = (lineage, Block(from))..=(lineage, Block(u64::MAX));
        self.blocks.range(range).next().map(|((_, block), _)| block.0)
    }

    /// Zeroes a range of blocks at `seqno`, as far as there are older versions: the map has it for the others.
    pub(crate) fn clear(
        &mut self,
        lineage: LineageId,
        blocks: std::ops::Range<u64>,
        seqno: Seqno,
        points: &Points,
    ) {
        let range = (lineage, Block(blocks.start))..(lineage, Block(blocks.end));
        let older = self.blocks.range(range);
        let older = older.filter(|(_, v)| v.older.first().unwrap_or(&v.newest).seqno < seqno);
        let older: Vec<Block> = older.map(|((_, block), _)| *block).collect();
        for block in older {
            let zero = PendingVersion { seqno, data: None, stream: 0 };
            self.insert(lineage, block, zero, points);
            // Zeroes that hide nothing pending are the map's.
            let Versions { older, newest } = &self.blocks[&(lineage, block)];
            if older.is_empty() && newest.seqno == seqno && newest.data.is_none() {
                self.remove(seqno, lineage, block);
            }
        }
    }

    /// Forgets all versions of a lineage that nobody looks at.
    pub(crate) fn forget_lineage(&mut self, lineage: LineageId) {
        let range = (lineage, Block(0))..=(lineage, Block(u64::MAX));
        let blocks: Vec<Block> = self.blocks.range(range).map(|((_, block), _)| *block).collect();
        for block in blocks {
            while let Some(versions) = self.blocks.get(&(lineage, block)) {
                self.remove(versions.newest.seqno, lineage, block);
            }
        }
    }
}

fn size(data: &Data) -> u64 {
    data.as_ref().map_or(0, |data| to_u64(data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(byte: u8) -> Data {
        Some(Arc::from(vec![byte; 4]))
    }

    fn points(seqnos: &[u64]) -> Points {
        let seqnos = seqnos.iter().map(|&s| Seqno(s)).collect();
        Points { seqnos, has_head: true, has_clones: false }
    }

    const L: LineageId = LineageId(1);

    fn version(seqno: u64, byte: u8) -> PendingVersion {
        PendingVersion { seqno: Seqno(seqno), data: data(byte), stream: 0 }
    }

    #[test]
    fn version_without_observer_is_dropped() {
        let mut pending = Pending::default();
        let none = points(&[]);
        pending.insert(L, Block(5), version(1, 1), &none);
        pending.insert(L, Block(5), version(3, 3), &none);
        assert_eq!((pending.by_age().count(), pending.bytes()), (1, 4));
        assert_eq!(pending.oldest(), Some(Seqno(3)));
        assert_eq!(pending.get(L, Block(5), Seqno::HEAD), Some(&data(3)));
        assert_eq!(pending.get(L, Block(5), Seqno(2)), None);
    }

    #[test]
    fn version_that_a_snapshot_sees_stays() {
        let mut pending = Pending::default();
        let at = points(&[2]);
        for seqno in [1, 3, 4] {
            pending.insert(L, Block(5), version(seqno, 1), &at);
        }
        assert_eq!(pending.get(L, Block(5), Seqno(2)), Some(&data(1)));
        assert_eq!((pending.by_age().count(), pending.oldest()), (2, Some(Seqno(1))));
        pending.clear(L, 0..10, Seqno(6), &at);
        assert_eq!(pending.get(L, Block(5), Seqno(2)), Some(&data(1)));
        assert_eq!(pending.get(L, Block(5), Seqno::HEAD), Some(&None), "it hides what is older");
        pending.remove(Seqno(1), L, Block(5));
        pending.remove(Seqno(6), L, Block(5));
        assert!(pending.by_age.is_empty() && pending.blocks.is_empty() && pending.bytes() == 0);
    }

    #[test]
    fn versions_are_removed_in_any_order_and_the_oldest_is_known() {
        let mut pending = Pending::default();
        let none = points(&[]);
        for seqno in 1..=4 {
            pending.insert(L, Block(seqno), version(seqno, 1), &none);
        }
        for (removed, oldest) in [(3, Some(1)), (1, Some(2)), (2, Some(4)), (4, None)] {
            pending.remove(Seqno(removed), L, Block(removed));
            assert_eq!(pending.oldest(), oldest.map(Seqno));
        }
        pending.insert(L, Block(1), version(5, 1), &none);
        pending.forget_lineage(L);
        assert!(pending.blocks.is_empty() && pending.bytes() == 0);
    }
}
