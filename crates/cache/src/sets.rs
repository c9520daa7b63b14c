//! The sets of a cache: cached blocks, their slots, dirty or not, and the next victim.
//!
//! Called by the cache device and by tests; nothing here does I/O. Each set is behind a lock of its
//! own, so that threads which work on different sets do not meet. The sole owner of the sets uses
//! [`Sets::set_mut`] and takes none.
//!
//! Invariants:
//! 1. A block is in the set that the mapping names, or nowhere.
//! 2. Slots of the cache count through the sets: those of a set are neighbours on the flash.

pub(crate) mod bits;
mod set;
mod table;
mod tags;

use esker_base::policy::Kind;
use esker_base::sync::{Mutex, MutexGuard};

pub use set::{Evict, Evicted, Inserted, Set};

use crate::{CacheError, Mapping, Placement};

/// How a cache is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Slots of the cache, of one block each.
    pub slots: u64,
    /// Slots of a set, at most; the sets are as large as each other but for one slot. `u32::MAX`
    /// makes a single set, which is fully associative.
    pub set_slots: u32,
    /// Neighbouring blocks of the origin that stay together in a set.
    pub run_blocks: u32,
    /// How runs are dealt out to sets.
    pub placement: Placement,
    /// Blocks of the origin.
    pub origin_blocks: u64,
    /// Chooses among hashed mappings; it belongs to the cache for its whole life.
    pub seed: u64,
}

impl Geometry {
    /// Slots of a set unless told otherwise: 16 MiB of blocks of 4 KiB.
    pub const SET_SLOTS: u32 = 4_096;
    /// Blocks of a run unless told otherwise: 256 KiB of blocks of 4 KiB.
    pub const RUN_BLOCKS: u32 = 64;
    /// The largest set.
    const LARGEST_SET: u32 = 1 << 28;

    /// The usual geometry of a cache of `slots` slots for an origin of `origin_blocks` blocks.
    #[must_use]
    pub fn new(slots: u64, origin_blocks: u64) -> Geometry {
        Geometry {
            slots,
            set_slots: Geometry::SET_SLOTS,
            run_blocks: Geometry::RUN_BLOCKS,
            placement: Placement::Hashed,
            origin_blocks,
            seed: 0,
        }
    }

    /// How many sets there are.
    ///
    /// # Errors
    /// When there are no slots, or too many for their sets.
    pub fn sets(&self) -> Result<u32, CacheError> {
        let invalid = |message: &str| CacheError::Invalid(message.into());
        if self.slots == 0 || self.set_slots == 0 {
            return Err(invalid("a cache needs at least one slot, and so does a set"));
        }
        let sets = self.slots.div_ceil(u64::from(self.set_slots));
        if self.slots.div_ceil(sets) > u64::from(Geometry::LARGEST_SET) {
            return Err(invalid("a set has at most 2^28 slots: use smaller sets"));
        }
        u32::try_from(sets).map_err(|_| invalid("there are at most 2^32 sets: use larger sets"))
    }

    /// The first slot of `set`, when there are `sets` sets; that of `sets` is the end.
    #[must_use]
    pub fn first_slot(&self, set: u32, sets: u32) -> u64 {
        let (set, sets) = (u64::from(set), u64::from(sets));
        self.slots / sets * set + set.min(self.slots % sets)
    }

    /// The mapping of this geometry.
    ///
    /// # Errors
    /// When the numbers do not go together; the message says how.
    pub fn mapping(&self) -> Result<Mapping, CacheError> {
        let mapping = self.mapping_without_tags()?;
        mapping.check_tags(self.origin_blocks)?;
        Ok(mapping)
    }

    /// The same mapping, for an origin that may be too large for tags.
    pub(crate) fn mapping_without_tags(&self) -> Result<Mapping, CacheError> {
        let sets = self.sets()?;
        Mapping::without_tags(self.placement, self.origin_blocks, sets, self.run_blocks, self.seed)
    }
}

/// All sets of a cache.
pub struct Sets {
    geometry: Geometry,
    mapping: Mapping,
    sets: Box<[Mutex<Set>]>,
}

impl Sets {
    /// Empty sets.
    ///
    /// # Errors
    /// When the numbers do not go together; the message says how.
    pub fn new(geometry: Geometry, kind: Kind) -> Result<Sets, CacheError> {
        let mapping = geometry.mapping()?;
        let count = mapping.sets();
        let capacities = (0..count).map(|index| {
            let slots = geometry.first_slot(index + 1, count) - geometry.first_slot(index, count);
            u32::try_from(slots).unwrap_or(u32::MAX)
        });
        let policies = kind.build_all(&capacities.collect::<Vec<_>>());
        let sets = (0..count).zip(policies);
        let sets = sets.map(|(index, policy)| Mutex::new(Set::new(index, mapping, policy)));
        let sets = sets.collect();
        Ok(Sets { geometry, mapping, sets })
    }

    /// How the cache is divided.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Which set a block belongs to.
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// How many sets there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.mapping.sets()
    }

    /// The set of `block`, locked.
    pub fn of_block(&self, block: u64) -> MutexGuard<'_, Set> {
        self.set(self.mapping.set_of(block))
    }

    /// The set with this number, locked.
    pub fn set(&self, index: u32) -> MutexGuard<'_, Set> {
        self.sets[index as usize].lock()
    }

    /// The set with this number, for the sole owner of the sets.
    pub fn set_mut(&mut self, index: u32) -> &mut Set {
        self.sets[index as usize].get_mut()
    }

    /// The slot of the cache that is slot `slot` of set `set`.
    #[must_use]
    pub fn slot_of_cache(&self, set: u32, slot: u32) -> u64 {
        self.geometry.first_slot(set, self.count()) + u64::from(slot)
    }

    /// The set, and the slot in it, of a slot of the cache.
    #[must_use]
    pub fn set_and_slot(&self, slot: u64) -> (u32, u32) {
        let sets = u64::from(self.count());
        let (small, larger) = (self.geometry.slots / sets, self.geometry.slots % sets);
        let (set, rest) = if slot < larger * (small + 1) {
            (slot / (small + 1), slot % (small + 1))
        } else {
            let beyond = slot - larger * (small + 1);
            (larger + beyond / small, beyond % small)
        };
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        (narrow(set), narrow(rest))
    }

    /// All sets with everything in them, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let locks = self.sets.len() * (size_of::<Mutex<Set>>() - size_of::<Set>());
        let sets: usize = self.sets.iter().map(|set| set.lock().memory_bytes()).sum();
        size_of::<Sets>() + locks + sets
    }
}

#[cfg(test)]
mod tests;
