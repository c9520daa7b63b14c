//! Slots between two blocks. While a slot is being written, or the medium has its old name still,
//! it may be neither looked up nor used again.
//!
//! Invariant: a reserved slot counts as held, and neither table nor policy knows it.

use esker_base::policy::{Access, Slots};

use super::{Keys, Set};
use crate::mapping::NO_TAG;
use crate::sets::bits::Bits;

struct Refusing<'a> {
    keys: Keys<'a>,
    refused: &'a Bits,
}

impl Slots for Refusing<'_> {
    fn key(&self, slot: u32) -> u64 {
        self.keys.key(slot)
    }
    fn may_go(&self, slot: u32) -> bool {
        self.keys.may_go(slot) && !self.refused.get(slot)
    }
}

impl Set {
    /// A free slot, reserved.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        let slot = self.held.first_clear(self.hint)?;
        self.held.put(slot, true);
        self.hint = slot;
        Some(slot)
    }

    /// Takes a clean block that is not busy out of its slot, which is reserved from then on; slots
    /// in `refused` stay. The slot and the block that was in it.
    pub(crate) fn evict_reserved(&mut self, incoming: u64, refused: &Bits) -> Option<(u32, u64)> {
        let keys = Keys {
            index: self.index,
            mapping: &self.mapping,
            tags: &self.tags,
            dirty: Some(&self.dirty),
            busy: &self.busy,
        };
        let slot = self.policy.evict(incoming, &Refusing { keys, refused })?;
        let block = self.block(slot).expect("the policy knows held slots only");
        self.table.remove(self.tags.get(slot), &self.tags);
        self.tags.put(slot, NO_TAG);
        Some((slot, block))
    }

    /// Takes the block out of `slot`, which is reserved from then on, and not dirty.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        debug_assert!(self.tags.get(slot) != NO_TAG, "slot {slot} holds no block");
        self.policy.remove(slot);
        self.table.remove(self.tags.get(slot), &self.tags);
        self.tags.put(slot, NO_TAG);
        self.dirty.put(slot, false);
    }

    /// Puts `block`, which is not here, into `slot`, which is reserved.
    pub(crate) fn place(&mut self, slot: u32, block: u64, access: Access) {
        debug_assert!(self.held.get(slot) && self.tags.get(slot) == NO_TAG);
        debug_assert_eq!(self.lookup(block), None, "block {block} is here");
        let tag = self.tag(block);
        self.tags.put(slot, tag);
        self.table.insert(tag, slot);
        self.policy.insert(slot, block, access);
    }

    /// Frees `slot`, which is reserved.
    pub(crate) fn release(&mut self, slot: u32) {
        debug_assert!(self.held.get(slot) && self.tags.get(slot) == NO_TAG);
        self.held.put(slot, false);
        self.dirty.put(slot, false);
        self.busy.put(slot, false);
        self.hint = slot;
    }

    /// Reserves `slot`, which is free.
    pub(crate) fn take(&mut self, slot: u32) {
        debug_assert!(!self.held.get(slot), "slot {slot} is held");
        self.held.put(slot, true);
    }
}
