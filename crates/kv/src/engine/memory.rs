//! The memory budget: its fixed part, the caches' share of the rest, and the compaction window that they take when no
//! compaction is due.

use std::time::Duration;

use esker_base::Nanos;
use esker_base::memory::release_unused;
use esker_base::units::to_usize;

use crate::engine::intake::{Scratch, Workspace};
use crate::engine::shared::Engine;
use crate::engine::window::READS;
use crate::engine::workers::Worker;
use crate::media::writes::BEHIND;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::tree::page_cache::PAGE_DRAM;
use crate::tree::pinned::Pinned;
use crate::types::limits::VALUE_MAX;

/// How long there was no compaction when its memory goes to the caches: longer than the pauses between
/// those of a steady load.
pub(crate) const REST: Duration = Duration::from_secs(2);

impl Engine {
    /// The size of the reads that gather values, in bytes; [`READS`] are in flight at a time.
    pub(crate) fn gather_read_size(&self) -> usize {
        let sizes = self.classes.all().into_iter().map(|media| media.transfer_size);
        let largest = sizes.min().expect("a KVDB has a capacity class");
        largest.min(to_usize(self.tuning.gather_bytes / 8).max(64 << 10))
    }

    /// DRAM that is not caches: memtables at their largest, log buffers, the window of maintenance unless
    /// that rests; and the filters, indexes and structures there are.
    pub(crate) fn fixed_bytes(&self) -> (u64, u64) {
        let tuning = &self.tuning;
        let log = self.options.durability_limit() + 4 * tuning.frame_bytes;
        let view = self.view.load();
        let Pinned { filters, indexes, structures } = view.pinned();
        // While there is much to ingest, the next memtable fills up meanwhile.
        let is_quiet = self.pace.is_quiet(self.options.clock.now());
        let expected = tuning.memtable_bytes * if is_quiet { 1 } else { 2 };
        let memtables = view.memtable_bytes().max(expected);
        let cursors = self.values.windows.held_bytes() + self.values.windows.rows_bytes();
        let history = self.transactions.history_bytes();
        let parts = memtables + self.window_bytes() + log + history + cursors;
        // Code, stacks, queue pairs, the manifest's state, and memory that the allocator cannot give back; while
        // there are compactions also their output.
        let budget = self.options.memory_bytes;
        let share = if self.workers() == 0 { 32 } else { 10 };
        let process = budget / share + (budget / 8).min(8 << 20);
        (parts + process, filters + indexes + structures)
    }

    /// Bytes that compactions may take beside their output.
    pub(crate) fn window_bytes(&self) -> u64 {
        let reads = (READS * self.gather_read_size()) as u64;
        let writes = BEHIND as u64 * self.tuning.frame_bytes;
        self.workers() * (self.tuning.gather_bytes / 8 * 9 + VALUE_MAX as u64 + reads + writes)
    }

    /// How many workers have memory for compactions.
    fn workers(&self) -> u64 {
        let used = |workspace: &&Workspace| workspace.is_used.load(Ordering::Relaxed);
        self.workspaces.iter().filter(used).count() as u64
    }

    /// The memory of compactions, for one that begins: counted before it is taken.
    pub(crate) fn scratch(&self, worker: Worker) -> MutexGuard<'_, Scratch> {
        let workspace = &self.workspaces[worker as usize];
        let scratch = workspace.scratch.lock();
        if !workspace.is_used.swap(true, Ordering::Relaxed) {
            self.balance_memory();
        }
        scratch
    }

    /// Gives the memory of a worker to the caches when it had no step for a while.
    pub(crate) fn rest(&self, worker: Worker) {
        let workspace = &self.workspaces[worker as usize];
        let worked = Nanos(workspace.worked_ns.load(Ordering::Relaxed));
        let is_used = workspace.is_used.load(Ordering::Relaxed);
        if !is_used || self.options.clock.now().since(worked) < REST {
            return;
        }
        let mut scratch = workspace.scratch.lock();
        *scratch = Scratch::default();
        self.view.load().active.release_kept();
        release_unused();
        workspace.is_used.store(false, Ordering::Relaxed);
    }

    /// Reads some key pages ahead of need, roots first, because they are searched first; false when all
    /// are in DRAM or no more fit. A KVDB opens without its pages, so that opening takes no longer with
    /// more keys.
    pub(crate) fn preload(&self) -> bool {
        let _lane = self.compacting.lock();
        let view = self.view.load_full();
        let trees = || view.trees.values();
        let roots = trees().flat_map(|tree| &tree.root);
        let leaves = trees().flat_map(|tree| tree.leaves.iter().flat_map(|leaf| &leaf.kvsets));
        // An unreadable kvset is an error for the reader that needs it.
        let loaded = roots.chain(leaves).any(|kvset| kvset.preload().unwrap_or(true));
        if loaded {
            self.balance_memory();
        }
        loaded
    }

    /// Divides the rest of the budget beside the fixed parts: key pages first, up to nine tenths of it,
    /// then cached records.
    pub(crate) fn balance_memory(&self) {
        let (parts, pinned) = self.fixed_bytes();
        let rest = self.options.memory_bytes.saturating_sub(parts + pinned);
        let limit = rest / 10 * 9;
        self.pages.set_limit(limit);
        let pages = if self.options.read_only {
            // Nobody divides it again when pages have come.
            let view = self.view.load();
            let kvsets = view.trees.values().flat_map(|tree| tree.kvsets());
            let pages = kvsets.map(|kvset| u64::from(kvset.edit.pages)).sum::<u64>();
            limit.min(pages * PAGE_DRAM)
        } else {
            self.pages.resident_bytes()
        };
        self.values.cache.set_capacity(rest.saturating_sub(pages));
    }
}
