//! Maintenance: the steps that move data from memtables to the root, from there to the leaves, and
//! keep the leaves tidy; and the threads that run them.
//!
//! Two lanes: ingest, which writers may wait for, and everything else. In each lane one step runs
//! at a time. A step writes its output, flushes it, commits to the manifest, and publishes; until
//! the commit it has changed nothing, so it may fail or be forgotten at any point.

mod beside;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use esker_base::memory::release_unused;

use crate::KvsOptions;
use crate::cache::RecordAddress;
use crate::compact::{Compacted, Compaction, Rewrite, Target};
use crate::due::{CRUMBS, Job, spill_run};
use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::ingest::Ingested;
use crate::kvset::Kvset;
use crate::media::Writes;
use crate::omf::manifest::Edit;
use crate::sync::atomic::Ordering;
use crate::sync::{JoinHandle, MutexGuard, thread};
use crate::value::ValueBlock;
use crate::view::{Frozen, Leaf, Table, Tree};

impl Engine {
    // ---- ingest --------------------------------------------------------------------------------

    /// Turns the oldest of what is frozen into kvsets; false when there is none.
    pub(crate) fn ingest_oldest(&self) -> Result<bool> {
        let mut ingested = self.ingesting.lock();
        self.check_wanted(false)?;
        free_unread(&mut ingested);
        let Some(frozen) = self.view.load().frozen.last().cloned() else {
            return Ok(false);
        };
        // Before the next memtable has grown.
        self.balance_memory();
        self.pace.ingest_begins(self.options.clock.now());
        self.note_space(self.ingest(&frozen))?;
        self.pace.ingest_ends(self.options.clock.now(), frozen.table.bytes());
        // Under the lock, so that a writer about to wait does not miss it.
        let writer = self.writer.lock();
        self.room.notify_all();
        drop(writer);
        self.work.notify();
        ingested.push(frozen.table.clone());
        drop(frozen);
        free_unread(&mut ingested);
        Ok(true)
    }

    /// Turns what the memtables hold into kvsets now, full or not; false when they are empty.
    pub(crate) fn ingest_all(&self) -> Result<bool> {
        let mut worked = false;
        while self.ingest_with_room()? {
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
        Ok(self.ingest_with_room()? || worked)
    }

    /// Ingests the oldest memtable, after as many steps as make room for it.
    fn ingest_with_room(&self) -> Result<bool> {
        loop {
            match self.ingest_oldest() {
                Err(full) if full.lacks_space() && self.make_room()? => {}
                result => return result,
            }
        }
    }

    fn ingest(&self, frozen: &Arc<Frozen>) -> Result<()> {
        self.flush_through(frozen.table.last_seqno())?;
        let built = match &frozen.table {
            Table::Memtable(table) => self.build_root_kvsets(&**table),
            Table::Replayed(table) => self.build_root_kvsets(&**table),
        }?;
        let kvsets = self.commit_root(built, frozen.table.last_seqno(), &frozen.log_first)?;
        let publish = || {
            self.publish(|view| {
                view.frozen.retain(|other| !Arc::ptr_eq(other, frozen));
                view.add_to_roots(&kvsets);
            });
        };
        match &frozen.table {
            Table::Memtable(table) => self.transactions.ingested(table, &self.options, publish),
            // It is older than any transaction.
            Table::Replayed(_) => publish(),
        }
        self.balance_memory();
        self.counters.ingests.add(1);
        self.counters.steps.add(1);
        Ok(())
    }

    /// Makes new kvsets of the root durable. With them all records up to `seqno` are in some, and replay
    /// begins in `log_first`.
    pub(crate) fn commit_root(
        &self,
        built: Ingested,
        seqno: u64,
        log_first: &Arc<ValueBlock>,
    ) -> Result<Vec<Arc<Kvset>>> {
        self.classes.flush()?;
        let mut edits = Engine::additions(&built.values, &built.kvsets);
        edits.push(Edit::Ingested { seqno, first: log_first.id });
        self.commit(edits)?;
        *self.replay_from.lock() = log_first.clone();
        Ok(built.kvsets)
    }

    // ---- the second lane -----------------------------------------------------------------------

    /// Runs the step that is due; false when none is.
    pub(crate) fn maintain(&self) -> Result<bool> {
        let _lane = self.compacting.lock();
        self.check_wanted(false)?;
        self.reclaim()?;
        self.run_first(self.due(), false)
    }

    /// Runs the first of these steps that finds room, and with a small one others; false when there is none of them.
    /// The lane is the caller's.
    pub(crate) fn run_first(
        &self,
        jobs: impl IntoIterator<Item = Job>,
        asked: bool,
    ) -> Result<bool> {
        let mut outcome = Ok(false);
        let mut before = self.chance();
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            if !asked && let Some(full) = self.futile.lock().why(&job, &before) {
                outcome = Err(full);
                continue;
            }
            outcome = self.run(&job, &mut jobs, asked).map(|()| true);
            self.ran(&outcome)?;
            // What finds no room may be helped by another step, which makes some.
            let Err(full) = &outcome else { break };
            if !full.lacks_space() {
                break;
            }
            let after = self.chance();
            self.futile.lock().add(job, &before, &after, full);
            before = after;
        }
        self.fail_stop(outcome)
    }

