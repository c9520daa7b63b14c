//! Maintenance that somebody asks for: compacting everything, or down to a goal, and emptying the
//! staging class so that it may be taken away. It takes the lane of maintenance step by step, so that
//! steps that are due by themselves are done meanwhile, and writers and readers go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::Progress;
use esker_base::memory::release_unused;
use esker_base::progress::Unit;
use serde::Serialize;

use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::maintain::picker::Picker;
use crate::maintain::replay;
use crate::maintain::scrub;
use crate::maintain::steps;
use crate::media::class::Media;
use crate::omf::manifest::Edit;
use crate::sync::MutexGuard;
use crate::tree::kvset::Kvset;
use crate::tree::view::{Leaf, Tree, View};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::ids::{BlockId, KvsId, Seqno};

/// Goal of [`crate::api::kvdb::Kvdb::compact`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub enum CompactRequest {
    /// All data is old, each leaf is merged, its values in key order, no garbage is left, and everything
    /// lies where the policies want it, as far as there is room.
    Full,
    /// The media hold at most this many bytes for each live byte: at least 1.02.
    SpaceAmplification(f64),
    /// As `Full`; and then nothing of a key or value that was deleted or overwritten before is on the media: all that no
    /// record and no key takes is erased there. While that is done, writers wait. A drive may keep blocks that were
    /// erased, out of reach of reads. Damaged leaves are left out, and [`Stats::damaged`](crate::Stats::damaged) names
    /// them.
    Scrub,
}

/// How a compaction, or the removal of a class, is getting on.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CompactStatus {
    /// Whether one is under way.
    pub active: bool,
    /// Whether the last one was cancelled.
    pub cancelled: bool,
    /// Goal of the compaction under way, or else of the last one, if it is space amplification.
    pub goal: Option<f64>,
    /// Bytes on the media for each live byte, now. Estimated where keys are not merged yet.
    pub space_amplification: f64,
    /// Leaves it has to look at; 0 when it has a goal instead.
    pub leaves: u64,
    /// Leaves it has done.
    pub leaves_done: u64,
    /// Bytes that maintenance has written since it began.
    pub written_bytes: u64,
}

/// Held while something that was asked for is under way.
struct Turn<'e> {
    engine: &'e Engine,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.engine.classes.leave_staging(false);
        self.engine.scheduler.manual.end();
    }
}

/// Target of a sweep through the leaves.
#[derive(Clone, Copy, PartialEq)]
enum Sweep {
    /// Whatever could be better.
    All,
    /// That, and every block with a record that nothing refers to.
    Erasing,
    /// Whatever lies on this class.
    Leaving(MediaClass),
}

/// Content at some time: records up to this seqno, and blocks up to this id.
struct Before {
    seqno: Seqno,
    id: BlockId,
}

impl Before {
    /// Whether a step that saves space does so with the data that was there. Such steps come to an end, whatever is
    /// written meanwhile: their output from it and newer records is new, and refers to fewer of those blocks.
    fn concerns(&self, view: &View, job: &Job) -> bool {
        let is_old = |kvset: &Arc<Kvset>| kvset.edit.age <= self.seqno;
        let tree = |kvs| view.tree(kvs).expect("a job names a KVS that exists");
        match job {
            Job::Collect { kvs, leaf, blocks } => {
                let leaf = tree(*kvs).leaves.iter().find(|it| it.id == *leaf);
                leaf.is_some_and(|leaf| leaf.kvsets.iter().any(is_old))
                    || blocks.iter().any(|id| *id <= self.id)
            }
            Job::Spill { kvs } => tree(*kvs).root.last().is_some_and(|oldest| {
                is_old(oldest) || oldest.blocks.iter().any(|(block, _)| block.id <= self.id)
            }),
            _ => true,
        }
    }
}

/// The lowest goal for space, in percent.
const LEAST_GOAL: u64 = 102;
/// A leaf is done after so many steps, whatever is written to it meanwhile.
const PASSES: usize = 4;

