//! The engine: what the threads of a KVDB share, and the steps in which its structure changes.
//!
//! Locks, in the order in which they may be taken: `naming`, `compacting`, `ingesting`, `scratch`,
//! `flushing`, `writer`, that of `transactions`, `publishing`. The last two are never held during I/O.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use esker_base::Nanos;
use esker_base::memory::release_unused;
use esker_base::units::to_usize;

use crate::compact::{READS, Scratch};
use crate::error::{KvError, Result};
use crate::expiry::WallClock;
use crate::futile::Futile;
use crate::ids::Ids;
use crate::kvset::Kvset;
use crate::kvset::builder::Shop;
use crate::log::{LogTail, new_segment};
use crate::manifest::Manifest;
use crate::manual::Manual;
use crate::media::{Classes, Purpose, Writes};
use crate::omf::manifest::{Edit, KvsetEdit};
use crate::options::{Maintenance, Options};
use crate::pace::Pace;
use crate::page_cache::{PAGE_DRAM, PageCache};
use crate::stats::Counters;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{ArcSwap, Condvar, Mutex, MutexGuard};
use crate::transaction::Transactions;
use crate::value::{ValueBlock, Values};
use crate::view::{Pinned, Table, Tree, View};
use crate::{Tuning, VALUE_MAX};

/// Everything that the handles and threads of a KVDB share.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) classes: Classes,
    pub(crate) manifest: Manifest,
    pub(crate) ids: Ids,
    pub(crate) pages: Arc<PageCache>,
    pub(crate) values: Values,
    pub(crate) wall_clock: WallClock,
    pub(crate) view: ArcSwap<View>,
    /// The end of the log. Whoever holds it is the writer.
    pub(crate) writer: Mutex<LogTail>,
    /// How many have waited long for that lock, and still do.
    pub(crate) waiting_long: AtomicU64,
    /// Signalled when writers may go on, and when the log has something to flush.
    pub(crate) room: Condvar,
    pub(crate) pending: Condvar,
    /// Signalled when a segment is to be opened ahead of need.
    pub(crate) opening: Condvar,
    /// The log segment in which the manifest lets replay begin: it must stay even when nothing
    /// refers to its records any more.
    pub(crate) replay_from: Mutex<Arc<ValueBlock>>,
    /// Every record up to this seqno may be read.
    pub(crate) visible: AtomicU64,
    /// Every record up to this seqno is durable.
    pub(crate) durable: AtomicU64,
    /// Held by who flushes the log. Why that failed: then nobody knows what of it is durable, and it is not
    /// tried again.
    pub(crate) flushing: Mutex<Option<Arc<KvError>>>,
    /// Guards the names and options of KVSs, and which classes there are.
    pub(crate) naming: Mutex<()>,
    /// Tables that were ingested, as long as somebody may read them: freeing one takes longer than a
    /// put or a get may, so it is for the lane to do.
    pub(crate) ingesting: Mutex<Vec<Table>>,
    pub(crate) compacting: Mutex<()>,
    /// Steps of that lane that need not be tried now.
    pub(crate) futile: Mutex<Futile>,
    publishing: Mutex<()>,
    /// The memory of the compaction under way.
    scratch: Mutex<Scratch>,
    /// Whether `scratch` is empty, and its memory the caches'.
    resting: AtomicBool,
    /// When the last step of the second lane ended, in nanoseconds of the clock.
    pub(crate) worked_ns: AtomicU64,
    pub(crate) transactions: Transactions,
    pub(crate) manual: Manual,
    pub(crate) pace: Pace,
    stopped: OnceLock<Arc<KvError>>,
    pub(crate) closing: AtomicBool,
    pub(crate) work: Work,
    pub(crate) counters: Counters,
}

/// What opening a KVDB yields, to make an engine of.
pub(crate) struct Parts {
    pub(crate) classes: Classes,
    pub(crate) manifest: Manifest,
    pub(crate) ids: Ids,
    pub(crate) log: LogTail,
    pub(crate) view: View,
    pub(crate) pages: Arc<PageCache>,
}

