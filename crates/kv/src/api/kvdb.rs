//! A KVDB: creating, opening, closing it, and operations on all of its KVSs.

use std::fmt;
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::Progress;
use esker_base::process::AtExit;
use esker_base::progress::{Meter, Unit};
use esker_device::Device;

use crate::api::batch::Batch;
use crate::api::creation;
use crate::api::kvs::{Kvs, check_ttl};
use crate::api::location::{self, Medium};
use crate::api::snapshot::Snapshot;
use crate::api::stats::Stats;
use crate::api::transaction::Transaction;
use crate::engine::shared::Engine;
use crate::maintain::manual;
use crate::maintain::manual::{CompactRequest, CompactStatus};
use crate::maintain::steps;
use crate::maintain::threads;
use crate::media::class::Media;
use crate::omf::manifest::Edit;
use crate::recover::check::{CheckReport, check};
use crate::recover::devices::Devices;
use crate::recover::kept;
use crate::recover::open;
use crate::sync::{JoinHandle, Mutex};
use crate::tree::view::Tree;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::format::FormatVersion;
use crate::types::ids::{Ids, KvsId, LeafId};
use crate::types::limits::KVS_NAME_MAX;
use crate::types::options::{Maintenance, Options, WriteOptions};
use crate::types::policy::KvsOptions;

/// An open KVDB: a handle, cheap to clone, used from any thread. [`Kvdb::close`] closes it, or the drop of the last
/// clone; then all writes are made durable as far as the devices allow, and errors are lost: prefer `close`.
///
/// Either way it lets go of its devices, and handles that are still there (each clone, [`Kvs`], [`Snapshot`],
/// [`Transaction`] and [`Cursor`](crate::Cursor)) answer `Closed` from then on. A read that is under way on another
/// thread ends first, or is answered `Closed`.
#[derive(Clone)]
pub struct Kvdb {
    pub(crate) engine: Arc<Engine>,
    opened: Arc<OpenKvdb>,
}

/// An open KVDB as long as any handle of it is there.
struct OpenKvdb {
    engine: Arc<Engine>,
    dir: Option<PathBuf>,
    manifest: Mutex<Option<Arc<dyn Device>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The result of closing it, once that has begun.
    closed: Mutex<Option<Result<()>>>,
    _at_exit: Option<AtExit>,
}

impl fmt::Debug for Kvdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvdb").field("dir", &self.opened.dir).finish_non_exhaustive()
    }
}

impl Kvdb {
    pub(crate) fn start(devices: Devices, dir: Option<&Path>, options: Options) -> Result<Kvdb> {
        let threads = options.maintenance == Maintenance::Threads && !options.read_only;
        let Some((engine, left)) = open::open(&devices, dir, options)? else {
            let path = dir.map_or_else(|| devices.manifest.name().into(), Path::to_owned);
            return Err(KvError::NotAKvdb { path, why: "the manifest is empty".into() });
        };
        let _at_exit = engine.flush_at_exit();
        let opened = OpenKvdb {
            engine: engine.clone(),
            dir: dir.map(Path::to_owned),
            manifest: Mutex::new(Some(devices.manifest.clone())),
            threads: Mutex::new(Vec::new()),
            closed: Mutex::new(None),
            _at_exit,
        };
        let db = Kvdb { engine, opened: Arc::new(opened) };
        if threads {
            let started = threads::start_threads(&db.engine).map_err(|error| {
                KvError::Options(format!("the maintenance threads could not be started: {error}"))
            })?;
            *db.opened.threads.lock() = started;
        }
        if let Some(dir) = dir
            && !db.engine.options.read_only
        {
            kept::take_up(&db.engine, dir, left.as_ref())?;
            creation::end_left(dir);
        }
        db.engine.tell_remarks(devices.manifest.remarks());
        Ok(db)
    }

    pub(crate) fn check_observed(
        devices: &Devices,
        on_progress: impl FnMut(&Progress) -> ControlFlow<()> + Send,
    ) -> Result<CheckReport> {
        let mut meter = Meter::new(on_progress, "checking", None, Unit::Bytes);
        check(devices, &mut meter)?.ok_or_else(|| KvError::NotAKvdb {
            path: devices.manifest.name().into(),
            why: "the manifest is empty".into(),
        })
    }

    // ---- KVSs ------------------------------------------------------------------------------------

