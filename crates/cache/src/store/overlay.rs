//! Names in the journal of a set that was not read yet.
//!
//! A journal has room for more changes than a cache has slots, and most of them are superseded by later ones. So
//! only the last one of each slot is kept, in seven bytes: less than the set takes once it is read.

use esker_base::units::to_usize;

use crate::omf::Name;

/// Bytes for a slot: bits 0 to 53 are the block and one (0 for no block), bit 54 says that it is dirty, bit 55 that
/// the journal names the slot at all.
const SIZE: usize = 7;
const DIRTY: u64 = 1 << 54;
const IS_NAMED: u64 = 1 << 55;
const BLOCKS: u64 = DIRTY - 1;

/// The names of a set's slots, as far as the journal has them.
pub(super) struct Overlay(Box<[u8]>);

impl Overlay {
    pub(super) fn new(slots: u32) -> Overlay {
        Overlay(vec![0; to_usize(slots.into()) * SIZE].into_boxed_slice())
    }

    /// Sets the name of a slot, as an index in the set.
    pub(super) fn put(&mut self, index: u32, name: Name) {
        // A block that does not fit is none of any origin, and stays one.
        let kept = |block: u64| block.saturating_add(1).min(BLOCKS);
        let value = match name {
            Name::None => IS_NAMED,
            Name::Clean(block) => IS_NAMED | kept(block),
            Name::Dirty(block) => IS_NAMED | DIRTY | kept(block),
        };
        let at = to_usize(index.into()) * SIZE;
        self.0[at..at + SIZE].copy_from_slice(&value.to_le_bytes()[..SIZE]);
    }

    /// Calls `visit` with every slot that has a name here, `Name::None` included.
    pub(super) fn each(&self, mut visit: impl FnMut(u32, Name)) {
        for (index, bytes) in (0u32..).zip(self.0.chunks_exact(SIZE)) {
            let mut value = [0; 8];
            value[..SIZE].copy_from_slice(bytes);
            let value = u64::from_le_bytes(value);
            if value & IS_NAMED == 0 {
                continue;
            }
            visit(
                index,
                match (value & BLOCKS, value & DIRTY != 0) {
                    (0, _) => Name::None,
                    (block, true) => Name::Dirty(block - 1),
                    (block, false) => Name::Clean(block - 1),
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_name_of_a_slot_is_kept() {
        let mut overlay = Overlay::new(5);
        let largest = (1 << 52) - 1;
        let names = [
            (0, Name::Clean(7)),
            (1, Name::Dirty(0)),
            (3, Name::Dirty(largest)),
            (0, Name::None),
            (4, Name::Clean(u64::MAX)),
        ];
        names.into_iter().for_each(|(index, name)| overlay.put(index, name));
        let mut found = Vec::new();
        overlay.each(|index, name| found.push((index, name)));
        let beyond = Name::Clean((1 << 54) - 2);
        assert_eq!(
            found,
            [(0, Name::None), (1, Name::Dirty(0)), (3, Name::Dirty(largest)), (4, beyond)]
        );
    }
}
