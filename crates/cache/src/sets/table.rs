//! Finds the slot of a tag: open addressing with linear probing.
//!
//! Called by [`super::Set`]. An entry is a slot and a mark, some bits of the tag's hash: two bytes
//! in sets of up to 16,384 slots, whose marks have four to two bits, and four bytes beyond. The
//! tags themselves are the set's, and are looked at when the marks agree.
//!
//! Invariants:
//! 1. Between an entry's home and the entry no place is empty (removal moves entries back).
//! 2. An eighth of the places at least is empty, so every search ends.

use super::tags::Tags;

/// The bits of a slot in an entry of two bytes, at least and at most; the rest is the mark.
const SLOT_BITS_SMALL: std::ops::RangeInclusive<u32> = 12..=14;
/// The bits of a slot in an entry of four bytes; the rest is the mark.
const SLOT_BITS_LARGE: u32 = 28;

#[derive(Debug)]
enum Entries {
    Small(Box<[u16]>),
    Large(Box<[u32]>),
}

/// Tag to slot.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Entries,
    slot_bits: u32,
}

/// The home of `tag` among `places`, and 32 more bits of its hash.
#[inline]
#[allow(clippy::cast_possible_truncation)] // high halves of 64-bit products
fn hash(tag: u32, places: usize) -> (usize, u32) {
    let mixed = (u64::from(tag) ^ 0x5bd1_e995).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = mixed ^ mixed >> 32;
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let home = ((mixed >> 32) * places as u64) >> 32;
    (home as usize, mixed as u32)
}

impl Table {
    pub(crate) fn new(slots: u32) -> Table {
        let places = slots as usize + slots as usize / 7 + 2;
        let needed = u32::BITS - slots.saturating_sub(1).leading_zeros();
        let (least, most) = SLOT_BITS_SMALL.into_inner();
        let (entries, slot_bits) = if needed <= most {
            (Entries::Small(vec![0; places].into_boxed_slice()), needed.max(least))
        } else {
            (Entries::Large(vec![0; places].into_boxed_slice()), SLOT_BITS_LARGE)
        };
        Table { entries, slot_bits }
    }

    fn places(&self) -> usize {
        match &self.entries {
            Entries::Small(entries) => entries.len(),
            Entries::Large(entries) => entries.len(),
        }
    }

    /// The home of `tag` and its mark, which is never zero.
    #[inline]
    fn home(&self, tag: u32) -> (usize, u32) {
        let (home, rest) = hash(tag, self.places());
        let bits = match &self.entries {
            Entries::Small(_) => u16::BITS - self.slot_bits,
            Entries::Large(_) => u32::BITS - self.slot_bits,
        };
        (home, (rest & ((1 << bits) - 1)).max(1))
    }

    /// The slot and the mark at `place`; the mark is zero when it is empty.
    #[inline]
    fn entry(&self, place: usize) -> (u32, u32) {
        let entry = match &self.entries {
            Entries::Small(entries) => u32::from(entries[place]),
            Entries::Large(entries) => entries[place],
        };
        (entry & ((1 << self.slot_bits) - 1), entry >> self.slot_bits)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // slot and mark have sixteen bits together
    fn put(&mut self, place: usize, slot: u32, mark: u32) {
        let entry = slot | mark << self.slot_bits;
        match &mut self.entries {
            Entries::Small(entries) => entries[place] = entry as u16,
            Entries::Large(entries) => entries[place] = entry,
        }
    }

    #[inline]
    fn find(&self, tag: u32, tags: &Tags) -> Option<(usize, u32)> {
        let places = self.places();
        let (mut place, wanted) = self.home(tag);
        loop {
            let (slot, mark) = self.entry(place);
            if mark == 0 {
                return None;
            }
            if mark == wanted && tags.get(slot) == tag {
                return Some((place, slot));
            }
            place += 1;
            if place == places {
                place = 0;
            }
        }
    }

    /// The slot of `tag`.
    #[inline]
    pub(crate) fn get(&self, tag: u32, tags: &Tags) -> Option<u32> {
        self.find(tag, tags).map(|(_, slot)| slot)
    }

    /// `tag`, which is not there, is in `slot`.
    pub(crate) fn insert(&mut self, tag: u32, slot: u32) {
        let places = self.places();
        let (mut place, mark) = self.home(tag);
        while self.entry(place).1 != 0 {
            place += 1;
            if place == places {
                place = 0;
            }
        }
        self.put(place, slot, mark);
    }

    /// `tag` is no longer there; `tags` still has it.
    pub(crate) fn remove(&mut self, tag: u32, tags: &Tags) {
        let places = self.places();
        let Some((mut hole, _)) = self.find(tag, tags) else { return };
        let mut place = hole;
        loop {
            place = if place + 1 == places { 0 } else { place + 1 };
            let (slot, mark) = self.entry(place);
            if mark == 0 {
                break;
            }
            let (home, _) = hash(tags.get(slot), places);
            let past_home = (place + places - home) % places;
            let past_hole = (place + places - hole) % places;
            if past_home >= past_hole {
                self.put(hole, slot, mark);
                hole = place;
            }
        }
        self.put(hole, 0, 0);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.entries {
            Entries::Small(entries) => size_of_val(&**entries),
            Entries::Large(entries) => size_of_val(&**entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, NO_TAG, Placement};
    use esker_base::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn every_tag_is_found_in_its_slot_and_no_other() {
        // Up to 2^12, 2^13, 2^14 slots a mark is shorter each time; beyond, an entry is longer.
        for slots in [3u32, 50, 4_096, 4_097, 16_384, 16_385] {
            let mut rng = Rng::new(u64::from(slots));
            let mapping = Mapping::new(Placement::Linear, 1 << 20, 1, 1, 0).unwrap();
            let mut table = Table::new(slots);
            let mut tags = Tags::new(slots, &mapping);
            let mut oracle: BTreeMap<u32, u32> = BTreeMap::new();
            for _ in 0..u64::from(slots) * 4 + 5_000 {
                let slot = u32::try_from(rng.below(u64::from(slots))).unwrap();
                let tag = u32::try_from(rng.below(u64::from(slots) * 3)).unwrap();
                let old = tags.get(slot);
                if old != NO_TAG {
                    table.remove(old, &tags);
                    tags.put(slot, NO_TAG);
                    oracle.remove(&old);
                }
                assert_eq!(table.get(tag, &tags), oracle.get(&tag).copied());
                oracle.entry(tag).or_insert_with(|| {
                    tags.put(slot, tag);
                    table.insert(tag, slot);
                    slot
                });
            }
            let mut all = oracle.iter();
            assert!(all.all(|(tag, slot)| table.get(*tag, &tags) == Some(*slot)));
        }
    }
}
