//! Compressed copies of pages that are on the device, in memory: a fault that finds one needs no read.
//!
//! Copies lie in segments, one behind the other. When all segments are in use, the one with the fewest bytes that are
//! still needed is packed, if that frees enough of it; otherwise the oldest one goes, with all its copies.
//!
//! Invariants
//! 1. A slot has at most one copy, and only while a page refers to it: the copy is what the device has there.
//! 2. Each known place is the beginning of an entry of its slot.

use std::collections::VecDeque;

use esker_base::AlignedBuf;
use esker_base::policy::hash;
use hashbrown::HashTable;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use crate::types::{CHUNK, PAGE};

/// Bytes of a segment.
const SEGMENT: usize = CHUNK * PAGE;
/// A page that compresses to more bytes than this is worth no copy.
const MOST: usize = PAGE / 4 * 3;
/// Bytes in front of a copy: its slot and its length.
const HEAD: usize = 8;
/// Copies begin at multiples of this.
const ALIGN: usize = 8;
/// A segment is packed rather than the oldest one dropped when at most so many bytes of it are needed. Where there may be
/// more segments it is packed when at most half is.
const PACKED: usize = SEGMENT / 4 * 3;

/// The place of a slot's copy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: u32,
    segment: u32,
    offset: u32,
}

/// A row of copies.
struct Segment {
    bytes: AlignedBuf,
    /// Bytes that copies have taken.
    used: usize,
    /// Of these, bytes of copies that are still known.
    live: usize,
    /// Rises from segment to segment.
    age: u64,
}

/// A copy that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// It was in the oldest quarter.
    pub(crate) is_old: bool,
}

/// The copies.
pub(crate) struct Compressed {
    segments: Vec<Option<Segment>>,
    /// Segments in use, the oldest first. The last one is being filled.
    order: VecDeque<u32>,
    places: HashTable<Place>,
    /// Most segments, one of which is for packing.
    most: usize,
    /// The age of the next segment.
    next: u64,
    /// The segment that packing copies into.
    spare: Option<AlignedBuf>,
    table: CompressTable,
    scratch: Vec<u8>,
}

impl Compressed {
    /// Room for so many segments of copies.
    pub(crate) fn new(segments: usize) -> Compressed {
        Compressed {
            segments: Vec::new(),
            order: VecDeque::new(),
            places: HashTable::new(),
            most: segments,
            next: 0,
            spare: None,
            table: CompressTable::small(),
            scratch: vec![0; get_maximum_output_size(PAGE)],
        }
    }