    /// Whether a KVS may have this name.
    ///
    /// # Errors
    /// `Invalid` for a name that is not 1 to 255 letters, digits, `-`, `_` or `.`.
    pub fn check_kvs_name(name: &str) -> Result<()> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_fine = (1..=KVS_NAME_MAX).contains(&name.len()) && name.chars().all(fine);
        if is_fine { Ok(()) } else { Err(KvError::KvsName(name.into())) }
    }

    /// Creates a KVS, with options or just with a [`Policy`](crate::Policy).
    ///
    /// # Errors
    /// `Exists` when there is one of this name; `Invalid` as [`Kvdb::check_kvs_name`] says, and when there are as many
    /// as [`Options::kvs_limit`] says.
    pub fn create_kvs(&self, name: &str, options: impl Into<KvsOptions>) -> Result<Kvs> {
        let options = options.into();
        Kvdb::check_kvs_name(name)?;
        check_ttl(options.ttl_ms)?;
        options.compression.check(name)?;
        self.engine.life.check_owner()?;
        let _naming = self.engine.naming.lock();
        self.engine.life.check_running()?;
        if self.find(name).is_some() {
            return Err(KvError::KvsExists(name.into()));
        }
        self.engine.options.check_kvss(self.engine.view.load().trees.len() + 1)?;
        let (id, leaf): (_, LeafId) = (self.new_kvs_id(), self.engine.ids.next());
        let edits = vec![
            Edit::LastId { id: leaf.0 },
            Edit::Kvs { id, name: name.into(), options },
            Edit::Leaf { id: leaf, kvs: id, lower: Vec::new() },
        ];
        self.engine.commit(edits)?;
        self.engine.view.publish(|view| view.put_tree(Tree::new(id, name, options, leaf)));
        self.kvs(name)
    }

    /// The lower half of an id. It comes again after four billion ids, when no log holds it any more.
    fn new_kvs_id(&self) -> KvsId {
        let taken = |id| id == KvsId(0) || self.engine.view.load().trees.contains_key(&id);
        let mut ids = std::iter::repeat_with(|| KvsId(Ids::count_of(self.engine.ids.next())));
        ids.find(|id| !taken(*id)).expect("there are fewer than 2^32 KVSs")
    }

    /// The KVS of this name, which is created, with these options, where there is none. One that is there keeps its own,
    /// which [`Kvs::set_policy`], [`Kvs::set_compression`] and [`Kvs::set_ttl_ms`] change.
    ///
    /// # Errors
    /// As [`Kvdb::create_kvs`].
    pub fn kvs_or_create(&self, name: &str, options: impl Into<KvsOptions>) -> Result<Kvs> {
        let options = options.into();
        loop {
            if let Some(kvs) = self.find_kvs(name)? {
                return Ok(kvs);
            }
            match self.create_kvs(name, options) {
                // Somebody else was faster, and may drop it again.
                Err(KvError::KvsExists(_)) => {}
                created => return created,
            }
        }
    }

    /// The KVS of this name, if there is one.
    ///
    /// # Errors
    /// `Closed` when the KVDB is closed.
    pub fn find_kvs(&self, name: &str) -> Result<Option<Kvs>> {
        self.engine.life.check_open()?;
        Ok(self.find(name))
    }

    /// The KVS of this name.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Closed` when the KVDB is closed.
    pub fn kvs(&self, name: &str) -> Result<Kvs> {
        self.find_kvs(name)?.ok_or_else(|| KvError::UnknownKvs(name.into()))
    }

    fn find(&self, name: &str) -> Option<Kvs> {
        let view = self.engine.view.load();
        let tree = view.trees.values().find(|tree| *tree.name == *name)?;
        Some(Kvs { engine: self.engine.clone(), id: tree.kvs, name: tree.name.clone() })
    }

    /// The names of all KVSs, in the order of their creation.
    #[must_use]
    pub fn kvs_names(&self) -> Vec<String> {
        self.engine.view.load().trees.values().map(|tree| tree.name.to_string()).collect()
    }

    /// Drops a KVS with all it holds. Handles of it answer `Closed` from then on.
    ///
    /// # Errors
    /// `NotFound` when there is none of this name.
    pub fn drop_kvs(&self, name: &str) -> Result<()> {
        self.engine.life.check_owner()?;
        let _naming = self.engine.naming.lock();
        // No step may be under way that would add to the KVS.
        // Ingest goes on while a long step of the other lane is waited for.
        let engine = &self.engine;
        let _lanes = engine.scheduler.both_lanes();
        let _ingesting = engine.scheduler.ingest_lane();
        self.engine.life.check_running()?;
        let kvs = self.kvs(name)?;
        let edits =
            vec![Edit::LastId { id: self.engine.ids.last() }, Edit::KvsDropped { id: kvs.id }];
        self.engine.commit(edits)?;
        self.engine.view.publish(|view| view.remove_tree(kvs.id));
        self.engine.dead_ranges.forget(kvs.id);
        self.engine.balance_memory();
        Ok(())
    }

    // ---- reads of several KVSs ---------------------------------------------------------------------

    /// All KVSs as they are now, whatever is written later.
    ///
    /// ```
    /// # use esker_kv::{Batch, Kvdb, KvError, Location, Policy, Readable, WriteOptions};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let users = db.create_kvs("users", Policy::default())?;
    /// let before = db.snapshot();
    /// users.put("42", "Ada")?;
    /// assert!(before.get(&users, "42")?.is_none());
    /// assert!(db.snapshot().contains_key(&users, "42")?);
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.engine)
    }

    // ---- writes ------------------------------------------------------------------------------------

    /// Begins a transaction: reads see the KVDB as it is now, and writes happen all at once when it is
    /// committed, unless someone else has written one of its keys since.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        Transaction::begin(&self.engine)
    }

    /// Writes a batch: all of it or nothing, now and after a crash. The batch keeps its records, so that writing it once
    /// more writes them again: [`Batch::clear`] empties it.
    ///
    /// ```
    /// # use esker_kv::{Batch, Kvdb, KvError, Location, Policy, Readable, WriteOptions};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let users = db.create_kvs("users", Policy::default())?;
    /// let mut batch = Batch::new();
    /// batch.put(&users, "42", "Ada");
    /// batch.delete(&users, "41");
    /// db.write_with(&batch, &WriteOptions::durable())?;
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Kvs::put`], and `Invalid` when the batch is too large to be atomic, or has handles of another
    /// KVDB.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// Like [`Kvdb::write`], as `options` say.
    ///
    /// # Errors
    /// As [`Kvdb::write`].
    pub fn write_with(&self, batch: &Batch, options: &WriteOptions) -> Result<()> {
        batch.check_of(&self.engine)?;
        if batch.is_empty() {
            return self.engine.life.check_open();
        }
        let seqno = batch.write_to(&self.engine, |_| Ok(()))?;
        self.engine.counters.batches.add(1);
        self.engine.make_durable(seqno, options)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The device error since which the KVDB takes no writes.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()?;
        self.engine.counters.syncs.add(1);
        Ok(())
    }

    /// The version of the on-media format that it has: the lowest one that says all that it holds, or a higher one since
    /// [`Kvdb::upgrade`].
    #[must_use]
    pub fn format_version(&self) -> u16 {
        self.engine.manifest.version().number()
    }

    /// Upgrades it to the newest version of the on-media format, durably. Builds that do not know that version refuse it
    /// from then on. Returns the version that it had.
    ///
    /// That happens by itself where a write needs it; there is no way back.
    ///
    /// # Errors
    /// `Invalid` when it was opened to be read, `NoSpace` when its manifest has no room for another snapshot, or the
    /// device error since which it takes no writes.
    pub fn upgrade(&self) -> Result<u16> {
        let before = self.format_version();
        self.engine.upgrade(FormatVersion::NEWEST)?;
        Ok(before)
    }

    // ---- maintenance -----------------------------------------------------------------------------

    /// Runs one step of maintenance that is due; false when none is. For [`Maintenance::Manual`].
    ///
    /// # Errors
    /// A device's, since which the KVDB takes no writes; `NoSpace`, which more space mends.
    pub fn step(&self) -> Result<bool> {
        self.engine.life.check_owner()?;
        self.engine.tell_in_time();
        steps::step(&self.engine)
    }

    /// Runs one step of a leaf that is due as a second worker does beside [`Kvdb::step`]; false when none is.
    ///
    /// # Errors
    /// As [`Kvdb::step`].
    #[doc(hidden)]
    pub fn help(&self) -> Result<bool> {
        self.engine.life.check_owner()?;
        steps::help(&self.engine)
    }

    /// Runs or waits for maintenance until nothing is due.
    ///
    /// # Errors
    /// As [`Kvdb::step`].
    pub fn settle(&self) -> Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// Turns the memtable into kvsets now, full or not.
    ///
    /// # Errors
    /// As [`Kvdb::step`].
    pub fn ingest(&self) -> Result<()> {
        self.engine.life.check_running()?;
        steps::ingest_all(&self.engine).map(drop)
    }

    /// Gives the KVDB a staging class while it runs. On a device of the caller's the manifest keeps its name. Such a
    /// device must begin with zeroes, unless the KVDB has no directory: then it is overwritten.
    ///
    /// # Errors
    /// `Exists` when it has one already or the medium holds data; `Conflict` when somebody still reads from the
    /// device since it was removed; `Invalid` for a name or path that cannot be; a device's.
    pub fn add_staging(&self, medium: &Medium) -> Result<()> {
        self.engine.life.check_running()?;
        let (dir, class) = (self.opened.dir.as_deref(), MediaClass::Staging);
        let known_as = medium.known_as(dir, class)?;
        self.add_staging_on(|| medium.make(dir, class), known_as)
    }

    fn add_staging_on(
        &self,
        device: impl FnOnce() -> Result<Arc<dyn Device>>,
        path: String,
    ) -> Result<()> {
        self.engine.life.check_owner()?;
        let _naming = self.engine.naming.lock();
        let engine = &self.engine;
        engine.life.check_running()?;
        if let Some(media) = engine.classes.staging() {
            return Err(KvError::StagingExists(media.device().name().into()));
        }
        let device = device()?;
        engine.scheduler.free_unread(&mut engine.scheduler.ingest_lane());
        if engine.classes.is_still_read(&device) {
            return Err(KvError::StillRead(device.name().into()));
        }
        let media = Arc::new(Media::new(
            MediaClass::Staging,
            device,
            &engine.tuning,
            &engine.options.clock,
        ));
        media.write_header(engine.manifest.state().uuid)?;
        media.adopt_reserve()?;
        let edit = Edit::Class { class: MediaClass::Staging, path };
        engine.commit(vec![edit])?;
        engine.classes.add_staging(media);
        Ok(())
    }

    /// Takes the staging class away while the KVDB is in use: moves the log, keys and values to
    /// capacity, which takes as long as that takes, and then ends the class durably. Its device is
    /// no longer marked as one of this KVDB's; a file in the KVDB's own directory is removed.
    /// Policies stay, and count again when there is a staging class again.
    ///
    /// Cursors, snapshots and transactions that were begun before read from the device as long as
    /// they live. [`Kvdb::compact_status`] says how it gets on, and [`Kvdb::cancel_compact`] calls it
    /// off; data moved by then goes back as maintenance touches it.
    ///
    /// # Errors
    /// `NotFound` when there is no staging class; `NoSpace` when capacity cannot take its data;
    /// `Conflict` when a compaction is under way, or it was cancelled; `Corrupt` when something on it is damaged, which
    /// cannot be moved; a device's.
    pub fn remove_staging(&self) -> Result<()> {
        let (staging, known_as, _naming) = manual::remove_staging(&self.engine)?;
        staging.end_reserve();
        staging.clear_header()?;
        staging.reclaim()?;
        match (&self.opened.dir, known_as) {
            (Some(dir), Some(known_as)) => location::remove_own(dir, &known_as),
            _ => Ok(()),
        }
    }

    /// Merges and moves data until it is as asked for, while the KVDB is in use. Returns when that
    /// is so, as far as data is concerned that was there when it began, or when it is cancelled.
    ///
    /// # Errors
    /// `Conflict` when one is under way already, `Invalid` for a goal that cannot be, `NoSpace`, or
    /// a device's.
    pub fn compact(&self, request: CompactRequest) -> Result<CompactStatus> {
        manual::compact(&self.engine, request)
    }

    /// How a compaction, or the removal of a class, is getting on.
    #[must_use]
    pub fn compact_status(&self) -> CompactStatus {
        let status = self.engine.life.check_owner().map(|()| manual::compact_status(&self.engine));
        status.unwrap_or_default()
    }

    /// Calls off the compaction, or the removal of a class, that is under way. It ends soon; its work so far stays.
    pub fn cancel_compact(&self) {
        self.engine.scheduler.manual.cancel();
    }

    /// Remarks for the user about how the devices were opened, about damage that maintenance has found since, and about
    /// readers that keep much space for long. [`Options::on_remark`] has each of them told.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        if let Err(forked) = self.engine.life.check_owner() {
            return vec![forked.to_string()];
        }
        let manifest = self.manifest().map(|device| device.remarks()).unwrap_or_default();
        let mut remarks = self.engine.classes.remarks();
        remarks.extend(manifest);
        remarks.dedup();
        remarks.extend(self.engine.fences.damages(&self.engine.view));
        remarks.extend(self.engine.readers_remark());
        remarks
    }

    /// The device of the manifest, until the KVDB is closed.
    pub(super) fn manifest(&self) -> Option<Arc<dyn Device>> {
        self.opened.manifest.lock().clone()
    }

    /// The figures of the KVDB now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let forked =
            |error: KvError| Stats { stopped: Some(error.to_string()), ..Stats::default() };
        self.engine.life.check_owner().map_or_else(forked, |()| Stats::of(&self.engine))
    }

    /// Ingests all records in memory, so that the next open has nothing to replay, and closes. The KVDB may be opened
    /// again when this returns, whatever it returns and whoever still has handles of it. Another call has the same
    /// result, and waits for it.
    ///
    /// # Errors
    /// A device's; writes that were not durable before may not be then.
    pub fn close(&self) -> Result<()> {
        let engine = &self.engine;
        engine.life.check_owner()?;
        let mut closed = self.opened.closed.lock();
        if let Some(result) = &*closed {
            return result.clone();
        }
        let ingested = if engine.options.read_only {
            Ok(())
        } else {
            // Without room for it all is in the log, which the next open replays.
            let without_room =
                |error: KvError| if error.lacks_space() { Ok(()) } else { Err(error) };
            engine.life.check_running().and_then(|()| self.ingest().or_else(without_room))
        };
        let result = ingested.and(self.opened.shut());
        *closed = Some(result.clone());
        result
    }
}

impl OpenKvdb {
    /// Ends the threads; writes acknowledged meanwhile become durable, or why not is the error.
    fn shut(&self) -> Result<()> {
        let engine = &self.engine;
        {
            // Under the lock: a write is acknowledged before this, or refused.
            let _writer = engine.log.tail();
            engine.life.close();
            engine.log.wake_all();
        }
        engine.scheduler.notify();
        for thread in self.threads.lock().drain(..) {
            // A panic has stopped the engine.
            let _ = thread.join();
        }
        // A writer that waits for space may run a step: no other one begins.
        drop(engine.scheduler.both_lanes());
        drop(engine.scheduler.ingest_lane());
        let flushed = engine.flush_through(engine.log.visible());
        let ends_well =
            flushed.is_ok() && engine.life.stopped().is_none() && !engine.options.read_only;
        let given = if ends_well { engine.give_back() } else { Ok(()) };
        if flushed.is_ok() {
            engine.log.tail().kept().iter().for_each(|kept| kept.remove());
        }
        // The next user of the devices may use the free space.
        engine.classes.keep_all();
        engine.classes.end();
        engine.manifest.end();
        *self.manifest.lock() = None;
        engine.free_memory();
        flushed.and(given)
    }
}

impl Drop for OpenKvdb {
    fn drop(&mut self) {
        if self.engine.life.check_owner().is_err() {
            // The child has no such threads, and locks that they held stay locked: nothing is freed.
            let threads = self.threads.try_lock().map(|mut threads| mem::take(&mut *threads));
            let manifest = self.manifest.try_lock().map(|mut manifest| manifest.take());
            mem::forget((threads, self.engine.clone(), manifest));
            return;
        }
        if !self.engine.life.is_closing() {
            let _ = self.engine.sync();
            let _ = self.shut();
        }
    }
}

/// Those of devices alone, as unit tests have them.
#[cfg(test)]
impl Kvdb {
    pub(crate) fn create_on(devices: Devices, options: Options) -> Result<Kvdb> {
        Kvdb::builder(devices.location()).options(options).create()
    }

    pub(crate) fn open_on(devices: Devices, options: Options) -> Result<Kvdb> {
        Kvdb::start(devices, None, options)
    }

    pub(crate) fn check_on(devices: &Devices) -> Result<CheckReport> {
        Kvdb::check_observed(devices, |_| ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests;
