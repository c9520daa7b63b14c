//! The tree of each KVS, and the view that a reader looks at.
//!
//! A view is immutable. Rotation and maintenance publish a new one; whoever holds the old one goes
//! on reading it, and structures to which only the old one refers are freed when it is let go of.
//!
//! Invariants
//! 1. For a key, everything in `active` is newer than in `frozen`, that than in the root, that
//!    than in the leaf. Of the frozen tables, and among the kvsets of a node, the first is the newest; a replayed
//!    table is older than any memtable.
//! 2. The first leaf's lower bound is empty; the bounds ascend. A leaf's kvsets hold only keys of
//!    its range.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::kvset::Kvset;
use crate::tree::memtable::Memtable;
use crate::tree::pinned::{ALLOCATION, Pinned};
use crate::tree::replayed::Replayed;
use crate::tree::young::Young;
use crate::types::class::MediaClass;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, Seqno};
use crate::types::policy::{KvsOptions, Place};
use crate::values::block::ValueBlock;

/// A leaf of a tree: the keys from `lower` to the next leaf's.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) id: LeafId,
    pub(crate) lower: Arc<[u8]>,
    /// Newest first.
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    /// Bytes that newer kvsets hide in older ones, once estimated.
    pub(crate) hidden: Hidden,
    /// Bytes that scans have read in vain since its values were last put in key order.
    pub(crate) in_vain: Arc<AtomicU64>,
    /// Keys, deleted or expired, that walks have passed over one by one since all of it was last merged.
    pub(crate) passed: Arc<AtomicU64>,
    /// So many small blocks were left when they were last rewritten as a few, or are left of them: where space lies
    /// in pieces that gives small ones again.
    pub(crate) small_blocks_left: usize,
}

impl Leaf {
    pub(crate) fn new(id: LeafId, lower: Arc<[u8]>) -> Leaf {
        let (kvsets, hidden) = (Vec::new(), Hidden::default());
        let (in_vain, passed) = (Arc::default(), Arc::default());
        Leaf { id, lower, kvsets, hidden, in_vain, passed, small_blocks_left: 0 }
    }

    /// Bytes of the values it refers to.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.kvsets.iter().map(|kvset| kvset.value_bytes()).sum()
    }

    pub(crate) fn refers_to(&self, block: BlockId) -> bool {
        self.kvsets.iter().flat_map(|kvset| &kvset.blocks).any(|(own, _)| own.id == block)
    }

    /// Bytes of its keys on the media.
    pub(crate) fn key_bytes(&self) -> u64 {
        self.kvsets.iter().map(|kvset| kvset.key_bytes()).sum()
    }

    /// The blocks that it refers to, by id.
    pub(crate) fn blocks(&self) -> BTreeMap<BlockId, &Arc<ValueBlock>> {
        self.kvsets.iter().flat_map(|kvset| &kvset.blocks).map(|(b, _)| (b.id, b)).collect()
    }

    /// Those of them that are small, when blocks of `block_bytes` are wanted.
    pub(crate) fn small_blocks(&self, block_bytes: u64) -> BTreeMap<BlockId, &Arc<ValueBlock>> {
        let mut small = self.blocks();
        small.retain(|_, block| block.allocation.bytes() < block_bytes / 16);
        small
    }
}

/// Bytes that a merge will find to be garbage; known once somebody has asked.
pub(crate) type Hidden = OnceLock<u64>;