    /// How many copies there are.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.places.len()
    }

    /// Pages of memory that the copies and their table take, or will take before they are counted again.
    pub(crate) fn pages(&self) -> usize {
        // The next segment, and the one to pack into.
        let segments = if self.room() > 0 { (self.order.len() + 2).min(self.most) } else { 0 };
        segments * CHUNK + self.places.allocation_size().div_ceil(PAGE)
    }

    /// Whether there are as many segments as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.order.len() >= self.room()
    }

    /// How many copies there are for each hundred pages of memory with copies.
    pub(crate) fn percent(&self) -> usize {
        self.places.len() * 100 / (self.order.len() * CHUNK).max(1)
    }

    /// Most segments that there may be; one alone is none, since packing needs one. Copies beyond them go, the oldest
    /// first.
    pub(crate) fn set_most(&mut self, segments: usize) {
        self.most = segments;
        while self.order.len() > self.room() {
            self.drop_oldest();
        }
        if self.room() == 0 {
            self.spare = None;
            self.places = HashTable::new();
        }
    }

    /// Most segments with copies.
    fn room(&self) -> usize {
        self.most.saturating_sub(1)
    }

    fn find(&self, slot: u32) -> Option<Place> {
        self.places.find(hash(slot.into()), |place| place.slot == slot).copied()
    }

    /// Whether there is a copy of a slot.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.find(slot).is_some()
    }

    /// Keeps a copy of a slot's page, which has none yet. Says whether it did: a page that hardly compresses has none.
    pub(crate) fn keep(&mut self, slot: u32, page: &[u8]) -> bool {
        debug_assert!(!self.has(slot), "slot {slot} has a copy");
        if self.room() == 0 {
            return false;
        }
        let packed = compress_into_with_table(page, &mut self.scratch, &mut self.table);
        let Some(length) = packed.ok().filter(|&length| length <= MOST) else { return false };
        let Some(segment) = self.with_room(size_of_entry(length)) else { return false };
        let to = self.segments[segment as usize].as_mut().expect("it is in use");
        let offset = append(to, slot, &self.scratch[..length]);
        let place = Place { slot, segment, offset };
        self.places.insert_unique(hash(slot.into()), place, |place| hash(place.slot.into()));
        true
    }

    /// The segment that is filled, with room for an entry.
    fn with_room(&mut self, size: usize) -> Option<u32> {
        let last = self.order.back().copied();
        let has_room = |at: &u32| self.segment(*at).used + size <= SEGMENT;
        if let Some(last) = last.filter(has_room) {
            return Some(last);
        }
        let live = |at: &u32| self.segment(*at).live;
        let emptiest = self.order.iter().copied().min_by_key(live);
        let is_growing = self.order.len() < self.room();
        let worth = if is_growing { SEGMENT / 2 } else { PACKED };
        match emptiest.filter(|at| live(at) <= worth) {
            Some(emptiest) => Some(self.pack(emptiest)),
            None if is_growing => Some(self.add(AlignedBuf::zeroed(SEGMENT))),
            None => {
                let bytes = self.drop_oldest()?;
                Some(self.add(bytes))
            }
        }
    }

    /// Begins a new segment.
    fn add(&mut self, bytes: AlignedBuf) -> u32 {
        let free = self.segments.iter().position(Option::is_none).unwrap_or(self.segments.len());
        if free == self.segments.len() {
            self.segments.push(None);
        }
        self.segments[free] = Some(self.empty(bytes));
        let at = u32::try_from(free).expect("fewer than 2^32 segments");
        self.order.push_back(at);
        at
    }

    /// A segment without copies, of the next age.
    fn empty(&mut self, bytes: AlignedBuf) -> Segment {
        let age = self.next;
        self.next += 1;
        Segment { bytes, used: 0, live: 0, age }
    }

    fn segment(&self, at: u32) -> &Segment {
        self.segments[at as usize].as_ref().expect("it is in use")
    }

    /// Lets go of the oldest segment, and gives its memory.
    fn drop_oldest(&mut self) -> Option<AlignedBuf> {
        let at = self.order.pop_front()?;
        let segment = self.segments[at as usize].take()?;
        for (slot, offset, _) in entries(&segment) {
            let place = Place { slot, segment: at, offset };
            if let Ok(found) = self.places.find_entry(hash(slot.into()), |it| *it == place) {
                found.remove();
            }
        }
        Some(segment.bytes)
    }

    /// Copies what is needed of a segment to a new one.
    fn pack(&mut self, at: u32) -> u32 {
        let old = self.segments[at as usize].take().expect("it is in use");
        let bytes = self.spare.take().unwrap_or_else(|| AlignedBuf::zeroed(SEGMENT));
        let mut new = self.empty(bytes);
        for (slot, offset, copy) in entries(&old) {
            let place = Place { slot, segment: at, offset };
            if let Some(known) = self.places.find_mut(hash(slot.into()), |it| *it == place) {
                known.offset = append(&mut new, slot, copy);
            }
        }
        self.spare = Some(old.bytes);
        self.segments[at as usize] = Some(new);
        self.order.retain(|&other| other != at);
        self.order.push_back(at);
        at
    }

    /// Reads a slot's page from its copy.
    pub(crate) fn read(&mut self, slot: u32, to: &mut [u8]) -> Option<Hit> {
        let Place { segment: at, offset, .. } = self.find(slot)?;
        let segment = self.segment(at);
        let (_, copy) = entry(segment, offset as usize).expect("invariant 2");
        if decompress_into(copy, to).ok() != Some(PAGE) {
            // The device has it, too.
            self.forget(slot);
            return None;
        }
        let age = segment.age;
        let oldest = self.order.front().map_or(age, |&at| self.segment(at).age);
        Some(Hit { is_old: (age - oldest) * 4 <= self.next - oldest })
    }

    /// Lets go of a slot's copy, if there is one.
    pub(crate) fn forget(&mut self, slot: u32) {
        if self.places.is_empty() {
            return;
        }
        let is_it = |place: &Place| place.slot == slot;
        let Ok(found) = self.places.find_entry(hash(slot.into()), is_it) else { return };
        let (place, _) = found.remove();
        let segment = self.segments[place.segment as usize].as_mut().expect("it is in use");
        let (_, copy) = entry(segment, place.offset as usize).expect("invariant 2");
        segment.live -= size_of_entry(copy.len());
    }
}

fn size_of_entry(length: usize) -> usize {
    (HEAD + length).next_multiple_of(ALIGN)
}

