//! A set of an open cache: the content of its slots, their names on the medium, and their users.
//!
//! Called under the set's lock by the queue pairs, `commit`, `clean` and `range`; does no I/O.
//!
//! A slot is *free*, *reserved* (someone writes to it, or the device has refused that and it is set
//! aside), *placed* (its block is found), or in *limbo*: its block was taken out, but the medium
//! still names it or someone still reads it.
//!
//! Invariants
//! 1. A slot becomes free only when the medium does not name it, no change of its name is under
//!    way, and nobody uses it.
//! 2. A placed dirty slot is never named clean by the medium.
//! 3. At most one command writes a block at a time; others that would, wait.

use esker_base::policy::Access;

use crate::omf::Name;
use crate::sets::Set;
use crate::sets::bits::Bits;

/// A set with its state.
pub(crate) struct SetState {
    pub(crate) set: Set,
    /// Slots that the medium names, those that it names dirty, and those whose name is changing.
    named: Bits,
    named_dirty: Bits,
    moving: Bits,
    limbo: Vec<(u32, u64)>,
    /// How many use a slot, of those that anyone uses.
    pins: Vec<(u32, u32)>,
    writes: Vec<Intent>,
    fills: Vec<Intent>,
    cleaning: Vec<(u32, bool)>,
    /// Slots that the device refused to write.
    aside: Vec<u32>,
}

/// A block that is being written, or filled in from the origin.
struct Intent {
    block: u64,
    is_cancelled: bool,
}

/// Result of looking for a slot.
pub(crate) enum Allocated {
    /// It is reserved. These others lost their blocks on the way, and are to lose their names.
    Slot(u32, Vec<u32>),
    /// There will be some once these have lost their names on the medium.
    AfterCommit(Vec<u32>),
    /// All slots are dirty or in use.
    Full,
}

impl SetState {
    pub(crate) fn new(set: Set) -> SetState {
        let slots = set.slots();
        SetState {
            set,
            named: Bits::new(slots),
            named_dirty: Bits::new(slots),
            moving: Bits::rare(slots),
            limbo: Vec::new(),
            pins: Vec::new(),
            writes: Vec::new(),
            fills: Vec::new(),
            cleaning: Vec::new(),
            aside: Vec::new(),
        }
    }

    /// Restores a name from the medium.
    pub(crate) fn restore(&mut self, slot: u32, name: Name) {
        let Some(block) = name.block() else { return };
        let is_dirty = matches!(name, Name::Dirty(_));
        self.set.take(slot);
        self.set.place(slot, block, Access::Read);
        self.set.set_dirty(slot, is_dirty);
        self.set_durable(slot, name);
    }

    // ---- names on the medium ---------------------------------------------------------------------

    fn set_durable(&mut self, slot: u32, name: Name) {
        self.named.put(slot, name != Name::None);
        self.named_dirty.put(slot, matches!(name, Name::Dirty(_)));
    }

    /// The block that is or was last in `slot`.
    fn block_of(&self, slot: u32) -> Option<u64> {
        let in_limbo = || self.limbo.iter().find(|(other, _)| *other == slot);
        self.set.block(slot).or_else(|| in_limbo().map(|(_, block)| *block))
    }

    /// The name of `slot` on the medium.
    pub(crate) fn durable(&self, slot: u32) -> Name {
        match (self.named.get(slot), self.named_dirty.get(slot)) {
            (false, _) => Name::None,
            (true, is_dirty) => {
                let block = self.block_of(slot).expect("a slot with a name has a block");
                if is_dirty { Name::Dirty(block) } else { Name::Clean(block) }
            }
        }
    }

    /// Whether the medium names `slot`, or may soon.
    pub(crate) fn is_named(&self, slot: u32) -> bool {
        self.named.get(slot) || self.moving.get(slot)
    }

    /// Whether the medium names `slot` dirty: it holds the flushed content, or newer content written over it.
    pub(crate) fn is_durably_dirty(&self, slot: u32) -> bool {
        self.named_dirty.get(slot)
    }

    /// Whether the medium names a slot for `block` that is no longer its slot.
    pub(crate) fn is_in_limbo(&self, block: u64) -> bool {
        self.limbo.iter().any(|(slot, other)| *other == block && self.is_named(*slot))
    }

    /// Whether new content of its own block may be written over the content of `slot`.
    pub(crate) fn may_rewrite(&self, slot: u32) -> bool {
        if self.set.is_dirty(slot) {
            return true; // named dirty, or not named; and it stays so
        }
        let is_clean_there = self.named.get(slot) && !self.named_dirty.get(slot);
        !is_clean_there && !self.moving.get(slot)
    }

