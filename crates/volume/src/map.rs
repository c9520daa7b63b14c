//! The map: for each lineage and block, its versions and where they are. Leaves of 512 blocks, paged to a budget;
//! above them nodes of 512 leaves, which stay in memory. Sees `types`, `omf`, `drive`, `space`, `segment`, and of
//! `buffer` who looks at a lineage.
//!
//! Invariants
//! 1. A version is in a leaf as long as someone sees it, or until it is swept; what it points to counts as live in its
//!    segment exactly then.
//! 2. A leaf that was changed stays in memory until it is written.
//! 3. A node lists every leaf with a version, and where the leaf was last written: as a whole, and what was changed of
//!    it since, so that a checkpoint costs what was changed and not the leaves that it was changed in.
//! 4. Only the keeper of the pool changes the map; others load leaves.
//! 5. `shadows` names each leaf in which a block got a version that may hide the last one of an ancestor, or that only
//!    clones may keep, until the sweep has looked at it.

pub(crate) mod leaf;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use esker_base::units::{to_u64, to_usize};

use crate::buffer::Points;
use crate::drive::Io;
use crate::omf::leaf::{Fragment, Page, Place, Version};
use crate::omf::root::{Extent, NodeRow};
use crate::omf::{self, FormatError};
use crate::segment::{Broken, Sum, read_verified};
use crate::space::Space;
use crate::types::id::{Block, Generation, LineageId, PoolUuid, SegmentId, Seqno};
use crate::types::{LEAF_BLOCKS, NODE_LEAVES, SECTOR, sectors_of};
use leaf::Leaf;

/// The most pages of a leaf: one whole, and what was changed since.
const PAGES_MAX: usize = 8;

/// The index of a leaf of a lineage.
pub(crate) type LeafKey = (LineageId, u64);

/// The map.
pub(crate) struct Map {
    pool: PoolUuid,
    nodes: BTreeMap<LeafKey, Node>,
    leaves: BTreeMap<LeafKey, Leaf>,
    budget: usize,
    used: usize,
    /// Where the clock's hand stands.
    hand: LeafKey,
    dirty_leaves: usize,
    leaf_count: u64,
    pub(crate) loads: u64,
    pub(crate) shadows: BTreeSet<LeafKey>,
    /// Counts the sweeps that dropped a version, and lineages that were taken out of a chain: a search that was paused
    /// before has to begin anew.
    pub(crate) sweeps: u64,
}

/// 512 leaves.
#[derive(Debug, Default)]
struct Node {
    /// Where each was written, as a whole first, then what was changed, from the oldest on.
    leaves: BTreeMap<u16, Vec<Extent>>,
    extent: Option<Extent>,
    is_dirty: bool,
}

/// Access to drives and segments, which a caller lends to the map.
pub(crate) struct Access<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) space: &'a mut Space,
}

/// The sectors of an extent, in bytes.
fn extent_bytes(extent: &Extent) -> u64 {
    u64::from(sectors_of(to_usize(extent.bytes.into()))) * SECTOR
}

/// Bytes that a block takes of its fragment: of a bundle its share.
pub(crate) fn fragment_bytes(fragment: &Fragment) -> u64 {
    u64::from(fragment.sectors) * SECTOR / u64::from(fragment.blocks.max(1))
}

impl Map {
    pub(crate) fn new(pool: PoolUuid, budget: usize) -> Map {
        Map {
            pool,
            nodes: BTreeMap::new(),
            leaves: BTreeMap::new(),
            budget,
            used: 0,
            hand: (LineageId(0), 0),
            dirty_leaves: 0,
            leaf_count: 0,
            loads: 0,
            shadows: BTreeSet::new(),
            sweeps: 0,
        }
    }