    /// Ends a step, or a try: what it has freed, or taken in vain, is to be had by whatever is planned next.
    fn ran(&self, outcome: &Result<bool>) -> Result<()> {
        self.reclaim()?;
        if matches!(outcome, Ok(true)) {
            self.counters.steps.add(1);
            self.work.notify();
        }
        Ok(())
    }

    fn reclaim(&self) -> Result<()> {
        self.classes.all().iter().try_for_each(|media| self.fail_stop(media.reclaim()).map(drop))
    }

    /// Runs a step, and what goes beside it of those that come after it. The lane is the caller's.
    fn run(&self, job: &Job, after: &mut dyn Iterator<Item = Job>, asked: bool) -> Result<()> {
        let writes = Writes::new(self.is_small(job));
        let mut done = vec![self.compacted(job, asked, &writes)?];
        let beside = self.beside(job, after);
        for other in &beside {
            let before = writes.count();
            match self.compacted(other, asked, &writes) {
                // It will be the first one day.
                Err(full) if full.lacks_space() => {
                    writes.forget(before);
                    break;
                }
                result => done.push(result?),
            }
        }
        let written = done.iter().map(|(_, compacted)| compacted.written_bytes()).sum();
        self.counters.maintained_bytes.add(written);
        let steps = done.len();
        writes.write_out()?;
        self.install(done)?;
        release_unused();
        self.worked_ns.store(self.options.clock.now().0, Ordering::Relaxed);
        std::iter::once(job).chain(&beside).take(steps).for_each(|job| self.count(job));
        Ok(())
    }

    fn count(&self, job: &Job) {
        let counters = &self.counters;
        match job {
            Job::Spill { .. } => counters.spills.add(1),
            Job::Merge { .. } | Job::Compact { .. } => counters.compactions.add(1),
            Job::Split { .. } => counters.splits.add(1),
            Job::Join { .. } => counters.joins.add(1),
            Job::Collect { blocks, .. } if blocks.is_empty() => counters.compactions.add(1),
            Job::Collect { .. } => counters.collections.add(1),
            Job::Sort { .. } => counters.sorts.add(1),
            Job::Expire { .. } => counters.expirations.add(1),
        }
    }