    /// The name that `slot` ought to have, if it has another; the change is under way from then
    /// on. `is_wanted` is for clean blocks: name them, take the name away, or leave it.
    pub(crate) fn propose(&mut self, slot: u32, is_wanted: Option<bool>) -> Option<(Name, Name)> {
        if self.moving.get(slot) {
            return None;
        }
        let current = self.durable(slot);
        let wanted = match self.set.block(slot) {
            None => Name::None,
            Some(block) if self.set.is_dirty(slot) => Name::Dirty(block),
            Some(block) => match (current, is_wanted) {
                (_, Some(false)) => Name::None,
                // A write in place relies on the name that the block has.
                _ if self.is_written(block) => current,
                (Name::None, Some(true)) | (Name::Dirty(_), _) => Name::Clean(block),
                _ => current,
            },
        };
        if wanted == current {
            return None;
        }
        self.moving.put(slot, true);
        Some((current, wanted))
    }

    /// The change is durable.
    pub(crate) fn apply(&mut self, slot: u32, name: Name) {
        self.moving.put(slot, false);
        self.set_durable(slot, name);
        self.free_if_idle(slot);
    }

    /// The change did not happen.
    pub(crate) fn give_up(&mut self, slot: u32) {
        self.moving.put(slot, false);
    }

    // ---- slots -----------------------------------------------------------------------------------

    fn free_if_idle(&mut self, slot: u32) {
        if self.is_named(slot) || self.is_pinned(slot) {
            return;
        }
        if let Some(at) = self.limbo.iter().position(|(other, _)| *other == slot) {
            self.limbo.swap_remove(at);
            self.release(slot);
        }
    }

    /// The device has refused to write `slot`, whose block is or goes elsewhere: it is not used
    /// again until the cache is opened anew, unless an eighth of the set is set aside already.
    pub(crate) fn set_aside(&mut self, slot: u32) {
        let has_room = self.aside.len() < self.set.slots() as usize / 8;
        if has_room && !self.aside.contains(&slot) {
            self.aside.push(slot);
        }
    }

    /// Frees a reserved slot, unless it is set aside.
    pub(crate) fn release(&mut self, slot: u32) {
        if !self.aside.contains(&slot) {
            self.set.release(slot);
        }
    }

    /// Takes a block out of its slot, and says whether the medium has to be told.
    pub(crate) fn withdraw(&mut self, slot: u32) -> bool {
        let block = self.set.block(slot).expect("a placed slot");
        self.set.withdraw(slot);
        self.limbo.push((slot, block));
        self.free_if_idle(slot);
        self.is_named(slot)
    }

    /// A slot for `block`. Of slots that the medium names, up to `batch` are taken out together,
    /// so that one record serves them all.
    pub(crate) fn allocate(&mut self, block: u64, batch: usize) -> Allocated {
        if let Some(slot) = self.set.reserve() {
            return Allocated::Slot(slot, Vec::new());
        }
        let mut named = Vec::new();
        while named.len() < batch {
            let victim = self.set.evict_reserved(block, &self.moving);
            let Some((slot, old)) = victim else { break };
            if !self.named.get(slot) {
                return Allocated::Slot(slot, named);
            }
            self.limbo.push((slot, old));
            named.push(slot);
        }
        match named.is_empty() && self.limbo.is_empty() {
            true => Allocated::Full,
            false => Allocated::AfterCommit(named),
        }
    }

    // ---- users of slots --------------------------------------------------------------------------

    fn is_pinned(&self, slot: u32) -> bool {
        self.set.is_busy(slot)
    }

    /// Keeps `slot` from being used for anything else.
    #[inline]
    pub(crate) fn pin(&mut self, slot: u32) {
        if self.set.is_busy(slot) {
            let pin = self.pins.iter_mut().find(|(other, _)| *other == slot);
            pin.expect("a busy slot is pinned").1 += 1;
        } else {
            self.set.set_busy(slot, true);
            self.pins.push((slot, 1));
        }
    }

    /// Undoes one [`SetState::pin`].
    #[inline]
    pub(crate) fn unpin(&mut self, slot: u32) {
        let at = self.pins.iter().position(|(other, _)| *other == slot).expect("a pinned slot");
        self.pins[at].1 -= 1;
        if self.pins[at].1 == 0 {
            self.pins.swap_remove(at);
            self.set.set_busy(slot, false);
            if !self.limbo.is_empty() {
                self.free_if_idle(slot);
            }
        }
    }

