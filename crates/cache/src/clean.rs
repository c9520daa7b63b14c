//! Writes dirty blocks back to the origin, in its order and with their neighbours, and gives clean
//! blocks names, so that they survive a restart.
//!
//! Called by the cache's thread, or by a caller that steps it; and when everything has to be clean.
//!
//! Invariants
//! 1. A block is written back only from a slot that the medium names dirty: so a crash in between
//!    finds it dirty still.
//! 2. No sample of the origin is armed at a block when that is written back.
//! 3. A block is clean only after the origin has it durably, and if nothing else was written to its
//!    slot since it was read.

mod age;
mod resample;

use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, BufPool, Lba, Nanos};
use esker_device::{Cause, DeviceError, Op, OpKind, Port};

use crate::CacheError;
use crate::commit::Wanted;
use crate::counts::add_shared;
use crate::omf::{BLOCK, BLOCK_SIZE};
use crate::shared::Shared;
use crate::writeback::WriteBack;
use age::Ages;

/// Blocks in one batch.
const BATCH: usize = 256;
/// The largest write to the origin, in bytes.
const LARGEST_WRITE: u64 = 1 << 20;
/// Bytes of buffers that may lie idle between two batches.
const MOST_IDLE_BYTES: usize = 4 << 20;
/// How often the cleaner waits for writers of dirty blocks, a millisecond each.
const IDLE_TRIES: u32 = 1_000;
/// Commands in flight at a device.
const DEPTH: usize = 16;

/// Ports of its own, and where it stands.
pub(crate) struct Cleaner {
    flash: Port,
    pub(crate) origin: Port,
    rule: WriteBack,
    pool: BufPool,
    /// The set to look at next, for cleaning and for naming.
    next: u32,
    next_named: u32,
    ages: Ages,
    /// When samples of the origin were taken last.
    pub(crate) resampled: Option<Nanos>,
}

/// Scope of a cleaning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Blocks whose slots others are likely to need soon.
    Due,
    /// Blocks that are swept because of their age.
    Aged,
    /// Everything.
    All,
    /// Slots with this index in their set or a higher one.
    From(u32),
}

/// A dirty block on its way to the origin.
struct Entry {
    block: u64,
    slot: u32,
    buf: Option<AlignedBuf>,
    is_done: bool,
}

impl Cleaner {
    pub(crate) fn new(shared: &Shared) -> Result<Cleaner, CacheError> {
        let rule = WriteBack::default();
        let flash = Port::open(&*shared.flash, DEPTH)?;
        let origin = Port::open(&*shared.origin, DEPTH)?;
        let pool = BufPool::new(MOST_IDLE_BYTES);
        let (next, next_named, resampled) = (0, 0, None);
        let ages = Ages::new(shared);
        Ok(Cleaner { flash, origin, rule, pool, next, next_named, ages, resampled })
    }

    /// Cleans up to a batch, and says how many blocks are clean now that were dirty before.
    pub(crate) fn clean(&mut self, shared: &Shared, which: Which) -> Result<u64, CacheError> {
        if shared.pending_len() > 0 {
            shared.commit(&Wanted::Nothing)?;
        }
        let _gate = shared.gate.lock();
        let mut entries = match which {
            Which::Aged => self.gather_aged(shared)?,
            _ => self.gather(shared, which)?,
        };
        if entries.is_empty() {
            self.pool.clear();
            return Ok(0);
        }
        entries.sort_by_key(|entry| entry.block);
        let result = self.write_back(shared, &mut entries);
        let (mut cleaned, mut has_failed) = (0, false);
        for entry in &entries {
            let is_done = entry.is_done && result.is_ok();
            has_failed |= !is_done;
            let mut set = shared.set_of_slot(entry.slot);
            if set.end_clean(shared.index(entry.slot), entry.block, is_done) {
                cleaned += 1;
                shared.pending.lock().push(entry.slot);
            }
        }
        if has_failed && which == Which::Aged {
            self.fail_sweep();
        }
        add_shared(&shared.own.cleaned, cleaned);
        result.map(|()| cleaned)
    }

