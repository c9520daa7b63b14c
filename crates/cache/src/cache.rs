//! A cache as a device: made, opened, changed, detached.
//!
//! Called by `stack`, `cli` and tests. Each queue pair does its own I/O (`queue`); one thread, or
//! the caller of [`Cache::step`], cleans and checkpoints.

mod mend;
mod pairing;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use esker_base::process::Owner;
use esker_base::sync::{Condvar, Mutex, RwLock};
use esker_base::{Lba, thread};
use esker_device::{
    Counters, DataPlacement, Device, DeviceError, DeviceStats, Geometry, Identity, OpKind,
    QueuePair, occupant,
};

use crate::CacheError;
use crate::clean::{Cleaner, Which};
use crate::copies;
use crate::counts::Totals;
use crate::medium::Medium;
use crate::omf::{BLOCK, DETACHED};
use crate::options::{Background, Bounds, CreateOptions, Division, Mode, OpenOptions};
use crate::origin::{learn, meet};
use crate::queue::{Queue, Queues};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::store::{self, DRAIN_PAGES, Store};
use mend::mend;
use plan::plan;
pub(crate) use plan::{check_sizes, mapping_of};

/// How often the thread looks for work.
const INTERVAL: Duration = Duration::from_millis(20);
/// For how long nobody may have used the cache before all that is dirty is written back.
const IDLE: Duration = Duration::from_secs(2);

/// A flash device in front of an origin.
pub struct Cache {
    name: String,
    origin: Arc<dyn Device>,
    pub(crate) engine: Arc<Engine>,
    bell: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// The process that has the thread.
    owner: Owner,
    remarks: Vec<String>,
}

/// State of the cache's thread. The cleaner's lock comes before that of the shared state, which is held for writing
/// only while that state is replaced.
pub(crate) struct Engine {
    pub(crate) shared: RwLock<Arc<Shared>>,
    pub(crate) cleaner: Mutex<Cleaner>,
    /// A queue pair is entered while the shared state is held.
    pub(crate) queues: Arc<Queues>,
}

/// Outcome of a step of the cache's thread.
#[derive(Default)]
struct Stepped {
    /// Whether anything was done.
    is_busy: bool,
    /// How many times as long as that took the thread rests while the cache is in use.
    rest: u32,
}

/// Facts about a cache that its flash device keeps.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Info {
    /// Where writes go.
    pub mode: Mode,
    /// Whether it was detached from its origin.
    pub is_detached: bool,
    /// Bytes of the origin when it was made.
    pub origin_bytes: u64,
    /// Identity that tells the origin from other devices, if it is known.
    pub origin: Option<String>,
    /// Sampled blocks of the origin whose content must be unchanged.
    pub armed_samples: u32,
    /// Bytes of the flash device that it uses.
    pub flash_bytes: u64,
    /// Bytes of its slots.
    pub capacity_bytes: u64,
    /// Sets.
    pub sets: u32,
    /// Bytes of a set.
    pub set_bytes: u64,
    /// Bytes of a run.
    pub run_bytes: u64,
    /// How runs go to sets.
    pub mapping: String,
    /// Blocks that the origin does not have yet.
    pub dirty_blocks: u64,
    /// Blocks that survive a restart, dirty ones included.
    pub named_blocks: u64,
}

impl Cache {
    /// Makes a cache on `flash` for `origin`, whose content stays as it is.
    ///
    /// # Errors
    /// `Exists` when there is one, or something else, unless it may be overwritten; `Invalid` for sizes that do not go
    /// together; a device's.
    pub fn create(
        origin: &dyn Device,
        flash: &Arc<dyn Device>,
        options: &CreateOptions,
    ) -> Result<(), CacheError> {
        let mut medium = Medium::open(flash)?;
        if !options.overwrite {
            match copies::find(&mut medium) {
                Err(CacheError::NoCache { device, .. }) => {
                    if let Some(found) = occupant(&**flash)? {
                        return Err(CacheError::Occupied { device, found });
                    }
                }
                Ok(found) if found.superblock.state == DETACHED => {}
                Ok(_) | Err(CacheError::Corrupt { .. }) => {
                    return Err(CacheError::Exists { device: flash.name().to_owned() });
                }
                Err(error) => return Err(error),
            }
        }
        let mut superblock = plan(origin, &**flash, options)?;
        mapping_of(&superblock)?;
        if let Some(known) = learn(origin, &superblock)? {
            superblock.origin = known;
        }
        store::format(&mut medium, &superblock)
    }