/// Puts a copy behind the others of a segment, which has room for it. Gives its place.
fn append(segment: &mut Segment, slot: u32, copy: &[u8]) -> u32 {
    let (at, size) = (segment.used, size_of_entry(copy.len()));
    let to = &mut segment.bytes[at..at + size];
    let length = u32::try_from(copy.len()).expect("less than a page");
    to[..4].copy_from_slice(&slot.to_ne_bytes());
    to[4..HEAD].copy_from_slice(&length.to_ne_bytes());
    to[HEAD..HEAD + copy.len()].copy_from_slice(copy);
    segment.used += size;
    segment.live += size;
    u32::try_from(at).expect("within a segment")
}

/// The slot and the copy at a place.
fn entry(segment: &Segment, at: usize) -> Option<(u32, &[u8])> {
    let (head, rest) = segment.bytes[at..segment.used].split_at_checked(HEAD)?;
    let (slot, length) = head.split_at(4);
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    Some((word(slot), rest.get(..word(length) as usize)?))
}

/// All entries of a segment: slot, place and copy.
fn entries(segment: &Segment) -> impl Iterator<Item = (u32, u32, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (slot, copy) = entry(segment, at)?;
        let offset = u32::try_from(at).ok()?;
        at += size_of_entry(copy.len());
        Some((slot, offset, copy))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use esker_base::Rng;

    use super::*;

    /// A page of which a part, of random length, does not compress.
    fn page(rng: &mut Rng) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let random = usize::try_from(rng.below(PAGE as u64)).unwrap();
        rng.fill(&mut page[..random]);
        page
    }

    #[test]
    fn copies_are_what_was_kept_until_they_are_forgotten() {
        let mut rng = Rng::new(7);
        for most in [2, 3, 9] {
            let mut copies = Compressed::new(most);
            let mut known = BTreeMap::new();
            let (mut kept, mut hits) = (0, 0);
            for _ in 0..20_000 {
                let slot = u32::try_from(1 + rng.below(3000)).unwrap();
                match rng.below(8) {
                    0..4 => {
                        let page = page(&mut rng);
                        // As it is while a page refers to it: the same content, or another after it was forgotten.
                        copies.forget(slot);
                        if copies.keep(slot, &page) {
                            known.insert(slot, page);
                            kept += 1;
                        } else {
                            known.remove(&slot);
                        }
                    }
                    4..6 => {
                        copies.forget(slot);
                        known.remove(&slot);
                    }
                    _ => {
                        let mut found = vec![1; PAGE];
                        if copies.read(slot, &mut found).is_some() {
                            assert_eq!(found, known[&slot]);
                            hits += 1;
                        }
                    }
                }
                assert!(copies.order.len() < most);
            }
            assert!(kept > 5000 && hits > 100, "{kept} {hits}");
            let live: usize = copies.segments.iter().flatten().map(|it| it.live).sum();
            let sizes = |place: &Place| {
                let segment = copies.segments[place.segment as usize].as_ref().unwrap();
                let (slot, copy) = entry(segment, place.offset as usize).unwrap();
                assert_eq!(slot, place.slot);
                size_of_entry(copy.len())
            };
            assert_eq!(live, copies.places.iter().map(sizes).sum::<usize>());
            copies.set_most(1);
            assert_eq!((copies.count(), copies.pages()), (0, 0));
        }
    }

    #[test]
    fn segments_with_few_copies_are_packed_and_full_ones_go_by_age() {
        let mut copies = Compressed::new(5);
        let mut rng = Rng::new(3);
        let mut half = vec![0; PAGE];
        rng.fill(&mut half[..PAGE / 2]);
        let fits = u32::try_from(4 * (SEGMENT / (PAGE / 2 + 64))).unwrap();
        assert!((1..=fits).all(|slot| copies.keep(slot, &half)));
        // Every second one goes: there is room for as many again, and none of the others is lost.
        (1..=fits).step_by(2).for_each(|slot| copies.forget(slot));
        assert!((1001..1001 + fits / 3).all(|slot| copies.keep(slot, &half)));
        assert!((2..=fits).step_by(2).all(|slot| copies.has(slot)));
        // Now the oldest go.
        assert!((2001..2001 + fits).all(|slot| copies.keep(slot, &half)));
        assert!(!copies.has(2) && copies.has(2000 + fits));
    }

    #[test]
    fn random_pages_are_not_kept() {
        let mut copies = Compressed::new(4);
        let mut page = vec![0; PAGE];
        Rng::new(1).fill(&mut page);
        assert!(!copies.keep(1, &page));
        assert_eq!(copies.count(), 0);
    }
}