/// The kvsets of one KVS.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) kvs: KvsId,
    pub(crate) name: Arc<str>,
    pub(crate) options: KvsOptions,
    /// The caller's.
    pub(crate) metadata: Arc<[u8]>,
    /// Newest first.
    pub(crate) root: Vec<Arc<Kvset>>,
    /// Bytes of keys and values in the root.
    pub(crate) root_bytes: u64,
    /// Whether its root is damaged: nothing of it spills.
    pub(crate) is_fenced: bool,
    pub(crate) leaves: Vec<Leaf>,
    /// The age of the newest kvset that was ever added.
    pub(crate) age: Seqno,
    /// Whether any of its kvsets ever referred to a value: if not, none of it is cached.
    pub(crate) refers: bool,
    /// Deletes up to this age may be gone, with all that they hid.
    forgotten: Seqno,
    /// Bytes that the root hides in itself and in the leaves, once estimated.
    pub(crate) hidden: Hidden,
    /// For each class, whether something lies elsewhere that must not; known once asked for.
    strays: OnceLock<[bool; 2]>,
    /// DRAM that it takes whatever the budget; known once asked for.
    pinned: OnceLock<Pinned>,
}

impl Tree {
    /// A tree with one empty leaf.
    pub(crate) fn new(kvs: KvsId, name: &str, options: KvsOptions, leaf: LeafId) -> Tree {
        Tree::with_leaves(kvs, name.into(), options, vec![Leaf::new(leaf, Arc::from([]))])
    }

    pub(crate) fn with_leaves(
        kvs: KvsId,
        name: Arc<str>,
        options: KvsOptions,
        leaves: Vec<Leaf>,
    ) -> Tree {
        let (hidden, strays, pinned) = (Hidden::default(), OnceLock::new(), OnceLock::new());
        let (root, root_bytes) = (Vec::new(), 0);
        let (age, refers, forgotten) = (Seqno::ZERO, false, Seqno::ZERO);
        Tree {
            kvs,
            name,
            options,
            metadata: Arc::default(),
            root,
            root_bytes,
            is_fenced: false,
            leaves,
            age,
            refers,
            forgotten,
            hidden,
            strays,
            pinned,
        }
    }

    /// DRAM that it takes whatever the budget.
    pub(crate) fn pinned(&self) -> Pinned {
        *self.pinned.get_or_init(|| {
            let name = self.name.len() as u64;
            let leaf = |leaf: &Leaf| {
                size_of::<Leaf>() as u64 + 2 * leaf.lower.len() as u64 + 4 * ALLOCATION
            };
            let leaves = self.leaves.iter().map(leaf).sum::<u64>();
            let metadata = self.metadata.len() as u64;
            let tree = size_of::<Tree>() as u64 + 2 * (name + metadata) + 6 * ALLOCATION;
            let own = Pinned { structures: tree + leaves, ..Pinned::default() };
            self.kvsets().map(|kvset| kvset.pinned()).fold(own, Pinned::plus)
        })
    }

    /// Bytes of keys and values that are to spill one day.
    fn spilling_bytes(&self) -> u64 {
        if self.is_fenced { 0 } else { self.root_bytes }
    }

    pub(crate) fn set_metadata(&mut self, metadata: &[u8]) {
        self.pinned.take();
        self.metadata = metadata.into();
    }

    pub(crate) fn set_options(&mut self, options: KvsOptions) {
        self.strays.take();
        self.options = options;
    }

    /// Whether something lies elsewhere that the policy wants on `class` and nowhere else.
    pub(crate) fn has_strays(&self, class: MediaClass) -> bool {
        self.strays.get_or_init(|| {
            let strays = |class| self.kvsets().any(|kvset| self.strays_in(kvset, class));
            MediaClass::ALL.map(strays)
        })[class as usize]
    }

    /// The same of one of its kvsets.
    pub(crate) fn strays_in(&self, kvset: &Kvset, class: MediaClass) -> bool {
        let policy = &self.options.policy;
        let (keys, values) = match kvset.edit.leaf {
            LeafId::ROOT => (policy.young_keys, policy.young_values),
            _ => (policy.old_keys, policy.old_values),
        };
        let strict = |place: Place| place == Place::only(class);
        strict(keys) && kvset.keys_are_on(class.other())
            || strict(values) && kvset.values_are_on(class.other())
    }

    /// The index of the leaf whose range holds `key`.
    pub(crate) fn leaf_of(&self, key: &[u8]) -> usize {
        self.leaves.partition_point(|leaf| *leaf.lower <= *key) - 1
    }