    /// Reads the facts about the cache on `flash`.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Corrupt` when it is damaged; a device's.
    pub fn inspect(flash: &Arc<dyn Device>) -> Result<Info, CacheError> {
        let mut medium = Medium::open(flash)?;
        let superblock = copies::find(&mut medium)?.superblock;
        let store = Store::open(medium, superblock)?;
        Ok(info_of(&store))
    }

    /// The same facts about this cache, as they are now.
    #[must_use]
    pub fn info(&self) -> Info {
        let shared = self.shared();
        let dirty_blocks = shared.dirty_blocks();
        let info = info_of(&shared.store.lock());
        Info { mode: shared.mode(), dirty_blocks, ..info }
    }

    /// Opens the cache on `flash` in front of `origin`, which must be the one it was made for and
    /// must not have been written without it.
    ///
    /// # Errors
    /// `NotFound`, `Closed` when it was detached, `Corrupt`, `Invalid` when the devices do not fit,
    /// `Conflict` when they do not belong together; a device's. No byte of the origin was written then.
    pub fn open(
        origin: Arc<dyn Device>,
        flash: Arc<dyn Device>,
        options: OpenOptions,
    ) -> Result<Cache, CacheError> {
        let mut medium = Medium::open(&flash)?;
        let found = copies::find(&mut medium)?;
        let superblock = found.superblock.clone();
        check_sizes(&superblock, &*origin, &*flash)?;
        let mapping = mapping_of(&superblock)?;
        let mode_there = superblock.mode;
        let mut store = Store::open(medium, superblock)?;
        let mut remarks = Vec::from_iter(meet(&*origin, &mut store)?);
        remarks.extend(mend(&mut store, &found));
        let background = options.background;
        let shared = Shared::new(origin.clone(), flash, store, mapping, options)?;
        let shared = Arc::new(shared);
        let mode = shared.mode();
        if mode.number() != mode_there {
            shared.store.lock().update(|superblock| superblock.mode = mode.number())?;
        }
        let cleaner = Mutex::new(Cleaner::new(&shared)?);
        let name = shared.name.clone();
        let engine =
            Arc::new(Engine { shared: RwLock::new(shared), cleaner, queues: Arc::default() });
        let bell = Arc::new((Mutex::new(false), Condvar::new()));
        let mut cache =
            Cache { name, origin, engine, bell, thread: None, owner: Owner::here(), remarks };
        if background == Background::Thread {
            let (engine, bell) = (cache.engine.clone(), cache.bell.clone());
            let run = move || engine.run(&bell);
            let started = thread::spawn("esker-cache", run);
            cache.thread = Some(started?);
        }
        Ok(cache)
    }

    fn shared(&self) -> Arc<Shared> {
        self.engine.shared()
    }

    /// Figures of the cache.
    #[must_use]
    pub fn figures(&self) -> Stats {
        self.shared().stats()
    }

