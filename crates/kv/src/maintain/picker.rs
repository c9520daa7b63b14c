//! The picker of the next step of maintenance: which is worth doing now, and how urgent it is. `steps.rs` has it run.
//!
//! It picks by facts that were gathered before ([`inputs`]), and asks no device, no clock and no lock: a test can make
//! them up.
//!
//! Three things make a step due. One is a threshold that keeps searches short: kvsets of a root, kvsets
//! and keys of a leaf. The other is space: when the media hold more than the goal allows for the live bytes, the
//! step goes first that saves most bytes for each byte it writes. The third is scans: when they have read as many
//! bytes in vain, because a leaf's values do not lie in key order, as it would cost to put them in order, that is
//! done. So it never costs more than has been wasted already. Likewise when walks have passed over so much that is
//! deleted or has expired.
//!
//! Live bytes are exact where keys were merged: each kvset counts the bytes it refers to in each block. Garbage
//! that newer kvsets make in older ones shows when they are merged. Until then it is estimated from the filters: of
//! some keys of the older kvset, how many are in a newer one? Expired data is estimated as if expiries were spread
//! evenly.

pub(crate) mod garbage;
pub(crate) mod inputs;
pub(crate) mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::units::to_usize;

use crate::compaction::reader::gathered_bytes;
use crate::engine::job::Job;
use crate::maintain::group::small_bytes;
use crate::omf::frame::HEADER_SIZE;
use crate::sync::atomic::Ordering;
use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree, View};
use crate::types::class::MediaClass;
use crate::types::ids::{BlockId, KvsId};
use crate::types::options::Tuning;
use crate::types::policy::{Place, Policy};
use crate::values::block::ValueBlock;
use garbage::{Blocks, Freed, SpaceUse};
use room::{ClassRoom, Room};

/// Thresholds at which a step is due. The fuller a class, the more a freed byte is worth.
pub(crate) struct Thresholds {
    spill_bytes: u64,
    root_kvsets: usize,
    compact_kvsets: usize,
    /// Whether two kvsets of a leaf are enough, if merging their keys saves some space.
    merges_early: bool,
    /// Bytes on the media for each 100 bytes that are live.
    space_percent: u64,
}

/// A spill is no more urgent, in percent: staging may hold many times the bytes that make one due, and leaves are
/// to be merged.
const URGENT: u64 = 300;

/// A step that saves less than this share of the bytes that it writes is not worth it.
const LEAST_GAIN: u64 = 20;

/// A leaf splits into so many at most.
const PARTS: u64 = 32;

/// So many small blocks of a leaf are rewritten as a few.
pub(crate) const MANY_SMALL_BLOCKS: usize = 128;

/// To pass over a key that is deleted takes a walk about as long as it takes to rewrite so many bytes.
pub(crate) const PASSED_BYTES: u64 = 128;
/// Fewer such keys are no reason for a step.
pub(crate) const PASSED_LEAST: u64 = 1024;

/// A step that saves space.
struct Saving {
    saved: u64,
    cost: u64,
    /// Further cost, later, to collect the garbage that a spill leaves behind.
    later: u64,
    job: Job,
}

impl Saving {
    fn gain(&self) -> u64 {
        self.saved * 1000 / (self.cost + self.later).max(1)
    }
}

/// Picker of the next step: the facts on which the choice depends, at one moment.
pub(crate) struct Picker<'v> {
    pub(crate) view: &'v View,
    pub(crate) tuning: &'v Tuning,
    pub(crate) room: Room,
    /// The log segment in which replay begins: it stays, whatever refers to it.
    pub(crate) replay_from: BlockId,
    /// The wall clock.
    pub(crate) now_ms: u64,
    /// Bytes that the media may hold for each 100 bytes that are live.
    pub(crate) space_percent: u64,
    /// Whether writers write little or nothing.
    pub(crate) is_quiet: bool,
    /// The most that a spill takes in where the record cache has lost much of it, in bytes: one window, so that the log is
    /// read once.
    pub(crate) spill_most: Option<u64>,
    /// The KVS whose root a compaction of all is emptying.
    pub(crate) emptying: Option<KvsId>,
}

