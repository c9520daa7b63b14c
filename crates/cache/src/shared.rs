//! State that the queue pairs of a cache share. It is the sets behind their locks, the store, and a few flags that are
//! read on every command and hardly ever change.
//!
//! Locks, in the order in which they may be taken: `gate`, `store`, `origin_port`, one set,
//! `pending`. A queue pair's own lock comes before all of them.
//!
//! Invariants
//! 1. A set is read from the medium before its first use, under the store's lock.
//! 2. `pending` has every slot whose name on the medium is not the right one yet, but for clean
//!    blocks without a name, which nobody promised to keep.
//! 3. `origin_unflushed` and `flash_unflushed` are set before a write is acknowledged.

mod budget;
mod figures;
mod origin;
mod stop;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use esker_base::Lba;
use esker_base::policy::Builder;
use esker_base::sync::{MappedMutexGuard, Mutex, MutexGuard};
use esker_base::units::{to_u64, to_usize};
use esker_device::{Device, DeviceError, Geometry, OpKind, PlacementId, Port};

use crate::admit::{Budget, Door};
use crate::counts::{Counted, Counts};
use crate::mapping::Mapping;
use crate::omf::{BLOCK, Name, Superblock};
use crate::options::{Bounds, Mode, OpenOptions};
use crate::origin::Watch;
use crate::sets::Set;
use crate::state::SetState;
use crate::store::Store;
use crate::{CacheError, Layout};
use stop::Stop;

/// A set in use, locked.
pub(crate) type SetGuard<'a> = MappedMutexGuard<'a, SetState>;

/// Blocks that a discard or a write of zeroes is working on.
struct ActiveRange {
    id: u64,
    first: u64,
    end: u64,
}

/// Everything but the queues themselves.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) origin: Arc<dyn Device>,
    pub(crate) flash: Arc<dyn Device>,
    pub(crate) origin_geometry: Geometry,
    pub(crate) flash_geometry: Geometry,
    pub(crate) options: OpenOptions,
    pub(crate) mapping: Mapping,
    pub(crate) layout: Layout,
    /// Blocks of the origin that can be cached, from 0 on.
    pub(crate) blocks: u64,
    sets: Box<[Mutex<Option<Box<SetState>>>]>,
    build_policy: Builder,
    pub(crate) store: Mutex<Store>,
    origin_port: Mutex<Port>,
    pub(crate) pending: Mutex<Vec<u32>>,
    /// Held while a batch is cleaned, and while a range is registered.
    pub(crate) gate: Mutex<()>,
    ranges: Mutex<Vec<ActiveRange>>,
    active_ranges: AtomicUsize,
    next_range: AtomicU64,
    mode: AtomicU8,
    bounds: Mutex<Bounds>,
    is_lost: AtomicBool,
    stop: Stop,
    /// The origin was written although the medium names its old content.
    has_missed_writes: AtomicBool,
    /// The samples of the origin.
    pub(crate) watch: Watch,
    /// How often a flush of the origin has failed: earlier writes may be gone.
    origin_losses: AtomicU64,
    /// How often it has failed while something was unflushed that the host wrote there.
    host_losses: AtomicU64,
    host_unflushed: AtomicBool,
    /// Whether a flush of the flash device has failed: the content of slots without a name may be gone.
    flash_forgot: AtomicBool,
    pub(crate) origin_unflushed: AtomicBool,
    pub(crate) flash_unflushed: AtomicBool,
    pub(crate) is_over_budget: AtomicBool,
    pub(crate) budget: Budget,
    pub(crate) door: Door,
    /// Dirty names of sets that were not read yet.
    unread_dirty: AtomicU64,
    pub(crate) counted: Arc<Counted>,
    /// Counts of work outside queue pairs: cleaning, commits.
    pub(crate) own: Arc<Counts>,
}

