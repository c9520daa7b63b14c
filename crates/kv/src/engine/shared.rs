//! The state that the handles and threads of an open KVDB share: parts, and what spans them. ARCHITECTURE.md has the order
//! of their locks.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use esker_base::thread::said;
use esker_base::units::to_usize;

use crate::compaction::reader::GatherContext;
use crate::engine::budget::{Budget, Takers};
use crate::engine::counters::Counters;
use crate::engine::fences::Fences;
use crate::engine::life::Life;
use crate::engine::pacer::Pacer;
use crate::engine::readers::{ReaderStats, Readers};
use crate::engine::remarks::Remarks;
use crate::engine::reserve::ReserveNeed;
use crate::engine::scheduler::Scheduler;
use crate::engine::transactions::Transactions;
use crate::log::open::Log;
use crate::log::tail::LogTail;
use crate::manifest::writer::Manifest;
use crate::media::classes::Classes;
use crate::media::writes::Writes;
use crate::omf::manifest::Edit;
use crate::sync::Mutex;
use crate::tree::current::CurrentView;
use crate::tree::dead_ranges::DeadRanges;
use crate::tree::kvset::builder::BuilderContext;
use crate::tree::page_cache::PageCache;
use crate::tree::view::View;
use crate::types::error::{KvError, Result};
use crate::types::expiry::WallClock;
use crate::types::format::FormatVersion;
use crate::types::ids::{Ids, KvsId, LeafId};
use crate::types::options::{Options, Tuning};
use crate::types::remark::RemarkLevel;
use crate::values::block::Values;

/// Everything that the handles and threads of a KVDB share.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) life: Life,
    pub(crate) tuning: Tuning,
    pub(crate) classes: Arc<Classes>,
    pub(crate) manifest: Manifest,
    pub(crate) ids: Ids,
    pub(crate) values: Values,
    pub(crate) wall_clock: WallClock,
    pub(crate) view: CurrentView,
    pub(crate) log: Log,
    /// Ranges of keys in which walks have found nothing. A put takes its key out of them, under the writer's lock.
    pub(crate) dead_ranges: DeadRanges,
    /// Guards the names and options of KVSs, and which classes there are.
    pub(crate) naming: Mutex<()>,
    /// Where maintenance has found damage.
    pub(crate) fences: Fences,
    pub(crate) transactions: Transactions,
    pub(crate) readers: Readers,
    pub(crate) remarks: Remarks,
    pub(crate) pacer: Pacer,
    pub(crate) budget: Budget,
    pub(crate) reserve: ReserveNeed,
    pub(crate) scheduler: Scheduler,
    pub(crate) counters: Counters,
}

/// Parts that opening a KVDB yields, to make an engine of.
pub(crate) struct Parts {
    pub(crate) classes: Classes,
    pub(crate) manifest: Manifest,
    pub(crate) ids: Ids,
    pub(crate) log: LogTail,
    pub(crate) view: View,
    pub(crate) pages: Arc<PageCache>,
}

impl Engine {
    pub(crate) fn new(options: Options, parts: Parts) -> Engine {
        let Parts { classes, manifest, ids, log, view, pages } = parts;
        let classes = Arc::new(classes);
        let engine = Engine {
            life: Life::new(&options),
            tuning: options.tuning(),
            manifest,
            ids,
            values: Values::new(options.memory_bytes),
            wall_clock: WallClock::new(&options.clock),
            view: CurrentView::new(view),
            log: Log::new(log, &options),
            dead_ranges: DeadRanges::new(
                to_usize(options.memory_bytes / 2048).min(256 << 10),
                (options.tuning().memtable_bytes / 4096).clamp(2, 16),
            ),
            naming: Mutex::new(()),
            fences: Fences::default(),
            transactions: Transactions::default(),
            readers: Readers::new(options.clock.clone()),
            remarks: Remarks::new(&options),
            pacer: Pacer::new(&options, classes.clone()),
            budget: Budget::new(&options, classes.clone(), pages),
            reserve: ReserveNeed::new(classes.clone(), options.tuning()),
            scheduler: Scheduler::new(&options),
            counters: Counters::default(),
            classes,
            options,
        };
        engine.balance_memory();
        engine
    }

    pub(crate) fn builder_context<'a>(&'a self, writes: &'a Writes) -> BuilderContext<'a> {
        let cache = self.budget.pages();
        BuilderContext { classes: &self.classes, cache, tuning: &self.tuning, writes }
    }