    /// The nodes of a checkpoint.
    pub(crate) fn recover(
        &mut self,
        access: &mut Access<'_>,
        rows: &[NodeRow],
    ) -> Result<(), Broken> {
        for NodeRow { lineage, index, extent } in rows {
            let (bytes, generation) = read_extent(access, extent, *lineage, *index)?;
            let leaves = omf::leaf::decode_node(&bytes, self.pool, *lineage, *index, generation)
                .map_err(|why| broken("node", *lineage, *index, &why))?;
            let mut node = Node { leaves: BTreeMap::new(), extent: Some(*extent), is_dirty: false };
            for (leaf, extent) in leaves {
                node.leaves.entry(leaf).or_default().push(extent);
            }
            self.leaf_count += to_u64(node.leaves.len());
            self.nodes.insert((*lineage, *index), node);
        }
        Ok(())
    }

    /// The newest version of a block up to `at`.
    pub(crate) fn get(
        &mut self,
        access: &mut Access<'_>,
        lineage: LineageId,
        block: Block,
        at: Seqno,
    ) -> Result<Option<Version>, Broken> {
        let (index, within) = place_of(block);
        match self.load(access, (lineage, index), false)? {
            Some(leaf) => Ok(leaf.get(within, at)),
            None => Ok(None),
        }
    }

    /// The newest version of a block up to `at`, if its leaf is in memory or there is none; or else which leaf it is.
    pub(crate) fn peek(
        &mut self,
        lineage: LineageId,
        block: Block,
        at: Seqno,
    ) -> Result<Option<Version>, LeafKey> {
        let (index, within) = place_of(block);
        let key = (lineage, index);
        if let Some(leaf) = self.leaves.get_mut(&key) {
            leaf.touch();
            return Ok(leaf.get(within, at));
        }
        if self.pages(key).is_empty() { Ok(None) } else { Err(key) }
    }

    /// Where a leaf was written: as a whole, then what was changed.
    pub(crate) fn pages(&self, (lineage, index): LeafKey) -> &[Extent] {
        let (node, within) = node_of(index);
        let node = self.nodes.get(&(lineage, node));
        node.and_then(|node| node.leaves.get(&within)).map_or(&[], |pages| pages)
    }

    /// Takes a leaf that was read from these pages, unless it came otherwise, or was written anew, meanwhile.
    pub(crate) fn install(
        &mut self,
        key: LeafKey,
        pages: &[(Extent, Generation, Vec<u8>)],
    ) -> Result<(), Broken> {
        let is_current = pages.iter().map(|(extent, ..)| extent).eq(self.pages(key));
        if self.leaves.contains_key(&key) || !is_current {
            return Ok(());
        }
        let mut leaf = Leaf::new(Vec::new());
        for (_, generation, bytes) in pages {
            let page = omf::leaf::decode(bytes, self.pool, key.0, key.1, *generation)
                .map_err(|why| broken("leaf", key.0, key.1, &why))?;
            leaf.apply(page);
            self.loads += 1;
        }
        self.used += leaf.size();
        self.leaves.insert(key, leaf);
        self.shrink(key);
        Ok(())
    }

    /// Adds a version, and drops those that nobody sees any more.
    pub(crate) fn insert(
        &mut self,
        access: &mut Access<'_>,
        lineage: LineageId,
        block: Block,
        version: Version,
        points: &Points,
        keeps_zero: bool,
    ) -> Result<(), Broken> {
        let (index, within) = place_of(block);
        let key = (lineage, index);
        if version.place == Place::Zero && !keeps_zero && !self.has_leaf(key) {
            return Ok(());
        }
        let leaf = self.load(access, key, true)?.expect("made if it was not there");
        let before = leaf.size();
        let is_first = keeps_zero && leaf.count_of(within) == 0;
        let dropped = leaf.insert(within, version, points, keeps_zero);
        let after = leaf.size();
        let is_kept = points.has_clones && (!points.has_head || leaf.count_of(within) > 1);
        if is_first || is_kept {
            self.shadows.insert(key);
        }
        if let Place::Fragment(fragment) = version.place {
            access.space.add_live(fragment.segment, fragment_bytes(&fragment));
        }
        release(access.space, &dropped);
        self.changed(access.space, key, before, after);
        Ok(())
    }

