//! The memory budget: its fixed part, the caches' share of the rest, and the compaction window that they take when no
//! compaction is due.

use std::sync::Arc;
use std::time::Duration;

use esker_base::Nanos;
use esker_base::memory::release_unused;
use esker_base::units::to_usize;

use crate::compaction::reader::GatherContext;
use crate::compaction::scratch::{Scratch, Workspace};
use crate::compaction::window::{READS, Windows};
use crate::engine::shared::Engine;
use crate::engine::workers::Worker;
use crate::media::writes::BEHIND;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::tree::memtable::Memtable;
use crate::tree::page_cache::PAGE_DRAM;
use crate::tree::pinned::Pinned;
use crate::tree::view::View;
use crate::types::limits::VALUE_MAX;
use crate::types::options::Tuning;

/// How long there was no compaction when its memory goes to the caches: longer than the pauses between
/// those of a steady load.
pub(crate) const REST: Duration = Duration::from_secs(2);

/// The helper has this part of the memory for windows.
const HELPER_PART: u64 = 4;

impl Engine {
    /// The size of the reads that gather values, in bytes; [`READS`] are in flight at a time.
    fn gather_read_size(&self) -> usize {
        let sizes = self.classes.all().into_iter().map(|media| media.transfer_size);
        let largest = sizes.min().expect("a KVDB has a capacity class");
        largest.min(to_usize(self.tuning.gather_bytes / 8).max(64 << 10))
    }

    /// The parts of the engine that a compaction gathers records with.
    pub(crate) fn gather_context(&self) -> GatherContext<'_> {
        GatherContext {
            cache: &self.values.cache,
            miss_rate: &self.miss_rate,
            wall_clock: &self.wall_clock,
            read_size: self.gather_read_size(),
        }
    }

    /// DRAM that is not caches: memtables at their largest, log buffers, the window of maintenance unless
    /// that rests; and the filters, indexes and structures there are.
    pub(crate) fn fixed_bytes(&self) -> (u64, u64) {
        let tuning = &self.tuning;
        let log = self.options.durability_limit() + 4 * tuning.frame_bytes;
        let view = self.view.load();
        let Pinned { filters, indexes, structures } = view.pinned();
        // While there is much to ingest, the next memtable fills up meanwhile.
        let is_quiet = self.write_controller.is_quiet(self.options.clock.now());
        let expected = tuning.memtable_bytes * if is_quiet { 1 } else { 2 };
        let memtables = view.memtable_bytes().max(expected) + self.ingested_bytes();
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

    /// Bytes of memtables that were ingested, and that somebody still reads.
    pub(crate) fn ingested_bytes(&self) -> u64 {
        self.ingested_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that compactions may take beside their output.
    pub(crate) fn window_bytes(&self) -> u64 {
        let reads = (READS * self.gather_read_size()) as u64;
        let writes = BEHIND as u64 * self.tuning.frame_bytes;
        let windows = self.workspaces.iter().map(Workspace::window_bytes).sum::<u64>();
        windows / 8 * 9 + self.workers() * (VALUE_MAX as u64 + reads + writes)
    }

    /// How many workers have memory for compactions.
    fn workers(&self) -> u64 {
        let used = |workspace: &&Workspace| workspace.window_bytes() > 0;
        self.workspaces.iter().filter(used).count() as u64
    }

    /// The bytes for the windows of a spill. Each window is a pass over the log: where the record cache has lost most of the
    /// values, there is memory for all of them in one window. Where it has lost some, what it would hold in that memory is
    /// worth more.
    pub(crate) fn spill_windows(&self) -> u64 {
        let Tuning { gather_bytes, spill_bytes, .. } = self.tuning;
        if self.miss_rate.is_most() { gather_bytes.max(spill_bytes) } else { gather_bytes }
    }

    /// The memory of compactions, for one that begins and that gathers `spilled` bytes if it is a spill: counted before
    /// it is taken.
    pub(crate) fn scratch(&self, worker: Worker, spilled: u64) -> MutexGuard<'_, Scratch> {
        let mut scratch = self.workspaces[worker as usize].scratch.lock();
        let usual = self.tuning.gather_bytes;
        let bytes = match worker {
            // The next spill is gathered ahead in it.
            Worker::First if scratch.ahead.is_some() => scratch.windows.bytes.max(usual),
            Worker::First if spilled > Windows::most(usual).0 => self.spill_windows(),
            Worker::First => usual,
            // Leaves' values lie in order: small windows read them as well as large ones.
            Worker::Helper => usual / HELPER_PART,
        };
        self.resize_windows(worker, &mut scratch, bytes);
        scratch
    }

    /// Gives the caches the memory that only spills take, unless the next one has begun in it.
    pub(crate) fn end_spill(&self, worker: Worker, scratch: &mut Scratch) {
        let usual = self.tuning.gather_bytes;
        if scratch.windows.bytes > usual && scratch.ahead.is_none() {
            self.resize_windows(worker, scratch, usual);
        }
    }

    fn resize_windows(&self, worker: Worker, scratch: &mut Scratch, bytes: u64) {
        let before = self.workspaces[worker as usize].window_bytes.swap(bytes, Ordering::Relaxed);
        if bytes < before {
            *scratch = Scratch::default();
        }
        if bytes != before {
            self.balance_memory();
        }
        scratch.windows.bytes = bytes;
    }

    /// Gives the memory of a worker to the caches when it had no step for a while.
    pub(crate) fn rest(&self, worker: Worker) {
        let workspace = &self.workspaces[worker as usize];
        let worked = Nanos(workspace.worked_ns.load(Ordering::Relaxed));
        if workspace.window_bytes() == 0 || self.options.clock.now().since(worked) < REST {
            return;
        }
        let mut scratch = workspace.scratch.lock();
        *scratch = Scratch::default();
        self.view.load().active.release_kept();
        release_unused();
        workspace.window_bytes.store(0, Ordering::Relaxed);
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

    /// Lets go of what it holds for reads, when it was closed: handles that are left answer `Closed`.
    pub(crate) fn free_memory(&self) {
        let nothing = || View::new(Arc::new(Memtable::new(0)), Vec::new());
        self.view.publish(|view| *view = nothing());
        self.pages.set_limit(0);
        self.values.cache.set_capacity(0);
        release_unused();
    }
}
