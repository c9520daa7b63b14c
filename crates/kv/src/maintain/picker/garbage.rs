//! Garbage on the media: exact where keys were merged, else estimated from filters.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree, View};
use crate::types::ids::BlockId;
use crate::types::key::key_hash;
use crate::types::spans::Spans;
use crate::values::block::ValueBlock;

/// Bytes that the media hold, and how many of them are needed. Log segments that replay may need are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceUse {
    pub(crate) used: u64,
    pub(crate) live: u64,
}

impl SpaceUse {
    /// Bytes used for each 100 that are live, rounded up, so that any excess over a goal counts.
    pub(crate) fn percent(self) -> u64 {
        (self.used * 100).div_ceil(self.live.max(1))
    }
}

/// Bytes that letting go of blocks frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    /// Bytes that are referred to in the blocks, and have to be moved.
    pub(crate) moved: u64,
    pub(crate) alone: u64,
    /// The part of the bytes that go when all others let go of them, too.
    pub(crate) together: u64,
}

/// The blocks there are, and the references to them.
pub(crate) struct Blocks<'v> {
    blocks: BTreeMap<BlockId, (&'v Arc<ValueBlock>, u64)>,
    /// Segments from this one on take all they have: replay may need them.
    replay_from: BlockId,
    /// Blocks below this size are no larger than their records made them, rounded up.
    unit: u64,
}

