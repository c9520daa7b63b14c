//! The memory budget: its fixed part, the caches' share of the rest, and the compaction window that they take when no
//! compaction is due.

use std::sync::Arc;
use std::time::Duration;

use esker_base::memory::release_unused;
use esker_base::units::to_usize;
use esker_base::{Clock, Nanos};

use crate::compaction::miss_rate::MissRate;
use crate::compaction::reader::InputReader;
use crate::compaction::scratch::{Scratch, Workspace};
use crate::compaction::window::{READS, Windows};
use crate::engine::workers::Worker;
use crate::media::classes::Classes;
use crate::media::writes::BEHIND;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::tree::current::CurrentView;
use crate::tree::page_cache::{PAGE_DRAM, PageCache};
use crate::tree::pinned::Pinned;
use crate::tree::view::View;
use crate::types::limits::VALUE_MAX;
use crate::types::options::{Options, Tuning};
use crate::values::block::Values;

/// Memory budget of a KVDB. It has the key pages and the memory of compactions.
pub(crate) struct Budget {
    clock: Clock,
    tuning: Tuning,
    classes: Arc<Classes>,
    memory_bytes: u64,
    /// The log's buffers at their largest.
    log_bytes: u64,
    is_read_only: bool,
    pages: Arc<PageCache>,
    workspaces: [Workspace; Worker::ALL.len()],
    miss_rate: MissRate,
}

/// Others that take memory.
pub(crate) struct Takers<'e> {
    pub(crate) view: &'e CurrentView,
    pub(crate) values: &'e Values,
    /// Of memtables that were ingested, and that somebody still reads.
    pub(crate) ingested_bytes: u64,
    /// Of memtables that transactions need.
    pub(crate) history_bytes: u64,
    /// Whether writers take long to fill a memtable.
    pub(crate) is_quiet: bool,
}

/// How long there was no compaction when its memory goes to the caches: longer than the pauses between
/// those of a steady load.
pub(crate) const REST: Duration = Duration::from_secs(2);

/// The helper has this part of the memory for windows.
const HELPER_PART: u64 = 4;

impl Budget {
    pub(crate) fn new(options: &Options, classes: Arc<Classes>, pages: Arc<PageCache>) -> Budget {
        let tuning = options.tuning();
        Budget {
            clock: options.clock.clone(),
            tuning,
            classes,
            memory_bytes: options.memory_bytes,
            log_bytes: options.durability_limit() + 4 * tuning.frame_bytes,
            is_read_only: options.read_only,
            pages,
            workspaces: Default::default(),
            miss_rate: MissRate::default(),
        }
    }

    /// The key pages in DRAM.
    pub(crate) fn pages(&self) -> &Arc<PageCache> {
        &self.pages
    }

    /// How much of the spills the record cache has lost.
    pub(crate) fn miss_rate(&self) -> &MissRate {
        &self.miss_rate
    }

    /// The size of the reads that gather values, in bytes; [`READS`] are in flight at a time.
    pub(crate) fn gather_read_size(&self) -> usize {
        let sizes = self.classes.all().into_iter().map(|media| media.transfer_size);
        let largest = sizes.min().expect("a KVDB has a capacity class");
        largest.min(to_usize(self.tuning.gather_bytes / 8).max(64 << 10))
    }

    /// DRAM that is not caches: memtables at their largest, log buffers, the window of maintenance unless
    /// that rests; and the filters, indexes and structures there are.
    fn fixed_bytes(&self, takers: &Takers<'_>) -> (u64, u64) {
        let tuning = &self.tuning;
        let view = takers.view.load();
        let Pinned { filters, indexes, structures } = view.pinned();
        // While there is much to ingest, the next memtable fills up meanwhile.
        let expected = tuning.memtable_bytes * if takers.is_quiet { 1 } else { 2 };
        let memtables = view.memtable_bytes().max(expected) + takers.ingested_bytes;
        let windows = &takers.values.windows;
        let cursors = windows.held_bytes() + windows.rows_bytes();
        let parts =
            memtables + self.window_bytes() + self.log_bytes + takers.history_bytes + cursors;
        // Code, stacks, queue pairs, the manifest's state, and memory that the allocator cannot give back; while
        // there are compactions also their output.
        let budget = self.memory_bytes;
        let share = if self.workers() == 0 { 32 } else { 10 };
        let process = budget / share + (budget / 8).min(8 << 20);
        (parts + process, filters + indexes + structures)
    }