/// How long there was no compaction when its memory goes to the caches: longer than the pauses between
/// those of a steady load.
const REST: Duration = Duration::from_secs(2);

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
        let last_seqno = log.last_seqno();
        let engine = Engine {
            tuning: options.tuning(),
            classes,
            manifest,
            ids,
            pages,
            values: Values::new(options.memory_bytes),
            wall_clock: WallClock::new(&options.clock),
            view: ArcSwap::from_pointee(view),
            replay_from: Mutex::new(log.segment().clone()),
            writer: Mutex::new(log),
            waiting_long: AtomicU64::new(0),
            room: Condvar::new(),
            pending: Condvar::new(),
            opening: Condvar::new(),
            visible: AtomicU64::new(last_seqno),
            durable: AtomicU64::new(last_seqno),
            flushing: Mutex::default(),
            naming: Mutex::new(()),
            ingesting: Mutex::default(),
            compacting: Mutex::new(()),
            futile: Mutex::default(),
            publishing: Mutex::new(()),
            scratch: Mutex::default(),
            resting: AtomicBool::new(true),
            worked_ns: AtomicU64::new(0),
            transactions: Transactions::default(),
            manual: Manual::default(),
            pace: Pace::default(),
            stopped: OnceLock::new(),
            closing: AtomicBool::new(false),
            work: Work::default(),
            counters: Counters::default(),
            options,
        };
        engine.balance_memory();
        engine
    }

    pub(crate) fn shop<'a>(&'a self, writes: &'a Writes) -> Shop<'a> {
        Shop { classes: &self.classes, cache: &self.pages, tuning: &self.tuning, writes }
    }

    /// The size of the reads that gather values, in bytes; [`READS`] are in flight at a time.
    pub(crate) fn gather_read_size(&self) -> usize {
        let sizes = self.classes.all().into_iter().map(|media| media.transfer_size);
        let largest = sizes.min().expect("a KVDB has a capacity class");
        largest.min(to_usize(self.tuning.gather_bytes / 8).max(64 << 10))
    }

    // ---- stopping ----------------------------------------------------------------------------

    /// Refuses writes from now on: what is on the media may not be what the engine believes. What was
    /// acknowledged before becomes durable all the same, as long as the log can be written.
    pub(crate) fn stop(&self, cause: &KvError) {
        self.classes.keep_all();
        let _ = self.stopped.set(Arc::new(cause.clone()));
        self.pending.notify_all();
        self.opening.notify_all();
        self.room.notify_all();
        self.work.notify();
    }

    pub(crate) fn stopped(&self) -> Option<&Arc<KvError>> {
        self.stopped.get()
    }

    /// Refuses to write when the KVDB is stopped, closed, or was opened to be read.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.options.read_only {
            return Err(KvError::ReadOnly);
        }
        self.check_open()?;
        self.stopped.get().map_or(Ok(()), |cause| Err(KvError::Stopped { cause: cause.clone() }))
    }

    /// Refuses whatever needs the devices when the KVDB is closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) { Err(KvError::Closed) } else { Ok(()) }
    }

    /// Passes the result of a read through; when the KVDB has closed meanwhile, that is why it failed.
    pub(crate) fn if_open<T>(&self, result: Result<T>) -> Result<T> {
        result.or_else(|error| self.check_open().and(Err(error)))
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

    /// Commits edits to the manifest. Any failure stops the engine: nobody knows what is there now.
    pub(crate) fn commit(&self, edits: Vec<Edit>) -> Result<()> {
        self.stop_at_any(self.manifest.commit(edits))
    }

    // ---- reading -----------------------------------------------------------------------------

    /// A view and the seqno up to which it may be read, consistent with each other.
    pub(crate) fn snapshot(&self) -> (Arc<View>, u64) {
        loop {
            let view = self.view.load_full();
            let seqno = self.visible.load(Ordering::Acquire);
            // Writes up to `seqno` went to this view's memtable unless it was rotated meanwhile.
            if Arc::ptr_eq(&view, &self.view.load()) {
                return (view, seqno);
            }
        }
    }

    // ---- changing the structure ----------------------------------------------------------------

    /// Publishes the view that `change` makes of the current one.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut View)) {
        let _publishing = self.publishing.lock();
        let mut view = View::clone(&self.view.load());
        change(&mut view);
        self.view.store(Arc::new(view));
    }

    /// Publishes a changed tree of one KVS; nothing when the KVS was dropped meanwhile.
    pub(crate) fn publish_tree(&self, kvs: u32, change: impl FnOnce(&mut Tree)) {
        self.publish(|view| {
            if let Some(tree) = view.tree(kvs) {
                let mut tree = Tree::clone(tree);
                change(&mut tree);
                view.put_tree(tree);
            }
        });
    }

    /// The edits that add new blocks and the kvsets which refer to them.
    pub(crate) fn additions(blocks: &[Arc<ValueBlock>], kvsets: &[Arc<Kvset>]) -> Vec<Edit> {
        let blocks = blocks.iter().map(|block| Edit::Block {
            id: block.id,
            extent: *block.extent(),
            log: false,
            bytes: block.bytes,
            plain_bytes: block.plain_bytes,
        });
        let kvsets = kvsets.iter().map(|kvset| Edit::Kvset(KvsetEdit::clone(&kvset.edit)));
        blocks.chain(kvsets).collect()
    }

    // ---- the durability log --------------------------------------------------------------------

    /// Makes every record up to `seqno` durable, together with what others have appended since.
    pub(crate) fn flush_through(&self, seqno: u64) -> Result<()> {
        let mut leader = self.flushing.lock();
        let durable = self.durable.load(Ordering::Acquire);
        if durable >= seqno {
            return Ok(());
        }
        if let Some(cause) = &*leader {
            return Err(KvError::Stopped { cause: cause.clone() });
        }
        let mut flight = self.lock_in_turn().take_flight(durable);
        let flown = self.stop_at_any(flight.fly());
        *leader = flown.as_ref().err().cloned().map(Arc::new);
        let buffers = flown?;
        self.durable.store(flight.through, Ordering::Release);
        self.counters.log_flushes.add(1);
        let begins = {
            let mut writer = self.lock_in_turn();
            writer.landed(&flight, buffers);
            self.stopped().is_none() && writer.begin_opening()
        };
        drop(leader);
        self.room.notify_all();
        if begins {
            match self.options.maintenance {
                // That may wait for discards and for the manifest, and what is acknowledged meanwhile for a flush.
                Maintenance::Threads => drop(self.opening.notify_one()),
                Maintenance::Manual => self.open_ahead(&mut self.writer.lock()),
            }
        }
        Ok(())
    }

    /// Opens the segment that the log needs next. A failure here is met again, and reported, by the write that
    /// needs the segment.
    pub(crate) fn open_ahead(&self, log: &mut MutexGuard<'_, LogTail>) {
        let size = to_usize(self.tuning.frame_bytes);
        let segment = MutexGuard::unlocked(log, || self.open_segment(Purpose::User, size));
        log.opened(segment.ok());
        self.room.notify_all();
    }

    fn stop_at_any<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.stop(error);
        }
        result
    }

    pub(crate) fn open_segment(&self, purpose: Purpose, size: usize) -> Result<Arc<ValueBlock>> {
        let (segment, edit) = new_segment(&self.classes, &self.ids, &self.tuning, purpose, size)?;
        self.commit(vec![edit])?;
        Ok(segment)
    }

    // ---- memory ----------------------------------------------------------------------------------

    /// DRAM that is not caches: memtables at their largest, log buffers, the window of maintenance unless
    /// that rests; and the filters, indexes and structures there are.
    fn fixed_bytes(&self) -> (u64, u64) {
        let tuning = &self.tuning;
        let log = self.options.durability_limit() + 4 * tuning.frame_bytes;
        let view = self.view.load();
        let Pinned { filters, indexes, structures } = view.pinned();
        // While there is much to ingest, the next memtable fills up meanwhile.
        let is_quiet = self.pace.is_quiet(self.options.clock.now());
        let expected = tuning.memtable_bytes * if is_quiet { 1 } else { 2 };
        let memtables = view.memtable_bytes().max(expected);
        let parts = memtables + self.window_bytes() + log + self.transactions.history_bytes();
        // Code, stacks, queue pairs, the manifest's state, and what the allocator cannot give back; while
        // there are compactions also what they build.
        let budget = self.options.memory_bytes;
        let share = if self.resting.load(Ordering::Relaxed) { 32 } else { 10 };
        let process = budget / share + (budget / 8).min(8 << 20);
        (parts + process, filters + indexes + structures)
    }

    /// What compactions may take beside their output.
    fn window_bytes(&self) -> u64 {
        if self.resting.load(Ordering::Relaxed) {
            return 0;
        }
        let reads = (READS * self.gather_read_size()) as u64;
        self.tuning.gather_bytes + VALUE_MAX as u64 + reads
    }

    /// The memory of compactions, for one that begins: counted before it is taken.
    pub(crate) fn scratch(&self) -> MutexGuard<'_, Scratch> {
        let scratch = self.scratch.lock();
        if self.resting.swap(false, Ordering::Relaxed) {
            self.balance_memory();
        }
        scratch
    }

    /// Gives the memory of compactions to the caches when none was due for a while.
    pub(crate) fn rest(&self) {
        let worked = Nanos(self.worked_ns.load(Ordering::Relaxed));
        if self.resting.load(Ordering::Relaxed) || self.options.clock.now().since(worked) < REST {
            return;
        }
        let mut scratch = self.scratch.lock();
        *scratch = Scratch::default();
        self.view.load().active.release_kept();
        release_unused();
        self.resting.store(true, Ordering::Relaxed);
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
        // What cannot be read is an error for who needs it.
        let loaded = roots.chain(leaves).any(|kvset| kvset.preload().unwrap_or(true));
        if loaded {
            self.balance_memory();
        }
        loaded
    }

    /// Divides what the fixed parts leave of the budget: key pages first, up to nine tenths of it,
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