    /// Whether a command is writing `block`.
    pub(crate) fn is_written(&self, block: u64) -> bool {
        self.writes.iter().any(|intent| intent.block == block)
    }

    /// Begins to write `block`, unless another command does. A fill in progress gives up.
    pub(crate) fn begin_write(&mut self, block: u64) -> bool {
        if self.is_written(block) {
            return false;
        }
        self.cancel_fill(block);
        self.writes.push(Intent { block, is_cancelled: false });
        true
    }

    /// Ends it, and says whether it was cancelled.
    pub(crate) fn end_write(&mut self, block: u64) -> bool {
        let at = self.writes.iter().position(|intent| intent.block == block);
        self.writes.swap_remove(at.expect("it was begun")).is_cancelled
    }

    /// Whether content that is being written may not be cached as the origin's any more.
    pub(crate) fn is_write_cancelled(&self, block: u64) -> bool {
        self.writes.iter().any(|intent| intent.block == block && intent.is_cancelled)
    }

    /// Begins to fill `block` in, unless someone does that or writes it.
    pub(crate) fn begin_fill(&mut self, block: u64) -> bool {
        let is_filled = self.fills.iter().any(|intent| intent.block == block);
        if is_filled || self.is_written(block) {
            return false;
        }
        self.fills.push(Intent { block, is_cancelled: false });
        true
    }

    /// Ends it, and says whether it was cancelled.
    pub(crate) fn end_fill(&mut self, block: u64) -> bool {
        let at = self.fills.iter().position(|intent| intent.block == block);
        self.fills.swap_remove(at.expect("it was begun")).is_cancelled
    }

    /// Whether the reader that fills `block` in has to give up.
    pub(crate) fn is_fill_cancelled(&self, block: u64) -> bool {
        self.fills.iter().any(|intent| intent.block == block && intent.is_cancelled)
    }

    fn cancel_fill(&mut self, block: u64) {
        for intent in self.fills.iter_mut().filter(|intent| intent.block == block) {
            intent.is_cancelled = true;
        }
    }

    /// Cancels fills and writes of a block: their content will differ from the origin's.
    pub(crate) fn cancel(&mut self, block: u64) {
        self.cancel_fill(block);
        for intent in self.writes.iter_mut().filter(|intent| intent.block == block) {
            intent.is_cancelled = true;
        }
    }

    /// Begins to clean `slot`, if it is dirty, the medium says so, and nobody writes it.
    pub(crate) fn begin_clean(&mut self, slot: u32) -> Option<u64> {
        let block = self.set.block(slot)?;
        let is_named = self.named_dirty.get(slot) && !self.moving.get(slot);
        let is_idle = !self.is_written(block);
        if !(self.set.is_dirty(slot) && is_named && is_idle) || self.is_slot_cleaned(slot) {
            return None;
        }
        self.cleaning.push((slot, false));
        self.pin(slot);
        Some(block)
    }

    fn is_slot_cleaned(&self, slot: u32) -> bool {
        self.cleaning.iter().any(|(other, _)| *other == slot)
    }

    /// Whether `block` is being written back.
    pub(crate) fn is_cleaned(&self, block: u64) -> bool {
        !self.cleaning.is_empty()
            && self.set.lookup(block).is_some_and(|slot| self.is_slot_cleaned(slot))
    }

    /// New content goes to `slot`: the content that is being cleaned is not the newest.
    pub(crate) fn rewrite(&mut self, slot: u32) {
        for (other, is_rewritten) in &mut self.cleaning {
            if *other == slot {
                *is_rewritten = true;
            }
        }
    }

    /// Ends it. `is_done` says that the origin has the slot's content, durably; then the slot is clean, unless
    /// something else was written to it. Returns whether it is.
    pub(crate) fn end_clean(&mut self, slot: u32, block: u64, is_done: bool) -> bool {
        let at = self.cleaning.iter().position(|(other, _)| *other == slot);
        let (_, is_rewritten) = self.cleaning.swap_remove(at.expect("it was begun"));
        let is_its_slot = self.set.block(slot) == Some(block);
        let is_clean = is_done && !is_rewritten && is_its_slot && self.set.is_dirty(slot);
        if is_clean {
            self.set.set_dirty(slot, false);
        }
        self.unpin(slot);
        is_clean
    }

