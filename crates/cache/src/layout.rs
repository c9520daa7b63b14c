//! Where everything lies on the flash device: the one place with such arithmetic.
//!
//! ```text
//! 0         superblock, copy 0
//! 4 KiB     superblock, copy 1
//! 8 KiB     journal area 0: copy 0, copy 1
//!           journal area 1: copy 0, copy 1
//!           row 0: table: for each set its pages of this row, each of them twice, side by side
//!                  data: for each set its slots of this row, from a multiple of 64 KiB on
//!           row 1: the same
//! -64 KiB   superblock, copy 2; nothing behind it
//! ```
//!
//! Before version 4 there is no copy 1 of a journal area, and no copy 2 of the superblock: rows may reach to the end.
//!
//! A *row* has some slots of every set. So a cache grows by a row at its end, and shrinks by rows at
//! its end, and no block changes its set or its slot. Slots and pages are counted row by row, in
//! a row set by set: those of a set are neighbours on the flash as far as they are in one row.
//!
//! Invariants
//! 1. Nothing overlaps, and everything lies below `flash_bytes` of the superblock.
//! 2. All offsets are multiples of 4 KiB, so that they are whole LBAs on any device.
//! 3. Rows before another one lie where they would lie without it, and have the same numbers.

use esker_base::units::{round_down, round_up, to_u64, to_usize};

use crate::omf::{BLOCK, MAX_AREA, MAX_ROWS, PAGE_NAMES, Rows, SINGLE, Superblock, TAIL, VERSION};
use crate::sets::Geometry;

/// The data begins at a multiple of this.
const DATA_ALIGNMENT: u64 = 64 << 10;
/// The smallest and the largest journal area that is chosen when nobody says otherwise.
const AREA_RANGE: (u64, u64) = (64 << 10, 64 << 20);
/// Rows of a new cache, if its sets are large enough for so many of whole pages.
const NEW_ROWS: u32 = 8;
/// No flash device has as many bytes.
const MOST_BYTES: u64 = 1 << 50;
/// The most slots of a set.
pub const LARGEST_SET: u32 = 65_535;

/// Offsets on the flash device, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots in a set.
    pub set_slots: u32,
    /// How many sets.
    pub sets: u32,
    /// Bytes of a copy of a journal area.
    pub area_bytes: u64,
    /// Copies of each journal area.
    copies: u64,
    /// Bytes behind the last row that have to be there.
    tail: u64,
    rows: Box<[Row]>,
}

/// Some slots of every set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    /// Slots of a set in this row, and the index in the set of the first of them.
    slots: u32,
    first_index: u32,
    /// Pages of a set in this row.
    set_pages: u32,
    /// The first slot and the first page of the row.
    first_slot: u32,
    first_page: u32,
    table: u64,
    data: u64,
}

/// Bytes of a journal area for a flash device of this size.
#[must_use]
pub fn default_area_bytes(flash_bytes: u64) -> u64 {
    round_down(flash_bytes / 256, BLOCK).clamp(AREA_RANGE.0, AREA_RANGE.1)
}

/// Names in a page.
fn page_names() -> u32 {
    u32::try_from(PAGE_NAMES).expect("504")
}

/// The rows of new sets of about `set_slots` slots: eight of whole pages, or fewer, or one.
fn new_rows(set_slots: u32) -> Rows {
    let pages = set_slots / page_names();
    let count = pages.clamp(1, NEW_ROWS);
    match count {
        1 => Rows::one(set_slots),
        _ => Rows::of(&vec![pages / count * page_names(); to_usize(count.into())]),
    }
}

