//! The viewers of the versions in a leaf: snapshots and the head of its lineage, and clones, each only where it has no version of
//! its own. So a version of a volume that was deleted is someone's as long as a clone shows it, and no longer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::buffer::Points;
use crate::catalog::Catalog;
use crate::map::{Access, Map, fragment_bytes};
use crate::omf::leaf::{Place, Version};
use crate::segment::Broken;
use crate::types::id::{LineageId, Seqno};

/// Which of the 512 blocks of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Blocks([u64; 8]);

impl Blocks {
    const NONE: Blocks = Blocks([0; 8]);
    const ALL: Blocks = Blocks([u64::MAX; 8]);

    fn has(&self, block: u16) -> bool {
        self.0[usize::from(block / 64)] >> (block % 64) & 1 != 0
    }

    fn without(mut self, block: u16) -> Blocks {
        self.0[usize::from(block / 64)] &= !(1 << (block % 64));
        self
    }

    fn and(self, other: Blocks) -> Blocks {
        Blocks(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn or(self, other: Blocks) -> Blocks {
        Blocks(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

/// The viewers of lineages, as a catalogue of this version has them.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    version: u64,
    /// Snapshots and the head of each lineage.
    own: BTreeMap<LineageId, Points>,
    /// The lineages that go on from each, and from where.
    clones: BTreeMap<LineageId, Vec<(Seqno, LineageId)>>,
}

/// The viewers of the versions in one leaf.
#[derive(Debug)]
pub(crate) struct Sight {
    own: Points,
    /// From where clones look, at which blocks.
    clones: Vec<(Seqno, Blocks)>,
}

/// Findings about the lineages at one leaf index.
#[derive(Debug, Default)]
pub(crate) struct AtLeaf {
    /// The oldest version of each block.
    oldest: BTreeMap<LineageId, Vec<(u16, Seqno)>>,
    /// The blocks of which someone looks through a lineage, at those that it goes on from.
    through: BTreeMap<LineageId, Blocks>,
}

impl Sight {
    /// Whether anyone sees a version of a block that was born at `birth` and replaced at `next`.
    pub(crate) fn see(&self, block: u16, birth: Seqno, next: Option<Seqno>) -> bool {
        let is_between = |at: Seqno| birth <= at && next.is_none_or(|next| at < next);
        self.own.see(birth, next)
            || self.clones.iter().any(|(at, blocks)| is_between(*at) && blocks.has(block))
    }
}

impl Viewers {
    pub(crate) fn of(catalog: &Catalog) -> Viewers {
        let mut viewers = Viewers { version: catalog.version(), ..Viewers::default() };
        for row in catalog.lineages.values() {
            viewers.own.entry(row.id).or_default().has_head = row.head.is_some();
            if let Some((parent, at)) = row.parent {
                viewers.clones.entry(parent).or_default().push((at, row.id));
            }
        }
        for row in catalog.snapshots.values() {
            viewers.own.entry(row.lineage).or_default().seqnos.push(row.at);
        }
        viewers.own.values_mut().for_each(|own| own.seqnos.sort_unstable());
        viewers
    }

    /// The same of a catalogue that may have changed.
    pub(crate) fn refresh(&mut self, catalog: &Catalog) {
        if self.version != catalog.version() {
            *self = Viewers::of(catalog);
        }
    }

    /// Whether a snapshot shows a lineage as it was at this seqno: what goes on from there is not the last that sees it.
    pub(crate) fn has_snapshot_at(&self, lineage: LineageId, at: Seqno) -> bool {
        self.own.get(&lineage).is_some_and(|own| own.seqnos.binary_search(&at).is_ok())
    }

    /// The lineages that go on from one.
    pub(crate) fn clones_of(&self, lineage: LineageId) -> &[(Seqno, LineageId)] {
        self.clones.get(&lineage).map_or(&[], |clones| clones)
    }

    /// The viewers of the versions of leaf `index` of a lineage.
    pub(crate) fn sight(
        &self,
        map: &mut Map,
        access: &mut Access<'_>,
        (lineage, index): (LineageId, u64),
        found: &mut AtLeaf,
    ) -> Result<Sight, Broken> {
        let own = self.own.get(&lineage).cloned().unwrap_or_default();
        let mut clones: Vec<(Seqno, Blocks)> = Vec::new();
        for (at, clone) in self.clones_of(lineage) {
            if own.seqnos.binary_search(at).is_ok() {
                continue;
            }
            let place = match clones.iter().position(|(other, _)| other == at) {
                Some(place) => place,
                None => {
                    clones.push((*at, Blocks::NONE));
                    clones.len() - 1
                }
            };
            if clones[place].1 != Blocks::ALL {
                let through = self.through(map, access, (*clone, index), found)?;
                clones[place].1 = clones[place].1.or(through);
            }
        }
        Ok(Sight { own, clones })
    }

    /// The blocks of which someone looks through a lineage. Chains of clones are long: none is gone through by recursion.
    fn through(
        &self,
        map: &mut Map,
        access: &mut Access<'_>,
        (lineage, index): (LineageId, u64),
        found: &mut AtLeaf,
    ) -> Result<Blocks, Broken> {
        let mut open = vec![lineage];
        while let Some(&next) = open.last() {
            if !found.through.contains_key(&next) {
                if let Entry::Vacant(place) = found.oldest.entry(next) {
                    place.insert(map.oldest(access, (next, index))?);
                }
                match self.through_if_known(map, next, index, found) {
                    Ok(blocks) => drop(found.through.insert(next, blocks)),
                    Err(clone) => {
                        open.push(clone);
                        continue;
                    }
                }
            }
            open.pop();
        }
        Ok(found.through[&lineage])
    }

    /// The same, or a clone of which it has to be known first.
    fn through_if_known(
        &self,
        map: &Map,
        lineage: LineageId,
        index: u64,
        found: &AtLeaf,
    ) -> Result<Blocks, LineageId> {
        let oldest = &found.oldest[&lineage];
        let own = self.own.get(&lineage);
        let first = own.and_then(|own| own.seqnos.first().copied());
        let first = first.or(own.filter(|own| own.has_head).map(|_| Seqno::HEAD));
        let mut blocks = first.map_or(Blocks::NONE, |at| older_than(oldest, at));
        // Clones without versions of their own tell it without a look at the map.
        for has_leaf in [false, true] {
            for (at, clone) in self.clones_of(lineage) {
                let there = older_than(oldest, *at);
                if map.has_leaf((*clone, index)) == has_leaf && there.or(blocks) != blocks {
                    let theirs = found.through.get(clone).ok_or(*clone)?;
                    blocks = blocks.or(there.and(*theirs));
                }
            }
        }
        Ok(blocks)
    }
}

/// The blocks of which a lineage had no version at a seqno.
fn older_than(oldest: &[(u16, Seqno)], at: Seqno) -> Blocks {
    let born = oldest.iter().filter(|(_, birth)| *birth <= at);
    born.fold(Blocks::ALL, |blocks, (block, _)| blocks.without(*block))
}

/// Bytes of the wanted versions of a leaf: of a block, born at a seqno, replaced at another one.
pub(crate) fn bytes_of(
    versions: &[(u16, Version)],
    is_wanted: impl Fn(u16, Seqno, Option<Seqno>) -> bool,
) -> u64 {
    let sizes = versions.iter().enumerate().map(|(number, (block, version))| {
        let next = versions.get(number + 1).filter(|(other, _)| other == block);
        match &version.place {
            Place::Fragment(fragment)
                if is_wanted(*block, version.birth, next.map(|(_, next)| next.birth)) =>
            {
                fragment_bytes(fragment)
            }
            _ => 0,
        }
    });
    sizes.sum()
}