    /// Dirty slots from index `least` on, in the order of slots.
    pub(crate) fn dirty_slots(&self, least: u32) -> Vec<u32> {
        let slots = least..self.set.slots();
        slots.filter(|&slot| self.set.is_dirty(slot)).collect()
    }

    /// Takes the blocks out of all slots from index `least` on. Slots that the medium names and that
    /// have to lose their names; or none, when one of them is dirty or in use.
    pub(crate) fn vacate(&mut self, least: u32) -> Option<Vec<u32>> {
        let slots = least..self.set.slots();
        let is_taken = |slot: u32| self.set.is_dirty(slot) || self.set.is_busy(slot);
        if slots.clone().any(is_taken) {
            return None;
        }
        for slot in slots.clone() {
            if self.set.block(slot).is_some() {
                self.withdraw(slot);
            }
        }
        Some(slots.filter(|slot| self.is_named(*slot)).collect())
    }

    /// Whether there may be slots that the medium does not name.
    pub(crate) fn has_unnamed(&self) -> bool {
        self.named.count() < self.set.held()
    }

    /// Clean slots from index `least` on that the medium does not name.
    pub(crate) fn unnamed_clean_slots(&self, least: u32) -> Vec<u32> {
        let is_it = |slot: &u32| {
            !self.is_named(*slot) && self.set.block(*slot).is_some() && !self.set.is_dirty(*slot)
        };
        (least..self.set.slots()).filter(is_it).collect()
    }

    /// Blocks that are placed, in limbo, written or filled in.
    pub(crate) fn known_blocks(&self) -> Vec<u64> {
        let placed = (0..self.set.slots()).filter_map(|slot| self.set.block(slot));
        let limbo = self.limbo.iter().map(|(_, block)| *block);
        let intents = self.writes.iter().chain(&self.fills).map(|intent| intent.block);
        let mut blocks: Vec<u64> = placed.chain(limbo).chain(intents).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// All of it in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bits = [&self.named, &self.named_dirty, &self.moving];
        let lists = self.limbo.capacity() * size_of::<(u32, u64)>()
            + self.pins.capacity() * size_of::<(u32, u32)>()
            + (self.writes.capacity() + self.fills.capacity()) * size_of::<Intent>()
            + self.cleaning.capacity() * size_of::<(u32, bool)>()
            + self.aside.capacity() * size_of::<u32>();
        size_of::<SetState>() - size_of::<Set>()
            + self.set.memory_bytes()
            + bits.iter().map(|bits| bits.heap_bytes()).sum::<usize>()
            + lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Placement};
    use esker_base::policy::Kind;

    fn dirty_and_named() -> (SetState, u32) {
        let mapping = Mapping::new(Placement::Linear, 64, 1, 8, 0).unwrap();
        let mut state = SetState::new(Set::new(0, mapping, Kind::Lru.build(16)));
        state.restore(3, Name::Dirty(9));
        (state, 3)
    }

    #[test]
    fn a_block_that_is_being_written_is_not_cleaned() {
        let (mut state, slot) = dirty_and_named();
        assert!(state.begin_write(9) && !state.begin_write(9));
        assert_eq!(state.begin_clean(slot), None);
        state.end_write(9);
        assert_eq!(state.begin_clean(slot), Some(9));
        assert_eq!(state.begin_clean(slot), None, "twice at a time");
    }

    #[test]
    fn a_block_that_was_rewritten_while_it_was_cleaned_is_dirty() {
        let (mut state, slot) = dirty_and_named();
        state.begin_clean(slot).unwrap();
        state.rewrite(slot);
        assert!(!state.end_clean(slot, 9, true) && state.set.is_dirty(slot));
        state.begin_clean(slot).unwrap();
        assert!(!state.end_clean(slot, 9, false) && state.set.is_dirty(slot), "it failed");
        state.begin_clean(slot).unwrap();
        assert!(state.end_clean(slot, 9, true) && !state.set.is_dirty(slot));
    }

    #[test]
    fn a_slot_is_free_only_without_a_name_and_a_reader() {
        let (mut state, slot) = dirty_and_named();
        state.pin(slot);
        assert!(state.withdraw(slot) && state.is_in_limbo(9));
        let (old, new) = state.propose(slot, None).unwrap();
        assert_eq!((old, new), (Name::Dirty(9), Name::None));
        state.apply(slot, new);
        assert_eq!(state.set.held(), 1, "someone reads it");
        state.unpin(slot);
        assert_eq!(state.set.held(), 0);
    }
}
