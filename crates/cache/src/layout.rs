//! Where everything lies on the flash device: the one place with such arithmetic.
//!
//! ```text
//! 0         superblock, copy 0
//! 4 KiB     superblock, copy 1
//! 8 KiB     journal area 0
//!           journal area 1
//!           table: for each set its pages, each of them twice, side by side
//!           data: for each set its slots of 4 KiB, from a multiple of 64 KiB on
//! ```
//!
//! Invariants
//! 1. Nothing overlaps, and everything lies below `flash_bytes` of the superblock.
//! 2. All offsets are multiples of 4 KiB, so that they are whole LBAs on any device.

use esker_base::units::{round_down, round_up, to_u64};

use crate::omf::{BLOCK, PAGE_NAMES, Superblock};

/// The data begins at a multiple of this.
const DATA_ALIGNMENT: u64 = 64 << 10;
/// The smallest and the largest journal area that is chosen when nobody says otherwise.
const AREA_RANGE: (u64, u64) = (64 << 10, 64 << 20);

/// Offsets on the flash device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots in a set.
    pub set_slots: u32,
    /// How many sets.
    pub sets: u32,
    /// Bytes of a journal area.
    pub area_bytes: u64,
    /// Pages of a set in the table.
    pub set_pages: u32,
    table: u64,
    data: u64,
}

/// Bytes of a journal area for a flash device of this size.
#[must_use]
pub fn default_area_bytes(flash_bytes: u64) -> u64 {
    round_down(flash_bytes / 256, BLOCK).clamp(AREA_RANGE.0, AREA_RANGE.1)
}

impl Layout {
    /// The layout of a cache with this superblock.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Layout {
        Layout::new(superblock.set_slots, superblock.sets, superblock.area_bytes)
    }

    fn new(set_slots: u32, sets: u32, area_bytes: u64) -> Layout {
        let set_pages = set_slots.div_ceil(u32::try_from(PAGE_NAMES).expect("504"));
        let table = 2 * BLOCK + 2 * area_bytes;
        let table_bytes = u64::from(sets) * u64::from(set_pages) * 2 * BLOCK;
        let data = round_up(table + table_bytes, DATA_ALIGNMENT);
        Layout { set_slots, sets, area_bytes, set_pages, table, data }
    }

    /// The layout with as many sets of `set_slots` as fit `flash_bytes`; one smaller set if not
    /// even one fits, or if `is_single`.
    #[must_use]
    pub fn fitting(
        flash_bytes: u64,
        set_slots: u32,
        area_bytes: u64,
        is_single: bool,
    ) -> Option<Layout> {
        let overhead = 2 * BLOCK + 2 * area_bytes + DATA_ALIGNMENT;
        let room = flash_bytes.checked_sub(overhead)?;
        let fits = |set_slots: u32, sets: u32| {
            let layout = Layout::new(set_slots, sets, area_bytes);
            (sets > 0 && set_slots > 0 && layout.end() <= flash_bytes).then_some(layout)
        };
        let pages = u64::from(set_slots).div_ceil(to_u64(PAGE_NAMES));
        let per_set = u64::from(set_slots) * BLOCK + pages * 2 * BLOCK;
        let sets = u32::try_from((room / per_set).min(u64::from(u32::MAX / set_slots))).ok()?;
        if sets > 0 && !is_single {
            return fits(set_slots, sets).or_else(|| fits(set_slots, sets - 1));
        }
        // One set: each page of names takes two blocks beside its 504 slots.
        let chunk = to_u64(PAGE_NAMES) + 2;
        let blocks = room / BLOCK;
        let slots = blocks / chunk * to_u64(PAGE_NAMES) + (blocks % chunk).saturating_sub(2);
        let slots = u32::try_from(slots.min(65_535)).ok()?;
        fits(slots, 1)
    }

    /// Where the last slot ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.data + u64::from(self.sets) * u64::from(self.set_slots) * BLOCK
    }

    /// The superblock's copy.
    #[must_use]
    pub fn superblock(&self, copy: u32) -> u64 {
        u64::from(copy) * BLOCK
    }

    /// A journal area, 0 or 1.
    #[must_use]
    pub fn area(&self, area: u64) -> u64 {
        2 * BLOCK + area * self.area_bytes
    }

    /// The area in which a sequence lies.
    #[must_use]
    pub fn area_of(&self, sequence: u64) -> u64 {
        self.area(sequence % 2)
    }

    /// The table, as offset and size.
    #[must_use]
    pub fn table(&self) -> (u64, u64) {
        (self.table, u64::from(self.pages()) * 2 * BLOCK)
    }

    /// The end of an area that only records about the table itself may use, in bytes.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        self.area_bytes / 4
    }

    /// The smallest area that has room to write the whole table page by page.
    #[must_use]
    pub fn least_area_bytes(&self) -> u64 {
        round_up(4 * (u64::from(self.pages()) * 80 + 4 * BLOCK), BLOCK)
    }

    /// Pages of the table in all.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.sets * self.set_pages
    }

    /// Copy 0 of a page of the table; copy 1 follows.
    #[must_use]
    pub fn page(&self, page: u32) -> u64 {
        self.table + u64::from(page) * 2 * BLOCK
    }

    /// The page in which the name of a slot stands.
    #[must_use]
    pub fn page_of(&self, slot: u32) -> u32 {
        let (set, index) = (slot / self.set_slots, slot % self.set_slots);
        set * self.set_pages + index / u32::try_from(PAGE_NAMES).expect("504")
    }

    /// The slots whose names stand in page `index` of a set, as indexes in the set.
    #[must_use]
    pub fn page_slots(&self, index: u32) -> std::ops::Range<u32> {
        let names = u32::try_from(PAGE_NAMES).expect("504");
        let first = index * names;
        first..(first + names).min(self.set_slots)
    }

    /// The data of a slot, counted over all sets.
    #[must_use]
    pub fn slot(&self, slot: u32) -> u64 {
        self.data + u64::from(slot) * BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_sets_as_fit_and_nothing_beyond_the_end() {
        for flash in [1u64 << 20, 3 << 20, 64 << 20, (1 << 30) + 4096, 1 << 40] {
            for slots in [16u32, 512, 4096] {
                for is_single in [false, true] {
                    let area = default_area_bytes(flash);
                    let layout = Layout::fitting(flash, slots, area, is_single).unwrap();
                    assert!(layout.end() <= flash, "{flash} {layout:?}");
                    let lost = flash - layout.end();
                    let set = u64::from(slots) * BLOCK;
                    let is_small = layout.sets == 1;
                    assert!(is_small || lost < 3 * set + (1 << 20), "{flash} {layout:?}");
                    let (table, size) = layout.table();
                    assert!(layout.area(1) + layout.area_bytes == table);
                    assert!(table + size <= layout.slot(0));
                }
            }
        }
        assert_eq!(Layout::fitting(100 << 10, 512, 64 << 10, false), None);
    }

    #[test]
    fn every_slot_has_a_place_in_a_page_of_its_set() {
        let layout = Layout::new(1100, 3, 64 << 10);
        assert_eq!(layout.set_pages, 3);
        for set in 0..3 {
            for index in 0..1100 {
                let page = layout.page_of(set * 1100 + index);
                assert_eq!(page / 3, set);
                assert!(layout.page_slots(page % 3).contains(&index));
            }
        }
    }
}