impl Shared {
    pub(crate) fn new(
        origin: Arc<dyn Device>,
        flash: Arc<dyn Device>,
        store: Store,
        mapping: Mapping,
        options: OpenOptions,
    ) -> Result<Shared, CacheError> {
        let superblock = store.superblock.clone();
        let layout = store.layout.clone();
        let origin_port = Mutex::new(Port::open(&*origin, 16)?);
        let mode = options.mode.unwrap_or(Mode::of_number(superblock.mode));
        let bytes = superblock.slots() * BLOCK;
        let OpenOptions { dirty_percent, dirty_age, name_age, .. } = options;
        let budget = Budget::new(&options.clock, options.writes_per_day, bytes);
        Ok(Shared {
            name: format!("cache of {}", origin.name()),
            origin_geometry: origin.geometry(),
            flash_geometry: flash.geometry(),
            mapping,
            blocks: superblock.origin_bytes / BLOCK,
            sets: (0..layout.sets).map(|_| Mutex::new(None)).collect(),
            build_policy: options.policy.builder(superblock.slots(), layout.set_slots),
            door: Door::new(options.admission, superblock.slots(), options.policy),
            options,
            layout,
            unread_dirty: AtomicU64::new(store.dirty.into()),
            store: Mutex::new(store),
            origin_port,
            pending: Mutex::default(),
            gate: Mutex::default(),
            ranges: Mutex::default(),
            active_ranges: AtomicUsize::new(0),
            next_range: AtomicU64::new(0),
            mode: AtomicU8::new(mode.number()),
            bounds: Mutex::new(Bounds { dirty_percent, dirty_age, name_age }),
            is_lost: AtomicBool::new(false),
            stop: Stop::default(),
            has_missed_writes: AtomicBool::new(false),
            watch: Watch::new(&superblock.origin),
            origin_losses: AtomicU64::new(0),
            host_losses: AtomicU64::new(0),
            host_unflushed: AtomicBool::new(false),
            flash_forgot: AtomicBool::new(false),
            origin_unflushed: AtomicBool::new(true),
            flash_unflushed: AtomicBool::new(false),
            is_over_budget: AtomicBool::new(false),
            budget,
            counted: Arc::default(),
            own: Arc::default(),
            origin,
            flash,
        })
    }

    /// The shared state from now on, over the flash device's current metadata: nothing may be under way. Counts, mode
    /// and budget stay; sets are read again when they are used.
    pub(crate) fn reopened(&self, store: Store, mapping: Mapping) -> Result<Shared, CacheError> {
        let (origin, flash) = (self.origin.clone(), self.flash.clone());
        let new = Shared::new(origin, flash, store, mapping, self.options.clone())?;
        new.set_mode(self.mode());
        new.set_bounds(self.bounds());
        new.store.lock().medium.written = self.metadata_bytes();
        new.watch.go_on_from(&self.watch);
        new.origin_losses.store(self.origin_losses(), Ordering::Release);
        new.host_losses.store(self.host_losses(), Ordering::Release);
        let host_unflushed = self.host_unflushed.load(Ordering::Acquire);
        new.host_unflushed.store(host_unflushed, Ordering::Release);
        let is_over_budget = self.is_over_budget.load(Ordering::Relaxed).into();
        let budget = new.budget.go_on_from(&self.budget);
        let (counted, own) = (self.counted.clone(), self.own.clone());
        let stop = self.stop.clone();
        Ok(Shared { counted, own, budget, is_over_budget, stop, ..new })
    }

    // ---- state -----------------------------------------------------------------------------------