    /// A version that was moved: the new place counts if the old one still did.
    pub(crate) fn relocate(
        &mut self,
        access: &mut Access<'_>,
        lineage: LineageId,
        block: Block,
        birth: Seqno,
        from: &Fragment,
        to: Fragment,
    ) -> Result<bool, Broken> {
        let (index, within) = place_of(block);
        let Some(leaf) = self.load(access, (lineage, index), false)? else { return Ok(false) };
        let before = leaf.size();
        if !leaf.relocate(within, birth, from, to) {
            return Ok(false);
        }
        let after = leaf.size();
        access.space.add_live(to.segment, fragment_bytes(&to));
        access.space.release(from.segment, fragment_bytes(from));
        self.changed(access.space, (lineage, index), before, after);
        Ok(true)
    }

    /// Zeroes blocks: versions born before `seqno` that nobody sees then are dropped.
    pub(crate) fn clear(
        &mut self,
        access: &mut Access<'_>,
        lineage: LineageId,
        blocks: Range<u64>,
        seqno: Seqno,
        points: &Points,
        keeps_zero: bool,
    ) -> Result<(), Broken> {
        let leaves = blocks.start / LEAF_BLOCKS..blocks.end.div_ceil(LEAF_BLOCKS);
        let indexes = match keeps_zero {
            true => leaves.collect(), // what is not there is the parent's
            false => self.leaves_of(lineage, leaves).collect::<Vec<u64>>(),
        };
        for index in indexes {
            let first = index * LEAF_BLOCKS;
            let start = blocks.start.max(first) - first;
            let end = blocks.end.min(first + LEAF_BLOCKS) - first;
            let Some(leaf) = self.load(access, (lineage, index), keeps_zero)? else { continue };
            let before = leaf.size();
            let dropped = leaf.clear(start..end, seqno, points, keeps_zero);
            let after = leaf.size();
            if keeps_zero || points.has_clones {
                self.shadows.insert((lineage, index));
            }
            release(access.space, &dropped);
            self.changed(access.space, (lineage, index), before, after);
        }
        Ok(())
    }

    /// The first leaf of a lineage at or behind `from`.
    pub(crate) fn next_leaf(&self, lineage: LineageId, from: u64) -> Option<u64> {
        self.leaves_of(lineage, from..u64::MAX).next()
    }

    /// Drops the versions of a leaf that nobody sees: of a block, born at a seqno, replaced at another one.
    pub(crate) fn sweep(
        &mut self,
        access: &mut Access<'_>,
        key: LeafKey,
        see: impl Fn(u16, Seqno, Option<Seqno>) -> bool,
        keeps_zero: bool,
    ) -> Result<(), Broken> {
        let Some(leaf) = self.load(access, key, false)? else { return Ok(()) };
        let before = leaf.size();
        let dropped = leaf.sweep(see, keeps_zero);
        let after = leaf.size();
        let is_changed = !dropped.is_empty();
        self.sweeps += u64::from(is_changed);
        release(access.space, &dropped);
        if is_changed || after == Leaf::EMPTY_SIZE {
            self.changed(access.space, key, before, after);
        }
        Ok(())
    }

    /// The blocks of a leaf with versions, each with the birth of its oldest one.
    pub(crate) fn oldest(
        &mut self,
        access: &mut Access<'_>,
        key: LeafKey,
    ) -> Result<Vec<(u16, Seqno)>, Broken> {
        Ok(self.load(access, key, false)?.map(|leaf| leaf.oldest()).unwrap_or_default())
    }

    /// Whether so many leaves were changed that they do not leave the budget to others.
    pub(crate) fn has_to_spill(&self) -> bool {
        self.used > self.budget && self.dirty_leaves > 1
    }

    /// Leaves, in memory or not.
    pub(crate) fn leaf_count(&self) -> u64 {
        self.leaf_count
    }

    /// Nodes, which a checkpoint lists.
    pub(crate) fn node_count(&self) -> u64 {
        to_u64(self.nodes.len())
    }

    /// Bytes of leaves in memory.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Leaves that have to be written.
    pub(crate) fn dirty_leaves(&self) -> Vec<LeafKey> {
        self.leaves.iter().filter(|(_, leaf)| leaf.is_dirty).map(|(key, _)| *key).collect()
    }

