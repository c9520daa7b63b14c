//! Maintenance: the steps that move data from memtables to the root, from there to the leaves, and
//! keep the leaves tidy; and the threads that run them.
//!
//! Two lanes: ingest, which writers may wait for, and everything else. In each lane one step runs
//! at a time. A step writes its output, flushes it, commits to the manifest, and publishes; until
//! the commit it has changed nothing, so it may fail or be forgotten at any point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use esker_base::memory::release_unused;

use crate::KvsOptions;
use crate::compact::{Compacted, Compaction, Rewrite, Target};
use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::ingest::{Ingested, RootBuilder};
use crate::kvset::Kvset;
use crate::omf::manifest::Edit;
use crate::placement::Stream;
use crate::prefixes::Prefixes;
use crate::sync::atomic::Ordering;
use crate::sync::{JoinHandle, MutexGuard, thread};
use crate::value::{ValueBlock, address};
use crate::view::{Frozen, Leaf, Tree};

/// A step of the second lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Ages the root's data into the leaves.
    Spill { kvs: u32 },
    /// Merges the keys of a leaf's newest kvsets.
    Compact { kvs: u32, leaf: u64, newest: usize },
    /// Divides a leaf in two.
    Split { kvs: u32, leaf: u64 },
    /// Rewrites the live values of blocks that are mostly garbage.
    Collect { kvs: u32, leaf: u64, blocks: BTreeSet<u64> },
    /// Lets go of a leaf's oldest kvsets, all of whose values have expired, unread.
    Expire { kvs: u32, leaf: u64, oldest: usize },
}

/// When a step becomes due. The fuller the capacity class, the more a freed byte is worth.
struct Thresholds {
    spill_kvsets: usize,
    compact_kvsets: usize,
    /// A leaf is collected at this share of garbage, in percent.
    garbage_percent: u64,
}

impl Engine {
    // ---- ingest --------------------------------------------------------------------------------

    /// Turns the oldest frozen memtable into kvsets; false when there is none.
    pub(crate) fn ingest_oldest(&self) -> Result<bool> {
        let _lane = self.ingesting.lock();
        let Some(frozen) = self.view.load().frozen.last().cloned() else {
            return Ok(false);
        };
        // Before the next memtable has grown.
        self.balance_memory();
        self.note_space(self.ingest(&frozen))?;
        // Under the lock, so that a writer about to wait does not miss it.
        let writer = self.writer.lock();
        self.room.notify_all();
        drop(writer);
        self.work.notify();
        Ok(true)
    }

    /// Turns what the memtables hold into kvsets now, full or not; false when they are empty.
    pub(crate) fn ingest_all(&self) -> Result<bool> {
        let mut worked = false;
        while self.ingest_oldest()? {
            worked = true;
        }
        {
            let mut log = self.writer.lock();
            let view = self.view.load();
            // Another thread may have frozen one meanwhile; then that is what goes next.
            if view.frozen.is_empty() && !view.active.is_empty() {
                self.rotate(&mut log);
            }
        }
        Ok(self.ingest_oldest()? || worked)
    }

    fn ingest(&self, frozen: &Arc<Frozen>) -> Result<()> {
        self.flush_through(frozen.table.last_seqno())?;
        let Ingested { kvsets, values } = self.build_root_kvsets(frozen)?;
        self.classes.flush()?;
        let mut edits = Engine::additions(&values, &kvsets);
        let seqno = frozen.table.last_seqno();
        let first = &frozen.log_first;
        edits.push(Edit::Ingested { seqno, first: first.id });
        self.commit(edits)?;
        *self.replay_from.lock() = first.clone();
        let publish = || {
            self.publish(|view| {
                view.frozen.retain(|other| !Arc::ptr_eq(other, frozen));
                for kvset in &kvsets {
                    if let Some(tree) = view.tree(kvset.edit.kvs) {
                        let mut tree = Tree::clone(tree);
                        tree.add(kvset.clone());
                        view.put_tree(tree);
                    }
                }
            });
        };
        self.transactions.ingested(&frozen.table, &self.options, publish);
        self.balance_memory();
        self.counters.ingests.add(1);
        Ok(())
    }