    pub(crate) fn mode(&self) -> Mode {
        Mode::of_number(self.mode.load(Ordering::Relaxed))
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode.number(), Ordering::Relaxed);
    }

    pub(crate) fn bounds(&self) -> Bounds {
        *self.bounds.lock()
    }

    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.lock() = bounds;
    }

    /// Whether the flash device's metadata can no longer be changed.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn miss_write(&self) {
        self.has_missed_writes.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_missed_writes(&self) -> bool {
        self.has_missed_writes.load(Ordering::Relaxed)
    }

    pub(crate) fn caught_up(&self) {
        self.has_missed_writes.store(false, Ordering::Relaxed);
    }

    /// Changes the superblock. When that fails it is as it was, or nothing is cached any more.
    pub(crate) fn change_superblock(
        &self,
        store: &mut Store,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), CacheError> {
        store.update(change).inspect_err(|_| {
            // One copy may say so already: it must return to the old content, or nothing counts.
            if store.update(|_| {}).is_err() {
                store.abandon();
                self.lose();
            }
        })
    }

    /// Sets a flag that is mostly set already, without taking its cache line from others.
    pub(crate) fn raise(flag: &AtomicBool) {
        if !flag.load(Ordering::Acquire) {
            flag.store(true, Ordering::Release);
        }
    }

    // ---- sets ------------------------------------------------------------------------------------

    /// The set of a block, read from the medium if this is its first use.
    #[inline]
    pub(crate) fn set_of(&self, block: u64) -> Result<SetGuard<'_>, CacheError> {
        self.set(self.mapping.set_of(block))
    }

    /// The set with this number.
    #[inline]
    pub(crate) fn set(&self, set: u32) -> Result<SetGuard<'_>, CacheError> {
        if let Some(guard) = self.set_if_read(set) {
            return Ok(guard);
        }
        self.read_set(&mut self.store.lock(), set)?;
        Ok(self.set_if_read(set).expect("a set that was read stays"))
    }

    /// The set with this number, for the holder of the store.
    pub(crate) fn set_with(&self, store: &mut Store, set: u32) -> Result<SetGuard<'_>, CacheError> {
        self.read_set(store, set)?;
        Ok(self.set_if_read(set).expect("a set that was read stays"))
    }

    #[inline]
    pub(crate) fn set_if_read(&self, set: u32) -> Option<SetGuard<'_>> {
        let guard = self.sets[to_usize(set.into())].lock();
        MutexGuard::try_map(guard, |set| set.as_deref_mut()).ok()
    }

    /// The set of a slot that is or was in use.
    pub(crate) fn set_of_slot(&self, slot: u32) -> SetGuard<'_> {
        let (set, _) = self.layout.place_of(slot);
        self.set_if_read(set).expect("a slot in use is in a set that was read")
    }

    /// Whether two slots are in one set, and next to each other if their numbers are.
    pub(crate) fn is_same_set(&self, slot: u32, other: u32) -> bool {
        self.layout.are_together(slot, other)
    }

    /// The slot's index in its set.
    pub(crate) fn index(&self, slot: u32) -> u32 {
        self.layout.place_of(slot).1
    }

    /// The slot, counted over all sets.
    pub(crate) fn slot(&self, set: u32, index: u32) -> u32 {
        self.layout.slot_of(set, index)
    }

    fn read_set(&self, store: &mut Store, set: u32) -> Result<(), CacheError> {
        if self.set_if_read(set).is_some() {
            return Ok(());
        }
        let loaded = match store.load(set) {
            // A set that cannot be read twice fails commands, or costs the cache.
            Err(CacheError::Device(_)) => store.load(set)?,
            loaded => loaded?,
        };
        let policy = (self.build_policy)(self.layout.set_slots);
        let mut state = SetState::new(Set::new(set, self.mapping, policy));
        let mut dirty = 0;
        for (slot, name) in loaded.names {
            let block = name.block().unwrap_or_default();
            let is_ours = block < self.blocks && self.mapping.set_of(block) == set;
            if !is_ours || state.set.lookup(block).is_some() {
                let why =
                    crate::omf::FormatError::Value { what: "the block of a slot", found: block };
                let offset = self.layout.tables(0).next().map_or(0, |(table, _)| table);
                let device = self.flash.name();
                return Err(CacheError::corrupt(device, "a page of the table", offset, &why));
            }
            if matches!(name, Name::Dirty(_)) {
                dirty += 1;
            }
            state.restore(slot, name);
        }
        self.unread_dirty.fetch_sub(dirty, Ordering::Relaxed);
        *self.sets[to_usize(set.into())].lock() = Some(Box::new(state));
        store.loaded(set);
        Ok(())
    }

    /// Dirty blocks, in memory and in sets that were not read yet.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        let read = (0..self.layout.sets).filter_map(|set| self.set_if_read(set));
        let dirty: u64 = read.map(|set| u64::from(set.set.dirty_count())).sum();
        dirty + self.unread_dirty()
    }

    /// Dirty names of sets that were not read yet.
    pub(crate) fn unread_dirty(&self) -> u64 {
        self.unread_dirty.load(Ordering::Relaxed)
    }

    /// Whether the flash device has, or may have, something that the origin has not.
    pub(crate) fn owes_dirty(&self) -> bool {
        self.dirty_blocks() > 0 || self.store.lock().dirty > 0
    }

    /// Bytes of memory for all sets, and for the history of blocks outside.
    pub(crate) fn memory_bytes(&self) -> usize {
        let read = (0..self.layout.sets).filter_map(|set| self.set_if_read(set));
        let sets = read.map(|set| set.memory_bytes()).sum::<usize>() + size_of_val(&*self.sets);
        sets + self.door.memory_bytes()
    }

    // ---- ranges ----------------------------------------------------------------------------------

    /// Registers a discard or a write of zeroes. Waits for a batch that is being cleaned; the next
    /// one leaves the range alone.
    pub(crate) fn begin_range(&self, first: u64, end: u64) -> u64 {
        let _gate = self.gate.lock();
        let id = self.next_range.fetch_add(1, Ordering::Relaxed);
        self.ranges.lock().push(ActiveRange { id, first, end });
        self.active_ranges.fetch_add(1, Ordering::SeqCst);
        id
    }

    pub(crate) fn end_range(&self, id: u64) {
        self.ranges.lock().retain(|range| range.id != id);
        self.active_ranges.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a discard or a write of zeroes is working on `block`.
    pub(crate) fn is_in_range(&self, block: u64) -> bool {
        self.active_ranges.load(Ordering::SeqCst) > 0
            && self.ranges.lock().iter().any(|range| (range.first..range.end).contains(&block))
    }

    /// Whether a crash can tear an LBA of the cache in a slot that is written in place: the flash
    /// device has smaller LBAs than the origin.
    pub(crate) fn tears_blocks(&self) -> bool {
        self.flash_geometry.lba_size < self.origin_geometry.lba_size
    }

    // ---- addresses -------------------------------------------------------------------------------

    pub(crate) fn flash_lba(&self, slot: u32, skip: u64) -> Lba {
        Lba((self.layout.slot(slot) + skip) / u64::from(self.flash_geometry.lba_size))
    }

    pub(crate) fn origin_lba(&self, offset: u64) -> Lba {
        Lba(offset / u64::from(self.origin_geometry.lba_size))
    }

    /// The placement id of cached data: apart from the metadata, which is rewritten more often.
    pub(crate) fn data_placement(&self) -> Option<PlacementId> {
        (self.flash_geometry.placement_handles > 1).then_some(PlacementId(1))
    }

    // ---- flushes ---------------------------------------------------------------------------------

    /// Makes the origin's completed writes durable.
    pub(crate) fn flush_origin(&self) -> Result<(), DeviceError> {
        let mut port = self.origin_port.lock();
        if !self.origin_unflushed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let host_wrote = self.host_unflushed.swap(false, Ordering::AcqRel);
        port.flush().inspect_err(|_| {
            self.origin_losses.fetch_add(1, Ordering::AcqRel);
            if host_wrote {
                self.host_losses.fetch_add(1, Ordering::AcqRel);
                Shared::raise(&self.host_unflushed);
            }
            Shared::raise(&self.origin_unflushed);
        })
    }

    /// How often a flush of the origin has failed. A device may fail one flush and then go on without the writes
    /// that it has lost: this tells earlier writers, although another one asked for that flush.
    pub(crate) fn origin_losses(&self) -> u64 {
        self.origin_losses.load(Ordering::Acquire)
    }

    /// How often that may have cost writes of the host to the origin.
    pub(crate) fn host_losses(&self) -> u64 {
        self.host_losses.load(Ordering::Acquire)
    }

    /// A command of the host has written the origin.
    pub(crate) fn host_wrote_origin(&self) {
        Shared::raise(&self.host_unflushed);
        Shared::raise(&self.origin_unflushed);
    }

    /// Whether the flash device may have lost the content of slots without a name.
    pub(crate) fn flash_forgot(&self) -> bool {
        self.flash_forgot.load(Ordering::Acquire)
    }

    /// Makes the flash device's completed writes durable.
    pub(crate) fn flush_flash(&self, store: &mut Store) -> Result<(), DeviceError> {
        self.flash_unflushed.store(false, Ordering::Release);
        store.flush().inspect_err(|_| {
            Shared::raise(&self.flash_unflushed);
            Shared::raise(&self.flash_forgot);
            self.lose();
        })
    }

    /// An error of the cache as the error of a command.
    pub(crate) fn as_device_error(
        &self,
        error: CacheError,
        op: OpKind,
        lba: Lba,
        bytes: u64,
    ) -> DeviceError {
        match error {
            CacheError::Device(error) => error,
            stopped @ CacheError::Stopped { .. } => {
                let cause = esker_device::Cause::Gone(stopped.to_string());
                DeviceError::new(&self.name, op, lba, bytes, cause)
            }
            other => {
                let cause = esker_device::Cause::Media(other.to_string());
                DeviceError::new(&self.name, op, lba, bytes, cause)
            }
        }
    }

    /// The geometry of the cache as a device.
    pub(crate) fn geometry(&self) -> Geometry {
        let origin = self.origin.geometry();
        let is_volatile = origin.volatile_write_cache
            || self.flash_geometry.volatile_write_cache
            || self.mode() == Mode::WriteBack;
        Geometry {
            max_transfer_size: origin.max_transfer_size.min(16 << 20),
            volatile_write_cache: is_volatile,
            ..origin
        }
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u64 {
        u64::from(self.layout.sets) * u64::from(self.layout.set_slots)
    }

    /// Bytes written to the flash device for metadata.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.store.lock().medium.written
    }

    pub(crate) fn pending_len(&self) -> u64 {
        to_u64(self.pending.lock().len())
    }
}