    /// Nodes that have to be written.
    pub(crate) fn dirty_nodes(&self) -> Vec<LeafKey> {
        self.nodes.iter().filter(|(_, node)| node.is_dirty).map(|(key, _)| *key).collect()
    }

    /// The bytes of a leaf in memory, for a segment of this generation; and whether they are what was changed only.
    pub(crate) fn encode_leaf(&self, key: LeafKey, generation: Generation) -> (Vec<u8>, bool) {
        let pool = self.pool;
        let Some(leaf) = self.leaves.get(&key) else {
            return (omf::leaf::encode(pool, key.0, key.1, generation, &[], &[]), false);
        };
        let (node, within) = node_of(key.1);
        let pages = self.nodes.get(&(key.0, node)).and_then(|node| node.leaves.get(&within));
        let may_be_delta = pages.is_some_and(|pages| (1..PAGES_MAX).contains(&pages.len()));
        match leaf.delta().filter(|_| may_be_delta) {
            Some(Page { versions, replaced }) => {
                (omf::leaf::encode(pool, key.0, key.1, generation, &versions, &replaced), true)
            }
            None => {
                (omf::leaf::encode(pool, key.0, key.1, generation, leaf.versions(), &[]), false)
            }
        }
    }

    /// The bytes of a node, for a segment of this generation. Its leaves were all written.
    pub(crate) fn encode_node(&self, key: LeafKey, generation: Generation) -> Vec<u8> {
        let leaves = self.nodes.get(&key).into_iter().flat_map(|node| &node.leaves);
        let leaves = leaves.flat_map(|(leaf, pages)| pages.iter().map(|extent| (*leaf, *extent)));
        let leaves: Vec<_> = leaves.collect();
        omf::leaf::encode_node(self.pool, key.0, key.1, generation, &leaves)
    }

    /// A leaf was written there, or what was changed of it.
    pub(crate) fn leaf_written(
        &mut self,
        space: &mut Space,
        key: LeafKey,
        extent: Extent,
        is_delta: bool,
    ) {
        let (node, within) = node_of(key.1);
        let node = self.nodes.get_mut(&(key.0, node)).expect("it lists the leaf");
        node.is_dirty = true;
        let pages = node.leaves.entry(within).or_default();
        if !is_delta {
            for old in pages.drain(..) {
                space.release(old.segment, extent_bytes(&old));
            }
        }
        pages.push(extent);
        space.add_live(extent.segment, extent_bytes(&extent));
        let leaf = self.leaves.get_mut(&key).expect("it was in memory");
        self.dirty_leaves -= usize::from(leaf.is_dirty);
        let before = leaf.size();
        leaf.written();
        self.used = self.used + leaf.size() - before;
        self.shrink(key);
    }

    /// A node was written there.
    pub(crate) fn node_written(&mut self, space: &mut Space, key: LeafKey, extent: Extent) {
        let node = self.nodes.get_mut(&key).expect("it was just encoded");
        node.is_dirty = false;
        if let Some(old) = node.extent.replace(extent) {
            space.release(old.segment, extent_bytes(&old));
        }
        space.add_live(extent.segment, extent_bytes(&extent));
    }

    /// Forgets nodes without leaves.
    pub(crate) fn drop_empty_nodes(&mut self, space: &mut Space) {
        self.nodes.retain(|_, node| {
            if node.leaves.is_empty()
                && let Some(old) = node.extent.take()
            {
                space.release(old.segment, extent_bytes(&old));
            }
            !node.leaves.is_empty()
        });
    }

    /// The nodes for a checkpoint.
    pub(crate) fn node_rows(&self) -> Vec<NodeRow> {
        let written = self.nodes.iter().filter_map(|((lineage, index), node)| {
            node.extent.map(|extent| NodeRow { lineage: *lineage, index: *index, extent })
        });
        written.collect()
    }

