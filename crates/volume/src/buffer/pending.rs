//! What was acknowledged and is not in the map yet: versions of blocks, by block and by age.
//!
//! Invariants
//! 1. `by_age` names every version once.
//! 2. Of a block there are the newest version and those that a snapshot or a clone sees; no others.

use std::collections::{BTreeMap, BTreeSet};
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

/// Versions of blocks that are in the write buffer only.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    blocks: BTreeMap<(LineageId, Block), Vec<(Seqno, Data)>>,
    by_age: BTreeSet<(Seqno, LineageId, Block)>,
    bytes: u64,
}

impl Pending {
    /// Bytes of data.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest record that is in the write buffer only.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        self.by_age.first().map(|(seqno, ..)| *seqno)
    }

    /// Adds a version, and drops those that nobody sees any more.
    pub(crate) fn insert(
        &mut self,
        lineage: LineageId,
        block: Block,
        seqno: Seqno,
        data: Data,
        points: &Points,
    ) {
        let versions = self.blocks.entry((lineage, block)).or_default();
        let at = versions.partition_point(|(other, _)| *other < seqno);
        if versions.get(at).is_some_and(|(other, _)| *other == seqno) {
            return;
        }
        self.bytes += size(&data);
        versions.insert(at, (seqno, data));
        self.by_age.insert((seqno, lineage, block));
        let mut at = 0;
        while at + 1 < versions.len() {
            let (birth, next) = (versions[at].0, versions[at + 1].0);
            if points.see(birth, Some(next)) {
                at += 1;
                continue;
            }
            let (_, data) = versions.remove(at);
            self.bytes -= size(&data);
            self.by_age.remove(&(birth, lineage, block));
        }
    }

    /// The newest version up to `at`.
    pub(crate) fn get(&self, lineage: LineageId, block: Block, at: Seqno) -> Option<&Data> {
        let versions = self.blocks.get(&(lineage, block))?;
        let newer = versions.partition_point(|(seqno, _)| *seqno <= at);
        newer.checked_sub(1).map(|newest| &versions[newest].1)
    }

    /// Versions from the oldest on.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = (Seqno, LineageId, Block, &Data)> {
        self.by_age.iter().map(|&(seqno, lineage, block)| {
            let versions = &self.blocks[&(lineage, block)];
            let at = versions.partition_point(|(other, _)| *other < seqno);
            (seqno, lineage, block, &versions[at].1)
        })
    }

    /// Forgets a version: it is in the map, or nobody will ask for it.
    pub(crate) fn remove(&mut self, seqno: Seqno, lineage: LineageId, block: Block) {
        if !self.by_age.remove(&(seqno, lineage, block)) {
            return;
        }
        let versions = self.blocks.get_mut(&(lineage, block)).expect("invariant 1");
        let at = versions.partition_point(|(other, _)| *other < seqno);
        let (_, data) = versions.remove(at);
        self.bytes -= size(&data);
        if versions.is_empty() {
            self.blocks.remove(&(lineage, block));
        }
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
        let older = self.blocks.range(range).filter(|(_, versions)| versions[0].0 < seqno);
        let older: Vec<Block> = older.map(|((_, block), _)| *block).collect();
        for block in older {
            self.insert(lineage, block, seqno, None, points);
            // Zeroes that hide nothing pending are the map's.
            let versions = &self.blocks[&(lineage, block)];
            if versions[0] == (seqno, None) {
                self.remove(seqno, lineage, block);
            }
        }
    }

    /// Forgets all versions of a lineage that nobody looks at.
    pub(crate) fn forget_lineage(&mut self, lineage: LineageId) {
        let range = (lineage, Block(0))..=(lineage, Block(u64::MAX));
        let versions = self
            .blocks
            .range(range)
            .flat_map(|((_, block), versions)| versions.iter().map(|(seqno, _)| (*seqno, *block)));
        for (seqno, block) in versions.collect::<Vec<_>>() {
            self.remove(seqno, lineage, block);
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
        Points { seqnos: seqnos.iter().map(|&s| Seqno(s)).collect(), has_head: true }
    }

    const L: LineageId = LineageId(1);

    #[test]
    fn version_without_observer_is_dropped() {
        let mut pending = Pending::default();
        let none = points(&[]);
        pending.insert(L, Block(5), Seqno(1), data(1), &none);
        pending.insert(L, Block(5), Seqno(3), data(3), &none);
        assert_eq!((pending.by_age.len(), pending.bytes()), (1, 4));
        assert_eq!(pending.get(L, Block(5), Seqno::HEAD), Some(&data(3)));
        assert_eq!(pending.get(L, Block(5), Seqno(2)), None);
    }

    #[test]
    fn version_that_a_snapshot_sees_stays() {
        let mut pending = Pending::default();
        let at = points(&[2]);
        for seqno in [1, 3, 4] {
            pending.insert(L, Block(5), Seqno(seqno), data(1), &at);
        }
        assert_eq!(pending.get(L, Block(5), Seqno(2)), Some(&data(1)));
        assert_eq!((pending.by_age.len(), pending.oldest()), (2, Some(Seqno(1))));
        pending.clear(L, 0..10, Seqno(6), &at);
        assert_eq!(pending.get(L, Block(5), Seqno(2)), Some(&data(1)));
        assert_eq!(pending.get(L, Block(5), Seqno::HEAD), Some(&None), "it hides what is older");
        pending.remove(Seqno(1), L, Block(5));
        pending.remove(Seqno(6), L, Block(5));
        assert!(pending.by_age.is_empty() && pending.bytes() == 0);
    }
}