    /// The bytes for the windows of a worker.
    #[cfg(test)]
    pub(crate) fn window_bytes_of(&self, worker: Worker) -> u64 {
        self.workspaces[worker as usize].window_bytes()
    }

    /// Bytes that compactions may take beside their output.
    fn window_bytes(&self) -> u64 {
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
    pub(crate) fn scratch(
        &self,
        worker: Worker,
        spilled: u64,
        takers: &Takers<'_>,
    ) -> MutexGuard<'_, Scratch> {
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
        self.resize_windows(worker, &mut scratch, bytes, takers);
        scratch
    }

    /// Gives the caches the memory that only spills take, unless the next one has begun in it.
    pub(crate) fn end_spill(&self, worker: Worker, scratch: &mut Scratch, takers: &Takers<'_>) {
        let usual = self.tuning.gather_bytes;
        if scratch.windows.bytes > usual && scratch.ahead.is_none() {
            self.resize_windows(worker, scratch, usual, takers);
        }
    }

    fn resize_windows(
        &self,
        worker: Worker,
        scratch: &mut Scratch,
        bytes: u64,
        takers: &Takers<'_>,
    ) {
        let before = self.workspaces[worker as usize].window_bytes.swap(bytes, Ordering::Relaxed);
        if bytes < before {
            *scratch = Scratch::default();
        }
        if bytes != before {
            self.balance(takers);
        }
        scratch.windows.bytes = bytes;
    }

    /// Gives the memory of a worker to the caches when it had no step for a while.
    pub(crate) fn rest(&self, worker: Worker, view: &CurrentView) {
        let workspace = &self.workspaces[worker as usize];
        let worked = Nanos(workspace.worked_ns.load(Ordering::Relaxed));
        if workspace.window_bytes() == 0 || self.clock.now().since(worked) < REST {
            return;
        }
        let mut scratch = workspace.scratch.lock();
        *scratch = Scratch::default();
        view.load().active.release_kept();
        release_unused();
        workspace.window_bytes.store(0, Ordering::Relaxed);
    }

    /// Notes that a step of a worker has ended.
    pub(crate) fn worked(&self, worker: Worker) {
        self.workspaces[worker as usize].worked_ns.store(self.clock.now().0, Ordering::Relaxed);
    }

    /// Lets go of the reader of a spill that does not come: it holds on to blocks.
    pub(crate) fn forget_ahead(&self, view: &View) {
        let ahead = &mut self.workspaces[Worker::First as usize].scratch.lock().ahead;
        let comes = |reader: &mut InputReader| {
            let (kvs, inputs) = reader.inputs();
            let root = view.tree(kvs).map_or(&[][..], |tree| &tree.root);
            inputs.iter().all(|input| root.iter().any(|kvset| Arc::ptr_eq(kvset, input)))
        };
        *ahead = ahead.take_if(comes);
    }

    /// Divides the rest of the budget beside the fixed parts: key pages first, up to nine tenths of it,
    /// then cached records.
    pub(crate) fn balance(&self, takers: &Takers<'_>) {
        let (parts, pinned) = self.fixed_bytes(takers);
        let rest = self.memory_bytes.saturating_sub(parts + pinned);
        let limit = rest / 10 * 9;
        self.pages.set_limit(limit);
        let pages = if self.is_read_only {
            // Nobody divides it again when pages have come.
            let view = takers.view.load();
            let kvsets = view.trees.values().flat_map(|tree| tree.kvsets());
            let pages = kvsets.map(|kvset| u64::from(kvset.edit.pages)).sum::<u64>();
            limit.min(pages * PAGE_DRAM)
        } else {
            self.pages.resident_bytes()
        };
        takers.values.cache.set_capacity(rest.saturating_sub(pages));
    }

    /// Lets go of the caches of a KVDB that was closed.
    pub(crate) fn free(&self, values: &Values) {
        self.pages.set_limit(0);
        values.cache.set_capacity(0);
        release_unused();
    }
}
