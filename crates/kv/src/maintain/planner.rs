//! The planner: from a [`Job`] to the inputs and targets of a compaction, and to the nodes that it claims. Nothing here
//! does I/O.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::compaction::plan::{Compaction, Rewrite, Target};
use crate::compaction::reader::gathered_bytes;
use crate::engine::claims::Claim;
use crate::engine::job::Job;
use crate::maintain::picker::{Picker, spill_run};
use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree};
use crate::types::ids::{Ids, KvsId, LeafId};
use crate::types::policy::KvsOptions;

/// The kvsets of a root that go first: the oldest. Where the record cache has lost their values, it is no more
/// than a window holds, so that a value's neighbours in the log are read with it once, and not in each window.
fn spilled_of<'r>(picker: &Picker<'_>, tree: &Tree, root: &'r [Arc<Kvset>]) -> &'r [Arc<Kvset>] {
    let room = picker.room_to_spill(tree);
    let mut oldest = spill_run(root, picker.spill_bytes(), room);
    if let Some(most) = picker.spill_most
        && picker.emptying != Some(tree.kvs)
    {
        let mut bytes = 0;
        let fits = root.iter().rev().take_while(|kvset| {
            bytes += gathered_bytes(std::slice::from_ref(*kvset));
            bytes <= most
        });
        oldest = fits.count().clamp(1, oldest.max(1));
    }
    &root[root.len() - oldest.min(root.len())..]
}

/// The inputs of a spill that comes after one of `inputs`, if the roots hold enough for it then.
pub(crate) fn spilled_after(
    picker: &Picker<'_>,
    kvs: KvsId,
    inputs: &[Arc<Kvset>],
) -> Vec<Arc<Kvset>> {
    let view = picker.view;
    let Some(tree) = view.tree(kvs) else { return Vec::new() };
    let is_left = |kvset: &&Arc<Kvset>| !inputs.iter().any(|it| Arc::ptr_eq(it, kvset));
    let left: Vec<Arc<Kvset>> = tree.root.iter().filter(is_left).cloned().collect();
    let taken: u64 = inputs.iter().map(|kvset| kvset.weight()).sum();
    if view.root_bytes().saturating_sub(taken) < picker.spill_bytes() {
        return Vec::new();
    }
    spilled_of(picker, tree, &left).to_vec()
}

/// A spill rewrites at most so many times its own bytes of a leaf.
const TIMES: u64 = 4;

/// The only leaf of a tree, if a spill of `inputs` is to write it anew with them: a small one that is not much
/// more than they are. So a KVS that is written to seldom has a kvset and a block there, and no garbage.
fn merged_leaf<'t>(tree: &'t Tree, inputs: &[Arc<Kvset>], small_bytes: u64) -> Option<&'t Leaf> {
    let [leaf] = &tree.leaves[..] else { return None };
    let bytes = leaf.kvsets.iter().map(|kvset| kvset.weight()).sum::<u64>();
    let most = TIMES * inputs.iter().map(|kvset| kvset.weight()).sum::<u64>();
    let is_small = bytes <= most.min(small_bytes);
    (is_small && inputs.len() == tree.root.len()).then_some(leaf)
}

/// The plan of a step, which a caller `asked` for or not. It keeps no view, because a view keeps memtables.
pub(crate) fn plan(picker: &Picker<'_>, job: &Job, ids: &Ids, asked: bool) -> Compaction {
    let kvs = job.kvs();
    let tree = picker.view.tree(kvs).expect("a job names a KVS that exists");
    let KvsOptions { policy, compression, .. } = tree.options;
    let leaf = |id: LeafId| tree.leaves.iter().find(|leaf| leaf.id == id).expect("and its leaves");
    let target =
        |leaf: &Leaf, bottom: bool| Target { leaf: leaf.id, lower: leaf.lower.clone(), bottom };
    let (inputs, targets, rewrite) = match job {
        Job::Spill { .. } => {
            let mut inputs = spilled_of(picker, tree, &tree.root).to_vec();
            let leaves = tree.leaves.iter();
            let targets = match merged_leaf(tree, &inputs, picker.small_bytes()) {
                Some(leaf) => {
                    inputs.extend_from_slice(&leaf.kvsets);
                    vec![target(leaf, true)]
                }
                None => leaves.map(|leaf| target(leaf, leaf.kvsets.is_empty())).collect(),
            };
            (inputs, targets, Rewrite::All)
        }
        Job::Merge { newest, .. } => {
            let root = Target { leaf: LeafId::ROOT, lower: Arc::from([]), bottom: false };
            (tree.root[..*newest].to_vec(), vec![root], Rewrite::None)
        }
        Job::Compact { leaf: id, newest, .. } => {
            let leaf = leaf(*id);
            let all = *newest == leaf.kvsets.len();
            let moves = if all { picker.misplaced(leaf, &policy) } else { BTreeSet::new() };
            let targets = vec![target(leaf, all)];
            (leaf.kvsets[..*newest].to_vec(), targets, Rewrite::of(moves))
        }
        Job::Split { leaf: id, .. } => {
            let leaf = leaf(*id);
            let largest = leaf.kvsets.iter().max_by_key(|kvset| kvset.edit.pages);
            let largest = largest.expect("a leaf that splits has kvsets");
            let right =
                |lower: &[u8]| Target { leaf: ids.next(), lower: lower.into(), bottom: true };
            let rights = largest.dividing_keys(picker.parts(leaf, &policy)).into_iter().map(right);
            let targets = std::iter::once(target(leaf, true)).chain(rights).collect();
            (leaf.kvsets.clone(), targets, Rewrite::None)
        }
        Job::Join { leaf: id, next, .. } => {
            let (leaf, next) = (leaf(*id), leaf(*next));
            // One kvset each, at most, and their keys are apart.
            let inputs = leaf.kvsets.iter().chain(&next.kvsets).cloned().collect();
            (inputs, vec![target(leaf, true)], Rewrite::None)
        }
        Job::Collect { leaf: id, blocks, .. } => {
            let leaf = leaf(*id);
            let mut moves = picker.misplaced(leaf, &policy);
            moves.extend(blocks);
            (leaf.kvsets.clone(), vec![target(leaf, true)], Rewrite::of(moves))
        }
        Job::Sort { leaf: id, .. } => {
            let leaf = leaf(*id);
            (leaf.kvsets.clone(), vec![target(leaf, true)], Rewrite::All)
        }
        Job::Expire { leaf: id, oldest, .. } => {
            let leaf = leaf(*id);
            let expired = leaf.kvsets[leaf.kvsets.len() - oldest..].to_vec();
            (expired, Vec::new(), Rewrite::None)
        }
    };
    let gone = if let Job::Join { next, .. } = job { Some(*next) } else { None };
    Compaction { kvs, policy, compression, inputs, targets, gone, rewrite, asked }
}

/// The nodes of a tree that a compaction works on.
pub(crate) fn claim(tree: &Tree, compaction: &Compaction) -> Claim {
    let inputs = compaction.inputs.iter().map(|kvset| kvset.edit.leaf).collect();
    let targets = compaction.targets.iter().map(|target| target.leaf);
    let begins = !compaction.new_leaves(tree).is_empty();
    let moves_bounds = begins || compaction.gone.is_some();
    let outputs = targets.chain(compaction.gone).collect();
    Claim { kvs: compaction.kvs, inputs, outputs, moves_bounds }
}