    /// Writes the keys of a memtable, one kvset for each KVS. Values stay where the log put them,
    /// unless the policy wants them on capacity.
    fn build_root_kvsets(&self, frozen: &Frozen) -> Result<Ingested> {
        let trees = self.view.load().trees.clone();
        let blocks: BTreeMap<u64, Arc<ValueBlock>> =
            frozen.table.blocks().into_iter().map(|block| (block.id, block)).collect();
        let mut prefixes = frozen.table.prefixes();
        let age = frozen.table.last_seqno();
        let mut done = Ingested::default();
        let mut current: Option<RootBuilder<'_>> = None;
        frozen.table.each_newest(|kvs, key, written| {
            let Some(tree) = trees.get(&kvs) else {
                return Ok(());
            };
            if current.as_ref().is_none_or(|current| current.kvs != kvs) {
                if let Some(builder) = current.take() {
                    builder.finish(&blocks, &mut done)?;
                }
                let hides = prefixes.remove(&kvs).unwrap_or_default();
                current = Some(RootBuilder::new(self, tree, age, hides));
            }
            current.as_mut().expect("made above").add(key, &written, &blocks)
        })?;
        if let Some(builder) = current {
            builder.finish(&blocks, &mut done)?;
        }
        // KVSs of which nothing but prefixes was deleted.
        for (kvs, hides) in prefixes {
            if let Some(tree) = trees.get(&kvs) {
                RootBuilder::new(self, tree, age, hides).finish(&blocks, &mut done)?;
            }
        }
        Ok(done)
    }

    // ---- what is due -----------------------------------------------------------------------------

    fn thresholds(&self) -> Thresholds {
        let media = &self.classes.capacity;
        let percent = media.used_bytes() * 100 / media.capacity_bytes().max(1);
        let (spill_kvsets, compact_kvsets) = (self.tuning.spill_kvsets, self.tuning.compact_kvsets);
        match percent {
            0..70 => Thresholds { spill_kvsets, compact_kvsets, garbage_percent: 50 },
            70..85 => Thresholds { spill_kvsets, compact_kvsets: 2, garbage_percent: 25 },
            _ => Thresholds { spill_kvsets: 1, compact_kvsets: 2, garbage_percent: 10 },
        }
    }

    /// The steps that are worth doing now: first what exceeds its threshold by most.
    fn due(&self) -> Vec<Job> {
        let view = self.view.load();
        let at = self.thresholds();
        let trees = view.trees.values();
        let live = live_bytes(trees.clone().flat_map(|tree| tree.kvsets()));
        let spills = trees.clone().filter_map(|tree| {
            let urgency = (tree.root.len() * 100 / self.tuning.spill_kvsets).max(100);
            let due = tree.root.len() >= at.spill_kvsets;
            due.then_some((urgency, Job::Spill { kvs: tree.kvs }))
        });
        let in_leaves = trees.flat_map(|tree| tree.leaves.iter().map(move |leaf| (tree, leaf)));
        let tidying = in_leaves.filter_map(|(tree, leaf)| self.due_in(tree.kvs, leaf, &at, &live));
        let mut due: Vec<(usize, Job)> = spills.chain(tidying).collect();
        due.sort_by_key(|(urgency, _)| std::cmp::Reverse(*urgency));
        due.into_iter().map(|(_, job)| job).collect()
    }

