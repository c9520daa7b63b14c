//! The state that the handles and threads of an open KVDB share.
//!
//! Locks, in the order in which they may be taken: `naming`, `compacting`, `helping`, `ingesting`, `scratch`, `claims`,
//! `flushing`, `writer`, that of `transactions`, `publishing`. The last two are never held during I/O.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use esker_base::thread::said;
use esker_base::units::to_usize;

use crate::compaction::miss_rate::MissRate;
use crate::compaction::scratch::Workspace;
use crate::engine::backoff::Backoff;
use crate::engine::claims::Claims;
use crate::engine::counters::Counters;
use crate::engine::fences::Fences;
use crate::engine::life::Life;
use crate::engine::manual::ManualCompaction;
use crate::engine::readers::Readers;
use crate::engine::transactions::Transactions;
use crate::engine::workers::{Trial, Worker};
use crate::engine::write_controller::WriteController;
use crate::log::open::Log;
use crate::log::tail::LogTail;
use crate::manifest::writer::Manifest;
use crate::media::classes::Classes;
use crate::media::writes::Writes;
use crate::omf::manifest::Edit;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::tree::current::CurrentView;
use crate::tree::dead_ranges::DeadRanges;
use crate::tree::kvset::builder::BuilderContext;
use crate::tree::page_cache::PageCache;
use crate::tree::view::{Table, View};
use crate::types::error::{KvError, Result};
use crate::types::expiry::WallClock;
use crate::types::format::FormatVersion;
use crate::types::ids::Ids;
use crate::types::options::{Options, Tuning};
use crate::types::remark::Told;
use crate::values::block::Values;

/// Everything that the handles and threads of a KVDB share.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) life: Life,
    pub(crate) tuning: Tuning,
    pub(crate) classes: Classes,
    pub(crate) manifest: Manifest,
    pub(crate) ids: Ids,
    pub(crate) pages: Arc<PageCache>,
    pub(crate) values: Values,
    pub(crate) wall_clock: WallClock,
    pub(crate) view: CurrentView,
    pub(crate) log: Log,
    /// Ranges of keys in which walks have found nothing. A put takes its key out of them, under the writer's lock.
    pub(crate) dead_ranges: DeadRanges,
    /// Guards the names and options of KVSs, and which classes there are.
    pub(crate) naming: Mutex<()>,
    /// Tables that were ingested, as long as somebody may read them: freeing one takes longer than a
    /// put or a get may, so it is for the lane to do.
    pub(crate) ingesting: Mutex<Vec<Table>>,
    /// Bytes of these tables.
    pub(crate) ingested_bytes: AtomicU64,
    /// The most bytes of log that waited to be ingested so far: the reserve is to bear as much.
    pub(crate) most_to_ingest: AtomicU64,
    /// Held by the first worker of the second lane during a step.
    pub(crate) compacting: Mutex<()>,
    /// Held by the helper during a step.
    pub(crate) helping: Mutex<()>,
    /// The nodes that the steps of both work on.
    pub(crate) claims: Mutex<Claims>,
    pub(crate) workspaces: [Workspace; Worker::ALL.len()],
    pub(crate) trial: Trial,
    /// When the first worker last found nothing to do, in nanoseconds of the clock.
    pub(crate) paused_ns: AtomicU64,
    /// Steps of that lane that need not be tried now.
    pub(crate) backoff: Mutex<Backoff>,
    /// Where maintenance has found damage.
    pub(crate) fences: Fences,
    pub(crate) miss_rate: MissRate,
    pub(crate) transactions: Transactions,
    pub(crate) readers: Readers,
    pub(crate) told: Mutex<Told>,
    pub(crate) manual: ManualCompaction,
    pub(crate) write_controller: WriteController,
    pub(crate) work: Work,
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

/// Wakes maintenance threads.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) generation: Mutex<u64>,
    pub(crate) changed: Condvar,
}

impl Work {
    pub(crate) fn notify(&self) {
        *self.generation.lock() += 1;
        self.changed.notify_all();
    }
}

impl Engine {
    pub(crate) fn new(options: Options, parts: Parts) -> Engine {
        let Parts { classes, manifest, ids, log, view, pages } = parts;
        let engine = Engine {
            life: Life::new(&options),
            tuning: options.tuning(),
            classes,
            manifest,
            ids,
            pages,
            values: Values::new(options.memory_bytes),
            wall_clock: WallClock::new(&options.clock),
            view: CurrentView::new(view),
            log: Log::new(log, &options),
            dead_ranges: DeadRanges::new(
                to_usize(options.memory_bytes / 2048).min(256 << 10),
                (options.tuning().memtable_bytes / 4096).clamp(2, 16),
            ),
            naming: Mutex::new(()),
            ingesting: Mutex::default(),
            ingested_bytes: AtomicU64::new(0),
            most_to_ingest: AtomicU64::new(0),
            compacting: Mutex::new(()),
            helping: Mutex::new(()),
            claims: Mutex::default(),
            workspaces: Default::default(),
            trial: Trial::default(),
            paused_ns: AtomicU64::new(0),
            backoff: Mutex::default(),
            fences: Fences::default(),
            miss_rate: MissRate::default(),
            transactions: Transactions::default(),
            readers: Readers::default(),
            told: Mutex::default(),
            manual: ManualCompaction::default(),
            write_controller: WriteController::default(),
            work: Work::default(),
            counters: Counters::default(),
            options,
        };
        engine.balance_memory();
        engine
    }

    pub(crate) fn builder_context<'a>(&'a self, writes: &'a Writes) -> BuilderContext<'a> {
        BuilderContext { classes: &self.classes, cache: &self.pages, tuning: &self.tuning, writes }
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
        self.work.notify();
    }

    /// Refuses to go on with a step that nobody wants any more.
    pub(crate) fn check_wanted(&self, asked: bool) -> Result<()> {
        if asked && self.manual.cancelled.load(Ordering::Acquire) {
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
