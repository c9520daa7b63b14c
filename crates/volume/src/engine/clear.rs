//! Ranges of blocks are zeroed in the map, in time that grows with what is there and not with the range.

use std::ops::Range;

use crate::drive::Io;
use crate::engine::Core;
use crate::map::Access;
use crate::segment::Broken;
use crate::types::LEAF_BLOCKS;
use crate::types::id::{LineageId, Seqno};

/// Leaves cleared at a time.
const LEAVES: usize = 16;

impl Core {
    /// The first leaf at or behind this one where a lineage, or one that it goes on from, has blocks.
    pub(crate) fn next_used(&self, lineage: LineageId, from: u64) -> Option<u64> {
        let ancestors = self.catalog.ancestors(lineage).map(|(id, _)| id);
        let chain = std::iter::once(lineage).chain(ancestors);
        let first = chain.flat_map(|id| {
            let pending = self.pending.next_block(id, from * LEAF_BLOCKS);
            [self.map.next_leaf(id, from), pending.map(|block| block / LEAF_BLOCKS)]
        });
        first.flatten().min()
    }

    /// Zeroes the first of these blocks in the map, as far as there are any. Returns where the rest begins.
    pub(crate) fn clear(
        &mut self,
        io: &mut Io,
        lineage: LineageId,
        blocks: Range<u64>,
        seqno: Seqno,
    ) -> Result<u64, Broken> {
        let Some(points) = self.catalog.points(lineage) else { return Ok(blocks.end) };
        let keeps_zero = self.catalog.has_parent(lineage);
        let mut start = blocks.start;
        for _ in 0..LEAVES {
            let used = self.next_used(lineage, start / LEAF_BLOCKS);
            let Some(leaf) = used.filter(|leaf| leaf * LEAF_BLOCKS < blocks.end) else {
                return Ok(blocks.end);
            };
            let end = blocks.end.min((leaf + 1) * LEAF_BLOCKS);
            let piece = start.max(leaf * LEAF_BLOCKS)..end;
            let mut access = Access { io: &mut *io, space: &mut self.space };
            self.map.clear(&mut access, lineage, piece, seqno, &points, keeps_zero)?;
            start = end;
            if start == blocks.end || self.map.has_to_spill() {
                break;
            }
        }
        Ok(start)
    }
}