#[allow(clippy::cast_precision_loss)] // ratios for people
pub(crate) fn compact_status(engine: &Engine) -> CompactStatus {
    let manual = &engine.scheduler.manual;
    let space = Picker::new(engine, &engine.view.load()).space();
    let (goal, (leaves, leaves_done)) = (manual.goal(), manual.leaves());
    CompactStatus {
        active: manual.is_active(),
        cancelled: manual.is_cancelled(),
        goal: (goal > 0).then_some(goal as f64 / 100.0),
        space_amplification: space.used as f64 / space.live.max(1) as f64,
        leaves,
        leaves_done,
        written_bytes: manual.written_bytes(engine.counters.step_bytes.get()),
    }
}

/// Does the requested work, or part of it, if it is cancelled.
pub(crate) fn compact(engine: &Engine, request: CompactRequest) -> Result<CompactStatus> {
    let turn = Turn::begin(engine)?;
    let done = match request {
        CompactRequest::Full => steps::ingest_all(engine).and_then(|_| turn.sweep_with_room()),
        CompactRequest::Scrub => replay::leave_log(engine)
            .and_then(|()| turn.sweep(Sweep::Erasing))
            .and_then(|()| scrub::erase_deleted(engine)),
        CompactRequest::SpaceAmplification(goal) => {
            let percent = crate::types::options::percent(goal)?;
            engine.scheduler.manual.set_goal(percent);
            steps::ingest_all(engine).and_then(|_| turn.save_space(percent))
        }
    };
    match done {
        Err(KvError::Cancelled) | Ok(()) => {}
        Err(error) => return Err(error),
    }
    drop(turn);
    Ok(compact_status(engine))
}

/// Moves everything off the staging class, and ends it. Returns it, its name in the manifest, and
/// the lock under which a new one is added: until then its place is not free.
pub(crate) fn remove_staging(
    engine: &Engine,
) -> Result<(Arc<Media>, Option<String>, MutexGuard<'_, ()>)> {
    let turn = Turn::begin(engine)?;
    let staging = engine.classes.staging().ok_or(KvError::NoStaging)?;
    turn.check_room_without(&staging)?;
    engine.classes.leave_staging(true);
    let known_as = engine.manifest.state().classes.remove(&MediaClass::Staging);
    let naming = loop {
        engine.check_wanted(true)?;
        replay::leave_segments(engine, |segment| {
            engine.classes.taking(segment.media().class).is_some()
        })?;
        steps::ingest_all(engine)?;
        replay::advance_replay(engine)?;
        turn.sweep(Sweep::Leaving(MediaClass::Staging))?;
        // Damaged data does not move.
        engine.fences.check_unfenced_on(&engine.view, MediaClass::Staging)?;
        if let Some(naming) = turn.end_staging()? {
            break naming;
        }
    };
    drop(turn);
    release_unused();
    Ok((staging, known_as, naming))
}

