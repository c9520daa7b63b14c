//! A job: one step of the second lane of maintenance, by the KVS and the leaf that it is about.

use std::collections::BTreeSet;

use crate::types::ids::{BlockId, KvsId, LeafId};

/// A step of the second lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Ages the root's data into the leaves.
    Spill { kvs: KvsId },
    /// Merges the keys of the root's newest kvsets.
    Merge { kvs: KvsId, newest: usize },
    /// Merges the keys of a leaf's newest kvsets.
    Compact { kvs: KvsId, leaf: LeafId, newest: usize },
    /// Divides a leaf in two.
    Split { kvs: KvsId, leaf: LeafId },
    /// Makes one of a leaf and the next one.
    Join { kvs: KvsId, leaf: LeafId, next: LeafId },
    /// Merges all keys of a leaf, and rewrites the live values of these blocks.
    Collect { kvs: KvsId, leaf: LeafId, blocks: BTreeSet<BlockId> },
    /// Writes all values of a leaf anew, in key order.
    Sort { kvs: KvsId, leaf: LeafId },
    /// Lets go of a leaf's oldest kvsets, all of whose values have expired, unread.
    Expire { kvs: KvsId, leaf: LeafId, oldest: usize },
}

impl Job {
    /// Whether it leaves the root alone.
    pub(crate) fn is_of_leaf(&self) -> bool {
        !matches!(self, Job::Spill { .. } | Job::Merge { .. })
    }

    /// The leaf that it is about; of a join the first.
    pub(crate) fn leaf(&self) -> Option<LeafId> {
        match self {
            Job::Spill { .. } | Job::Merge { .. } => None,
            Job::Compact { leaf, .. }
            | Job::Split { leaf, .. }
            | Job::Join { leaf, .. }
            | Job::Collect { leaf, .. }
            | Job::Sort { leaf, .. }
            | Job::Expire { leaf, .. } => Some(*leaf),
        }
    }

    pub(crate) fn kvs(&self) -> KvsId {
        let (Job::Spill { kvs }
        | Job::Merge { kvs, .. }
        | Job::Compact { kvs, .. }
        | Job::Split { kvs, .. }
        | Job::Join { kvs, .. }
        | Job::Collect { kvs, .. }
        | Job::Sort { kvs, .. }
        | Job::Expire { kvs, .. }) = self;
        *kvs
    }
}
