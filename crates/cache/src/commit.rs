//! Gives slots their true names on the medium: one journal record for all that has changed.
//!
//! Called by queue pairs (a flush, a slot that has to lose its name before the origin or the slot
//! is written), by `clean`, and when a cache is closed.
//!
//! Invariants: these make every crash harmless
//! 1. A slot is named dirty, or clean, only after the data in it is durable.
//! 2. A slot is named clean, or loses the name dirty, only after the origin's content is durable.
//! 3. A slot without a block is free only after the medium does not name it.
//! 4. All changes of the names of one block are in one record: whatever prefix of the records a
//!    crash leaves, no block has two names, and none is without while it moves to another slot.

use std::sync::atomic::Ordering;

use crate::CacheError;
use crate::omf::{Change, Name};
use crate::shared::Shared;
use crate::store::{DRAIN_PAGES, Store};

/// A request about slots that hold clean blocks, beside the pending changes.
pub(crate) enum Wanted<'a> {
    /// Nothing.
    Nothing,
    /// They lose their names: the origin is about to be written.
    Unnamed(&'a [u32]),
    /// They get names: they survive a restart.
    Named(&'a [u32]),
}

/// A slot whose name is to change, the name that it has, and the one that it gets.
type Move = (u32, Name, Name);

/// The block whose name changes.
fn block_of((_, old, new): &Move) -> Option<u64> {
    new.block().or(old.block())
}

/// How many of `moves`, which are in the order of their blocks, go into a record of at most `most`
/// changes: none of the last block's is left for the next one.
fn in_one_record(moves: &[Move], most: usize) -> usize {
    if moves.len() <= most {
        return moves.len();
    }
    let is_between = |at: &usize| block_of(&moves[*at - 1]) != block_of(&moves[*at]);
    (1..=most).rev().find(is_between).unwrap_or(most)
}

impl Shared {
    /// The host's flush of the flash device: makes durable the data written to it, and the names of
    /// its slots.
    pub(crate) fn sync_flash(&self) -> Result<(), CacheError> {
        let mut store = self.store.lock();
        self.commit_with(&mut store, &Wanted::Nothing)?;
        // Rewritten in place, under the names that they had.
        if self.flash_unflushed.load(Ordering::Acquire) {
            self.flush_flash(&mut store)?;
        }
        Ok(())
    }

    /// Makes pending names durable, and those that are wanted; how many changed.
    pub(crate) fn commit(&self, wanted: &Wanted<'_>) -> Result<usize, CacheError> {
        self.commit_with(&mut self.store.lock(), wanted)
    }

    fn commit_with(&self, store: &mut Store, wanted: &Wanted<'_>) -> Result<usize, CacheError> {
        if store.is_broken() {
            self.lose();
            return Err(CacheError::FlashLost { device: self.flash.name().to_owned() });
        }
        let taken = std::mem::take(&mut *self.pending.lock());
        let result = self.commit_slots(store, &taken, wanted);
        if result.is_err() {
            self.pending.lock().extend(taken);
            if store.is_broken() {
                self.lose();
            }
        }
        result
    }

    fn commit_slots(
        &self,
        store: &mut Store,
        pending: &[u32],
        wanted: &Wanted<'_>,
    ) -> Result<usize, CacheError> {
        let mut moves: Vec<Move> = Vec::new();
        let mut propose = |slots: &[u32], is_wanted: Option<bool>| {
            for &slot in slots {
                let mut set = self.set_of_slot(slot);
                let index = self.index(slot);
                if is_wanted == Some(true) {
                    // While a range is zeroed, the origin's content is unknown.
                    let block = set.set.block(index);
                    if block.is_none_or(|block| self.is_in_range(block)) {
                        continue;
                    }
                }
                if let Some((old, new)) = set.propose(index, is_wanted) {
                    moves.push((slot, old, new));
                }
            }
        };
        match wanted {
            Wanted::Nothing => {}
            Wanted::Unnamed(slots) => propose(slots, Some(false)),
            Wanted::Named(slots) => propose(slots, Some(true)),
        }
        propose(pending, None);
        if moves.is_empty() {
            return Ok(0);
        }
        let count = moves.len();
        let result = self.write_moves(store, &mut moves);
        // A record that failed may be there all the same: nobody relies on either name.
        if result.is_err() && !store.is_broken() {
            for (slot, _, _) in moves.iter().filter(|(_, old, new)| old != new) {
                self.set_of_slot(*slot).give_up(self.index(*slot));
            }
        }
        result.map(|()| count)
    }

    /// Writes changes. On failure, a change that is durable already has its new name as the old
    /// one, too. A set takes its new names only once they are durable. The next record may need the
    /// area that holds them, and then the names in the sets go to the table.
    fn write_moves(&self, store: &mut Store, moves: &mut [Move]) -> Result<(), CacheError> {
        // A dirty block that was written back may have been rewritten in place just before.
        let gives_name = |(_, _, new): &Move| *new != Name::None;
        let trusts_origin = |(_, old, new): &Move| {
            matches!(old, Name::Dirty(_)) || matches!((old, new), (Name::None, Name::Clean(_)))
        };
        if moves.iter().any(trusts_origin) {
            self.flush_origin()?;
        }
        if moves.iter().any(gives_name) {
            self.flush_flash(store)?;
        }
        moves.sort_by_key(|one| (block_of(one), one.0));
        let mut rest = moves;
        while !rest.is_empty() {
            let count = in_one_record(rest, store.record_changes());
            let part;
            (part, rest) = rest.split_at_mut(count);
            let changes: Vec<Change> =
                part.iter().map(|(slot, _, name)| Change { slot: *slot, name: *name }).collect();
            self.append(store, &changes, part)?;
            for (slot, old, new) in part {
                self.set_of_slot(*slot).apply(self.index(*slot), *new);
                *old = *new;
            }
        }
        Ok(())
    }

    fn append(
        &self,
        store: &mut Store,
        changes: &[Change],
        moves: &[Move],
    ) -> Result<(), CacheError> {
        self.make_room(store, changes.len())?;
        let counts = |is_it: fn(&Name) -> bool, before: u32| {
            let count = |names: &mut dyn Iterator<Item = &Name>| {
                u32::try_from(names.filter(|name| is_it(name)).count()).unwrap_or(u32::MAX)
            };
            let gone = count(&mut moves.iter().map(|(_, old, _)| old));
            let new = count(&mut moves.iter().map(|(_, _, new)| new));
            before.saturating_sub(gone).saturating_add(new)
        };
        let dirty = counts(|name| matches!(name, Name::Dirty(_)), store.dirty);
        let named = counts(|name| *name != Name::None, store.named);
        store.append(changes, (dirty, named))
    }

    fn make_room(&self, store: &mut Store, changes: usize) -> Result<(), CacheError> {
        if store.is_full(changes) {
            while self.checkpoint_some(store, 4 * DRAIN_PAGES)? {}
            store.next_area()?;
        }
        Ok(())
    }

    /// Begins the first area of the journal anew: its first record says how large the cache is, and so where the last
    /// copy of the superblock lies.
    pub(crate) fn renew_journal(&self, store: &mut Store) -> Result<(), CacheError> {
        if store.superblock.last_copy().is_none() {
            return Ok(());
        }
        loop {
            while self.checkpoint_some(store, 4 * DRAIN_PAGES)? {}
            store.next_area()?;
            if store.is_in_first_area() {
                return Ok(());
            }
        }
    }

    /// Ends the journal in such a way that damage to it shows.
    pub(crate) fn seal(&self) -> Result<(), CacheError> {
        let mut store = self.store.lock();
        self.make_room(&mut store, 0)?;
        store.seal()
    }

    /// Writes pages of the table that the journal still stands for; false when there are none.
    pub(crate) fn checkpoint_some(
        &self,
        store: &mut Store,
        most: usize,
    ) -> Result<bool, CacheError> {
        let pages = store.pending_pages(most);
        let mut contents = Vec::with_capacity(pages.len());
        for page in pages {
            let (number, slots) = self.layout.page_slots(page);
            let set = self.set_with(store, number)?;
            contents.push((page, slots.map(|slot| set.durable(slot)).collect()));
        }
        if contents.is_empty() {
            return Ok(false);
        }
        store.write_pages(contents).inspect_err(|_| {
            if store.is_broken() {
                self.lose();
            }
        })?;
        Ok(true)
    }
}