    /// What is due in a leaf, with its urgency.
    fn due_in(
        &self,
        kvs: u32,
        leaf: &Leaf,
        at: &Thresholds,
        live: &BTreeMap<u64, u64>,
    ) -> Option<(usize, Job)> {
        let now_ms = self.wall_clock.now_ms();
        let oldest = leaf.kvsets.iter().rev().take_while(|kvset| kvset.is_expired(now_ms)).count();
        if oldest > 0 {
            return Some((200, Job::Expire { kvs, leaf: leaf.id, oldest }));
        }
        if leaf.kvsets.len() >= at.compact_kvsets {
            let newest = compaction_run(leaf, self.tuning.compact_kvsets / 2);
            let urgency = leaf.kvsets.len() * 100 / at.compact_kvsets;
            return Some((urgency, Job::Compact { kvs, leaf: leaf.id, newest }));
        }
        let hidden = hidden_percent(leaf, now_ms);
        if hidden >= at.garbage_percent {
            // Keys alone: then it is known which values are garbage, and whole blocks of them go.
            let urgency = 100 + usize::try_from(hidden).unwrap_or(100);
            let newest = leaf.kvsets.len();
            return Some((urgency, Job::Compact { kvs, leaf: leaf.id, newest }));
        }
        let key_bytes: u64 = leaf.kvsets.iter().map(|kvset| kvset.key_bytes()).sum();
        let pages = leaf.kvsets.iter().map(|kvset| kvset.edit.pages).max().unwrap_or(0);
        if key_bytes > self.tuning.leaf_key_bytes && pages >= 2 {
            return Some((100, Job::Split { kvs, leaf: leaf.id }));
        }
        let blocks: BTreeMap<u64, &Arc<ValueBlock>> =
            leaf.kvsets.iter().flat_map(|k| &k.blocks).map(|(b, _)| (b.id, b)).collect();
        // A log segment that was left to a leaf for lack of room counts as a whole.
        let size = |block: &ValueBlock| match block.stream() {
            Stream::Log => block.allocation.bytes(),
            _ => block.bytes,
        };
        let alive = |block: &ValueBlock| live.get(&block.id).copied().unwrap_or(0).min(size(block));
        let garbage = |block: &ValueBlock| size(block) - alive(block);
        let written: u64 = blocks.values().map(|block| size(block)).sum();
        let percent =
            blocks.values().map(|block| garbage(block)).sum::<u64>() * 100 / written.max(1);
        if percent < at.garbage_percent {
            return None;
        }
        // At least one block has this share of garbage itself, so every collection frees something.
        // The poorest go first, and not more than there is room for: each makes more.
        let mut poor: Vec<&Arc<ValueBlock>> = blocks.into_values().collect();
        poor.retain(|block| garbage(block) * 100 >= at.garbage_percent * size(block));
        poor.sort_by_key(|block| std::cmp::Reverse(garbage(block) * 1000 / size(block).max(1)));
        let mut room = self.classes.all().iter().map(|m| m.free_bytes()).max().unwrap_or(0) / 2;
        let fits = |block: &&Arc<ValueBlock>| {
            let fits = alive(block) <= room;
            room = room.saturating_sub(alive(block));
            fits
        };
        let blocks: BTreeSet<u64> = poor.into_iter().take_while(fits).map(|b| b.id).collect();
        let urgency = 100 + usize::try_from(percent).unwrap_or(100);
        (!blocks.is_empty()).then_some((urgency, Job::Collect { kvs, leaf: leaf.id, blocks }))
    }

    // ---- the second lane -----------------------------------------------------------------------

    /// Runs the step that is due; false when none is.
    pub(crate) fn maintain(&self) -> Result<bool> {
        let _lane = self.compacting.lock();
        let mut outcome = Ok(false);
        for job in self.due() {
            outcome = self.run(&job).map(|()| true);
            // What finds no room may be helped by another step, which makes some.
            if !outcome.as_ref().is_err_and(KvError::lacks_space) {
                break;
            }
        }
        for media in self.classes.all() {
            self.fail_stop(media.reclaim())?;
        }
        if matches!(outcome, Ok(true)) {
            self.worked_ns.store(self.options.clock.now().0, Ordering::Relaxed);
            self.work.notify();
        }
        self.fail_stop(outcome)
    }

    fn run(&self, job: &Job) -> Result<()> {
        let mut compaction = self.plan(job);
        let compacted = match compaction.run(self) {
            // No room for the values: their keys alone go to the leaves. That takes little, and
            // frees what they hide there.
            Err(error) if error.lacks_space() && matches!(job, Job::Spill { .. }) => {
                compaction.rewrite = Rewrite::None;
                compaction.run(self)?
            }
            result => result?,
        };
        self.install(&compaction, compacted)?;
        drop(compaction);
        release_unused();
        let counters = &self.counters;
        match job {
            Job::Spill { .. } => counters.spills.add(1),
            Job::Compact { .. } => counters.compactions.add(1),
            Job::Split { .. } => counters.splits.add(1),
            Job::Collect { .. } => counters.collections.add(1),
            Job::Expire { .. } => counters.expirations.add(1),
        }
        Ok(())
    }

