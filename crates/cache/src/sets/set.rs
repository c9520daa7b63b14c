//! One set: which blocks are in its slots, which of them are dirty, and which goes next.
//!
//! Invariants:
//! 1. A slot is free, or holds one block, which the table finds and the policy orders.
//! 2. A free slot is neither dirty nor busy.
//! 3. A busy slot is never evicted, a dirty one only when the caller says so.

mod reserve;

use esker_base::policy::{Access, Policy, Slots};

use super::bits::Bits;
use super::table::Table;
use super::tags::Tags;
use crate::mapping::{Mapping, NO_TAG};

/// Which slots may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Clean ones only.
    Clean,
    /// Dirty ones too: the caller knows how to save their content.
    Any,
}

/// A block that made room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The block of the origin.
    pub block: u64,
    /// Whether the origin does not have its content yet.
    pub dirty: bool,
}

/// Where a block went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// The slot of the set that holds it.
    pub slot: u32,
    /// The block that had to go, if the set was full.
    pub evicted: Option<Evicted>,
}

/// The policy's view of the slots.
struct Keys<'a> {
    index: u32,
    mapping: &'a Mapping,
    tags: &'a Tags,
    /// The dirty ones, when they may not go.
    dirty: Option<&'a Bits>,
    busy: &'a Bits,
}

impl Slots for Keys<'_> {
    fn key(&self, slot: u32) -> u64 {
        self.mapping.block_of(self.index, self.tags.get(slot))
    }
    fn may_go(&self, slot: u32) -> bool {
        !self.busy.get(slot) && !self.dirty.is_some_and(|dirty| dirty.get(slot))
    }
}

/// One set of slots. Slots count from 0 in every set.
pub struct Set {
    index: u32,
    mapping: Mapping,
    tags: Tags,
    table: Table,
    held: Bits,
    dirty: Bits,
    busy: Bits,
    hint: u32,
    policy: Box<dyn Policy>,
}

impl Set {
    pub(crate) fn new(index: u32, mapping: Mapping, policy: Box<dyn Policy>) -> Set {
        let slots = policy.capacity();
        Set {
            index,
            mapping,
            tags: Tags::new(slots, &mapping),
            table: Table::new(slots),
            held: Bits::new(slots),
            dirty: Bits::new(slots),
            busy: Bits::new(slots),
            hint: 0,
            policy,
        }
    }

    /// The number of this set.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// How many neighbouring blocks of the origin stay together.
    #[must_use]
    pub fn run_blocks(&self) -> u32 {
        self.mapping.run_blocks()
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.policy.capacity()
    }

    /// How many slots hold a block.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.count()
    }

    /// How many slots hold a dirty block.
    #[must_use]
    pub fn dirty_count(&self) -> u32 {
        self.dirty.count()
    }

    fn tag(&self, block: u64) -> u32 {
        let (set, tag) = self.mapping.place(block);
        debug_assert_eq!(set, self.index, "block {block} belongs to another set");
        tag
    }

    /// The slot of `block`, if it is here. It is no reference: the order stays.
    #[inline]
    #[must_use]
    pub fn lookup(&self, block: u64) -> Option<u32> {
        self.table.get(self.tag(block), &self.tags)
    }

    /// The block in `slot`.
    #[inline]
    #[must_use]
    pub fn block(&self, slot: u32) -> Option<u64> {
        let tag = self.tags.get(slot);
        (tag != NO_TAG).then(|| self.mapping.block_of(self.index, tag))
    }

    /// The block in `slot`, which holds one, was referenced.
    #[inline]
    pub fn hit(&mut self, slot: u32, access: Access) {
        debug_assert!(self.held.get(slot), "slot {slot} is free");
        if let Some(block) = self.block(slot) {
            self.policy.hit(slot, block, access);
        }
    }

    /// Takes in `block`, which is not here and was referenced, into a free slot or instead of
    /// another block. `None` when the set is full of slots that may not go. The slot is clean.
    pub fn insert(&mut self, block: u64, access: Access, evict: Evict) -> Option<Inserted> {
        let tag = self.tag(block);
        debug_assert_eq!(self.table.get(tag, &self.tags), None, "block {block} is here");
        let free = self.held.first_clear(self.hint);
        let (slot, evicted) = match free {
            Some(slot) => (slot, None),
            None => {
                let keys = Keys {
                    index: self.index,
                    mapping: &self.mapping,
                    tags: &self.tags,
                    dirty: (evict == Evict::Clean).then_some(&self.dirty),
                    busy: &self.busy,
                };
                let slot = self.policy.evict(block, &keys)?;
                let evicted =
                    self.block(slot).map(|block| Evicted { block, dirty: self.dirty.get(slot) });
                self.forget(slot);
                (slot, evicted)
            }
        };
        self.hold(slot, tag);
        self.hint = slot;
        self.policy.insert(slot, block, access);
        Some(Inserted { slot, evicted })
    }

    /// Puts `block`, which is not here, into `slot`, which is free: how a cache that was closed
    /// comes back. Blocks are put in the order of their last use, as far as it is known.
    pub fn restore(&mut self, slot: u32, block: u64) {
        debug_assert!(!self.held.get(slot), "slot {slot} is held");
        self.hold(slot, self.tag(block));
        self.policy.insert(slot, block, Access::Read);
    }

    /// Asks the policy of `block`, which was missed: [`Policy::comes_again`].
    pub(crate) fn comes_again(&mut self, block: u64) -> bool {
        self.policy.comes_again(block)
    }

    /// Frees `slot`: its block is no longer cached, and not dirty.
    pub fn remove(&mut self, slot: u32) {
        if self.held.get(slot) {
            self.policy.remove(slot);
            self.forget(slot);
            self.hint = slot;
        }
    }

    fn hold(&mut self, slot: u32, tag: u32) {
        self.tags.put(slot, tag);
        self.table.insert(tag, slot);
        self.held.put(slot, true);
    }

    fn forget(&mut self, slot: u32) {
        self.table.remove(self.tags.get(slot), &self.tags);
        self.tags.put(slot, NO_TAG);
        self.held.put(slot, false);
        self.dirty.put(slot, false);
        self.busy.put(slot, false);
    }

    /// Whether `slot` is dirty.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self, slot: u32) -> bool {
        self.dirty.get(slot)
    }

    /// Makes `slot`, which holds a block, dirty or clean, and says whether that changed it.
    #[inline]
    pub fn set_dirty(&mut self, slot: u32, dirty: bool) -> bool {
        debug_assert!(self.held.get(slot), "slot {slot} is free");
        self.dirty.put(slot, dirty)
    }

    /// Whether `slot` may not be evicted for now.
    #[inline]
    #[must_use]
    pub fn is_busy(&self, slot: u32) -> bool {
        self.busy.get(slot)
    }

    /// Keeps `slot` from being evicted, or no longer, and says whether that changed it.
    #[inline]
    pub fn set_busy(&mut self, slot: u32, busy: bool) -> bool {
        debug_assert!(self.held.get(slot), "slot {slot} is free");
        self.busy.put(slot, busy)
    }

    /// Names held slots, those that would go first first, until `visit` returns false.
    pub fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        self.policy.coldest(visit);
    }

    /// All of it, the policy included, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let bits = self.held.heap_bytes() + self.dirty.heap_bytes() + self.busy.heap_bytes();
        let tags = self.tags.heap_bytes();
        size_of::<Set>() + bits + tags + self.table.heap_bytes() + self.policy.memory_bytes()
    }
}
