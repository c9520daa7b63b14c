//! More or fewer slots for every set, while the cache is in use.
//!
//! Called by the cache's user. All queue pairs come to a stop, and cached blocks get names. The
//! superblock says how many rows there are, and everything goes on over metadata that are read
//! anew, as after a restart. So it takes no longer than closing and opening a cache. Most of the
//! writing back and naming is done before the stop.
//!
//! Invariants
//! 1. A row is empty on the medium before the superblock counts it.
//! 2. No slot of a row has a name, and that durably, before the superblock counts it no longer.
//! 3. When the superblock's content is unknown, no slot gets a name any more.

use std::sync::Arc;
use std::time::Duration;

use esker_base::sync::MutexGuard;

use crate::CacheError;
use crate::cache::{Cache, mapping_of};
use crate::clean::{Cleaner, Which};
use crate::commit::Wanted;
use crate::layout::Layout;
use crate::medium::Medium;
use crate::omf::{BLOCK, MAX_ROWS, Rows, Superblock};
use crate::queue::{Pump, PumpCell};
use crate::shared::Shared;
use crate::store::Store;

impl Cache {
    /// Gives the cache `flash_bytes` of the flash device, while it is in use. Nothing is lost:
    /// blocks in slots that go are written back, and blocks in others stay cached. It grows by any
    /// size, and shrinks by whole rows: eighths of its original size, then the rows that it grew
    /// by. Every command waits for as long as closing and opening the cache would take.
    ///
    /// # Errors
    /// `Invalid` when the flash device is smaller, `NotInPlace` when the cache does not allow that
    /// size, and the message says which it does allow; `FlashLost`; a device's. The cache is as it
    /// was then, unless the flash device failed when the superblock was written: then it is lost
    /// until it is opened again.
    pub fn resize(&self, flash_bytes: u64) -> Result<(), CacheError> {
        self.engine.with(|cleaner, shared| {
            if shared.is_lost() {
                return Err(CacheError::FlashLost { device: shared.flash.name().to_owned() });
            }
            let next = plan(shared, flash_bytes)?;
            if next.rows == shared.layout.rows() {
                let mut store = shared.store.lock();
                shared.change_superblock(&mut store, |it| it.flash_bytes = next.flash_bytes)?;
                return shared.renew_journal(&mut store);
            }
            // Until the stop others go on to write: there may be no end to it.
            empty(shared, cleaner, next.set_slots, shared.slots() / 64 + 16)?;
            cleaner.name_all(shared)?;

            let mut current = self.engine.shared.write();
            let queues = self.engine.queues.all();
            let mut pumps = stop(&queues)?;
            let new = Arc::new(change(&current, cleaner, &next)?);
            pumps.iter_mut().for_each(|pump| pump.go_on_with(&new));
            *current = new;
            Ok(())
        })
    }
}

/// The superblock of a cache of this size.
fn plan(shared: &Shared, flash_bytes: u64) -> Result<Superblock, CacheError> {
    let (layout, superblock) = (&shared.layout, shared.store.lock().superblock.clone());
    let flash_bytes = flash_bytes / BLOCK * BLOCK;
    let geometry = shared.flash.geometry();
    let has = geometry.capacity.bytes(geometry.lba_size);
    let name = shared.flash.name();
    let not_in_place = |why: String| Err(CacheError::NotInPlace { device: name.to_owned(), why });
    if flash_bytes > has {
        return Err(CacheError::Invalid(format!("{name} has {has} bytes, not {flash_bytes}")));
    }
    let rows = if flash_bytes < layout.least_end() {
        let Some(rows) = layout.shrunk(flash_bytes) else {
            let least = layout.least_bytes();
            return not_in_place(format!("cannot shrink below {least} bytes while it is kept"));
        };
        rows
    } else {
        let rows = layout.rows();
        if rows.as_slice().len() == MAX_ROWS && flash_bytes > superblock.flash_bytes {
            return not_in_place("has grown and shrunk too often to grow in place".into());
        }
        // A little more that is of no use yet is kept for later.
        layout.grown(flash_bytes).unwrap_or(rows)
    };
    let next = with_rows(&superblock, rows, flash_bytes);
    if Layout::of(&next).least_area_bytes(1) > superblock.area_bytes {
        return not_in_place(format!("has too small a journal for {flash_bytes} bytes"));
    }
    Ok(next)
}