impl Layout {
    /// The layout of a cache with this superblock.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Layout {
        let Superblock { version, rows, sets, area_bytes, .. } = *superblock;
        Layout::new(version, rows, sets, area_bytes)
    }

    fn new(version: u32, all: Rows, sets: u32, area_bytes: u64) -> Layout {
        let (copies, tail) = if version > SINGLE { (2, TAIL) } else { (1, 0) };
        let mut rows = Vec::new();
        let (mut index, mut page, mut at) = (0, 0, 2 * BLOCK + 2 * copies * area_bytes);
        for &slots in all.as_slice() {
            let set_pages = slots.div_ceil(page_names());
            let table = at;
            let data = table + u64::from(sets) * u64::from(set_pages) * 2 * BLOCK;
            let data = round_up(data, DATA_ALIGNMENT);
            let first_slot = sets * index;
            let row = Row {
                slots,
                first_index: index,
                set_pages,
                first_slot,
                first_page: page,
                table,
                data,
            };
            rows.push(row);
            index += slots;
            page += sets * set_pages;
            at = data + u64::from(sets) * u64::from(slots) * BLOCK;
        }
        let rows = rows.into_boxed_slice();
        Layout { set_slots: index, sets, area_bytes, copies, tail, rows }
    }

    /// The layout with as many sets of about `set_slots` as fit `flash_bytes`; one smaller set if
    /// not even one fits, or if `is_single`.
    #[must_use]
    pub fn fitting(
        flash_bytes: u64,
        set_slots: u32,
        area_bytes: u64,
        is_single: bool,
    ) -> Option<Layout> {
        let rows = new_rows(set_slots);
        let aligned = to_u64(rows.as_slice().len()) * DATA_ALIGNMENT;
        let besides = 2 * BLOCK + 4 * area_bytes + TAIL;
        let room = flash_bytes.saturating_sub(besides + aligned);
        let fits = |rows: Rows, sets: u32| {
            let layout = Layout::new(VERSION, rows, sets, area_bytes);
            (sets > 0 && layout.set_slots > 0 && layout.least_end() <= flash_bytes)
                .then_some(layout)
        };
        let per_set: u64 = rows.as_slice().iter().map(|slots| row_bytes(*slots)).sum();
        let most = u64::from(u32::MAX / set_slots);
        let sets = u32::try_from((room / per_set).min(most)).ok()?;
        if sets > 0 && !is_single {
            return fits(rows, sets).or_else(|| fits(rows, sets - 1));
        }
        // One set: each page of names takes two blocks beside its 504 slots.
        let blocks = flash_bytes.checked_sub(besides + DATA_ALIGNMENT)? / BLOCK;
        let slots = slots_in(blocks).min(LARGEST_SET);
        fits(Rows::one(slots), 1)
    }

    /// The layout of a new cache: as [`Layout::fitting`], with journal areas of `area_bytes` or of a size that suits
    /// `flash_bytes`.
    #[must_use]
    pub(crate) fn planned(
        flash_bytes: u64,
        set_slots: u32,
        area_bytes: Option<u64>,
        is_single: bool,
    ) -> Option<Layout> {
        let area = area_bytes.unwrap_or_else(|| default_area_bytes(flash_bytes));
        let area = round_up(area.clamp(AREA_RANGE.0, 1 << 30), BLOCK);
        let layout = Layout::fitting(flash_bytes, set_slots, area, is_single)?;
        // Room for a table of four times the size, if an area can be so large: the cache may grow.
        if layout.least_area_bytes(4) <= area {
            return Some(layout);
        }
        let area = layout.least_area_bytes(4).min(MAX_AREA);
        Layout::fitting(flash_bytes, set_slots, area, is_single)
    }

    /// How a new cache of about `slots` slots is made: bytes of the flash device that it takes, and bytes of a set,
    /// for [`CreateOptions`](crate::CreateOptions). Up to one usual set the size is exact, beyond that the nearest
    /// that sets of whole pages give. None when no flash device is so large.
    #[must_use]
    pub fn sized(slots: u64) -> Option<(u64, u64)> {
        let (page, usual) = (u64::from(page_names()), u64::from(Geometry::SET_SLOTS));
        let full = usual / page * page;
        let (slots, set_slots) = match slots.div_ceil(full) {
            0 | 1 => (slots.max(1), usual),
            sets => {
                let pages = (slots + sets * page / 2) / (sets * page);
                (sets * pages * page, pages * page)
            }
        };
        let set = u32::try_from(set_slots).ok()?;
        let holds = |blocks: u64| {
            let layout = Layout::planned(blocks * BLOCK, set, None, false);
            layout.is_some_and(|it| u64::from(it.sets) * u64::from(it.set_slots) >= slots)
        };
        let (mut few, mut enough) = (0, MOST_BYTES / BLOCK);
        if slots >= enough {
            return None;
        }
        while enough - few > 1 {
            let middle = few.midpoint(enough);
            *(if holds(middle) { &mut enough } else { &mut few }) = middle;
        }
        Some((enough * BLOCK, set_slots * BLOCK))
    }

    /// The rows after growing to `flash_bytes`: by one or more behind those that there are. None
    /// when there is no room for a slot of every set, or no number for another row.
    #[must_use]
    pub fn grown(&self, flash_bytes: u64) -> Option<Rows> {
        let room = flash_bytes.checked_sub(self.least_end() + DATA_ALIGNMENT)?;
        let slots = slots_in(room / BLOCK / u64::from(self.sets));
        let most = (u32::MAX / self.sets).min(LARGEST_SET) - self.set_slots;
        let mut rows = self.rows().as_slice().to_vec();
        (rows.len() < MAX_ROWS && slots.min(most) > 0).then(|| {
            rows.push(slots.min(most));
            Rows::of(&rows)
        })
    }

    /// The rows after shrinking to `flash_bytes`: the last ones go. None when the first one does
    /// not fit.
    #[must_use]
    pub fn shrunk(&self, flash_bytes: u64) -> Option<Rows> {
        let fits = |row: &&Row| self.end_of(row) + self.tail <= flash_bytes;
        let rows: Vec<u32> = self.rows.iter().take_while(fits).map(|row| row.slots).collect();
        (!rows.is_empty()).then(|| Rows::of(&rows))
    }

    /// The least that it can shrink to, in bytes.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        self.rows.first().map_or(0, |row| self.end_of(row) + self.tail)
    }

    fn end_of(&self, row: &Row) -> u64 {
        row.data + u64::from(self.sets) * u64::from(row.slots) * BLOCK
    }

    /// How many slots of a set are in each row.
    #[must_use]
    pub fn rows(&self) -> Rows {
        Rows::of(&self.rows.iter().map(|row| row.slots).collect::<Vec<_>>())
    }

    /// Where the last slot ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.rows.last().map_or(0, |row| self.end_of(row))
    }

    /// The fewest bytes of a flash device that have room for it.
    #[must_use]
    pub fn least_end(&self) -> u64 {
        self.end() + self.tail
    }

    /// The first copy of a journal area, 0 or 1; the others follow.
    #[must_use]
    pub fn area(&self, area: u64) -> u64 {
        2 * BLOCK + area * self.copies * self.area_bytes
    }

    /// The copies of the area in which a sequence lies.
    pub fn areas_of(&self, sequence: u64) -> impl Iterator<Item = u64> {
        let first = self.area(sequence % 2);
        (0..self.copies).map(move |copy| first + copy * self.area_bytes)
    }

    /// Where the journal ends.
    #[must_use]
    pub fn journal_end(&self) -> u64 {
        self.area(2)
    }

    /// The tables of rows from the one on that begins with index `from` of the sets, as offsets and
    /// sizes.
    pub fn tables(&self, from: u32) -> impl Iterator<Item = (u64, u64)> {
        let rows = self.rows.iter().filter(move |row| row.first_index >= from);
        rows.map(|row| {
            let pages = u64::from(self.sets) * u64::from(row.set_pages);
            (row.table, pages * 2 * BLOCK)
        })
    }

    /// The end of an area that only records about the table itself may use, in bytes.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        self.area_bytes / 4
    }

    /// The smallest area that has room to write the whole table page by page, of a cache `times` as
    /// large.
    #[must_use]
    pub fn least_area_bytes(&self, times: u64) -> u64 {
        round_up(4 * (u64::from(self.pages()) * times * 80 + 4 * BLOCK), BLOCK)
    }

    /// Pages of the table in all.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.rows.iter().map(|row| self.sets * row.set_pages).sum()
    }

    /// The last row that begins so; each count begins with 0 in the first one.
    #[inline]
    fn row(&self, begins: impl Fn(&Row) -> bool) -> &Row {
        self.rows.iter().rev().find(|row| begins(row)).expect("row 0 begins with 0")
    }

    fn row_of_page(&self, page: u32) -> &Row {
        self.row(|row| row.first_page <= page)
    }

    /// Copy 0 of a page of the table; copy 1 follows.
    #[must_use]
    pub fn page(&self, page: u32) -> u64 {
        let row = self.row_of_page(page);
        row.table + u64::from(page - row.first_page) * 2 * BLOCK
    }

    /// The page in which the name of a slot stands.
    #[must_use]
    pub fn page_of(&self, slot: u32) -> u32 {
        let row = self.row_of(slot);
        let rest = slot - row.first_slot;
        let (set, index) = (rest / row.slots, rest % row.slots);
        row.first_page + set * row.set_pages + index / page_names()
    }

    /// The set of a page, and the slots whose names stand in it, as indexes in the set.
    #[must_use]
    pub fn page_slots(&self, page: u32) -> (u32, std::ops::Range<u32>) {
        let row = self.row_of_page(page);
        let rest = page - row.first_page;
        let (set, first) = (rest / row.set_pages, rest % row.set_pages * page_names());
        let end = (first + page_names()).min(row.slots);
        (set, row.first_index + first..row.first_index + end)
    }

    /// The pages of a set: for each row the first one, and how many there are.
    pub fn pages_of(&self, set: u32) -> impl Iterator<Item = (u32, u32)> {
        self.rows.iter().map(move |row| (row.first_page + set * row.set_pages, row.set_pages))
    }

    #[inline]
    fn row_of(&self, slot: u32) -> &Row {
        self.row(|row| row.first_slot <= slot)
    }

    /// The slot with this index in a set, counted over all sets.
    #[inline]
    #[must_use]
    pub fn slot_of(&self, set: u32, index: u32) -> u32 {
        let row = self.row(|row| row.first_index <= index);
        row.first_slot + set * row.slots + (index - row.first_index)
    }

    /// The set of a slot, and its index there.
    #[inline]
    #[must_use]
    pub fn place_of(&self, slot: u32) -> (u32, u32) {
        let row = self.row_of(slot);
        let rest = slot - row.first_slot;
        (rest / row.slots, row.first_index + rest % row.slots)
    }

    /// Whether two slots are of one set and row, so that those between them are, too.
    #[must_use]
    pub fn are_together(&self, slot: u32, other: u32) -> bool {
        let (row, same) = (self.row_of(slot), self.row_of(other));
        let set = |slot: u32| (slot - row.first_slot) / row.slots;
        row.first_slot == same.first_slot && set(slot) == set(other)
    }

    /// The data of a slot, counted over all sets.
    #[inline]
    #[must_use]
    pub fn slot(&self, slot: u32) -> u64 {
        let row = self.row_of(slot);
        row.data + u64::from(slot - row.first_slot) * BLOCK
    }
}