    /// Notes that a walk has passed over so many keys, deleted or expired, between two that are among them.
    pub(crate) fn note_passed(&self, lower: &[u8], last: &[u8], keys: u64) {
        let leaves = &self.leaves[self.leaf_of(lower)..=self.leaf_of(last)];
        let each = keys.div_ceil(leaves.len() as u64);
        for leaf in leaves {
            leaf.passed.fetch_add(each, Ordering::Relaxed);
        }
    }

    /// Adds a kvset to its node, by age.
    pub(crate) fn add(&mut self, kvset: Arc<Kvset>) {
        self.hidden.take();
        self.strays.take();
        self.pinned.take();
        let node = if kvset.edit.leaf == LeafId::ROOT {
            self.root_bytes += kvset.weight();
            &mut self.root
        } else {
            let leaf = self.leaves.iter_mut().find(|leaf| leaf.id == kvset.edit.leaf);
            let leaf = leaf.expect("a kvset's leaf exists");
            leaf.hidden.take();
            &mut leaf.kvsets
        };
        self.age = self.age.max(kvset.edit.age);
        self.refers |= !kvset.blocks.is_empty();
        let at = node.partition_point(|other| other.edit.age > kvset.edit.age);
        node.insert(at, kvset);
    }

    /// Removes the kvsets with these ids.
    pub(crate) fn remove(&mut self, ids: &[KvsetId]) {
        self.hidden.take();
        self.strays.take();
        self.pinned.take();
        self.root.retain(|kvset| !ids.contains(&kvset.edit.id));
        self.root_bytes = self.root.iter().map(|kvset| kvset.weight()).sum();
        for leaf in &mut self.leaves {
            let before = leaf.kvsets.len();
            leaf.kvsets.retain(|kvset| !ids.contains(&kvset.edit.id));
            if leaf.kvsets.len() < before {
                leaf.hidden.take();
            }
        }
    }

    /// Notes that deletes up to `age` may be gone, with all that they hid.
    pub(crate) fn forget(&mut self, age: Seqno) {
        self.forgotten = self.forgotten.max(age);
    }

    /// Whether the version that was the newest one of the key, whose hash is `hash`, as of `age` still is.
    /// No I/O: false when that takes reading keys.
    pub(crate) fn is_newest(&self, key: &[u8], hash: u64, age: Seqno) -> bool {
        if age == self.age {
            return true;
        }
        if age > self.age || age < self.forgotten {
            return false;
        }
        let newer = |kvset: &&Arc<Kvset>| kvset.edit.age > age;
        let root = self.root.iter().take_while(newer);
        let leaf = self.leaves[self.leaf_of(key)].kvsets.iter().take_while(newer);
        !root.chain(leaf).any(|kvset| kvset.may_hide(key, hash))
    }

    pub(crate) fn kvsets(&self) -> impl Iterator<Item = &Arc<Kvset>> {
        self.root.iter().chain(self.leaves.iter().flat_map(|leaf| &leaf.kvsets))
    }
}

/// Structures that a reader looks at.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Frozen>>,
    /// By KVS id.
    pub(crate) trees: BTreeMap<KvsId, Arc<Tree>>,
    /// Bytes of keys and values in all roots that spill. Each write asks.
    root_bytes: u64,
}

/// Records on their way to kvsets.
pub(crate) struct Frozen {
    pub(crate) table: Table,
    /// Once they are ingested, replay begins in this log segment.
    pub(crate) log_first: Arc<ValueBlock>,
}

/// Records of the log that are in no kvset yet, and get no more.
#[derive(Clone)]
pub(crate) enum Table {
    Memtable(Arc<Memtable>),
    /// The log had them when the KVDB was opened.
    Replayed(Arc<Replayed>),
}

