//! Small steps that run together: with a flush and a record of the manifest for all of them, because these are
//! most of the cost of a small step. Where there are thousands of KVSs, most have nothing else to do.
//!
//! Each of them is of another KVS, so none is in another one's way: the plan for one holds until all are
//! installed.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;

use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree, View};
use crate::types::ids::LeafId;

/// So many steps run together at most: ingest waits for the manifest meanwhile.
const MOST: usize = 256;
/// All that spill together have at most this part of the bytes that make a spill due.
const PART: u64 = 4;

/// The size below which a root or a step is small, in bytes.
const SMALL_MOST: u64 = 256 << 10;

/// The most that a root holds, or a step has before it, that is small beside the work of a KVDB, in bytes.
pub(crate) fn small_bytes(spill_bytes: u64) -> u64 {
    (spill_bytes / 64).min(SMALL_MOST)
}

impl Engine {
    /// Whether other steps may run beside this one.
    pub(crate) fn is_small(&self, view: &View, job: &Job) -> bool {
        bytes_of(view, job) <= small_bytes(self.spill_bytes())
    }

    /// The steps that run beside `first`: of those `after` it the small ones of its kind, if it is small itself.
    pub(crate) fn beside(
        &self,
        view: &View,
        first: &Job,
        after: &mut dyn Iterator<Item = Job>,
    ) -> Vec<Job> {
        let spill_bytes = self.spill_bytes();
        let mut left = spill_bytes / PART;
        let mut takes = |job: &Job| {
            let bytes = bytes_of(view, job);
            let fits = bytes <= small_bytes(spill_bytes).min(left);
            left = if fits { left - bytes } else { left };
            fits
        };
        if !takes(first) {
            return Vec::new();
        }
        let mut kvss = BTreeSet::from([first.kvs()]);
        let like_it = after.filter(|job| discriminant(job) == discriminant(first));
        like_it
            .filter(|job| !kvss.contains(&job.kvs()) && takes(job) && kvss.insert(job.kvs()))
            .take(MOST - 1)
            .collect()
    }

    /// The only leaf of a tree, if a spill of `inputs` is to write it anew with them: a small one that is not much
    /// more than they are. So a KVS that is written to seldom has a kvset and a block there, and no garbage.
    pub(crate) fn merges_with_leaf<'t>(
        &self,
        tree: &'t Tree,
        inputs: &[Arc<Kvset>],
    ) -> Option<&'t Leaf> {
        let [leaf] = &tree.leaves[..] else { return None };
        let bytes = leaf.kvsets.iter().map(|kvset| kvset.weight()).sum::<u64>();
        let most = TIMES * inputs.iter().map(|kvset| kvset.weight()).sum::<u64>();
        let is_small = bytes <= most.min(small_bytes(self.spill_bytes()));
        (is_small && inputs.len() == tree.root.len()).then_some(leaf)
    }
}

/// A spill rewrites at most so many times as much beside it.
const TIMES: u64 = 4;

/// The bytes that a step has before it.
fn bytes_of(view: &View, job: &Job) -> u64 {
    let Some(tree) = view.tree(job.kvs()) else { return u64::MAX };
    let leaves = |ids: &[LeafId]| {
        let kvsets =
            tree.leaves.iter().filter(|leaf| ids.contains(&leaf.id)).flat_map(|leaf| &leaf.kvsets);
        kvsets.map(|kvset| kvset.weight()).sum()
    };
    match job {
        Job::Spill { .. } => tree.root_bytes,
        Job::Merge { newest, .. } => tree.root[..*newest].iter().map(|kvset| kvset.weight()).sum(),
        Job::Join { leaf, next, .. } => leaves(&[*leaf, *next]),
        Job::Compact { leaf, .. }
        | Job::Split { leaf, .. }
        | Job::Collect { leaf, .. }
        | Job::Sort { leaf, .. }
        | Job::Expire { leaf, .. } => leaves(&[*leaf]),
    }
}