    /// Has a leaf or a node written anew if it lies where a segment's summary says.
    pub(crate) fn move_leaf(
        &mut self,
        access: &mut Access<'_>,
        key: LeafKey,
        segment: SegmentId,
        sector: u32,
    ) -> Result<(), Broken> {
        let (node, within) = node_of(key.1);
        let listed = self.nodes.get(&(key.0, node)).and_then(|node| node.leaves.get(&within));
        let lies_there = |extent: &Extent| extent.segment == segment && extent.sector == sector;
        if !listed.is_some_and(|pages| pages.iter().any(lies_there)) {
            return Ok(());
        }
        let leaf = self.load(access, key, false)?.expect("it is listed");
        leaf.is_whole_wanted = true;
        let size = leaf.size();
        self.changed(access.space, key, size, size);
        Ok(())
    }

    /// The same for a node.
    pub(crate) fn move_node(&mut self, key: LeafKey, segment: SegmentId, sector: u32) {
        if let Some(node) = self.nodes.get_mut(&key) {
            let there = node.extent.filter(|e| e.segment == segment && e.sector == sector);
            node.is_dirty |= there.is_some();
        }
    }

    /// Where leaves and nodes were written, to count what lives in segments anew.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (SegmentId, u64)> {
        let leaves = self.nodes.values().flat_map(|node| node.leaves.values().flatten().copied());
        let nodes = self.nodes.values().filter_map(|node| node.extent);
        leaves.chain(nodes).map(|extent| (extent.segment, extent_bytes(&extent)))
    }

    /// Whether a lineage has no version at all.
    pub(crate) fn is_empty(&self, lineage: LineageId) -> bool {
        self.nodes.range((lineage, 0)..=(lineage, u64::MAX)).all(|(_, node)| node.leaves.is_empty())
    }

    /// The leaves of a lineage in a range of indexes.
    fn leaves_of(&self, lineage: LineageId, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let first = range.start / NODE_LEAVES;
        let nodes = self.nodes.range((lineage, first)..=(lineage, u64::MAX));
        let end = range.end;
        let nodes = nodes.take_while(move |((_, node), _)| node * NODE_LEAVES < end);
        let leaves = nodes.flat_map(|((_, node), entry)| {
            entry.leaves.keys().map(move |leaf| node * NODE_LEAVES + u64::from(*leaf))
        });
        leaves.filter(move |leaf| range.contains(leaf))
    }

    /// All leaves of all lineages.
    pub(crate) fn all_leaves(&self) -> Vec<LeafKey> {
        let leaves = self.nodes.iter().flat_map(|((lineage, node), entry)| {
            let key = move |leaf: &u16| (*lineage, node * NODE_LEAVES + u64::from(*leaf));
            entry.leaves.keys().map(key)
        });
        leaves.collect()
    }

    /// The versions of a leaf.
    pub(crate) fn versions(
        &mut self,
        access: &mut Access<'_>,
        key: LeafKey,
    ) -> Result<Vec<(u16, Version)>, Broken> {
        Ok(self.load(access, key, false)?.map(|leaf| leaf.versions().to_vec()).unwrap_or_default())
    }

    /// The versions of a block.
    pub(crate) fn versions_of(
        &mut self,
        access: &mut Access<'_>,
        key: LeafKey,
        within: u16,
    ) -> Result<Vec<Version>, Broken> {
        let leaf = self.load(access, key, false)?;
        Ok(leaf.map(|leaf| leaf.versions_of(within)).unwrap_or_default())
    }

    pub(crate) fn has_leaf(&self, (lineage, index): LeafKey) -> bool {
        let (node, leaf) = node_of(index);
        self.nodes.get(&(lineage, node)).is_some_and(|node| node.leaves.contains_key(&leaf))
    }

    /// The leaf, from memory or from its segment; a new one if there is none and one is wanted.
    pub(crate) fn load(
        &mut self,
        access: &mut Access<'_>,
        key: LeafKey,
        make: bool,
    ) -> Result<Option<&mut Leaf>, Broken> {
        let (lineage, index) = key;
        if !self.leaves.contains_key(&key) {
            let extents = self.pages(key).to_vec();
            if !extents.is_empty() {
                let mut pages = Vec::with_capacity(extents.len());
                for extent in extents {
                    let (bytes, generation) = read_extent(access, &extent, lineage, index)?;
                    pages.push((extent, generation, bytes));
                }
                self.install(key, &pages)?;
            } else if make {
                let (node, within) = node_of(index);
                let node = self.nodes.entry((lineage, node)).or_default();
                self.leaf_count += u64::from(node.leaves.insert(within, Vec::new()).is_none());
                node.is_dirty = true;
                let leaf = Leaf::new(Vec::new());
                self.used += leaf.size();
                self.leaves.insert(key, leaf);
                self.shrink(key);
            } else {
                return Ok(None);
            }
        }
        let leaf = self.leaves.get_mut(&key).expect("it was there, or was just loaded");
        leaf.touch();
        Ok(Some(leaf))
    }

    /// A leaf was changed: it has to be written, or is gone if it is empty.
    fn changed(&mut self, space: &mut Space, key: LeafKey, before: usize, after: usize) {
        self.used = self.used + after - before;
        let leaf = self.leaves.get_mut(&key).expect("it was just changed");
        let (node, within) = node_of(key.1);
        let node = self.nodes.get_mut(&(key.0, node)).expect("it lists the leaf");
        if leaf.is_empty() {
            self.used -= leaf.size();
            self.dirty_leaves -= usize::from(leaf.is_dirty);
            self.leaves.remove(&key);
            node.is_dirty = true;
            let pages = node.leaves.remove(&within);
            self.leaf_count -= u64::from(pages.is_some());
            for extent in pages.unwrap_or_default() {
                space.release(extent.segment, extent_bytes(&extent));
            }
        } else if !leaf.is_dirty {
            leaf.is_dirty = true;
            self.dirty_leaves += 1;
        }
    }

    /// Drops leaves that were not used lately until the rest fits, but for `keep` and those that were changed.
    fn shrink(&mut self, keep: LeafKey) {
        let mut left = 2 * self.leaves.len();
        while self.used > self.budget && left > 0 && self.leaves.len() > self.dirty_leaves + 1 {
            left -= 1;
            let next = self
                .leaves
                .range_mut((std::ops::Bound::Excluded(self.hand), std::ops::Bound::Unbounded));
            let Some((key, leaf)) = next.into_iter().next() else {
                self.hand = (LineageId(0), 0);
                continue;
            };
            self.hand = *key;
            if !leaf.is_dirty && !leaf.cool() && self.hand != keep {
                self.used -= leaf.size();
                self.leaves.remove(&self.hand);
            }
        }
    }
}