impl Picker<'_> {
    /// Bytes in the roots at which the fullest one spills.
    pub(crate) fn spill_bytes(&self) -> u64 {
        self.tuning.spill_bytes_on(self.room.log_capacity_bytes)
    }

    /// The most that is small, in bytes.
    pub(crate) fn small_bytes(&self) -> u64 {
        small_bytes(self.spill_bytes())
    }

    fn thresholds(&self) -> Thresholds {
        let full = |class: &ClassRoom| class.used_bytes * 100 / class.capacity_bytes.max(1);
        // Staging may be full, unless somebody must not leave it.
        let policies = || self.view.trees.values().map(|tree| &tree.options.policy);
        let strict = policies().flat_map(Policy::strict).any(|c| c == MediaClass::Staging);
        let staging = self.room.taking(MediaClass::Staging).filter(|_| strict);
        let staging = staging.map_or(0, full);
        let &Tuning { root_kvsets, compact_kvsets, .. } = self.tuning;
        let (spill_bytes, space_percent) = (self.spill_bytes(), self.space_percent);
        // While nothing more comes, old data is found sooner and read in order when it is spilled early.
        let spill_bytes = if self.is_quiet { spill_bytes / 4 } else { spill_bytes };
        let merges_early = false;
        let at =
            Thresholds { spill_bytes, root_kvsets, compact_kvsets, merges_early, space_percent };
        match full(&self.room.capacity).max(staging) {
            0..70 => at,
            70..85 => {
                Thresholds { merges_early: true, space_percent: space_percent.min(115), ..at }
            }
            _ => Thresholds {
                spill_bytes: 1,
                root_kvsets: usize::MAX,
                compact_kvsets: 2,
                merges_early: false,
                space_percent: space_percent.min(105),
            },
        }
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks::of(self.view, self.replay_from, self.tuning.allocation_bytes)
    }

    /// Bytes that the media hold for the KVSs, and how many of them are live.
    pub(crate) fn space(&self) -> SpaceUse {
        self.space_of(&self.blocks())
    }

    fn space_of(&self, blocks: &Blocks<'_>) -> SpaceUse {
        let SpaceUse { mut used, mut live } = blocks.space();
        let now_ms = self.now_ms;
        let mut dead = 0;
        for tree in self.view.trees.values() {
            let keys: u64 = tree.kvsets().map(|kvset| kvset.key_bytes()).sum();
            dead += tree.dead_bytes(now_ms);
            dead += tree.leaves.iter().map(|leaf| leaf.dead_bytes(now_ms)).sum::<u64>();
            used += keys;
            live += keys;
        }
        // At most so much, because an estimate must not call everything garbage.
        live -= dead.min(live / 10 * 9);
        SpaceUse { used, live }
    }

    /// The steps that are worth doing now: first those that exceed their threshold by most.
    pub(crate) fn pick(&self) -> Vec<Job> {
        let view = self.view;
        let at = self.thresholds();
        let mut picked: Vec<(usize, Job)> = Vec::new();
        let root_bytes = view.root_bytes();
        // One that leaves no room for others comes last.
        let spill = |tree: &Tree, urgency: usize| {
            let least = tree.root.last().map_or(0, |kvset| kvset.key_bytes());
            let fits = least <= self.room_to_spill(tree);
            (if fits { urgency } else { 0 }, Job::Spill { kvs: tree.kvs })
        };
        if root_bytes >= at.spill_bytes {
            let urgency = (root_bytes * 100 / self.spill_bytes().max(1)).clamp(100, URGENT);
            let urgency = usize::try_from(urgency).unwrap_or(usize::MAX);
            // The fullest first; the others in case it finds no room. When small ones together hold half, they go: else
            // their data would leave ever less to those that are written to most.
            let mut trees: Vec<_> = view.trees.values().filter(|it| !it.root.is_empty()).collect();
            let is_small = |tree: &Tree| tree.root_bytes <= self.small_bytes();
            let small = trees.iter().filter(|tree| is_small(tree));
            let many = small.map(|tree| tree.root_bytes).sum::<u64>() >= self.spill_bytes() / 2;
            trees.sort_by_key(|tree| std::cmp::Reverse((many && is_small(tree), tree.root_bytes)));
            picked.extend(trees.iter().map(|tree| spill(tree, urgency)));
        }
        picked.extend(self.holds_log().map(|(tree, urgency)| spill(tree, urgency)));
        for tree in view.trees.values() {
            let entries: Vec<u64> = tree.root.iter().map(|kvset| merged_entries(kvset)).collect();
            let keys = |newest: usize| tree.root[..newest].iter().map(|kvset| kvset.key_bytes());
            if let Some(newest) = merge_run(&entries, at.root_kvsets)
                && self.emptying != Some(tree.kvs)
                && keys(newest).sum::<u64>() <= self.most_keys(&tree.options.policy)
                && self.spills_at_once(&tree.root[..newest])
            {
                let urgency = newest * 100 / at.root_kvsets;
                picked.push((urgency, Job::Merge { kvs: tree.kvs, newest }));
            }
            picked.extend(self.strays(tree).map(|job| (100, job)));
            picked.extend(self.worth_passing(tree).map(|(urgency, job)| match job {
                Job::Spill { .. } => spill(tree, urgency),
                job => (urgency, job),
            }));
            let shaped = |n| self.shape(tree, n, &at);
            picked.extend((0..tree.leaves.len()).filter_map(shaped));
        }
        picked.extend(self.savings(at.space_percent));
        picked.sort_by_key(|(urgency, _)| std::cmp::Reverse(*urgency));
        picked.into_iter().map(|(_, job)| job).collect()
    }

    /// The tree whose root refers to the oldest log segment that any root does, with the urgency of its spill.
    /// There is one when all these segments take half of the log's class: a root that is never the fullest may hold
    /// a little in each.
    fn holds_log(&self) -> Option<(&Tree, usize)> {
        let class = self.room.log_class;
        let mut held: BTreeMap<BlockId, (u64, &Tree)> = BTreeMap::new();
        for tree in self.view.trees.values().filter(|tree| !tree.is_fenced) {
            let blocks = tree.root.iter().flat_map(|kvset| &kvset.blocks).map(|(block, _)| block);
            for block in blocks.filter(|block| block.is_log() && block.media().class == class) {
                held.entry(block.id).or_insert((block.allocation.bytes(), tree));
            }
        }
        let bytes: u64 = held.values().map(|(bytes, _)| bytes).sum();
        let urgency = bytes * 100 / (self.room.log_capacity_bytes / 2).max(1);
        let (_, tree) = held.into_values().next().filter(|_| urgency >= 100)?;
        Some((tree, usize::try_from(urgency).unwrap_or(usize::MAX)))
    }

    /// Whether kvsets of a root may become one: where its values are in the log only, a spill of it is to read that once.
    fn spills_at_once(&self, kvsets: &[Arc<Kvset>]) -> bool {
        self.spill_most.is_none_or(|most| gathered_bytes(kvsets) <= most)
    }

    /// The step that moves data back to its class which lies where it must not, if there is room now.
    fn strays(&self, tree: &Tree) -> Option<Job> {
        let mut strict = tree.options.policy.strict();
        let class = strict.find(|&c| self.room.taking(c).is_some() && tree.has_strays(c))?;
        if tree.root.iter().any(|kvset| tree.strays_in(kvset, class)) {
            return Some(Job::Spill { kvs: tree.kvs });
        }
        let policy = &tree.options.policy;
        // Data that merely prefers this class is not moved by this step, and would be picked for ever.
        let place = Place::only(class);
        let (keys, values) = (policy.old_keys == place, policy.old_values == place);
        let moves = |leaf: &&Leaf| {
            keys && self.keys_move(leaf, policy)
                || values && !self.misplaced(leaf, policy).is_empty()
        };
        let leaf = tree.leaves.iter().find(moves)?;
        Some(Job::Collect { kvs: tree.kvs, leaf: leaf.id, blocks: BTreeSet::new() })
    }

    /// The job that gives a leaf its shape, with its urgency.
    fn shape(&self, tree: &Tree, n: usize, at: &Thresholds) -> Option<(usize, Job)> {
        let (kvs, leaf) = (tree.kvs, &tree.leaves[n]);
        let now_ms = self.now_ms;
        let oldest = leaf.kvsets.iter().rev().take_while(|kvset| kvset.is_expired(now_ms)).count();
        if oldest > 0 {
            // It costs nothing.
            return Some((usize::MAX, Job::Expire { kvs, leaf: leaf.id, oldest }));
        }
        let is_early = at.merges_early && leaf.kvsets.len() >= 2 && self.merge_saves(leaf, now_ms);
        let most = if is_early { 2 } else { at.compact_kvsets };
        if leaf.kvsets.len() >= most {
            let newest = compaction_run(leaf, self.tuning.compact_kvsets / 2);
            let urgency = leaf.kvsets.len() * 100 / most;
            return Some((urgency, Job::Compact { kvs, leaf: leaf.id, newest }));
        }
        if let Some(blocks) = self.small_blocks_in(leaf, &tree.options.policy) {
            let urgency = blocks.len() * 100 / MANY_SMALL_BLOCKS;
            return Some((urgency, Job::Collect { kvs, leaf: leaf.id, blocks }));
        }
        let pages = leaf.kvsets.iter().map(|kvset| kvset.edit.pages).max().unwrap_or(0);
        let large = self.leaf_key_bytes(&tree.options.policy);
        let size = leaf.key_bytes() * 100 / large.max(1);
        if size > 100 && pages >= 2 {
            let urgency = usize::try_from(size).unwrap_or(usize::MAX);
            return Some((urgency, Job::Split { kvs, leaf: leaf.id }));
        }
        if let Some(urgency) = self.worth_sorting(leaf, &tree.options.policy) {
            return Some((urgency, Job::Sort { kvs, leaf: leaf.id }));
        }
        let next = tree.leaves.get(n + 1)?;
        // Both halves of a split exceed this by far: the parts are not joined at once.
        if leaf.key_bytes() + next.key_bytes() > large / 4 {
            return None;
        }
        // Each is merged by itself first: the order of kvsets is one within a leaf, and the keys
        // that a kvset hides are hidden in its own leaf alone.
        let merged = |leaf: &&Leaf| match &leaf.kvsets[..] {
            [] => true,
            [only] => only.deleted.is_empty(),
            _ => false,
        };
        let unmerged = [leaf, next].into_iter().find(|leaf| !merged(leaf));
        let job = match unmerged {
            Some(leaf) => Job::Collect { kvs, leaf: leaf.id, blocks: BTreeSet::new() },
            None => Job::Join { kvs, leaf: leaf.id, next: next.id },
        };
        Some((100, job))
    }

    /// The small blocks of a leaf, when they are so many that rewriting them as a few is worth it: each is known to
    /// manifest and kvset, whatever its size, and each spill adds one. Blocks that rewriting has left small wait
    /// for as many more.
    fn small_blocks_in(&self, leaf: &Leaf, policy: &Policy) -> Option<BTreeSet<BlockId>> {
        let all: usize = leaf.kvsets.iter().map(|kvset| kvset.blocks.len()).sum();
        let least = MANY_SMALL_BLOCKS.max(2 * leaf.small_blocks_left);
        if all < least {
            return None;
        }
        let small = leaf.small_blocks(self.tuning.block_bytes);
        let bytes: u64 = small.values().map(|block| block.allocation.bytes()).sum();
        let fits = bytes <= self.free_bytes_at(policy.old_values) / 2;
        (small.len() >= least && fits).then(|| small.into_keys().collect())
    }

    /// Whether merging the keys of a leaf, which has two kvsets at least, saves some space: garbage, and the ends
    /// of extents.
    fn merge_saves(&self, leaf: &Leaf, now_ms: u64) -> bool {
        let ends = (leaf.kvsets.len() as u64 - 1) * self.tuning.allocation_bytes / 2;
        // Of all bytes, because filters say of one key in a hundred that it is hidden.
        let bytes = leaf.key_bytes() + leaf.value_bytes();
        ends >= leaf.key_bytes() / LEAST_GAIN || leaf.dead_bytes(now_ms) >= bytes / LEAST_GAIN
    }

    /// How urgent it is to put a leaf's values in order, if scans have read as much in vain as it costs. The more
    /// they have the more, but less than any threshold: only scans wait for it, and writers may have to for a spill.
    fn worth_sorting(&self, leaf: &Leaf, policy: &Policy) -> Option<usize> {
        let in_vain = leaf.in_vain.load(Ordering::Relaxed);
        let cost = 2 * (leaf.value_bytes() + leaf.key_bytes());
        worth_scans(in_vain, cost).filter(|_| self.can_sort(leaf, policy))
    }

    /// The step after which walks have less to pass over that is deleted or has expired, if that was as much as the
    /// step costs. In a root, while nothing more comes: it is spilled then, and merged in the leaf.
    fn worth_passing(&self, tree: &Tree) -> Option<(usize, Job)> {
        let passed = |leaf: &Leaf| leaf.passed.load(Ordering::Relaxed);
        let all: u64 = tree.leaves.iter().map(passed).sum();
        if all < PASSED_LEAST {
            return None;
        }
        let kvs = tree.kvs;
        let has_dead = |kvset: &Arc<Kvset>| {
            kvset.edit.tombstones > 0 || kvset.expired_percent(self.now_ms) > 0
        };
        if self.is_quiet && tree.root.iter().any(has_dead) {
            let urgency = worth_scans(all * PASSED_BYTES, tree.root_bytes);
            return urgency.map(|urgency| (urgency, Job::Spill { kvs }));
        }
        let dead = tree.leaves.iter().filter(|leaf| leaf.kvsets.iter().any(has_dead));
        let worth = dead.filter_map(|leaf| {
            let urgency = worth_scans(passed(leaf) * PASSED_BYTES, 2 * leaf.key_bytes())?;
            Some((urgency, Job::Collect { kvs, leaf: leaf.id, blocks: BTreeSet::new() }))
        });
        worth.max_by_key(|(urgency, _)| *urgency)
    }

    /// Whether there is room for a leaf's values twice.
    pub(crate) fn can_sort(&self, leaf: &Leaf, policy: &Policy) -> bool {
        let class = self.room.taking(policy.old_values.class).unwrap_or(&self.room.capacity);
        class.free_bytes / 2 > leaf.value_bytes() + class.reserve_bytes
    }

    /// The steps that bring the media closer to `goal` percent of the live bytes, best first, with
    /// their urgency; none when they are there.
    pub(crate) fn savings(&self, goal: u64) -> Vec<(usize, Job)> {
        let blocks = self.blocks();
        let percent = self.space_of(&blocks).percent();
        if percent <= goal {
            return Vec::new();
        }
        let (mut savings, mut shared): (Vec<Saving>, Vec<Saving>) = (Vec::new(), Vec::new());
        for tree in self.view.trees.values() {
            if let Some((saving, together)) = self.saved_by_spill(tree, &blocks) {
                let is_little = saving.saved < self.least_saving(saving.cost);
                if is_little && 2 * together > saving.cost {
                    shared.push(Saving { saved: saving.saved + together, ..saving });
                } else {
                    savings.push(saving);
                }
            }
            let in_leaves = tree.leaves.iter().map(|leaf| self.saved_in(tree, leaf, &blocks));
            savings.extend(in_leaves.flatten().flatten());
        }
        savings.retain(|saving| saving.saved >= self.least_saving(saving.cost));
        // Space that no KVS frees by itself is freed by all KVSs together that hold a part of it.
        let sum = |of: fn(&Saving) -> u64| shared.iter().map(of).sum::<u64>();
        if sum(|saving| saving.saved) >= self.least_saving(sum(|saving| saving.cost)) {
            savings.append(&mut shared);
        }
        savings.sort_by_key(|saving| std::cmp::Reverse(saving.gain()));
        let urgency = usize::try_from(percent * 100 / goal).unwrap_or(usize::MAX);
        savings.into_iter().map(|saving| (urgency, saving.job)).collect()
    }

    /// The most keys that are rewritten as one, in bytes: a kvset of the root that is aged, a leaf that is merged.
    /// All of them are there twice until that is done, and may have nothing but the reserve for maintenance.
    fn most_keys(&self, policy: &Policy) -> u64 {
        self.most_at(policy.old_keys, |class| class.reserve_bytes) / 4
    }

    /// The keys with which a leaf is large, in bytes.
    fn leaf_key_bytes(&self, policy: &Policy) -> u64 {
        self.tuning.leaf_key_bytes.min(self.most_keys(policy))
    }

    /// Into how many leaves one that is too large splits: each is half full then.
    /// A spill may have made it many times too large, and halves of it would be written again at once.
    pub(crate) fn parts(&self, leaf: &Leaf, policy: &Policy) -> u64 {
        let large = self.leaf_key_bytes(policy).max(1);
        (leaf.key_bytes() * 2 / large).clamp(2, PARTS)
    }

    /// The keys that a spill may lay down, in bytes. Each leaf may take a unit more, and is to be merged
    /// afterwards; and two memtables may be ingested meanwhile, which are like the one before.
    pub(crate) fn room_to_spill(&self, tree: &Tree) -> u64 {
        let keys = |kvset: &Arc<Kvset>| kvset.key_bytes();
        let largest = tree.leaves.iter().map(Leaf::key_bytes).max().unwrap_or(0);
        let units = tree.leaves.len() as u64 * self.tuning.allocation_bytes;
        let ingested: u64 =
            self.view.trees.values().filter_map(|tree| tree.root.first().map(keys)).sum();
        let free = self.free_bytes_at(tree.options.policy.old_keys);
        free.saturating_sub(largest + units + 2 * ingested)
    }

    /// Free bytes of a place: in the one of its classes that has more.
    pub(crate) fn free_bytes_at(&self, place: Place) -> u64 {
        self.most_at(place, |class| class.free_bytes)
    }

    /// The largest amount that `of` finds in a class of the place.
    fn most_at(&self, place: Place, of: impl Fn(&ClassRoom) -> u64) -> u64 {
        let preferred = self.room.taking(place.class).unwrap_or(&self.room.capacity);
        let other = place.fallback().and_then(|other| self.room.taking(other));
        other.map_or(0, &of).max(of(preferred))
    }

    fn least_saving(&self, cost: u64) -> u64 {
        (cost / LEAST_GAIN).max(2 * self.tuning.allocation_bytes)
    }

    /// A spill lets go of log segments and of blocks that others share, and of values that newer versions hide.
    /// With the part of it that others have to let go of, too.
    fn saved_by_spill(&self, tree: &Tree, blocks: &Blocks<'_>) -> Option<(Saving, u64)> {
        if tree.root.is_empty() {
            return None;
        }
        let Freed { moved, alone, together } = blocks.freed_by(&tree.root);
        let keys: u64 = tree.root.iter().map(|kvset| kvset.key_bytes()).sum();
        let dead = tree.dead_bytes(self.now_ms);
        let later = blocks.to_collect(dead, &tree.leaves);
        let job = Job::Spill { kvs: tree.kvs };
        Some((Saving { saved: alone + dead, cost: keys + moved, later, job }, together))
    }

    /// Possible savings of a leaf: by merging its keys, which shows the garbage; by rewriting the values of its
    /// poorest blocks.
    fn saved_in(&self, tree: &Tree, leaf: &Leaf, blocks: &Blocks<'_>) -> [Option<Saving>; 2] {
        let job = |blocks| Job::Collect { kvs: tree.kvs, leaf: leaf.id, blocks };
        let keys = leaf.key_bytes();
        let dead = leaf.dead_bytes(self.now_ms);
        // It frees little itself. The garbage that it uncovers counts in full, because blocks spilled lately are
        // mostly garbage then, and cheap to collect.
        let merge = (dead > 0).then(|| Saving {
            saved: dead,
            cost: keys + dead,
            later: 0,
            job: job(BTreeSet::new()),
        });
        let mut poor: Vec<&Arc<ValueBlock>> = leaf.blocks().into_values().collect();
        poor.sort_by_key(|block| {
            let size = block.allocation.bytes().max(1);
            std::cmp::Reverse(blocks.garbage(block) * 1000 / size)
        });
        // The poorest go first: as many as gain most together, because all of them share the cost of the keys; and
        // not more than there is room for.
        let room = self.free_bytes_at(tree.options.policy.old_values) / 2;
        let (mut alive, mut garbage, mut most, mut taken) = (0, 0, 0, 0);
        for (n, block) in poor.iter().enumerate() {
            alive += blocks.alive(block);
            garbage += blocks.garbage(block);
            if alive > room {
                break;
            }
            let gain = garbage * 1000 / (alive + keys).max(1);
            if gain >= most {
                (most, taken) = (gain, n + 1);
            }
        }
        poor.truncate(taken);
        let alive: u64 = poor.iter().map(|block| blocks.alive(block)).sum();
        let size: u64 = poor.iter().map(|block| block.allocation.bytes()).sum();
        let saved = size.saturating_sub(self.rewritten(&poor, blocks));
        let collect = (saved > 0).then(|| {
            let ids = poor.iter().map(|block| block.id).collect();
            Saving { saved, cost: alive + keys, later: 0, job: job(ids) }
        });
        [merge, collect]
    }

    /// The bytes that the live records of old blocks take when they are rewritten: not less than they will, if they
    /// are packed as new ones, so that nothing is rewritten again and again.
    fn rewritten(&self, old: &[&Arc<ValueBlock>], blocks: &Blocks<'_>) -> u64 {
        let alive: u64 = old.iter().map(|block| blocks.alive(block)).sum();
        if alive == 0 {
            return 0;
        }
        let packed: u64 = old.iter().map(|block| blocks.packed(block)).sum();
        let &Tuning { frame_bytes, block_bytes, allocation_bytes, .. } = self.tuning;
        // Of two frames in a row, one is half full at least, and so of two blocks.
        let frames = (2 * alive / frame_bytes + 1) * (HEADER_SIZE as u64 + self.room.largest_lba);
        let ends = (2 * alive / block_bytes + 1) * allocation_bytes;
        packed.min(alive + frames + ends) + allocation_bytes
    }

    /// The blocks of a leaf that hold records to which nothing refers any more.
    pub(crate) fn dead_in(&self, leaf: &Leaf) -> BTreeSet<BlockId> {
        let blocks = self.blocks();
        let mut all = leaf.blocks();
        all.retain(|_, block| block.is_log() || block.bytes > blocks.alive(block));
        all.into_keys().collect()
    }

    /// The blocks of a leaf that rewriting makes smaller; none when all of them together would not.
    pub(crate) fn garbage_in(&self, leaf: &Leaf) -> BTreeSet<BlockId> {
        let blocks = self.blocks();
        let unit = self.tuning.allocation_bytes;
        let mut poor = leaf.blocks();
        // Frames of old values end with some room, and would again.
        let dead = |block: &ValueBlock| match block.is_log() {
            true => blocks.garbage(block),
            false => block.bytes.saturating_sub(blocks.alive(block)),
        };
        poor.retain(|_, block| dead(block) > (block.allocation.bytes() / 64).max(unit));
        let all: Vec<&Arc<ValueBlock>> = poor.values().copied().collect();
        let size: u64 = all.iter().map(|block| block.allocation.bytes()).sum();
        let saves = size > self.rewritten(&all, &blocks);
        if saves { poor.into_keys().collect() } else { BTreeSet::new() }
    }

    /// Whether keys of a leaf do not lie where the policy wants them, and there is room for them.
    pub(crate) fn keys_move(&self, leaf: &Leaf, policy: &Policy) -> bool {
        let Some(class) = self.room.taking(policy.old_keys.class) else {
            return false;
        };
        let elsewhere = leaf.kvsets.iter().any(|kvset| kvset.keys_are_on(class.class.other()));
        elsewhere && class.free_bytes / 2 > leaf.key_bytes() + class.reserve_bytes
    }

    /// The values that a merge of all of a leaf is to move besides: those that do not lie where the
    /// policy wants them, if there is room for them there.
    pub(crate) fn misplaced(&self, leaf: &Leaf, policy: &Policy) -> BTreeSet<BlockId> {
        let Some(class) = self.room.taking(policy.old_values.class) else {
            return BTreeSet::new();
        };
        let mut elsewhere = leaf.blocks();
        elsewhere.retain(|_, block| block.media().class != class.class);
        let bytes: u64 = elsewhere.values().map(|block| block.allocation.bytes()).sum();
        let room = class.has_room && class.free_bytes / 2 > bytes;
        if room { elsewhere.into_keys().collect() } else { BTreeSet::new() }
    }
}