impl Table {
    /// The log segments that hold the records.
    pub(crate) fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        match self {
            Table::Memtable(table) => table.blocks(),
            Table::Replayed(table) => table.blocks(),
        }
    }

    /// DRAM in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Table::Memtable(table) => table.bytes(),
            Table::Replayed(table) => table.bytes(),
        }
    }

    /// The seqno of the newest record.
    pub(crate) fn last_seqno(&self) -> Seqno {
        match self {
            Table::Memtable(table) => table.last_seqno(),
            Table::Replayed(table) => table.last_seqno(),
        }
    }

    /// Whether anybody else has it.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Table::Memtable(table) => Arc::strong_count(table) > 1,
            Table::Replayed(table) => Arc::strong_count(table) > 1,
        }
    }
}

impl View {
    /// These trees, and nothing that is in no kvset yet.
    pub(crate) fn new(active: Arc<Memtable>, trees: Vec<Tree>) -> View {
        let mut view = View { active, frozen: Vec::new(), trees: BTreeMap::new(), root_bytes: 0 };
        trees.into_iter().for_each(|tree| view.put_tree(tree));
        view
    }

    pub(crate) fn tree(&self, kvs: KvsId) -> Option<&Arc<Tree>> {
        self.trees.get(&kvs)
    }

    pub(crate) fn put_tree(&mut self, tree: Tree) {
        self.root_bytes += tree.spilling_bytes();
        let former = self.trees.insert(tree.kvs, Arc::new(tree));
        self.root_bytes -= former.map_or(0, |tree| tree.spilling_bytes());
    }

    pub(crate) fn remove_tree(&mut self, kvs: KvsId) {
        let former = self.trees.remove(&kvs);
        self.root_bytes -= former.map_or(0, |tree| tree.spilling_bytes());
    }

    /// DRAM that all trees take whatever the budget.
    pub(crate) fn pinned(&self) -> Pinned {
        self.trees.values().map(|tree| tree.pinned()).fold(Pinned::default(), Pinned::plus)
    }

    /// Adds new kvsets to the roots of their KVSs, as far as there are any.
    pub(crate) fn add_to_roots(&mut self, kvsets: &[Arc<Kvset>]) {
        for kvset in kvsets {
            if let Some(tree) = self.tree(kvset.edit.kvs) {
                let mut tree = Tree::clone(tree);
                tree.add(kvset.clone());
                self.put_tree(tree);
            }
        }
    }

    /// Bytes of keys and values in all roots that spill.
    pub(crate) fn root_bytes(&self) -> u64 {
        self.root_bytes
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let frozen = self.frozen.iter().filter_map(|frozen| match &frozen.table {
            Table::Memtable(table) => Some(table),
            Table::Replayed(_) => None,
        });
        std::iter::once(&self.active).chain(frozen)
    }

    /// Records that were replayed and are in no kvset yet, newest first. Every memtable is newer.
    pub(crate) fn replayed(&self) -> impl Iterator<Item = &Arc<Replayed>> {
        self.frozen.iter().filter_map(|frozen| match &frozen.table {
            Table::Memtable(_) => None,
            Table::Replayed(table) => Some(table),
        })
    }

    /// The log segments whose records are in no kvset yet.
    pub(crate) fn log_blocks(&self) -> impl Iterator<Item = Arc<ValueBlock>> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.table.blocks());
        self.active.blocks().into_iter().chain(frozen)
    }

    /// Whether records that are in no kvset yet lie on this class: to ingest them may free some of it.
    pub(crate) fn has_log_on(&self, class: MediaClass) -> bool {
        self.log_blocks().any(|block| block.media().class == class)
    }

    /// DRAM of records that are in no kvset yet, in bytes.
    pub(crate) fn young_bytes(&self) -> u64 {
        let frozen = self.frozen.iter().map(|frozen| frozen.table.bytes());
        self.active.bytes() + frozen.sum::<u64>()
    }

    /// The same, and the memory kept for the next memtables.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.young_bytes() + self.active.kept_bytes()
    }
}
