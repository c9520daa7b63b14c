//! A KVDB: creating, opening, closing it, and operations on all of its KVSs.

use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::Progress;
use esker_base::process::AtExit;
use esker_base::progress::{Meter, Unit};
use esker_device::Device;

use crate::api::batch::Batch;
use crate::api::kvs::{Kvs, check_ttl};
use crate::api::layout::{self, Layout, NamedDevice};
use crate::api::snapshot::Snapshot;
use crate::api::stats::Stats;
use crate::api::transaction::Transaction;
use crate::engine::shared::Engine;
use crate::maintain::manual::{CompactRequest, CompactStatus};
use crate::media::class::Media;
use crate::omf::manifest::Edit;
use crate::recover::check::{CheckReport, check};
use crate::recover::devices::Devices;
use crate::recover::open;
use crate::sync::atomic::Ordering;
use crate::sync::{JoinHandle, Mutex};
use crate::tree::view::Tree;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::format::FormatVersion;
use crate::types::ids::{Ids, KvsId, LeafId};
use crate::types::limits::KVS_NAME_MAX;
use crate::types::options::{Maintenance, Options};
use crate::types::policy::KvsOptions;

/// An open KVDB. It is closed by [`Kvdb::close`], or when it is dropped; then all writes are made durable as far as
/// the devices allow, and errors are lost: prefer `close`.
///
/// Either way it lets go of its devices, and handles that are still there (each [`Kvs`], [`Snapshot`],
/// [`Transaction`] and [`Cursor`](crate::Cursor)) answer `Closed` from then on. A read that is under way on another
/// thread ends first, or is answered `Closed`.
pub struct Kvdb {
    pub(crate) engine: Arc<Engine>,
    dir: Option<PathBuf>,
    manifest: Arc<dyn Device>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _at_exit: Option<AtExit>,
}

impl Kvdb {
    /// Creates a KVDB in the directory `dir`, which is made if need be, and opens it.
    ///
    /// # Errors
    /// `Exists` when there is one already or a class's path holds data, `Invalid` for options
    /// that cannot work, or a device's error.
    pub fn create(dir: impl AsRef<Path>, layout: &Layout, options: Options) -> Result<Kvdb> {
        Kvdb::create_with(dir, layout, &BTreeMap::new(), options)
    }

    /// Like [`Kvdb::create`], with devices of any kind for some classes instead of those that the layout names. The
    /// manifest keeps their names.
    ///
    /// # Errors
    /// As [`Kvdb::create`]; `Invalid` when a name is a path.
    pub fn create_with(
        dir: impl AsRef<Path>,
        layout: &Layout,
        given: &BTreeMap<MediaClass, NamedDevice>,
        options: Options,
    ) -> Result<Kvdb> {
        options.check_to_create()?;
        let dir = dir.as_ref();
        let classes = layout.classes(dir, given)?;
        let devices = layout::make(dir, &classes, given)?;
        open::create(&devices, &classes, &options)?;
        Kvdb::start(devices, Some(dir.to_owned()), options)
    }