/// How many of a root's oldest kvsets go to the leaves at a time: as many as have `bytes`, because gathering values
/// takes as many passes over all of them as they exceed its window; and not more than have keys of `room` bytes,
/// because all of these are there twice until it is done. One at least.
pub(crate) fn spill_run(root: &[Arc<Kvset>], bytes: u64, room: u64) -> usize {
    let (mut taken, mut keys) = (0, 0);
    let oldest = root.iter().rev().take_while(|kvset| {
        let fits = keys == 0 || keys + kvset.key_bytes() <= room;
        let wanted = taken < bytes;
        taken += kvset.bytes();
        keys += kvset.key_bytes();
        fits && wanted
    });
    oldest.count()
}

/// How urgent a step is that costs so many bytes, when scans have wasted so many: the more the more, but less than any
/// threshold. None, when it is not worth that.
fn worth_scans(wasted: u64, cost: u64) -> Option<usize> {
    (wasted >= cost && cost > 0).then(|| 99 - to_usize(98 * cost / wasted))
}

/// The entries of a kvset as they count when it is merged: a page is written for few of them, too.
fn merged_entries(kvset: &Kvset) -> u64 {
    const FEW: u64 = 64;
    let entries = kvset.edit.entries;
    if kvset.edit.pages <= 1 { entries.max(FEW) } else { entries }
}

/// How many of a root's newest kvsets to merge, of those with so many entries, newest first: `least`, when
/// the oldest of these is not larger than the others together, and on while the next one is small beside
/// them. So there are few, and each key is rewritten a logarithmic number of times.
fn merge_run(root: &[u64], least: usize) -> Option<usize> {
    let oldest = *root.get(least - 1)?;
    let mut sum = root[..least].iter().sum::<u64>();
    if oldest > sum - oldest {
        return None;
    }
    let more = root[least..].iter().take_while(|&&next| {
        let is_small = 2 * next <= sum;
        sum += next;
        is_small
    });
    Some(least + more.count())
}

/// How many of a leaf's newest kvsets to merge: at least `least`, and on while the next one is not
/// much larger than all before it, so that each key is rewritten a logarithmic number of times.
fn compaction_run(leaf: &Leaf, least: usize) -> usize {
    let mut entries = 0;
    let mut run = 0;
    for kvset in &leaf.kvsets {
        if run >= least.max(2) && kvset.edit.entries > 2 * entries {
            break;
        }
        entries += kvset.edit.entries;
        run += 1;
    }
    run
}

#[cfg(test)]
mod tests;