    /// Writes what comes of a step. It is not durable yet, and nobody knows of it.
    fn compacted(
        &self,
        job: &Job,
        asked: bool,
        writes: &Writes,
    ) -> Result<(Compaction, Compacted)> {
        let mut compaction = self.plan(job);
        compaction.asked = asked;
        let before = writes.count();
        let compacted = match compaction.run(self, writes) {
            // No room for the values: their keys alone go to the leaves. That takes less, if there are
            // values, and frees what they hide there.
            Err(error)
                if error.lacks_space()
                    && matches!(job, Job::Spill { .. })
                    && compaction.inputs.iter().any(|kvset| !kvset.blocks.is_empty()) =>
            {
                writes.forget(before);
                compaction.rewrite = Rewrite::None;
                compaction.run(self, writes)?
            }
            result => result?,
        };
        Ok((compaction, compacted))
    }

    /// What a step reads and writes. It keeps no view, because a view keeps memtables.
    fn plan(&self, job: &Job) -> Compaction {
        let view = self.view.load();
        let kvs = job.kvs();
        let tree = view.tree(kvs).expect("a job names a KVS that exists");
        let KvsOptions { policy, compression, .. } = tree.options;
        let leaf = |id: u64| tree.leaves.iter().find(|leaf| leaf.id == id).expect("and its leaves");
        let target =
            |leaf: &Leaf, bottom: bool| Target { leaf: leaf.id, lower: leaf.lower.clone(), bottom };
        let (inputs, targets, rewrite) = match job {
            Job::Spill { .. } => {
                let oldest =
                    spill_run(&tree.root, self.spill_bytes(), self.room_to_spill(&view, tree));
                let mut inputs = tree.root[tree.root.len() - oldest..].to_vec();
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
                let root = Target { leaf: 0, lower: Arc::from([]), bottom: false };
                (tree.root[..*newest].to_vec(), vec![root], Rewrite::None)
            }
            Job::Compact { leaf: id, newest, .. } => {
                let leaf = leaf(*id);
                let all = *newest == leaf.kvsets.len();
                let moves = if all { self.misplaced(leaf, &policy) } else { BTreeSet::new() };
                let targets = vec![target(leaf, all)];
                (leaf.kvsets[..*newest].to_vec(), targets, Job::rewrite(moves))
            }
            Job::Split { leaf: id, .. } => {
                let leaf = leaf(*id);
                let largest = leaf.kvsets.iter().max_by_key(|kvset| kvset.edit.pages);
                let middle = largest.expect("a leaf that splits has kvsets").middle_key();
                let right = Target { leaf: self.ids.next(), lower: middle.into(), bottom: true };
                (leaf.kvsets.clone(), vec![target(leaf, true), right], Rewrite::None)
            }
            Job::Join { leaf: id, next, .. } => {
                let (leaf, next) = (leaf(*id), leaf(*next));
                // One kvset each, at most, and their keys are apart.
                let inputs = leaf.kvsets.iter().chain(&next.kvsets).cloned().collect();
                (inputs, vec![target(leaf, true)], Rewrite::None)
            }
            Job::Collect { leaf: id, blocks, .. } => {
                let leaf = leaf(*id);
                let mut moves = self.misplaced(leaf, &policy);
                moves.extend(blocks);
                (leaf.kvsets.clone(), vec![target(leaf, true)], Job::rewrite(moves))
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

    /// Makes the output of compactions durable and visible, all or none, and lets go of their inputs. Each is of another
    /// KVS.
    fn install(&self, mut done: Vec<(Compaction, Compacted)>) -> Result<()> {
        self.classes.flush()?;
        let view = self.view.load_full();
        done.retain(|(compaction, _)| view.tree(compaction.kvs).is_some());
        let edits = done.iter().flat_map(|(compaction, compacted)| {
            edits(view.tree(compaction.kvs).expect("retained"), compaction, compacted)
        });
        let edits: Vec<Edit> = edits.collect();
        drop(view);
        if done.is_empty() {
            return Ok(());
        }
        self.commit(edits)?;
        self.publish(|view| {
            for (compaction, compacted) in &done {
                if let Some(tree) = view.tree(compaction.kvs) {
                    let mut tree = Tree::clone(tree);
                    replace(&mut tree, compaction, compacted, self.tuning.block_bytes);
                    view.put_tree(tree);
                }
            }
        });
        let address = |block, offset| RecordAddress { block, offset };
        let moved = done.iter().flat_map(|(_, compacted)| &compacted.moved);
        for &(hash, old_block, old_offset, block, offset) in moved {
            self.values.cache.rename(hash, address(old_block, old_offset), address(block, offset));
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
        Ok(self.step_for_space()? || self.preload())
    }

    /// The same, of what may make room: key pages that are loaded ahead make none.
    pub(crate) fn step_for_space(&self) -> Result<bool> {
        // Stopped or not: what was acknowledged is to be durable in time.
        self.flush_when_due()?;
        self.check_running()?;
        self.transactions.end_late(&self.options);
        Ok(self.ingest_or_make_room()? || self.maintain()?)
    }

    /// Ingests the oldest memtable, or runs another step when there is no room for that: it may make some.
    pub(crate) fn ingest_or_make_room(&self) -> Result<bool> {
        match self.ingest_oldest() {
            Err(full) if full.lacks_space() && self.make_room()? => Ok(true),
            result => result,
        }
    }

    /// Runs a step; whether there is room now shows when it is asked for again.
    fn make_room(&self) -> Result<bool> {
        let worked = self.maintain()?;
        if worked {
            *self.counters.no_space.lock() = None;
        }
        Ok(worked)
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
        // The last that was acknowledged before it stopped. Who closes it flushes by itself.
        let seqno = log.last_seqno();
        if self.stopped().is_some() {
            MutexGuard::unlocked(&mut log, || {
                let _ = self.flush_through(seqno);
            });
        }
    }

    fn open_loop(&self) {
        let mut log = self.writer.lock();
        while !self.closing.load(Ordering::Acquire) && self.stopped().is_none() {
            if log.is_opening() {
                self.open_ahead(&mut log);
            } else {
                self.opening.wait_for(&mut log, IDLE);
            }
        }
    }

    fn lane_loop(&self, step: impl Fn(&Engine) -> Result<bool>) {
        loop {
            // First: who closes or stops the engine sets that, and then makes a new generation.
            let seen = *self.work.generation.lock();
            if self.closing.load(Ordering::Acquire) || self.stopped().is_some() {
                break;
            }
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
        let (flush, open, ingest, age) = (engine(), engine(), engine(), engine());
        Ok(vec![
            thread::spawn("esker-flush", move || flush.flush_loop())?,
            thread::spawn("esker-open", move || open.open_loop())?,
            thread::spawn("esker-ingest", move || ingest.lane_loop(Engine::ingest_oldest))?,
            thread::spawn("esker-age", move || age.lane_loop(Engine::age_step))?,
        ])
    }

    /// A step of the second lane.
    fn age_step(&self) -> Result<bool> {
        self.balance_memory();
        self.transactions.end_late(&self.options);
        let maintained = self.maintain();
        // What finds no room keeps nobody else waiting.
        if maintained.as_ref().is_ok_and(|worked| !worked)
            || maintained.as_ref().is_err_and(KvError::lacks_space)
        {
            if self.preload() {
                return Ok(true);
            }
            self.rest();
        }
        maintained
    }
}

/// The targets that are no leaves of a tree yet.
fn new_leaves<'c>(tree: &Tree, compaction: &'c Compaction) -> Vec<&'c Target> {
    let known = |leaf: u64| leaf == 0 || tree.leaves.iter().any(|known| known.id == leaf);
    compaction.targets.iter().filter(|target| !known(target.leaf)).collect()
}

/// The edits that put what came of a compaction in the place of its inputs.
fn edits(tree: &Tree, compaction: &Compaction, done: &Compacted) -> Vec<Edit> {
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
fn replace(tree: &mut Tree, compaction: &Compaction, done: &Compacted, block_bytes: u64) {
    for target in new_leaves(tree, compaction) {
        let at = tree.leaf_of(&target.lower) + 1;
        tree.leaves.insert(at, Leaf::new(target.leaf, target.lower.clone()));
    }
    tree.remove(&compaction.removed().collect::<Vec<u64>>());
    tree.leaves.retain(|leaf| Some(leaf.id) != compaction.gone);
    done.kvsets.iter().for_each(|kvset| tree.add(kvset.clone()));
    if done.forgets {
        tree.forget(compaction.age());
    }
    forget_scans(tree, compaction);
    count_crumbs(tree, compaction, block_bytes);
}

/// Frees tables that nobody else has: those that were ingested, when nobody reads them any more.
pub(crate) fn free_unread(ingested: &mut Vec<Table>) {
    ingested.retain(Table::is_shared);
}

/// What scans of leaves read in vain counts no more when a leaf's values have been put in order, and half
/// when a spill has added to the disorder: what comes of it is to be seen.
fn forget_scans(tree: &mut Tree, compaction: &Compaction) {
    for target in compaction.targets.iter().filter(|_| matches!(compaction.rewrite, Rewrite::All)) {
        let at = tree.leaf_of(&target.lower);
        let in_vain = &mut tree.leaves[at].in_vain;
        let kept = if compaction.sorts() { 0 } else { in_vain.load(Ordering::Relaxed) / 2 };
        // A new one: walks that began before go on counting what they find in the old blocks.
        *in_vain = Arc::new(kept.into());
    }
}

/// Counts the small blocks that are left where many blocks were rewritten, and those that are left of them by what
/// comes afterwards.
fn count_crumbs(tree: &mut Tree, compaction: &Compaction, block_bytes: u64) {
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

/// How long a thread with nothing to do sleeps before it looks again.
const IDLE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::Purpose;
    use crate::placement::Stream;
    use crate::testing::kvdb;
    use crate::{CompactRequest, Kvs};

    #[test]
    fn who_lacks_room_for_a_memtable_gets_what_has_expired() {
        for asks in [|kvs: &Kvs| kvs.put(b"k", b"v"), |kvs: &Kvs| kvs.engine.ingest_all().map(drop)]
        {
            let (db, kvs, clock) = kvdb();
            let options = KvsOptions { ttl_ms: Some(1000), ..KvsOptions::default() };
            let expires = db.create_kvs("expires", options).unwrap();
            (0..200u64).for_each(|n| expires.put(&n.to_be_bytes(), &[1; 10_000]).unwrap());
            db.compact(CompactRequest::Full).unwrap();
            let is_full = || {
                let view = db.engine.view.load();
                !view.frozen.is_empty() && view.active.bytes() >= db.engine.tuning.memtable_bytes
            };
            for n in (0..10_000u64).take_while(|_| !is_full()) {
                kvs.put(&n.to_be_bytes(), &[1; 1000]).unwrap();
            }
            let capacity = db.engine.classes.all()[0].clone();
            let mut taken = Vec::new();
            for bytes in [1 << 20, 64 << 10, 4 << 10] {
                while let Ok(more) = capacity.allocate(Stream::Log, bytes, Purpose::Maintenance) {
                    taken.push(more);
                }
            }
            assert!(asks(&kvs).unwrap_err().lacks_space());
            clock.advance(Duration::from_secs(2));
            asks(&kvs).unwrap();
        }
    }

    #[test]
    fn a_memtable_is_freed_by_its_lane_and_not_by_the_last_who_reads_it() {
        let (db, kvs, _) = kvdb();
        kvs.put(b"k", b"v").unwrap();
        let view = db.engine.view.load_full();
        let table = Arc::downgrade(&view.active);
        assert!(db.engine.ingest_all().unwrap());
        assert_eq!(view.active.last_seqno(), 1);
        drop(view);
        assert!(table.upgrade().is_some(), "freed where it was read");
        assert!(!db.engine.ingest_oldest().unwrap());
        assert!(table.upgrade().is_none(), "never freed");
    }
}