impl<'e> Turn<'e> {
    fn begin(engine: &'e Engine) -> Result<Turn<'e>> {
        engine.life.check_running()?;
        let begins = engine.scheduler.manual.begin(engine.counters.step_bytes.get());
        if begins { Ok(Turn { engine }) } else { Err(KvError::Busy) }
    }

    /// Runs one step of the requested work; the lanes are taken for it alone.
    fn step_asked<J: IntoIterator<Item = Job>>(&self, choose: impl Fn(&View) -> J) -> Result<bool> {
        self.tell_progress();
        let _lanes = self.engine.scheduler.both_lanes();
        self.engine.check_wanted(true)?;
        steps::run_first(self.engine, Worker::First, choose, true)
    }

    /// Saves space of the data that is there now. Later writes of others are left to maintenance: with them there
    /// would be no end.
    fn save_space(&self, goal: u64) -> Result<()> {
        let before =
            Before { seqno: self.engine.log.visible(), id: BlockId(self.engine.ids.last()) };
        while self.step_asked(|view| {
            let savings =
                Picker::new(self.engine, view).savings(goal).into_iter().map(|(_, job)| job);
            savings.filter(|job| before.concerns(view, job)).collect::<Vec<Job>>()
        })? {}
        Ok(())
    }

    /// Goes through all KVSs, again where a step has found no room and others have made some. Without any it is done as
    /// far as there is room, if it has come anywhere.
    fn sweep_with_room(&self) -> Result<()> {
        let began = self.engine.counters.steps.get();
        loop {
            let before = self.engine.counters.steps.get();
            match self.sweep(Sweep::All) {
                Err(full) if full.lacks_space() => {
                    // These take no more than there is room for.
                    match self.save_space(LEAST_GOAL) {
                        Err(error) if !error.lacks_space() => return Err(error),
                        _ => {}
                    }
                    let now = self.engine.counters.steps.get();
                    if now == before {
                        return if now == began { Err(full) } else { Ok(()) };
                    }
                }
                result => return result,
            }
        }
    }

    /// Goes through all KVSs. It keeps no tree meanwhile: that would keep the space that the steps free.
    fn sweep(&self, sweep: Sweep) -> Result<()> {
        let kvss: Vec<KvsId> = {
            let view = self.engine.view.load();
            let leaves = view.trees.values().map(|tree| tree.leaves.len() as u64).sum();
            self.engine.scheduler.manual.begin_leaves(leaves);
            view.trees.keys().copied().collect()
        };
        for kvs in kvss {
            self.engine.scheduler.manual.while_emptying(kvs, || self.sweep_root(kvs, sweep))?;
            self.sweep_leaves(kvs, sweep)?;
            // Leaves share blocks: what others have left since is garbage of those that came first.
            if !matches!(sweep, Sweep::Leaving(_)) {
                self.sweep_leaves(kvs, sweep)?;
            }
        }
        Ok(())
    }

    /// Ages the data that is in the root now.
    fn sweep_root(&self, kvs: KvsId, sweep: Sweep) -> Result<()> {
        let newest = |view: &View| Some(view.tree(kvs)?.root.first()?.edit.age);
        let Some(through) = newest(&self.engine.view.load()) else {
            return Ok(());
        };
        while self.step_asked(|view| {
            let root = &view.tree(kvs)?.root;
            let mut old = root.iter().filter(|kvset| kvset.edit.age <= through);
            let wanted = match sweep {
                Sweep::All | Sweep::Erasing => old.next().is_some(),
                Sweep::Leaving(class) => old.any(|kvset| kvset.is_on(class)),
            };
            wanted.then_some(Job::Spill { kvs })
        })? {}
        Ok(())
    }

    /// Tells the observer how far the work is, and cancels it as that wishes.
    fn tell_progress(&self) {
        let (leaves, done) = self.engine.scheduler.manual.leaves();
        let total = (leaves > 0).then_some(leaves);
        let mut progress = Progress::new("compacting", total, Unit::Leaves);
        progress.done = done;
        if self.engine.options.observer.tell(&progress).is_break() {
            self.engine.scheduler.manual.cancel();
        }
    }

    fn sweep_leaves(&self, kvs: KvsId, sweep: Sweep) -> Result<()> {
        let mut from: Arc<[u8]> = Arc::from([]);
        loop {
            for _ in 0..PASSES {
                let again = self.step_asked(|view| {
                    let tree = view.tree(kvs)?;
                    let leaf = &tree.leaves[tree.leaf_of(&from)];
                    sweep_leaf(&Picker::new(self.engine, view), tree, leaf, sweep)
                })?;
                if !again {
                    break;
                }
            }
            self.engine.scheduler.manual.leaf_done();
            let view = self.engine.view.load();
            let next = view.tree(kvs).and_then(|tree| tree.leaves.get(tree.leaf_of(&from) + 1));
            match next {
                Some(next) => from = next.lower.clone(),
                None => return Ok(()),
            }
        }
    }

    /// Refuses when capacity cannot take the data on `staging`.
    fn check_room_without(&self, staging: &Media) -> Result<()> {
        let view = self.engine.view.load();
        let mut needed = view.young_bytes();
        for kvset in view.trees.values().flat_map(|tree| tree.kvsets()) {
            let keys = kvset.key_extents().iter().filter(|keys| keys.media.class == staging.class);
            let values = kvset.blocks.iter().filter(|(b, _)| b.media().class == staging.class);
            needed += keys.map(|extent| extent.bytes()).sum::<u64>();
            needed += values.map(|(_, bytes)| bytes).sum::<u64>();
        }
        // Two log segments, and frames and extents that are not full.
        needed += needed / 16 + 2 * self.engine.tuning.block_bytes;
        let capacity = &self.engine.classes.capacity;
        capacity.reclaim()?;
        let room = capacity.free_bytes().saturating_sub(capacity.reserve_bytes());
        if needed > room {
            return Err(KvError::NoRoomWithout { class: staging.class, needed, room });
        }
        Ok(())
    }

    /// Ends the staging class if nothing is on it any more.
    fn end_staging(&self) -> Result<Option<MutexGuard<'e, ()>>> {
        let naming = self.engine.naming.lock();
        let _lanes = self.engine.scheduler.both_lanes();
        let _ingesting = self.engine.scheduler.ingest_lane();
        let class = MediaClass::Staging;
        if self.engine.manifest.uses(class) {
            return Ok(None);
        }
        self.engine.commit(vec![Edit::ClassRemoved { class }])?;
        self.engine.classes.remove_staging();
        Ok(Some(naming))
    }
}