    /// Where writes go.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.shared().mode()
    }

    /// Changes where writes go, from the next one on, for good. Dirty blocks stay so until they are
    /// written back.
    ///
    /// # Errors
    /// The flash device's; the mode is as it was, or the flash device is lost.
    pub fn set_mode(&self, mode: Mode) -> Result<(), CacheError> {
        // Held until it counts, so that nobody changes the size in between.
        let shared = self.engine.shared.read();
        shared.check_running()?;
        let mut store = shared.store.lock();
        shared.change_superblock(&mut store, |it| it.mode = mode.number())?;
        shared.set_mode(mode);
        Ok(())
    }

    /// Its bounds.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.shared().bounds()
    }

    /// Changes its bounds, for as long as it is open.
    ///
    /// # Errors
    /// `Invalid` for a share that is not from 1 to 100 percent.
    pub fn set_bounds(&self, bounds: Bounds) -> Result<(), CacheError> {
        if !(1..=100).contains(&bounds.dirty_percent) {
            let why = format!(
                "{} is no share of dirty slots: say 1 to 100 percent",
                bounds.dirty_percent
            );
            return Err(CacheError::Invalid(why));
        }
        // Held, so that it counts for a size that changes.
        self.engine.shared.read().set_bounds(bounds);
        Ok(())
    }

    /// Changes where writes go to in a cache that is not open. Dirty blocks stay so until they are
    /// written back.
    ///
    /// # Errors
    /// `NotFound`, `Closed`, `Corrupt`; the flash device's.
    pub fn change_mode(flash: &Arc<dyn Device>, mode: Mode) -> Result<(), CacheError> {
        let mut medium = Medium::open(flash)?;
        let mut superblock = copies::find(&mut medium)?.superblock;
        if superblock.state == DETACHED {
            return Err(CacheError::Detached { device: flash.name().to_owned() });
        }
        superblock.mode = mode.number();
        superblock.generation += 1;
        copies::write(&mut medium, &superblock)
    }

    /// Writes everything back.
    ///
    /// # Errors
    /// `Retry` when others go on to write; a device's. Blocks that were not written back are still
    /// dirty.
    pub fn clean_all(&self) -> Result<(), CacheError> {
        self.engine.with(|cleaner, shared| cleaner.clean_all(shared))
    }

    /// Writes back what is dirty now, whatever becomes dirty meanwhile. Other work on the cache goes on in between.
    ///
    /// # Errors
    /// `Retry` when a block was written all the time; a device's. Blocks that were not written back are still dirty.
    pub fn write_back(&self) -> Result<(), CacheError> {
        let sets = self.shared().layout.sets;
        (0..sets).try_for_each(|set| {
            self.engine.with(|cleaner, shared| {
                let has_dirty = shared.set(set)?.set.dirty_count() > 0;
                if has_dirty { cleaner.sweep(shared, set) } else { Ok(()) }
            })
        })?;
        self.engine.with(|_, shared| shared.commit(&crate::commit::Wanted::Nothing).map(drop))
    }

    /// A step of the work that is not urgent: cleaning, naming, the checkpoint. For [`Background::Manual`]; `is_idle`
    /// cleans and names everything, whatever its age. Returns whether anything was done.
    ///
    /// # Errors
    /// A device's.
    pub fn step(&self, is_idle: bool) -> Result<bool, CacheError> {
        self.engine.step(is_idle).map(|stepped| stepped.is_busy)
    }

    /// Makes everything that is cached survive a restart.
    ///
    /// # Errors
    /// `NotClosed`, with the reason and what is not on the origin; a device's in a forked child.
    pub fn close(&self) -> Result<(), CacheError> {
        if !self.owner.is_here() {
            // Another thread of the parent may have held its locks.
            return Err(DeviceError::forked(&self.name).into());
        }
        let closed = self.engine.with(|cleaner, shared| {
            if shared.is_lost() {
                shared.catch_up();
                let device = || shared.flash.name().to_owned();
                return match shared.owes_dirty() {
                    true => Err(CacheError::FlashLost { device: device() }),
                    false => Ok(()),
                };
            }
            shared.sync_flash()?;
            cleaner.name_all(shared)?;
            shared.seal()?;
            shared.flush_origin()?;
            cleaner.resample(shared)
        });
        closed.map_err(|why| self.engine.not_closed(why))
    }

    /// Ends the cache: its thread, and then [`Cache::close`]. A cache that is dropped does the same, and tells nobody
    /// whether it went well.
    ///
    /// # Errors
    /// As [`Cache::close`].
    pub fn shut(mut self) -> Result<(), CacheError> {
        if self.owner.is_here() {
            self.end_thread();
        }
        self.close()
    }

    /// Ends the thread; false when there is none.
    fn end_thread(&mut self) -> bool {
        *self.bell.0.lock() = true;
        self.bell.1.notify_all();
        // A panic of its has stopped the cache, which tells why.
        self.thread.take().is_some_and(|thread| thread.join().is_ok())
    }

    /// Writes everything back and lets go of the origin, which may be used without the cache from
    /// then on. The cache must not be in use. From then on this device only passes on.
    ///
    /// # Errors
    /// `Retry` when others write, `Conflict` when the origin was written without the cache; a device's. The cache is still attached then, or lost if the flash
    /// device does not even say so. No block is lost.
    pub fn detach(&self) -> Result<(), CacheError> {
        self.engine.with(|cleaner, shared| {
            shared.store.lock().is_attached()?;
            shared.check_origin()?;
            cleaner.clean_all(shared)?;
            shared.commit(&crate::commit::Wanted::Nothing)?;
            shared.flush_origin()?;
            let mut store = shared.store.lock();
            if store.dirty > 0 || shared.dirty_blocks() > 0 {
                return Err(CacheError::InUse { device: shared.flash.name().to_owned() });
            }
            shared.change_superblock(&mut store, |it| it.state = DETACHED)?;
            shared.watch.end();
            shared.lose();
            Ok(())
        })
    }

    /// Makes a cache that is not open anew with another size, which may be any: everything dirty is
    /// written back to the origin first, then an empty cache is made, of `flash_bytes` or all of the
    /// flash device. [`Cache::resize`] keeps the cached blocks.
    ///
    /// # Errors
    /// As [`Cache::open`] and [`Cache::create`]; before the new cache is made, the old one is
    /// still there and whole.
    pub fn remake(
        origin: &Arc<dyn Device>,
        flash: &Arc<dyn Device>,
        flash_bytes: Option<u64>,
    ) -> Result<(), CacheError> {
        let options = OpenOptions { background: Background::Manual, ..OpenOptions::default() };
        let cache = Cache::open(origin.clone(), flash.clone(), options)?;
        let old = cache.shared().store.lock().superblock.clone();
        let division = match old.mapping {
            0 => Division::Hashed,
            1 => Division::Linear,
            _ => Division::Single,
        };
        let set_bytes = match division {
            Division::Single => CreateOptions::default().set_bytes,
            // It may have grown beyond the limit of a new one.
            _ => u64::from(old.set_slots.min(plan::MOST_NEW_SLOTS)) * BLOCK,
        };
        let new = CreateOptions {
            mode: Mode::of_number(old.mode),
            flash_bytes,
            set_bytes,
            run_bytes: (u64::from(old.run_blocks) * BLOCK).min(set_bytes),
            division,
            area_bytes: None,
            id: old.id.wrapping_add(1),
            overwrite: true,
        };
        plan(&**origin, &**flash, &new)?; // before anything is given up
        cache.detach()?;
        drop(cache);
        Cache::create(&**origin, flash, &new)
    }
}