fn with_rows(superblock: &Superblock, rows: Rows, flash_bytes: u64) -> Superblock {
    let set_slots = rows.as_slice().iter().sum();
    Superblock { rows, set_slots, flash_bytes, ..superblock.clone() }
}

/// Writes back dirty slots from index `least` of their sets on, in `most` batches at most.
fn empty(shared: &Shared, cleaner: &mut Cleaner, least: u32, most: u64) -> Result<(), CacheError> {
    if least >= shared.layout.set_slots {
        return Ok(());
    }
    for _ in 0..most {
        if cleaner.clean(shared, Which::From(least))? == 0 {
            break;
        }
    }
    Ok(())
}

/// Locks all queue pairs once nothing is under way in any of them.
fn stop(queues: &[Arc<PumpCell>]) -> Result<Vec<MutexGuard<'_, Pump>>, CacheError> {
    let mut pumps: Vec<_> = queues.iter().map(|queue| queue.lock()).collect();
    pumps.iter().try_for_each(|pump| pump.check_whole())?;
    // Some may wait for blocks that others are writing.
    while !pumps.iter().all(|pump| pump.is_idle()) {
        for pump in &mut pumps {
            pump.enter(|pump| {
                pump.pump();
                if !pump.is_idle() {
                    pump.wait_below(Some(Duration::from_millis(1)));
                }
            })?;
        }
    }
    Ok(pumps)
}

/// Changes the rows on the medium, while nothing is under way.
fn change(shared: &Shared, cleaner: &mut Cleaner, next: &Superblock) -> Result<Shared, CacheError> {
    let old_slots = shared.layout.set_slots;
    empty(shared, cleaner, next.set_slots, u64::MAX)?;
    vacate(shared, next.set_slots)?;
    shared.sync_flash()?;
    cleaner.name_all(shared)?;
    let mut store = shared.store.lock();
    if next.set_slots > old_slots {
        for (table, size) in Layout::of(next).tables(old_slots) {
            store.medium.zero(table, size)?;
        }
        store.medium.flush()?;
    }
    shared.change_superblock(&mut store, |superblock| {
        *superblock = with_rows(superblock, next.rows, next.flash_bytes);
    })?;
    let superblock = store.superblock.clone();
    drop(store);
    let reopened = Medium::open(&shared.flash)
        .and_then(|medium| Store::open(medium, superblock.clone()))
        .and_then(|store| shared.reopened(store, mapping_of(&superblock)?));
    let renewed = reopened.and_then(|new| {
        new.renew_journal(&mut new.store.lock())?;
        Ok(new)
    });
    renewed.inspect_err(|_| {
        shared.store.lock().abandon();
        shared.lose();
    })
}

/// Takes all blocks out of slots from index `least` of their sets on, and their names.
fn vacate(shared: &Shared, least: u32) -> Result<(), CacheError> {
    if least >= shared.layout.set_slots {
        return Ok(());
    }
    for number in 0..shared.layout.sets {
        let mut set = shared.set(number)?;
        let Some(named) = set.vacate(least) else {
            let why = "what is in slots that go could not be written back; try again".to_owned();
            return Err(CacheError::Invalid(why));
        };
        let slots = named.into_iter().map(|index| shared.slot(number, index));
        shared.pending.lock().extend(slots);
    }
    shared.commit(&Wanted::Nothing)?;
    let is_named = |number: u32| -> Result<bool, CacheError> {
        let set = shared.set(number)?;
        Ok((least..shared.layout.set_slots).any(|index| set.is_named(index)))
    };
    for number in 0..shared.layout.sets {
        assert!(!is_named(number)?, "a slot that goes has a name");
    }
    Ok(())
}