/// The job that would make a leaf better.
fn sweep_leaf(picker: &Picker<'_>, tree: &Tree, leaf: &Leaf, sweep: Sweep) -> Option<Job> {
    let job = |blocks| Some(Job::Collect { kvs: tree.kvs, leaf: leaf.id, blocks });
    let policy = &tree.options.policy;
    if let Sweep::Leaving(class) = sweep {
        let mut blocks = leaf.blocks();
        blocks.retain(|_, block| block.media().class == class);
        let touches = leaf.kvsets.iter().any(|kvset| kvset.is_on(class));
        return if touches { job(blocks.into_keys().collect()) } else { None };
    }
    let deletes = |kvset: &Arc<Kvset>| kvset.edit.tombstones > 0 || !kvset.deleted.is_empty();
    if leaf.kvsets.len() > 1 || leaf.kvsets.iter().any(deletes) {
        return job(BTreeSet::new());
    }
    if let [only] = &leaf.kvsets[..]
        && picker.can_sort(leaf, policy)
        && only.is_scattered().unwrap_or(false)
    {
        return Some(Job::Sort { kvs: tree.kvs, leaf: leaf.id });
    }
    let mut moves = match sweep {
        Sweep::Erasing => picker.dead_in(leaf),
        _ => picker.garbage_in(leaf),
    };
    moves.extend(picker.misplaced(leaf, policy));
    if picker.keys_move(leaf, policy) || !moves.is_empty() { job(moves) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kvs::Kvs;
    use crate::media::space::Purpose;
    use crate::recover::devices::Devices;
    use crate::testing::{device, kvdb_on, small_blocks};
    use crate::types::policy::Policy;
    use crate::types::stream::Stream;

    #[test]
    fn a_step_that_finds_no_room_is_in_no_other_ones_way() {
        let staging = Some(device("s"));
        let devices = Devices { manifest: device("m"), capacity: device("c"), staging };
        let (db, worst, _) = kvdb_on(devices, small_blocks());
        worst.set_policy("all=staging/none".parse::<Policy>().unwrap()).unwrap();
        let other = db.create_kvs("other", Policy::CAPACITY_ONLY).unwrap();
        let put = |kvs: &Kvs, keys: u64| {
            (0..keys).for_each(|n| kvs.put(n.to_be_bytes(), [7; 2000]).unwrap());
        };
        put(&worst, 1000);
        put(&other, 1000);
        db.compact(CompactRequest::Full).unwrap();
        put(&worst, 1000);
        put(&other, 300);
        db.ingest().unwrap();
        let staging = db.engine.classes.staging().unwrap();
        let mut taken = Vec::new();
        for bytes in [1 << 20, 64 << 10, 4 << 10] {
            while let Ok(more) = staging.allocate(Stream::OldKeys, bytes, Purpose::Maintenance) {
                taken.push(more);
            }
        }
        let kvs_of = |job: Job| match job {
            Job::Spill { kvs } | Job::Collect { kvs, .. } => kvs,
            job => panic!("{job:?}"),
        };
        let savings = || Picker::new(&db.engine, &db.engine.view.load()).savings(102).into_iter();
        let kvss = || savings().map(|(_, job)| kvs_of(job)).collect::<Vec<KvsId>>();
        assert_eq!(kvss(), [worst.id, other.id]);
        let full = db.compact(CompactRequest::SpaceAmplification(1.02)).unwrap_err();
        assert!(full.lacks_space(), "{full}");
        assert_eq!(kvss(), [worst.id]);
    }
}