fn info_of(store: &Store) -> Info {
    let superblock = &store.superblock;
    let identity = &superblock.origin.identity;
    let mapping = match superblock.mapping {
        0 => "hashed",
        1 => "linear",
        _ => "one set",
    };
    Info {
        mode: Mode::of_number(superblock.mode),
        is_detached: superblock.state == DETACHED,
        origin_bytes: superblock.origin_bytes,
        origin: (!identity.is_empty()).then(|| identity.clone()),
        armed_samples: superblock.origin.armed.count_ones(),
        flash_bytes: superblock.flash_bytes,
        capacity_bytes: superblock.slots() * BLOCK,
        sets: superblock.sets,
        set_bytes: u64::from(superblock.set_slots) * BLOCK,
        run_bytes: u64::from(superblock.run_blocks) * BLOCK,
        mapping: mapping.to_owned(),
        dirty_blocks: store.dirty.into(),
        named_blocks: store.named.into(),
    }
}

impl Engine {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.read().clone()
    }

    /// Does work of the cache's own, in the thread or a caller's. A panic in it stops the cache.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&mut Cleaner, &Shared) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        let mut cleaner = self.cleaner.lock();
        let shared = self.shared();
        shared.guard(|| work(&mut cleaner, &shared))
    }

    /// The error of closing. A cache that has stopped names what was acknowledged, if its state is whole.
    fn not_closed(&self, why: CacheError) -> CacheError {
        let shared = self.shared();
        if shared.check_running().is_err() && shared.is_whole() && !shared.is_lost() {
            // Without it, everything is as after a crash, which is what the error says.
            let _ = shared.guard_device(|| {
                shared
                    .sync_flash()
                    .map_err(|error| shared.as_device_error(error, OpKind::Flush, Lba(0), 0))
            });
        }
        CacheError::NotClosed {
            device: shared.flash.name().to_owned(),
            dirty_bytes: shared.dirty_blocks() * BLOCK,
            why: Box::new(why),
        }
    }

    /// The life of the cache's thread.
    fn run(&self, bell: &(Mutex<bool>, Condvar)) {
        let clock = esker_base::Clock::real();
        let used = |total: &Totals| total.reads + total.writes;
        let mut seen = used(&self.shared().totals());
        let mut last_use = clock.now();
        let mut rest = INTERVAL;
        loop {
            let mut is_over = bell.0.lock();
            if !*is_over {
                bell.1.wait_for(&mut is_over, rest);
            }
            if *is_over {
                return;
            }
            drop(is_over);
            let now = clock.now();
            let uses = used(&self.shared().totals());
            let is_in_use = uses != seen;
            if is_in_use {
                (seen, last_use) = (uses, now);
            }
            let is_idle = now - last_use > IDLE;
            let stepped = match self.step(is_idle) {
                // Commands say so, and closing.
                Err(CacheError::Stopped { .. }) => return,
                // Any other error is one that a command meets as well, and reports.
                stepped => stepped.unwrap_or_default(),
            };
            let pause = (clock.now() - now) * stepped.rest;
            rest = match (stepped.is_busy, is_in_use) {
                (true, true) => pause,
                (true, false) => Duration::ZERO,
                (false, _) => INTERVAL.max(pause),
            };
            rest = rest.min(Duration::from_secs(1));
        }
    }

    fn step(&self, is_idle: bool) -> Result<Stepped, CacheError> {
        self.with(|cleaner, shared| {
            if shared.is_lost() {
                shared.catch_up();
                return Ok(Stepped::default());
            }
            let which = if is_idle { Which::All } else { Which::Due };
            // A failed step keeps no other from being done.
            let cleaned = cleaner.clean(shared, which).map(|blocks| blocks > 0);
            shared.check_running()?;
            let aged = cleaner.clean_aged(shared).map(|blocks| blocks > 0);
            shared.check_running()?;
            let written = shared.checkpoint_some(&mut shared.store.lock(), DRAIN_PAGES);
            let is_busy = [&cleaned, &aged, &written].iter().any(|one| matches!(one, Ok(true)));
            let named = match is_idle && !is_busy {
                true => cleaner.name_some(shared),
                false => cleaner.name_aged(shared),
            };
            cleaner.resample_seldom(shared)?;
            let is_busy = cleaned? | aged? | written? | named?;
            Ok(Stepped { is_busy, rest: cleaner.rest(shared) })
        })
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The thread is the parent's, and so are the locks that it holds.
            std::mem::forget(self.thread.take());
            return;
        }
        if self.end_thread() {
            // State that cannot be kept now is not kept; a caller that needs to know uses `shut`.
            let _ = self.close();
        }
    }
}

