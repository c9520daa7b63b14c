//! From a [`Job`] to its inputs and outputs, and from the outputs written to edits of the manifest and a new tree.
//!
//! `steps.rs` calls it: it plans before a step, and replaces inputs by outputs after it. Nothing here does I/O.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::compaction::plan::{Compacted, Compaction, Rewrite, Target};
use crate::compaction::reader::gathered_bytes;
use crate::engine::claims::Claim;
use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::maintain::picker::{CRUMBS, Picker, spill_run};
use crate::omf::manifest::Edit;
use crate::sync::atomic::Ordering;
use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree, View};
use crate::types::ids::{KvsId, KvsetId, LeafId};
use crate::types::policy::KvsOptions;

/// The targets that are no leaves of a tree yet.
pub(crate) fn new_leaves<'c>(tree: &Tree, compaction: &'c Compaction) -> Vec<&'c Target> {
    let known =
        |leaf: LeafId| leaf == LeafId::ROOT || tree.leaves.iter().any(|known| known.id == leaf);
    compaction.targets.iter().filter(|target| !known(target.leaf)).collect()
}

/// The nodes of a tree that a compaction works on.
pub(crate) fn claim(tree: &Tree, compaction: &Compaction) -> Claim {
    let inputs = compaction.inputs.iter().map(|kvset| kvset.edit.leaf).collect();
    let targets = compaction.targets.iter().map(|target| target.leaf);
    let begins = !new_leaves(tree, compaction).is_empty();
    let moves_bounds = begins || compaction.gone.is_some();
    let outputs = targets.chain(compaction.gone).collect();
    Claim { kvs: compaction.kvs, inputs, outputs, moves_bounds }
}

/// The edits that put the output of a compaction in the place of its inputs.
pub(crate) fn edits(tree: &Tree, compaction: &Compaction, done: &Compacted) -> Vec<Edit> {
    let kvs = compaction.kvs;
    let mut edits: Vec<Edit> = new_leaves(tree, compaction)
        .iter()
        .map(|target| Edit::Leaf { id: target.leaf, kvs, lower: target.lower.to_vec() })
        .collect();
    edits.extend(Engine::additions(&done.blocks, &done.kvsets));
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
    for target in new_leaves(tree, compaction) {
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
    count_crumbs(tree, compaction, block_bytes);
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
pub(crate) fn count_crumbs(tree: &mut Tree, compaction: &Compaction, block_bytes: u64) {
    let many = matches!(&compaction.rewrite, Rewrite::In(blocks) if blocks.len() >= CRUMBS);
    for target in &compaction.targets {
        let at = tree.leaf_of(&target.lower);
        let leaf = &mut tree.leaves[at];
        let most = if many { usize::MAX } else { leaf.crumbs_left };
        if most > 0 {
            leaf.crumbs_left = leaf.crumbs(block_bytes).len().min(most);
        }
    }
}

impl Engine {
    /// The kvsets of a root that go first: the oldest. Where the record cache has lost their values, it is no more
    /// than a window holds, so that a value's neighbours in the log are read with it once, and not in each window.
    fn spilled_of<'r>(
        &self,
        picker: &Picker<'_>,
        tree: &Tree,
        root: &'r [Arc<Kvset>],
    ) -> &'r [Arc<Kvset>] {
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
    pub(crate) fn spilled_after(&self, kvs: KvsId, inputs: &[Arc<Kvset>]) -> Vec<Arc<Kvset>> {
        let view = self.view.load();
        let picker = Picker::new(self, &view);
        let Some(tree) = view.tree(kvs) else { return Vec::new() };
        let is_left = |kvset: &&Arc<Kvset>| !inputs.iter().any(|it| Arc::ptr_eq(it, kvset));
        let left: Vec<Arc<Kvset>> = tree.root.iter().filter(is_left).cloned().collect();
        let taken: u64 = inputs.iter().map(|kvset| kvset.weight()).sum();
        if view.root_bytes().saturating_sub(taken) < picker.spill_bytes() {
            return Vec::new();
        }
        self.spilled_of(&picker, tree, &left).to_vec()
    }

    /// Plans the reads and writes of a step. The plan keeps no view, because a view keeps memtables.
    pub(crate) fn plan(&self, view: &View, job: &Job) -> Compaction {
        let picker = Picker::new(self, view);
        let kvs = job.kvs();
        let tree = view.tree(kvs).expect("a job names a KVS that exists");
        let KvsOptions { policy, compression, .. } = tree.options;
        let leaf =
            |id: LeafId| tree.leaves.iter().find(|leaf| leaf.id == id).expect("and its leaves");
        let target =
            |leaf: &Leaf, bottom: bool| Target { leaf: leaf.id, lower: leaf.lower.clone(), bottom };
        let (inputs, targets, rewrite) = match job {
            Job::Spill { .. } => {
                let mut inputs = self.spilled_of(&picker, tree, &tree.root).to_vec();
                let leaves = tree.leaves.iter();
                let targets = match self.merges_with_leaf(tree, &inputs) {
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
                let right = |lower: &[u8]| Target {
                    leaf: self.ids.next(),
                    lower: lower.into(),
                    bottom: true,
                };
                let rights =
                    largest.dividing_keys(picker.parts(leaf, &policy)).into_iter().map(right);
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
        Compaction { kvs, policy, compression, inputs, targets, gone, rewrite, asked: false }
    }
}