    /// The parts of the engine that a compaction gathers records with.
    pub(crate) fn gather_context(&self) -> GatherContext<'_> {
        GatherContext {
            cache: &self.values.cache,
            miss_rate: self.budget.miss_rate(),
            wall_clock: &self.wall_clock,
            read_size: self.budget.gather_read_size(),
        }
    }

    // ---- what spans parts --------------------------------------------------------------------

    /// The takers of memory beside the budget's own parts.
    pub(crate) fn takers(&self) -> Takers<'_> {
        Takers {
            view: &self.view,
            values: &self.values,
            ingested_bytes: self.scheduler.ingested_bytes(),
            history_bytes: self.transactions.history_bytes(),
            is_quiet: self.pacer.is_quiet(),
        }
    }

    /// Divides the memory budget anew.
    pub(crate) fn balance_memory(&self) {
        self.budget.balance(&self.takers());
    }

    /// The readers that are open, with what they keep.
    pub(crate) fn reader_stats(&self, pinned_bytes: u64) -> ReaderStats {
        self.readers.stats(&self.transactions, (pinned_bytes, self.scheduler.ingested_bytes()))
    }

    /// The remark about readers that keep much space for long.
    pub(crate) fn readers_remark(&self) -> Option<String> {
        self.reader_stats(self.view.pinned_bytes(&self.log).iter().sum()).remark()
    }

    /// Tells remarks that are new, if somebody wants them and some time has passed.
    pub(crate) fn tell_in_time(&self) {
        if self.remarks.is_due() {
            self.tell_remarks(Vec::new());
        }
    }

    /// Tells remarks that are new, and those of the opening that the engine does not know.
    pub(crate) fn tell_remarks(&self, opening: Vec<String>) {
        if !self.remarks.is_wanted() {
            return;
        }
        let stopped = self.life.stopped().filter(|cause| !matches!(***cause, KvError::Exiting));
        let warnings = opening.into_iter().chain(self.classes.remarks());
        let errors = self.fences.damages(&self.view).into_iter();
        let errors = errors.chain(stopped.map(|cause| KvError::since(cause).to_string()));
        let all = warnings
            .map(|remark| (RemarkLevel::Warning, remark))
            .chain(errors.map(|remark| (RemarkLevel::Error, remark)));
        self.remarks.tell(all, self.readers_remark());
    }

    /// Fences the nodes of kvsets whose metas are damaged.
    pub(crate) fn fence_unreadable(&self) {
        for tree in self.view.load_full().trees.values() {
            for kvset in tree.kvsets() {
                if let Some(damage) = kvset.damage() {
                    self.fence(tree.kvs, BTreeSet::from([kvset.edit.leaf]), damage);
                }
            }
        }
    }

    /// Fences nodes of which keys are damaged.
    pub(crate) fn fence(&self, kvs: KvsId, nodes: BTreeSet<LeafId>, cause: &KvError) {
        self.fences.add_keys(kvs, &nodes, cause);
        let has_root = nodes.contains(&LeafId::ROOT);
        self.scheduler.keep_nodes(kvs, nodes);
        if has_root {
            self.view.publish_tree(kvs, |tree| tree.is_fenced = true);
        }
    }

    // ---- panics ------------------------------------------------------------------------------

    /// Does `work`; a panic of it stops the KVDB and is the error.
    pub(crate) fn caught<T>(&self, task: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let error = KvError::Panicked { task: task.to_owned(), message: said(&*panic) };
            self.stop(&error);
            Err(error)
        })
    }

    // ---- stopping ----------------------------------------------------------------------------

    /// Refuses writes from now on: the media may differ from the state that the engine believes. Writes acknowledged
    /// before become durable all the same, as long as the log can be written.
    pub(crate) fn stop(&self, cause: &KvError) {
        self.classes.keep_all();
        self.life.note_stop(cause);
        self.log.wake_all();
        self.scheduler.notify();
    }

    /// Refuses to go on with a step that nobody wants any more.
    pub(crate) fn check_wanted(&self, asked: bool) -> Result<()> {
        if asked && self.scheduler.manual.is_cancelled() {
            return Err(KvError::Cancelled);
        }
        self.life.check_open()
    }

    /// Passes a result through, and stops the engine at an error that is not just lack of space:
    /// a step that found no room has changed nothing.
    pub(crate) fn fail_stop<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && !error.lacks_space()
            && !matches!(
                error,
                KvError::Closed
                    | KvError::Cancelled
                    | KvError::Dropped(_)
                    | KvError::Stopped { .. }
            )
        {
            self.stop(error);
        }
        result
    }

    /// Commits edits to the manifest. Any failure stops the engine: nobody knows the manifest's content now.
    pub(crate) fn commit(&self, edits: Vec<Edit>) -> Result<()> {
        self.write_manifest(|manifest| manifest.commit(edits))
    }

    /// Has the KVDB be of this version of the format at least, durably: what needs it may be written then.
    pub(crate) fn require(&self, version: FormatVersion) -> Result<()> {
        if version == FormatVersion::V1 || self.manifest.is_newest() {
            return Ok(());
        }
        self.upgrade(version).map(drop)
    }

    /// The same; false where it had that version before.
    pub(crate) fn upgrade(&self, version: FormatVersion) -> Result<bool> {
        self.life.check_owner()?;
        self.life.check_running()?;
        let mut upgraded = false;
        self.write_manifest(|manifest| {
            upgraded = manifest.upgrade(version)?;
            Ok(())
        })?;
        Ok(upgraded)
    }

    /// Writes to the manifest, as a commit does.
    pub(crate) fn write_manifest(&self, write: impl FnOnce(&Manifest) -> Result<()>) -> Result<()> {
        match self.caught("a commit to the manifest", || write(&self.manifest)) {
            // Nothing was written: the change has not happened.
            Err(full @ KvError::ManifestFull { .. }) => Err(full),
            written => self.stop_at_any(written),
        }
    }

    pub(crate) fn stop_at_any<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.stop(error);
        }
        result
    }
}