impl Device for Cache {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> Geometry {
        self.shared().geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        // Held until the queue pair is known, so that it is not missed when all have to stop.
        Ok(Box::new(Queue::open(&self.engine.shared.read(), &self.engine.queues, depth)?))
    }

    fn discards_zero(&self) -> bool {
        self.origin.discards_zero()
    }

    /// The origin as the cache has it, including blocks that are on the flash device only.
    fn identity(&self) -> Option<Identity> {
        let id = self.shared().store.lock().superblock.id;
        Some(self.origin.identity()?.part(&format!("cache-{id:x}")))
    }

    fn stats(&self) -> DeviceStats {
        let shared = self.shared();
        let total = shared.totals();
        DeviceStats {
            reads: total.reads,
            writes: total.writes,
            flushes: total.flushes,
            discards: total.discards,
            read_bytes: total.read_bytes,
            written_bytes: total.written_bytes,
            discarded_bytes: total.discarded_bytes,
            media_written_bytes: total.written_bytes,
            errors: total.errors,
            below: vec![shared.origin.stats(), shared.flash.stats()],
            ..Counters::default().snapshot(&shared.name)
        }
    }

    fn remarks(&self) -> Vec<String> {
        let shared = self.shared();
        let mut remarks = self.remarks.clone();
        remarks.extend(shared.warnings());
        remarks.extend(shared.origin.remarks());
        remarks.extend(shared.flash.remarks());
        remarks
    }

    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        self.origin.data_placement()
    }
}