    fn gather(&mut self, shared: &Shared, which: Which) -> Result<Vec<Entry>, CacheError> {
        let mut entries = Vec::new();
        self.rule.dirty_permille = u32::from(shared.bounds().dirty_percent) * 10;
        for _ in 0..shared.layout.sets {
            let number = self.next % shared.layout.sets;
            let mut set = match which {
                Which::Due | Which::Aged => match shared.set_if_read(number) {
                    Some(set) => set,
                    None => {
                        self.next = number + 1;
                        continue;
                    }
                },
                Which::All | Which::From(_) => match shared.set(number) {
                    Ok(set) => set,
                    // Gathered blocks are pinned: they go first, and then the next ones.
                    Err(error) => {
                        self.next = number + 1;
                        return if entries.is_empty() { Err(error) } else { Ok(entries) };
                    }
                },
            };
            let begin = |set: &mut crate::shared::SetGuard<'_>, index: u32| {
                let block = set.set.block(index)?;
                if shared.is_in_range(block) {
                    return None;
                }
                let block = set.begin_clean(index)?;
                let slot = shared.slot(number, index);
                Some(Entry { block, slot, buf: None, is_done: false })
            };
            match which {
                Which::All | Which::From(_) => {
                    let least = if let Which::From(index) = which { index } else { 0 };
                    if set.set.dirty_count() > 0 {
                        for index in set.dirty_slots(least) {
                            entries.extend(begin(&mut set, index));
                            if entries.len() >= BATCH {
                                return Ok(entries);
                            }
                        }
                    }
                }
                Which::Due | Which::Aged => {
                    for index in self.rule.due(&set.set) {
                        // A neighbour may have taken it along.
                        let Some(entry) = begin(&mut set, index) else { continue };
                        let block = entry.block;
                        entries.push(entry);
                        for block in self.rule.extent_in_open(&set.set, block) {
                            let index = set.set.lookup(block).expect("an extent is cached");
                            entries.extend(begin(&mut set, index));
                        }
                        if entries.len() >= BATCH {
                            return Ok(entries);
                        }
                    }
                }
            }
            self.next = number + 1;
        }
        Ok(entries)
    }

    fn write_back(&mut self, shared: &Shared, entries: &mut [Entry]) -> Result<(), CacheError> {
        let losses = shared.origin_losses();
        let mut error: Option<CacheError> = None;
        let pool = &mut self.pool;
        let reads = entries.iter().map(|entry| Op::Read {
            lba: shared.flash_lba(entry.slot, 0),
            buf: pool.take(BLOCK_SIZE),
        });
        let mut read: Vec<Option<AlignedBuf>> = entries.iter().map(|_| None).collect();
        let reads: Vec<Op> = reads.collect();
        shared.guard_device(|| {
            self.flash.run_all(reads, |n, result| match result {
                Ok(buf) => read[n] = buf,
                Err(found) => error = Some(found.into()),
            })
        })?;
        for (entry, buf) in entries.iter_mut().zip(read) {
            entry.buf = buf;
        }
        let most = u64::from(shared.origin_geometry.max_transfer_size).min(LARGEST_WRITE);
        let most = to_usize((most / BLOCK).max(1));
        // Runs of neighbours: where each begins, and how many there are.
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for n in 0..entries.len() {
            if entries[n].buf.is_none() {
                continue;
            }
            match runs.last_mut() {
                Some((first, count))
                    if *first + *count == n
                        && *count < most
                        && entries[n].block == entries[n - 1].block + 1 =>
                {
                    *count += 1;
                }
                _ => runs.push((n, 1)),
            }
        }
        let bytes_of = |entries: &[Entry], (first, count): (usize, usize)| {
            let block = entries[first].block;
            block * BLOCK..(block + to_u64(count)) * BLOCK
        };
        for run in &runs {
            shared.release_samples(bytes_of(entries, *run), false)?;
        }
        let lba_size = u64::from(shared.origin_geometry.lba_size);
        let writes: Vec<Op> = runs
            .iter()
            .map(|(first, count)| {
                let part = &mut entries[*first..first + count];
                let lba = Lba(part[0].block * BLOCK / lba_size);
                let buf = match count {
                    1 => part[0].buf.take().expect("it was read"),
                    _ => {
                        let mut all = pool.take(count * BLOCK_SIZE);
                        for (to, entry) in all.chunks_exact_mut(BLOCK_SIZE).zip(part) {
                            let block = entry.buf.take().expect("it was read");
                            to.copy_from_slice(&block);
                            pool.give(block);
                        }
                        all
                    }
                };
                Op::Write { lba, buf, placement: None, fua: false }
            })
            .collect();
        add_shared(&shared.own.clean_writes, to_u64(writes.len()));
        let written = shared.guard_device(|| {
            self.origin.run_all(writes, |n, result| match result {
                Ok(buf) => {
                    pool.give(buf.expect("a write brings its buffer back"));
                    let (first, count) = runs[n];
                    entries[first..first + count].iter_mut().for_each(|entry| entry.is_done = true);
                }
                Err(found) => {
                    shared.watch.distrust(&bytes_of(entries, runs[n]));
                    error = Some(found.into());
                }
            })
        });
        let done = entries.iter().filter(|entry| entry.is_done).count();
        add_shared(&shared.own.origin_written_bytes, to_u64(done) * BLOCK);
        add_shared(&shared.own.flash_read_bytes, to_u64(entries.len()) * BLOCK);
        Shared::raise(&shared.origin_unflushed);
        written?;
        shared.guard_device(|| shared.flush_origin())?;
        if shared.origin_losses() != losses {
            // Another one's flush failed in between: the blocks written here may be gone.
            let why = "a flush failed while blocks were written back; they are still dirty";
            return Err(origin_lost(shared, why).into());
        }
        match error {
            // Something was cleaned: the rest is tried again.
            Some(error) if done == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes everything back. Others may go on to write: it ends all the same.
    ///
    /// # Errors
    /// `InUse` when they leave no end to it; a device's.
    pub(crate) fn clean_all(&mut self, shared: &Shared) -> Result<(), CacheError> {
        // Twice the blocks that were dirty at first, and a batch.
        let mut most = 2 * shared.dirty_blocks() + to_u64(BATCH);
        let mut idle = 0;
        while shared.dirty_blocks() > 0 {
            // A block that is being written cannot be cleaned: its writer has to go on first.
            let cleaned = self.clean(shared, Which::All)?;
            most = most.saturating_sub(cleaned);
            idle = if cleaned > 0 { 0 } else { idle + 1 };
            if most == 0 || idle > IDLE_TRIES {
                return Err(CacheError::InUse { device: shared.flash.name().to_owned() });
            }
            if cleaned == 0 {
                esker_base::Clock::real().sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Gives names to the clean blocks of the next set that has some without; false after a whole
    /// round without any.
    pub(crate) fn name_some(&mut self, shared: &Shared) -> Result<bool, CacheError> {
        for _ in 0..shared.layout.sets {
            let number = self.next_named % shared.layout.sets;
            self.next_named = number + 1;
            if name_set(shared, number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives names to all clean blocks that have none now.
    pub(crate) fn name_all(&mut self, shared: &Shared) -> Result<(), CacheError> {
        (0..shared.layout.sets).try_for_each(|number| name_set(shared, number).map(drop))
    }
}

/// The origin has failed a flush that another one asked for.
pub(crate) fn origin_lost(shared: &Shared, why: &str) -> DeviceError {
    let cause = Cause::Media(why.to_owned());
    DeviceError::new(shared.origin.name(), OpKind::Flush, Lba(0), 0, cause)
}

/// Gives names to the clean blocks of a set that have none, and says whether any got one.
fn name_set(shared: &Shared, number: u32) -> Result<bool, CacheError> {
    let Some(set) = shared.set_if_read(number) else { return Ok(false) };
    let unnamed = set.unnamed_clean_slots(0);
    drop(set);
    if unnamed.is_empty() {
        return Ok(false);
    }
    let slots: Vec<u32> = unnamed.into_iter().map(|index| shared.slot(number, index)).collect();
    Ok(shared.commit(&Wanted::Named(&slots))? > 0)
}

impl WriteBack {
    /// The extent around `block`, which is being cleaned already, without it.
    fn extent_in_open(&self, set: &crate::sets::Set, block: u64) -> Vec<u64> {
        use crate::writeback::Content;
        let content = |other: u64| match set.lookup(other) {
            _ if other == block => Content::Dirty,
            Some(slot) if set.is_busy(slot) => Content::Absent,
            Some(slot) if set.is_dirty(slot) => Content::Dirty,
            Some(_) => Content::Clean,
            None => Content::Absent,
        };
        let extent = self.extent(block, set.run_blocks(), content);
        extent.filter(|other| *other != block && content(*other) == Content::Dirty).collect()
    }
}
