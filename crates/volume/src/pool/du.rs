//! The space of a volume: all that it shows, and the part that nobody else does.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::drive::Io;
use crate::engine::{AtLeaf, Core, Viewers, bytes_of};
use crate::map::{Access, fragment_bytes};
use crate::omf::leaf::{Place, Version};
use crate::pool::Pool;
use crate::segment::Broken;
use crate::types::error::VolumeError;
use crate::types::id::{LineageId, Seqno, VolumeId};
use crate::types::{BLOCK, LEAF_BLOCKS};

/// The space of a volume, in bytes, to the byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Its size, as a host sees it.
    pub provisioned: u64,
    /// Blocks of it that have content.
    pub used: u64,
    /// Bytes that these take as they are stored, without parities.
    pub stored: u64,
    /// Of what is stored, that which no snapshot and no other volume shows: deleting the volume frees it.
    pub unique: u64,
    /// Of what is stored, that which others show, too.
    pub shared: u64,
    /// Of what is stored, that which its ancestors hold: volumes, deleted or not, that it is a clone of, and what it was
    /// before it was rolled back.
    pub inherited: u64,
    /// Bytes that its ancestors hold and nobody shows any more, beside what is stored: they are freed within a minute.
    pub unswept: u64,
}

/// A lineage in the chain of a volume, its own first, and up to where the volume sees it.
type Link = (LineageId, Seqno);

impl Pool {
    /// Counts the space of a volume, after moving what is in the write buffer into segments. It reads the map of the
    /// volume and of those it shares blocks with.
    ///
    /// # Errors
    /// There is no such volume, or the pool's.
    pub fn du(&self, name: &str) -> Result<VolumeSpace, VolumeError> {
        self.drain()?;
        let shared = &self.shared;
        let mut io = shared.ios.take();
        let (id, chain, blocks, leaves) = {
            let core = shared.core.lock();
            let not_found =
                || VolumeError::NotFound { what: "volume", name: name.to_owned(), hint: "" };
            let row = core.catalog.volume(name).ok_or_else(not_found)?;
            let chain: Vec<Link> = [(row.lineage, Seqno::HEAD)]
                .into_iter()
                .chain(core.catalog.ancestors(row.lineage))
                .collect();
            let all = core.map.all_leaves();
            let in_chain = |lineage| chain.iter().any(|(link, _)| *link == lineage);
            let leaves = all.into_iter().filter(|(lineage, _)| in_chain(*lineage));
            let leaves: BTreeSet<u64> = leaves.map(|(_, index)| index).collect();
            (row.id, chain, row.blocks, leaves)
        };
        let mut space = VolumeSpace { provisioned: blocks * BLOCK, ..VolumeSpace::default() };
        let mut viewers = Viewers::default();
        for index in leaves {
            let first = index * LEAF_BLOCKS;
            let count = blocks.saturating_sub(first).min(LEAF_BLOCKS);
            let mut core = shared.core.lock();
            viewers.refresh(&core.catalog);
            space.unswept += unswept(&mut core, &mut io, &viewers, &chain[1..], index)
                .map_err(|broken| shared.damaged(&broken))?;
            for within in 0..u16::try_from(count).expect("at most 512") {
                count_block(&mut core, &mut io, &chain, id, (index, within), &mut space)
                    .map_err(|broken| shared.damaged(&broken))?;
            }
        }
        Ok(space)
    }
}

/// Bytes of a leaf index that nobody shows, in these lineages.
fn unswept(
    core: &mut Core,
    io: &mut Io,
    viewers: &Viewers,
    ancestors: &[Link],
    index: u64,
) -> Result<u64, Broken> {
    let (mut bytes, mut found) = (0, AtLeaf::default());
    for (lineage, _) in ancestors {
        let key = (*lineage, index);
        let mut access = Access { io, space: &mut core.space };
        if !core.map.has_leaf(key) {
            continue;
        }
        let sight = viewers.sight(&mut core.map, &mut access, key, &mut found)?;
        let versions = core.map.versions(&mut access, key)?;
        bytes += bytes_of(&versions, |block, birth, next| !sight.see(block, birth, next));
    }
    Ok(bytes)
}

fn count_block(
    core: &mut Core,
    io: &mut Io,
    chain: &[Link],
    volume: VolumeId,
    place: (u64, u16),
    space: &mut VolumeSpace,
) -> Result<(), Broken> {
    for (number, (lineage, at)) in chain.iter().enumerate() {
        let versions = versions(core, io, *lineage, place)?;
        let after = versions.partition_point(|version| version.birth <= *at);
        let Some(version) = after.checked_sub(1).map(|newest| versions[newest]) else { continue };
        let Place::Fragment(fragment) = version.place else { return Ok(()) };
        let bytes = fragment_bytes(&fragment);
        let until = versions.get(after).map_or(Seqno::HEAD, |next| next.birth);
        space.used += BLOCK;
        space.stored += bytes;
        space.inherited += if number > 0 { bytes } else { 0 };
        match is_seen(core, io, *lineage, place, version.birth..until, volume)? {
            true => space.shared += bytes,
            false => space.unique += bytes,
        }
        return Ok(());
    }
    Ok(())
}

/// Whether someone but the head of `volume` sees what a lineage has at a place in a range of seqnos.
fn is_seen(
    core: &mut Core,
    io: &mut Io,
    lineage: LineageId,
    place: (u64, u16),
    seen: Range<Seqno>,
    volume: VolumeId,
) -> Result<bool, Broken> {
    let head = core.catalog.lineages.get(&lineage).and_then(|row| row.head);
    if seen.end == Seqno::HEAD && head.is_some_and(|head| head != volume) {
        return Ok(true);
    }
    let mut snapshots = core.catalog.snapshots.values();
    if snapshots.any(|row| row.lineage == lineage && seen.contains(&row.at)) {
        return Ok(true);
    }
    let clones = core.catalog.lineages.values();
    let clones = clones.filter(|row| {
        row.parent.is_some_and(|(parent, at)| parent == lineage && seen.contains(&at))
    });
    for clone in clones.map(|row| row.id).collect::<Vec<_>>() {
        // It sees its parent up to its own first version.
        let own = versions(core, io, clone, place)?;
        let until = own.first().map_or(Seqno::HEAD, |version| version.birth);
        if is_seen(core, io, clone, place, Seqno(0)..until, volume)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The versions of a block of a lineage.
fn versions(
    core: &mut Core,
    io: &mut Io,
    lineage: LineageId,
    (index, within): (u64, u16),
) -> Result<Vec<Version>, Broken> {
    let mut access = Access { io, space: &mut core.space };
    core.map.versions_of(&mut access, (lineage, index), within)
}