    /// What a step reads and writes. It keeps no view, because a view keeps memtables.
    fn plan(&self, job: &Job) -> Compaction {
        let view = self.view.load();
        let (Job::Spill { kvs }
        | Job::Compact { kvs, .. }
        | Job::Split { kvs, .. }
        | Job::Collect { kvs, .. }
        | Job::Expire { kvs, .. }) = *job;
        let tree = view.tree(kvs).expect("due() names KVSs that exist");
        let leaf =
            |id: u64| tree.leaves.iter().find(|leaf| leaf.id == id).expect("and their leaves");
        let target =
            |leaf: &Leaf, bottom: bool| Target { leaf: leaf.id, lower: leaf.lower.clone(), bottom };
        let (inputs, targets, rewrite) = match job {
            Job::Spill { .. } => {
                let leaves = tree.leaves.iter();
                let targets = leaves.map(|leaf| target(leaf, leaf.kvsets.is_empty())).collect();
                // The oldest ones, and not more than were planned for: gathering values takes as
                // many passes over all of them as they exceed its window.
                let newer = tree.root.len().saturating_sub(self.tuning.spill_kvsets);
                (tree.root[newer..].to_vec(), targets, Rewrite::All)
            }
            Job::Compact { leaf: id, newest, .. } => {
                let leaf = leaf(*id);
                let targets = vec![target(leaf, *newest == leaf.kvsets.len())];
                (leaf.kvsets[..*newest].to_vec(), targets, Rewrite::None)
            }
            Job::Split { leaf: id, .. } => {
                let leaf = leaf(*id);
                let largest = leaf.kvsets.iter().max_by_key(|kvset| kvset.edit.pages);
                let middle = largest.expect("a leaf that splits has kvsets").middle_key();
                let right = Target { leaf: self.ids.next(), lower: middle.into(), bottom: true };
                (leaf.kvsets.clone(), vec![target(leaf, true), right], Rewrite::None)
            }
            Job::Collect { leaf: id, blocks, .. } => {
                let leaf = leaf(*id);
                (leaf.kvsets.clone(), vec![target(leaf, true)], Rewrite::In(blocks.clone()))
            }
            Job::Expire { leaf: id, oldest, .. } => {
                let leaf = leaf(*id);
                let expired = leaf.kvsets[leaf.kvsets.len() - oldest..].to_vec();
                (expired, Vec::new(), Rewrite::None)
            }
        };
        let KvsOptions { policy, compression, .. } = tree.options;
        Compaction { kvs, policy, compression, inputs, targets, rewrite }
    }

    /// Makes a compaction's output durable and visible, and lets go of its inputs.
    fn install(&self, compaction: &Compaction, done: Compacted) -> Result<()> {
        let kvs = compaction.kvs;
        self.classes.flush()?;
        let Some(tree) = self.view.load().tree(kvs).cloned() else {
            return Ok(());
        };
        let known = |leaf: u64| tree.leaves.iter().any(|known| known.id == leaf);
        let new_leaves: Vec<&Target> =
            compaction.targets.iter().filter(|target| !known(target.leaf)).collect();
        let removed: Vec<u64> = compaction.inputs.iter().map(|kvset| kvset.edit.id).collect();
        let mut edits: Vec<Edit> = new_leaves
            .iter()
            .map(|target| Edit::Leaf { id: target.leaf, kvs, lower: target.lower.to_vec() })
            .collect();
        edits.extend(Engine::additions(&done.blocks, &done.kvsets));
        edits.extend(removed.iter().map(|&id| Edit::KvsetRemoved { id }));
        self.commit(edits)?;
        self.publish_tree(kvs, |tree| {
            for target in new_leaves {
                let at = tree.leaf_of(&target.lower) + 1;
                let leaf =
                    Leaf { id: target.leaf, lower: target.lower.clone(), kvsets: Vec::new() };
                tree.leaves.insert(at, leaf);
            }
            tree.remove(&removed);
            done.kvsets.iter().for_each(|kvset| tree.add(kvset.clone()));
        });
        for (old_block, old_offset, new_block, new_offset) in done.moved {
            self.values
                .cache
                .rename(address(old_block, old_offset), address(new_block, new_offset));
        }
        self.balance_memory();
        Ok(())
    }

