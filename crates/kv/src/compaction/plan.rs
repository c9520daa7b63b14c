//! The plan of a compaction, and its result. The plan names all kvsets that are read, all nodes that get one, and the
//! values that move, before the compaction begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::tree::kvset::Kvset;
use crate::tree::view::Tree;
use crate::types::compression::Compression;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, RecordAddress, Seqno};
use crate::types::policy::Policy;
use crate::values::block::ValueBlock;

/// Values that are written anew.
#[derive(Clone)]
pub(crate) enum Rewrite {
    None,
    All,
    /// Those in these blocks.
    In(BTreeSet<BlockId>),
}

impl Rewrite {
    /// Whether the values in a block are written anew.
    pub(crate) fn moves(&self, block: BlockId) -> bool {
        match self {
            Rewrite::None => false,
            Rewrite::All => true,
            Rewrite::In(blocks) => blocks.contains(&block),
        }
    }

    /// The rewriting of a merge of a whole leaf.
    pub(crate) fn of(blocks: BTreeSet<BlockId>) -> Rewrite {
        if blocks.is_empty() { Rewrite::None } else { Rewrite::In(blocks) }
    }
}

/// A node that gets a kvset.
pub(crate) struct Target {
    pub(crate) leaf: LeafId,
    /// The first key that belongs to it; the targets' bounds ascend.
    pub(crate) lower: Arc<[u8]>,
    /// Whether nothing older lies below, so that tombstones have done their work.
    pub(crate) bottom: bool,
}

/// Plan of a compaction.
pub(crate) struct Compaction {
    pub(crate) kvs: KvsId,
    pub(crate) policy: Policy,
    /// Compression of values that are written anew.
    pub(crate) compression: Compression,
    /// Newest first.
    pub(crate) inputs: Vec<Arc<Kvset>>,
    /// Without any, nothing is left of the inputs.
    pub(crate) targets: Vec<Target>,
    /// A leaf that ends with this: its keys are in the only target's range then.
    pub(crate) gone: Option<LeafId>,
    pub(crate) rewrite: Rewrite,
    /// Whether a caller asked for it, and may cancel it.
    pub(crate) asked: bool,
}

/// Result of a compaction; written, not yet flushed.
#[derive(Default)]
pub(crate) struct Compacted {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    pub(crate) blocks: Vec<Arc<ValueBlock>>,
    /// The cached records that have another address.
    pub(crate) moved: Vec<MovedRecord>,
    /// Whether deletes were dropped: nothing older is left for them to hide.
    pub(crate) forgets: bool,
}

/// A cached record that was written anew.
pub(crate) struct MovedRecord {
    /// The hash that the record cache knows it by.
    pub(crate) hash: u64,
    pub(crate) from: RecordAddress,
    pub(crate) to: RecordAddress,
}

impl Compacted {
    pub(crate) fn written_bytes(&self) -> u64 {
        let keys: u64 = self.kvsets.iter().map(|kvset| kvset.key_bytes()).sum();
        keys + self.blocks.iter().map(|block| block.bytes).sum::<u64>()
    }
}

impl Compaction {
    /// The targets that are no leaves of a tree yet.
    pub(crate) fn new_leaves(&self, tree: &Tree) -> Vec<&Target> {
        let known =
            |leaf: LeafId| leaf == LeafId::ROOT || tree.leaves.iter().any(|known| known.id == leaf);
        self.targets.iter().filter(|target| !known(target.leaf)).collect()
    }

    /// Whether it empties a root.
    pub(crate) fn is_spill(&self) -> bool {
        let of_root = self.inputs.iter().any(|kvset| kvset.edit.leaf == LeafId::ROOT);
        of_root && self.targets[0].leaf != LeafId::ROOT
    }

    /// The age of its output.
    pub(crate) fn age(&self) -> Seqno {
        self.inputs.iter().map(|kvset| kvset.edit.age).max().unwrap_or_default()
    }

    /// The ids of the kvsets that it replaces.
    pub(crate) fn removed(&self) -> impl Iterator<Item = KvsetId> + '_ {
        self.inputs.iter().map(|kvset| kvset.edit.id)
    }

    /// Whether it puts all values of a leaf in key order.
    pub(crate) fn sorts(&self) -> bool {
        let of_leaf = self.inputs.iter().all(|kvset| kvset.edit.leaf != LeafId::ROOT);
        of_leaf && matches!(self.rewrite, Rewrite::All)
    }
}