/// Bytes of `slots` slots with their pages.
fn row_bytes(slots: u32) -> u64 {
    (u64::from(slots) + u64::from(slots.div_ceil(page_names())) * 2) * BLOCK
}

/// Slots in so many blocks that have their pages, too.
fn slots_in(blocks: u64) -> u32 {
    let chunk = to_u64(PAGE_NAMES) + 2;
    let slots = blocks / chunk * to_u64(PAGE_NAMES) + (blocks % chunk).saturating_sub(2);
    u32::try_from(slots).unwrap_or(u32::MAX)
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
                    assert!(layout.least_end() <= flash, "{flash} {layout:?}");
                    let lost = flash - layout.end();
                    let set = u64::from(slots) * BLOCK;
                    let is_small = layout.sets == 1;
                    assert!(is_small || lost < 3 * set + (2 << 20), "{flash} {layout:?}");
                    let tables: Vec<_> = layout.tables(0).collect();
                    assert_eq!(layout.journal_end(), tables[0].0);
                    assert!(tables[0].0 + tables[0].1 <= layout.slot(0));
                }
            }
        }
        assert_eq!(Layout::fitting(100 << 10, 512, 64 << 10, false), None);
        let usual = Layout::fitting(1 << 36, 4096, 64 << 20, false).unwrap();
        assert_eq!((usual.set_slots, usual.rows.len()), (4032, 8));
    }

    #[test]
    fn a_size_is_the_least_that_holds_about_so_many_slots() {
        for slots in [8u64, 100, 1_000, 4_032, 4_033, 5_000, 50_000, 1 << 20] {
            let (bytes, set_bytes) = Layout::sized(slots).unwrap();
            let set = u32::try_from(set_bytes / BLOCK).unwrap();
            let held = |bytes: u64| {
                let layout = Layout::planned(bytes, set, None, false);
                layout.map_or(0, |it| u64::from(it.sets) * u64::from(it.set_slots))
            };
            let has = held(bytes);
            let allowed = if slots <= 4_032 { 0 } else { slots / 8 };
            assert!(has.abs_diff(slots) <= allowed, "{slots}: {has} in {bytes}");
            assert!(held(bytes - BLOCK) < has, "{slots}: {bytes} are more than needed");
        }
        assert_eq!(Layout::sized(1 << 60), None);
    }

    #[test]
    fn every_slot_has_a_place_of_its_own_and_a_page_of_its_set() {
        let layout = Layout::new(VERSION, Rows::of(&[1100, 7, 504]), 3, 64 << 10);
        assert_eq!((layout.set_slots, layout.pages()), (1611, 3 * (3 + 1 + 1)));
        let (mut slots, mut places) = (Vec::new(), Vec::new());
        for set in 0..3 {
            for index in 0..1611 {
                let slot = layout.slot_of(set, index);
                assert_eq!(layout.place_of(slot), (set, index));
                let (of, indexes) = layout.page_slots(layout.page_of(slot));
                assert!(of == set && indexes.contains(&index), "{set} {index}");
                let mut pages = layout.pages_of(set);
                assert!(pages.any(|(first, n)| (first..first + n).contains(&layout.page_of(slot))));
                slots.push(slot);
                places.push((layout.slot(slot), BLOCK));
            }
        }
        slots.sort_unstable();
        assert!(slots.iter().copied().eq(0..3 * 1611), "each number once");
        places.extend((0..layout.pages()).map(|page| (layout.page(page), 2 * BLOCK)));
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "overlap");
        assert!(layout.are_together(0, 1099) && !layout.are_together(1099, 1100));
        assert!(!layout.are_together(layout.slot_of(0, 1099), layout.slot_of(0, 1100)));
    }

    #[test]
    fn growing_and_shrinking_leave_the_rows_before_where_they_are() {
        let layout = Layout::fitting(64 << 20, 1024, 1 << 20, false).unwrap();
        let rows = layout.grown(100 << 20).unwrap();
        let grown = Layout::new(VERSION, rows, layout.sets, layout.area_bytes);
        assert!(grown.end() <= 100 << 20 && grown.end() > 98 << 20, "{grown:?}");
        for slot in (0..layout.sets * layout.set_slots).step_by(100) {
            assert_eq!(layout.place_of(slot), grown.place_of(slot));
            assert_eq!(layout.slot(slot), grown.slot(slot));
            assert_eq!(layout.page(layout.page_of(slot)), grown.page(grown.page_of(slot)));
        }
        assert_eq!(grown.shrunk(64 << 20), layout.shrunk(64 << 20));
        assert_eq!(grown.shrunk(grown.least_bytes()).unwrap().as_slice().len(), 1);
        assert_eq!(grown.shrunk(grown.least_bytes() - 1), None);
        assert_eq!(layout.grown(layout.end() + 4096), None);
    }
}