    /// Remembers whether ingest lacks space, so that writers hear of it instead of waiting; stops
    /// the engine at any other error.
    fn note_space<T>(&self, result: Result<T>) -> Result<T> {
        let full = result.as_ref().err().filter(|error| error.lacks_space()).cloned();
        *self.counters.no_space.lock() = full;
        self.fail_stop(result)
    }

    /// One step of whatever is due, the timed flush of the log included; false when nothing is.
    pub(crate) fn step(&self) -> Result<bool> {
        self.flush_when_due()?;
        Ok(self.ingest_oldest()? || self.maintain()? || self.preload())
    }

    // ---- threads -------------------------------------------------------------------------------

    fn flush_loop(&self) {
        let window = Duration::from_millis(self.options.durability_ms);
        let mut log = self.writer.lock();
        while !self.closing.load(Ordering::Acquire) && self.stopped().is_none() {
            let many = log.unflushed_bytes() > self.options.durability_limit() / 2;
            let due = log.pending_since().map(|since| since + window / 2);
            let now = self.options.clock.now();
            match due {
                Some(due) if many || due <= now => {
                    let seqno = log.last_seqno();
                    // An error stops the engine, and every writer is told why.
                    MutexGuard::unlocked(&mut log, || {
                        let _ = self.flush_through(seqno);
                    });
                }
                Some(due) => drop(self.pending.wait_for(&mut log, due.since(now))),
                None => drop(self.pending.wait_for(&mut log, IDLE)),
            }
        }
    }

    fn lane_loop(&self, step: impl Fn(&Engine) -> Result<bool>) {
        while !self.closing.load(Ordering::Acquire) && self.stopped().is_none() {
            let seen = *self.work.generation.lock();
            // An error was noted where it happened: it stops the engine, or waits for space.
            if matches!(step(self), Ok(true)) {
                continue;
            }
            let mut generation = self.work.generation.lock();
            if *generation == seen {
                self.work.changed.wait_for(&mut generation, IDLE);
            }
        }
    }

    /// Starts the threads of a KVDB. They end when it closes.
    pub(crate) fn start_threads(self: &Arc<Self>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let engine = || self.clone();
        let (flush, ingest, age) = (engine(), engine(), engine());
        Ok(vec![
            thread::spawn("esker-flush", move || flush.flush_loop())?,
            thread::spawn("esker-ingest", move || ingest.lane_loop(Engine::ingest_oldest))?,
            thread::spawn("esker-age", move || age.lane_loop(Engine::age_step))?,
        ])
    }

    /// A step of the second lane.
    fn age_step(&self) -> Result<bool> {
        self.balance_memory();
        let worked = self.maintain()? || self.preload();
        if !worked {
            self.rest();
        }
        Ok(worked)
    }
}

/// How long a thread with nothing to do sleeps before it looks again.
const IDLE: Duration = Duration::from_millis(200);

/// The bytes that kvsets refer to in each block.
fn live_bytes<'k>(kvsets: impl Iterator<Item = &'k Arc<Kvset>>) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for (block, bytes) in kvsets.flat_map(|kvset| &kvset.blocks) {
        *live.entry(block.id).or_insert(0) += bytes;
    }
    live
}

/// The share of a leaf's bytes that have expired or that its deleted prefixes hide, in percent.
fn hidden_percent(leaf: &Leaf, now_ms: u64) -> u64 {
    let all_there =
        |kvset: &Arc<Kvset>| kvset.prefixes.is_empty() && kvset.expired_percent(now_ms) == 0;
    if leaf.kvsets.iter().all(all_there) {
        return 0;
    }
    let (mut bytes, mut hidden) = (0, 0);
    let mut newer = Prefixes::default();
    for kvset in &leaf.kvsets {
        let own = kvset.key_bytes() + kvset.blocks.iter().map(|(_, live)| live).sum::<u64>();
        bytes += own;
        hidden += own / 100 * kvset.hidden_percent(&newer).max(kvset.expired_percent(now_ms));
        newer = Prefixes::union([&newer, &kvset.prefixes].into_iter());
    }
    hidden * 100 / bytes.max(1)
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