/// Reads what was written of a leaf or a node.
fn read_extent(
    access: &mut Access<'_>,
    extent: &Extent,
    lineage: LineageId,
    index: u64,
) -> Result<(Vec<u8>, Generation), Broken> {
    let Some(segment) = access.space.get_mut(extent.segment) else {
        return Err(Broken { why: format!("{} is not in the table", extent.segment) });
    };
    let generation = segment.row.generation;
    let sum = Sum::Seeded { lineage, index, crc: extent.crc };
    let size = to_usize(extent.bytes.into());
    let (bytes, bad) = read_verified(access.io, &segment.chunks, extent.sector, size, sum)?;
    segment.is_damaged |= !bad.is_empty();
    for drive in bad.iter().filter_map(|drive| access.io.fleet().get(*drive)) {
        drive.blame();
    }
    Ok((bytes, generation))
}

fn broken(what: &str, lineage: LineageId, index: u64, why: &FormatError) -> Broken {
    Broken { why: format!("{what} {index} of {lineage}: {why}") }
}

fn release(space: &mut Space, dropped: &[Version]) {
    for version in dropped {
        if let Place::Fragment(fragment) = version.place {
            space.release(fragment.segment, fragment_bytes(&fragment));
        }
    }
}

fn place_of(block: Block) -> (u64, u16) {
    let within = u16::try_from(block.0 % LEAF_BLOCKS).expect("below 512");
    (block.0 / LEAF_BLOCKS, within)
}

fn node_of(leaf: u64) -> (u64, u16) {
    (leaf / NODE_LEAVES, u16::try_from(leaf % NODE_LEAVES).expect("below 512"))
}
