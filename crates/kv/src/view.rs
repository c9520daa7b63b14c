//! The tree of each KVS, and the view: what a reader looks at.
//!
//! A view is immutable. Rotation and maintenance publish a new one; whoever holds the old one goes
//! on reading it, and what only the old one refers to is freed when it is let go of.
//!
//! Invariants
//! 1. For a key, everything in `active` is newer than in `frozen`, that than in the root, that
//!    than in the leaf. Among frozen memtables, and among the kvsets of a node, the first is the
//!    newest.
//! 2. The first leaf's lower bound is empty; the bounds ascend. A leaf's kvsets hold only keys of
//!    its range.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::KvsOptions;
use crate::kvset::Kvset;
use crate::memtable::Memtable;
use crate::value::ValueBlock;

/// A leaf of a tree: the keys from `lower` to the next leaf's.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) id: u64,
    pub(crate) lower: Arc<[u8]>,
    /// Newest first.
    pub(crate) kvsets: Vec<Arc<Kvset>>,
}

/// The kvsets of one KVS.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) kvs: u32,
    pub(crate) name: Arc<str>,
    pub(crate) options: KvsOptions,
    /// Newest first.
    pub(crate) root: Vec<Arc<Kvset>>,
    pub(crate) leaves: Vec<Leaf>,
}

impl Tree {
    /// A tree with one empty leaf.
    pub(crate) fn new(kvs: u32, name: &str, options: KvsOptions, leaf: u64) -> Tree {
        let leaf = Leaf { id: leaf, lower: Arc::from([]), kvsets: Vec::new() };
        Tree { kvs, name: name.into(), options, root: Vec::new(), leaves: vec![leaf] }
    }

    /// The index of the leaf whose range holds `key`.
    pub(crate) fn leaf_of(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|leaf| *leaf.lower <= *key) - 1
    }

    /// Adds a kvset to its node, by age.
    pub(crate) fn add(&mut self, kvset: Arc<Kvset>) {
        let node = if kvset.edit.leaf == 0 {
            &mut self.root
        } else {
            let leaf = self.leaves.iter_mut().find(|leaf| leaf.id == kvset.edit.leaf);
            &mut leaf.expect("a kvset's leaf exists").kvsets
        };
        let at = node.partition_point(|other| other.edit.age > kvset.edit.age);
        node.insert(at, kvset);
    }

    /// Removes the kvsets with these ids.
    pub(crate) fn remove(&mut self, ids: &[u64]) {
        self.root.retain(|kvset| !ids.contains(&kvset.edit.id));
        for leaf in &mut self.leaves {
            leaf.kvsets.retain(|kvset| !ids.contains(&kvset.edit.id));
        }
    }

    pub(crate) fn kvsets(&self) -> impl Iterator<Item = &Arc<Kvset>> {
        self.root.iter().chain(self.leaves.iter().flat_map(|leaf| &leaf.kvsets))
    }
}

/// What a reader looks at.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Frozen>>,
    /// By KVS id.
    pub(crate) trees: BTreeMap<u32, Arc<Tree>>,
}

/// A memtable on its way to kvsets.
pub(crate) struct Frozen {
    pub(crate) table: Arc<Memtable>,
    /// Once it is ingested, replay begins in this log segment.
    pub(crate) log_first: Arc<ValueBlock>,
}

impl View {
    pub(crate) fn tree(&self, kvs: u32) -> Option<&Arc<Tree>> {
        self.trees.get(&kvs)
    }

    pub(crate) fn put_tree(&mut self, tree: Tree) {
        self.trees.insert(tree.kvs, Arc::new(tree));
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.frozen.iter().map(|frozen| &frozen.table))
    }
}
