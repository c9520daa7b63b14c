//! Finds the slot of a tag: open addressing with linear probing.
//!
//! Called by [`super::Set`]. An entry is a slot with four bits of the tag's hash, two bytes in
//! sets of up to 4,096 slots and four beyond; the tags themselves are the set's, and are looked
//! at when the four bits agree.
//!
//! Invariants:
//! 1. Between an entry's home and the entry no place is empty (removal moves entries back).
//! 2. An eighth of the places at least is empty, so every search ends.

const SLOT_BITS_SMALL: u32 = 12;
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
}

/// The home of `tag` among `places`, and its mark of four bits, which is never zero.
#[inline]
#[allow(clippy::cast_possible_truncation)] // high halves of 64-bit products
fn hash(tag: u32, places: usize) -> (usize, u32) {
    let mixed = (u64::from(tag) ^ 0x5bd1_e995).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = mixed ^ mixed >> 32;
    let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let home = ((mixed >> 32) * places as u64) >> 32;
    (home as usize, (mixed as u32 & 15).max(1))
}

impl Table {
    pub(crate) fn new(slots: u32) -> Table {
        let places = slots as usize + slots as usize / 4 + 2;
        let entries = if slots <= 1 << SLOT_BITS_SMALL {
            Entries::Small(vec![0; places].into_boxed_slice())
        } else {
            Entries::Large(vec![0; places].into_boxed_slice())
        };
        Table { entries }
    }

    fn places(&self) -> usize {
        match &self.entries {
            Entries::Small(entries) => entries.len(),
            Entries::Large(entries) => entries.len(),
        }
    }

    /// The slot and the mark at `place`; the mark is zero when it is empty.
    #[inline]
    fn entry(&self, place: usize) -> (u32, u32) {
        match &self.entries {
            Entries::Small(entries) => {
                let entry = u32::from(entries[place]);
                (entry & ((1 << SLOT_BITS_SMALL) - 1), entry >> SLOT_BITS_SMALL)
            }
            Entries::Large(entries) => {
                let entry = entries[place];
                (entry & ((1 << SLOT_BITS_LARGE) - 1), entry >> SLOT_BITS_LARGE)
            }
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // twelve bits and four
    fn put(&mut self, place: usize, slot: u32, mark: u32) {
        match &mut self.entries {
            Entries::Small(entries) => entries[place] = (slot | mark << SLOT_BITS_SMALL) as u16,
            Entries::Large(entries) => entries[place] = slot | mark << SLOT_BITS_LARGE,
        }
    }

    #[inline]
    fn find(&self, tag: u32, tags: &[u32]) -> Option<(usize, u32)> {
        let places = self.places();
        let (mut place, wanted) = hash(tag, places);
        loop {
            let (slot, mark) = self.entry(place);
            if mark == 0 {
                return None;
            }
            if mark == wanted && tags[slot as usize] == tag {
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
    pub(crate) fn get(&self, tag: u32, tags: &[u32]) -> Option<u32> {
        self.find(tag, tags).map(|(_, slot)| slot)
    }

    /// `tag`, which is not there, is in `slot`.
    pub(crate) fn insert(&mut self, tag: u32, slot: u32) {
        let places = self.places();
        let (mut place, mark) = hash(tag, places);
        while self.entry(place).1 != 0 {
            place += 1;
            if place == places {
                place = 0;
            }
        }
        self.put(place, slot, mark);
    }

    /// `tag` is no longer there; `tags` still has it.
    pub(crate) fn remove(&mut self, tag: u32, tags: &[u32]) {
        let places = self.places();
        let Some((mut hole, _)) = self.find(tag, tags) else { return };
        let mut place = hole;
        loop {
            place = if place + 1 == places { 0 } else { place + 1 };
            let (slot, mark) = self.entry(place);
            if mark == 0 {
                break;
            }
            let (home, _) = hash(tags[slot as usize], places);
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
    use esker_base::Rng;

    #[test]
    fn every_tag_is_found_in_its_slot_and_no_other() {
        for slots in [3u32, 50, 5_000] {
            let mut rng = Rng::new(u64::from(slots));
            let mut table = Table::new(slots);
            let mut tags = vec![u32::MAX; slots as usize];
            for _ in 0..20_000 {
                let slot = u32::try_from(rng.below(u64::from(slots))).unwrap();
                let tag = u32::try_from(rng.below(u64::from(slots) * 3)).unwrap();
                let index = slot as usize;
                if tags[index] != u32::MAX {
                    table.remove(tags[index], &tags);
                    tags[index] = u32::MAX;
                }
                let expected = tags.iter().position(|&other| other == tag);
                assert_eq!(table.get(tag, &tags).map(|slot| slot as usize), expected);
                if expected.is_none() {
                    tags[index] = tag;
                    table.insert(tag, slot);
                }
            }
        }
    }
}
