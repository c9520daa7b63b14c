//! The installation of compactions: the edits of the manifest that replace inputs by outputs, and the same change of a
//! tree. Nothing here does I/O.

use std::sync::Arc;

use crate::compaction::plan::{Compacted, Compaction, Rewrite};
use crate::maintain::picker::MANY_SMALL_BLOCKS;
use crate::omf::manifest::{Edit, KvsetEdit};
use crate::sync::atomic::Ordering;
use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree};
use crate::types::ids::{KvsetId, LeafId};
use crate::values::block::ValueBlock;

/// The edits that add new blocks and the kvsets which refer to them.
pub(crate) fn additions(blocks: &[Arc<ValueBlock>], kvsets: &[Arc<Kvset>]) -> Vec<Edit> {
    let blocks = blocks.iter().map(|block| Edit::Block {
        id: block.id,
        extent: *block.extent(),
        log: false,
        bytes: block.bytes,
        plain_bytes: block.plain_bytes,
    });
    let kvsets = kvsets.iter().map(|kvset| Edit::Kvset(KvsetEdit::clone(&kvset.edit)));
    blocks.chain(kvsets).collect()
}

/// The edits that put the output of a compaction in the place of its inputs.
pub(crate) fn edits(tree: &Tree, compaction: &Compaction, done: &Compacted) -> Vec<Edit> {
    let kvs = compaction.kvs;
    let mut edits: Vec<Edit> = compaction
        .new_leaves(tree)
        .iter()
        .map(|target| Edit::Leaf { id: target.leaf, kvs, lower: target.lower.to_vec() })
        .collect();
    edits.extend(additions(&done.blocks, &done.kvsets));
    edits.extend(compaction.removed().map(|id| Edit::KvsetRemoved { id }));
    edits.extend(compaction.gone.map(|id| Edit::LeafRemoved { id }));
    edits
}

/// Does the same to a tree.
pub(crate) fn replace(
    tree: &mut Tree,
    compaction: &Compaction,
    done: &Compacted,
    block_bytes: u64,
) {
    for target in compaction.new_leaves(tree) {
        let at = tree.leaf_of(&target.lower) + 1;
        tree.leaves.insert(at, Leaf::new(target.leaf, target.lower.clone()));
    }
    tree.remove(&compaction.removed().collect::<Vec<KvsetId>>());
    tree.leaves.retain(|leaf| Some(leaf.id) != compaction.gone);
    done.kvsets.iter().for_each(|kvset| tree.add(kvset.clone()));
    if done.forgets {
        tree.forget(compaction.age());
    }
    forget_scans(tree, compaction);
    forget_passed(tree, compaction);
    count_small_blocks(tree, compaction, block_bytes);
}

/// Resets the count of bytes that scans of a leaf read in vain when the leaf's values have been put in order, and
/// halves it when a spill has added to the disorder: scans to come show the effect.
pub(crate) fn forget_scans(tree: &mut Tree, compaction: &Compaction) {
    for target in compaction.targets.iter().filter(|_| matches!(compaction.rewrite, Rewrite::All)) {
        let at = tree.leaf_of(&target.lower);
        let in_vain = &mut tree.leaves[at].in_vain;
        let kept = if compaction.sorts() { 0 } else { in_vain.load(Ordering::Relaxed) / 2 };
        // A new one: walks that began before go on counting their finds in the old blocks.
        *in_vain = Arc::new(kept.into());
    }
}

/// Keys that walks have passed over count no more where a whole leaf was merged.
fn forget_passed(tree: &mut Tree, compaction: &Compaction) {
    for target in compaction.targets.iter().filter(|it| it.bottom && it.leaf != LeafId::ROOT) {
        let at = tree.leaf_of(&target.lower);
        tree.leaves[at].passed = Arc::default();
    }
}

/// Counts the small blocks that are left where many blocks were rewritten, and those of them that later steps
/// leave.
pub(crate) fn count_small_blocks(tree: &mut Tree, compaction: &Compaction, block_bytes: u64) {
    let many =
        matches!(&compaction.rewrite, Rewrite::In(blocks) if blocks.len() >= MANY_SMALL_BLOCKS);
    for target in &compaction.targets {
        let at = tree.leaf_of(&target.lower);
        let leaf = &mut tree.leaves[at];
        let most = if many { usize::MAX } else { leaf.small_blocks_left };
        if most > 0 {
            leaf.small_blocks_left = leaf.small_blocks(block_bytes).len().min(most);
        }
    }
}