impl<'v> Blocks<'v> {
    pub(crate) fn of(view: &'v View, replay_from: BlockId, unit: u64) -> Blocks<'v> {
        let mut blocks = BTreeMap::new();
        for (block, bytes) in view.trees.values().flat_map(|t| t.kvsets()).flat_map(|k| &k.blocks) {
            blocks.entry(block.id).or_insert((block, 0)).1 += bytes;
        }
        Blocks { blocks, replay_from, unit }
    }

    pub(crate) fn alive(&self, block: &ValueBlock) -> u64 {
        let size = block.allocation.bytes();
        if block.is_log() && block.id >= self.replay_from {
            return size;
        }
        self.blocks.get(&block.id).map_or(0, |(_, alive)| *alive).min(size)
    }

    /// The bytes that the live records of a block take if they are packed as the block is now: frames and whole
    /// LBAs take more than the records.
    pub(crate) fn packed(&self, block: &ValueBlock) -> u64 {
        let alive = self.alive(block);
        match block.is_log() {
            true => alive + alive / 64,
            false => share(alive, block.allocation.bytes(), block.bytes).max(alive),
        }
    }

    pub(crate) fn garbage(&self, block: &ValueBlock) -> u64 {
        block.allocation.bytes() - self.alive(block)
    }

    /// The garbage of blocks that goes when a root no longer refers to them. It goes with the last KVS that lets go
    /// of a block: with the one that holds most of the live bytes there, or else each frees its part.
    pub(crate) fn freed_by(&self, root: &[Arc<Kvset>]) -> Freed {
        let mut own: BTreeMap<BlockId, (&ValueBlock, u64)> = BTreeMap::new();
        for (block, bytes) in root.iter().flat_map(|kvset| &kvset.blocks) {
            own.entry(block.id).or_insert((&**block, 0)).1 += bytes;
        }
        let mut freed = Freed::default();
        for (block, bytes) in own.into_values() {
            let (garbage, alive) = (self.garbage(block), self.alive(block));
            freed.moved += bytes;
            if 2 * bytes >= alive {
                freed.alone += garbage;
            } else {
                freed.together += share(garbage, bytes, alive);
            }
        }
        freed
    }

    /// Cost, in bytes, to collect `dead` bytes in `leaves` that are not known to be garbage yet, once they are:
    /// they lie among needed bytes in the same proportion as all the garbage.
    pub(crate) fn to_collect(&self, dead: u64, leaves: &[Leaf]) -> u64 {
        let (mut keys, mut alive, mut garbage) = (0, 0, dead);
        for leaf in leaves {
            keys += leaf.key_bytes();
            for block in leaf.blocks().into_values() {
                alive += self.alive(block);
                garbage += self.garbage(block);
            }
        }
        keys + share(alive.saturating_sub(dead), dead, garbage)
    }

    pub(crate) fn space(&self) -> SpaceUse {
        let mut space = SpaceUse::default();
        for (block, _) in self.blocks.values() {
            let size = block.allocation.bytes();
            space.used += size;
            // The rest of a small block's last page is nobody's garbage: no step frees it.
            space.live +=
                if size < self.unit { self.packed(block).min(size) } else { self.alive(block) };
        }
        space
    }
}

/// Bytes that `kvsets`, newest first, hide in each other.
fn hidden_in(kvsets: &[Arc<Kvset>]) -> u64 {
    let older = kvsets.iter().enumerate().skip(1);
    older.map(|(n, kvset)| hidden_by(&kvsets[..n], kvset)).sum()
}

/// Bytes that `newer` kvsets hide in an older one.
fn hidden_by(newer: &[Arc<Kvset>], older: &Kvset) -> u64 {
    let (mut looked, mut hidden) = (0, 0);
    let counted = older.sample(|key| {
        let hash = key_hash(key);
        looked += 1;
        hidden += u64::from(newer.iter().any(|kvset| kvset.may_hide(key, hash)));
    });
    // Unreadable data is found, and reported, when it is merged.
    counted.map_or(0, |()| share(older.bytes(), hidden, looked))
}

/// `part` of `of` parts of a whole; the numbers of indexes may be anything.
pub(crate) fn share(whole: u64, part: u64, of: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Bytes that a root hides in itself and in the leaves: by its keys, because the leaves have more.
fn hidden_under(tree: &Tree) -> u64 {
    let mut hidden = hidden_in(&tree.root) + hidden_by_spans(tree);
    for kvset in &tree.root {
        let (mut looked, mut hiding) = (0, 0);
        let counted = kvset.sample(|key| {
            let hash = key_hash(key);
            looked += 1;
            let below = tree.leaves[tree.leaf_of(key)].kvsets.iter();
            let hides = below.rev().find(|older| older.may_hold(key, hash));
            hiding += hides.map_or(0, |older| older.bytes_per_entry());
        });
        let under = counted.map_or(0, |()| share(kvset.edit.entries, hiding, looked));
        hidden = hidden.saturating_add(under);
    }
    hidden.min(tree.kvsets().map(|kvset| kvset.bytes()).sum())
}

/// Bytes that the prefixes and ranges of a root hide in the leaves: by the leaves' indexes.
fn hidden_by_spans(tree: &Tree) -> u64 {
    let deleted = Spans::union(tree.root.iter().flat_map(|kvset| kvset.deleted.iter()));
    if deleted.is_empty() {
        return 0;
    }
    let uppers = tree.leaves.iter().skip(1).map(|next| Some(&*next.lower)).chain([None]);
    let leaves = tree.leaves.iter().zip(uppers);
    let of_leaf = |(leaf, upper): (&Leaf, Option<&[u8]>)| {
        let deleted = deleted.within(&leaf.lower, upper);
        let hidden = |older: &Arc<Kvset>| share(older.bytes(), older.hidden_percent(&deleted), 100);
        leaf.kvsets.iter().map(hidden).sum::<u64>()
    };
    leaves.map(of_leaf).sum()
}

/// Bytes of garbage when `hidden` bytes are hidden and a part of all that `kvsets` refer to has expired: as if one
/// had nothing to do with the other.
fn dead_in(kvsets: &[Arc<Kvset>], hidden: u64, now_ms: u64) -> u64 {
    let sum = |of: &dyn Fn(&Kvset) -> u64| kvsets.iter().map(|kvset| of(kvset)).sum::<u64>();
    let expired = sum(&|kvset| share(kvset.bytes(), kvset.expired_percent(now_ms), 100));
    let bytes = sum(&Kvset::bytes);
    hidden + share(expired, bytes.saturating_sub(hidden), bytes)
}

impl Leaf {
    /// Bytes that a merge will find to be garbage.
    pub(crate) fn dead_bytes(&self, now_ms: u64) -> u64 {
        let hidden = self.hidden.get().copied().unwrap_or_else(|| hidden_in(&self.kvsets));
        dead_in(&self.kvsets, *self.hidden.get_or_init(|| hidden), now_ms)
    }
}

impl Tree {
    /// Bytes that a spill will find to be garbage, or make so.
    pub(crate) fn dead_bytes(&self, now_ms: u64) -> u64 {
        let hidden = self.hidden.get().copied().unwrap_or_else(|| hidden_under(self));
        dead_in(&self.root, *self.hidden.get_or_init(|| hidden), now_ms)
    }
}