    /// Opens the KVDB in the directory `dir`.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Conflict` when another process has it open ([read
    /// only](Options::read_only): open to write), `Corrupt` when its structures are damaged, `Invalid` when it has
    /// more KVSs than [`Options::kvs_limit`] says, or a device's error.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Kvdb> {
        Kvdb::open_with(dir, &BTreeMap::new(), options)
    }

    /// Like [`Kvdb::open`], with the devices that [`Kvdb::device_names`] asks for.
    ///
    /// # Errors
    /// As [`Kvdb::open`]; `Invalid` when one is missing.
    pub fn open_with(
        dir: impl AsRef<Path>,
        given: &BTreeMap<MediaClass, Arc<dyn Device>>,
        options: Options,
    ) -> Result<Kvdb> {
        options.check()?;
        let dir = dir.as_ref();
        let devices = layout::open(dir, given, options.read_only)?;
        Kvdb::start(devices, Some(dir.to_owned()), options)
    }

    /// The names of the devices that the KVDB in the directory `dir` was created with, of those
    /// that are neither files nor block devices: whoever opens it has to bring them.
    ///
    /// # Errors
    /// As [`Kvdb::open`].
    pub fn device_names(dir: impl AsRef<Path>) -> Result<BTreeMap<MediaClass, String>> {
        layout::device_names(dir.as_ref())
    }

    /// Creates a KVDB on devices of any kind, and opens it. Nothing but the manifest's device is asked whether
    /// it holds something: the others are overwritten.
    ///
    /// # Errors
    /// As [`Kvdb::create`].
    pub fn create_on(devices: Devices, options: Options) -> Result<Kvdb> {
        options.check_to_create()?;
        layout::check_without_kvdb(&devices)?;
        open::create(&devices, &devices.names(), &options)?;
        Kvdb::start(devices, None, options)
    }

    /// Opens the KVDB on devices of any kind.
    ///
    /// # Errors
    /// As [`Kvdb::open`].
    pub fn open_on(devices: Devices, options: Options) -> Result<Kvdb> {
        options.check()?;
        Kvdb::start(devices, None, options)
    }

    pub(crate) fn start(devices: Devices, dir: Option<PathBuf>, options: Options) -> Result<Kvdb> {
        let threads = options.maintenance == Maintenance::Threads && !options.read_only;
        let Some((engine, left)) = open::open(&devices, dir.as_deref(), options)? else {
            let path = dir.unwrap_or_else(|| devices.manifest.name().into());
            return Err(KvError::NotAKvdb { path, why: "the manifest is empty".into() });
        };
        let manifest = devices.manifest.clone();
        let _at_exit = engine.flush_at_exit();
        let db = Kvdb { engine, dir, manifest, threads: Mutex::new(Vec::new()), _at_exit };
        if threads {
            let started = db.engine.start_threads().map_err(|error| {
                KvError::Options(format!("the maintenance threads could not be started: {error}"))
            })?;
            *db.threads.lock() = started;
        }
        if let Some(dir) = &db.dir
            && !db.engine.options.read_only
        {
            db.engine.take_up(dir, left.as_ref())?;
        }
        Ok(db)
    }

    /// Verifies the KVDB in the directory `dir`, which nobody has open to write, without changing it.
    ///
    /// # Errors
    /// As [`Kvdb::open`] where nobody knows which structures there are to check: the manifest is damaged, and
    /// only [`Kvdb::repair`] remains. All other damage is a finding of the report, and no error.
    pub fn check(dir: impl AsRef<Path>) -> Result<CheckReport> {
        Kvdb::check_with(dir, &BTreeMap::new(), |_| ControlFlow::Continue(()))
    }

    /// Like [`Kvdb::check`], with the devices that [`Kvdb::device_names`] asks for. `on_progress` is told how far it is;
    /// its `Break` ends the check, whose report then says what was found until then.
    ///
    /// # Errors
    /// As [`Kvdb::check`]; `Invalid` when one is missing.
    pub fn check_with(
        dir: impl AsRef<Path>,
        given: &BTreeMap<MediaClass, Arc<dyn Device>>,
        on_progress: impl FnMut(&Progress) -> ControlFlow<()> + Send,
    ) -> Result<CheckReport> {
        Kvdb::check_observed(&layout::open(dir.as_ref(), given, true)?, on_progress)
    }

    /// Verifies the KVDB on devices of any kind.
    ///
    /// # Errors
    /// As [`Kvdb::check`].
    pub fn check_on(devices: &Devices) -> Result<CheckReport> {
        Kvdb::check_observed(devices, |_| ControlFlow::Continue(()))
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
        self.engine.check_owner()?;
        let _naming = self.engine.naming.lock();
        self.engine.check_running()?;
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
        self.engine.publish(|view| view.put_tree(Tree::new(id, name, options, leaf)));
        self.kvs(name)
    }

    /// The lower half of an id. It comes again after four billion ids, when no log holds it any more.
    fn new_kvs_id(&self) -> KvsId {
        let taken = |id| id == KvsId(0) || self.engine.view.load().trees.contains_key(&id);
        let mut ids = std::iter::repeat_with(|| KvsId(Ids::count_of(self.engine.ids.next())));
        ids.find(|id| !taken(*id)).expect("there are fewer than 2^32 KVSs")
    }

    /// The KVS of this name.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn kvs(&self, name: &str) -> Result<Kvs> {
        self.engine.check_owner()?;
        self.find(name).ok_or_else(|| KvError::UnknownKvs(name.into()))
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
        self.engine.check_owner()?;
        let _naming = self.engine.naming.lock();
        // No step may be under way that would add to the KVS.
        // Ingest goes on while a long step of the other lane is waited for.
        let engine = &self.engine;
        let _lanes = (engine.compacting.lock(), engine.helping.lock(), engine.ingesting.lock());
        self.engine.check_running()?;
        let kvs = self.kvs(name)?;
        let edits =
            vec![Edit::LastId { id: self.engine.ids.last() }, Edit::KvsDropped { id: kvs.id }];
        self.engine.commit(edits)?;
        self.engine.publish(|view| view.remove_tree(kvs.id));
        self.engine.dead_ranges.forget(kvs.id);
        self.engine.balance_memory();
        Ok(())
    }

    // ---- reads of several KVSs ---------------------------------------------------------------------

    /// All KVSs as they are now, whatever is written later.
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

    /// Writes a batch: all of it or nothing, now and after a crash.
    ///
    /// # Errors
    /// As [`Kvs::put`], and `Invalid` when the batch is too large to be atomic, or has handles of another
    /// KVDB.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        batch.check_of(&self.engine)?;
        if batch.is_empty() {
            return Ok(());
        }
        self.engine.write_batch(batch, |_| Ok(()))?;
        self.engine.counters.batches.add(1);
        Ok(())
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The device error since which the KVDB takes no writes.
    pub fn sync(&self) -> Result<()> {
        self.engine.check_running()?;
        self.engine.flush_through(self.engine.visible.load())?;
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
        self.engine.check_owner()?;
        self.engine.step()
    }

    /// Runs one step of a leaf that is due as a second worker does beside [`Kvdb::step`]; false when none is.
    ///
    /// # Errors
    /// As [`Kvdb::step`].
    #[doc(hidden)]
    pub fn help(&self) -> Result<bool> {
        self.engine.check_owner()?;
        self.engine.help()
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
        self.engine.check_running()?;
        self.engine.ingest_all().map(drop)
    }

    /// Gives the KVDB a staging class while it runs. `path` is as in [`Layout`].
    ///
    /// # Errors
    /// `Exists` when it has one already or the path holds data; `Conflict` when somebody still reads from the
    /// device since it was removed; `Invalid` for no path when the KVDB has no directory; a device's.
    pub fn add_staging(&self, path: Option<PathBuf>) -> Result<()> {
        self.engine.check_running()?;
        if self.dir.is_none() && path.is_none() {
            let why = "it has no directory: name a path for the class, or use add_staging_device";
            return Err(KvError::Options(why.into()));
        }
        let dir = self.dir.clone().unwrap_or_default();
        let path = layout::known_as(&dir, MediaClass::Staging, &path)?;
        self.add_staging_on(|| layout::make_class(&dir, &path), path.clone())
    }

    /// Gives the KVDB a staging class on a device of any kind, which must begin with zeroes; the
    /// manifest keeps its name.
    ///
    /// # Errors
    /// As [`Kvdb::add_staging`]; `Invalid` when the name is a path.
    pub fn add_staging_named(&self, staging: NamedDevice) -> Result<()> {
        staging.check()?;
        let NamedDevice { name, device } = staging;
        let blank = || layout::check_blank(&*device, Path::new(&name)).map(|()| device.clone());
        self.add_staging_on(blank, name.clone())
    }

    /// Like [`Kvdb::add_staging_named`], but whatever the device holds is overwritten.
    ///
    /// # Errors
    /// As [`Kvdb::add_staging`].
    pub fn add_staging_device(&self, device: Arc<dyn Device>) -> Result<()> {
        let name = device.name().to_owned();
        self.add_staging_on(|| Ok(device), name)
    }

    fn add_staging_on(
        &self,
        device: impl FnOnce() -> Result<Arc<dyn Device>>,
        path: String,
    ) -> Result<()> {
        self.engine.check_owner()?;
        let _naming = self.engine.naming.lock();
        let engine = &self.engine;
        engine.check_running()?;
        if let Some(media) = engine.classes.staging() {
            return Err(KvError::StagingExists(media.device().name().into()));
        }
        let device = device()?;
        engine.free_unread(&mut engine.ingesting.lock());
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
        let (staging, known_as, _naming) = self.engine.remove_staging()?;
        staging.end_reserve();
        staging.clear_header()?;
        staging.reclaim()?;
        match (&self.dir, known_as) {
            (Some(dir), Some(known_as)) => layout::remove_own(dir, &known_as),
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
        self.engine.compact(request)
    }

    /// How a compaction, or the removal of a class, is getting on.
    #[must_use]
    pub fn compact_status(&self) -> CompactStatus {
        let status = self.engine.check_owner().map(|()| self.engine.compact_status());
        status.unwrap_or_default()
    }

    /// Calls off the compaction, or the removal of a class, that is under way. It ends soon; its work so far stays.
    pub fn cancel_compact(&self) {
        self.engine.manual.cancel();
    }

    /// Remarks for the user about how the devices were opened, about damage that maintenance has found since, and about
    /// readers that keep much space for long.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        if let Err(forked) = self.engine.check_owner() {
            return vec![forked.to_string()];
        }
        let classes = self.engine.classes.all();
        let devices = classes.iter().map(|media| media.device()).chain([&self.manifest]);
        let mut remarks: Vec<String> = devices.flat_map(|device| device.remarks()).collect();
        remarks.dedup();
        remarks.extend(self.engine.damages());
        let pinned = self.engine.pinned_bytes().iter().sum();
        remarks.extend(self.engine.reader_stats(pinned).remark());
        remarks
    }

    pub(super) fn manifest(&self) -> &Arc<dyn Device> {
        &self.manifest
    }

    /// The figures of the KVDB now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let forked =
            |error: KvError| Stats { stopped: Some(error.to_string()), ..Stats::default() };
        self.engine.check_owner().map_or_else(forked, |()| self.engine.stats())
    }

    /// Ingests all records in memory, so that the next open has nothing to replay, and closes. The KVDB may be opened
    /// again when this returns, whatever it returns and whoever still has handles of it.
    ///
    /// # Errors
    /// A device's; writes that were not durable before may not be then.
    pub fn close(self) -> Result<()> {
        self.engine.check_owner()?;
        if !self.engine.options.read_only {
            self.engine.check_running()?;
            // Without room for it all is in the log, which the next open replays.
            self.ingest().or_else(|error| if error.lacks_space() { Ok(()) } else { Err(error) })?;
        }
        self.shut()
    }

    /// Ends the threads; writes acknowledged meanwhile become durable, or why not is the error.
    fn shut(&self) -> Result<()> {
        let engine = &self.engine;
        {
            // Under the lock: a write is acknowledged before this, or refused.
            let _writer = engine.writer.lock();
            engine.closing.store(true, Ordering::Release);
            engine.pending.notify_all();
            engine.opening.notify_all();
            engine.room.notify_all();
        }
        engine.work.notify();
        for thread in self.threads.lock().drain(..) {
            // A panic has stopped the engine.
            let _ = thread.join();
        }
        // A writer that waits for space may run a step: no other one begins.
        drop((engine.compacting.lock(), engine.helping.lock()));
        drop(engine.ingesting.lock());
        let flushed = engine.flush_through(engine.visible.load());
        let ends_well = flushed.is_ok() && engine.stopped().is_none() && !engine.options.read_only;
        let given = if ends_well { engine.give_back() } else { Ok(()) };
        if flushed.is_ok() {
            engine.writer.lock().kept().iter().for_each(|kept| kept.remove());
        }
        // The next user of the devices may use the free space.
        engine.classes.keep_all();
        engine.classes.end();
        engine.manifest.end();
        flushed.and(given)
    }
}

impl Drop for Kvdb {
    fn drop(&mut self) {
        if self.engine.check_owner().is_err() {
            // The child has no such threads, and locks that they held stay locked: nothing is freed.
            let threads = self.threads.try_lock().map(|mut threads| mem::take(&mut *threads));
            mem::forget((threads, self.engine.clone(), self.manifest.clone()));
            return;
        }
        if !self.engine.closing.load(Ordering::Acquire) {
            let _ = self.sync();
            let _ = self.shut();
        }
    }
}

#[cfg(test)]
mod tests;
