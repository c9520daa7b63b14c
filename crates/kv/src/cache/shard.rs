//! One shard: an index over segments, and S3-FIFO (Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO
//! Queues are All You Need for Cache Eviction", SOSP 2023) in which whole segments are evicted.
//!
//! New records go to the small queue, and to the main queue when the ghost remembers them. A
//! record that leaves the small queue moves to the main queue if it was read at least twice, else
//! to the ghost. A record that leaves the main queue goes in again at its end, with one visit
//! less, if it was read at all.
//!
//! Invariants
//! 1. An index entry names a record in a slot in use, with the address it was inserted for. A
//!    record that no entry names is dead.
//! 2. The newest segment of a queue is the one that is appended to.
//! 3. In use but for the spare segment is at most the capacity less one segment: what is evicted
//!    finds room for its survivors before its own room is free.

use std::collections::VecDeque;

use esker_base::units::to_u64;

use super::ghost::Ghost;
use super::index::Index;
use super::segment::{Place, Queue, RECORD_MAX, Record, SEGMENT, SLOTS_MAX, Segments};
use super::{RecordAddress, RecordCacheStats};

/// The small queue has this part of the memory.
const SMALL_PART: usize = 10;
/// Visits that move a record from the small to the main queue.
const PROMOTED: u8 = 2;
/// After so many segments evicted for one place, a record needs one visit more to stay: this
/// bounds how long an insert takes when everything is hot.
const PATIENCE: usize = 4;

/// Aligned so that two locks never share a pair of cache lines.
#[repr(align(128))]
pub(super) struct Shard {
    capacity: usize,
    index: Index,
    segments: Segments,
    /// Slots, oldest first.
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    ghost: Ghost,
    hits: u64,
    misses: u64,
    inserts: u64,
    evictions: u64,
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Shard {
        Shard {
            capacity: limit(capacity),
            index: Index::default(),
            segments: Segments::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: Ghost::default(),
            hits: 0,
            misses: 0,
            inserts: 0,
            evictions: 0,
        }
    }

    /// Where the record at `address` is.
    pub(super) fn find(&self, address: RecordAddress, hash: u32) -> Option<Place> {
        self.index.find(hash, |place| self.segments.address(place) == address)
    }

    /// Asks for the memory in which a search for `hash` begins.
    pub(super) fn prefetch_entry(&self, hash: u32) {
        self.index.prefetch(hash);
    }

    /// Asks for the memory of the record with this hash, most probably.
    pub(super) fn prefetch_record(&self, hash: u32) {
        if let Some(place) = self.index.find(hash, |_| true) {
            self.segments.prefetch(place);
        }
    }

    /// Reads the record at `address`, and counts that.
    pub(super) fn visit(&mut self, address: RecordAddress, hash: u32) -> Option<&[u8]> {
        let Some(place) = self.find(address, hash) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        Some(self.segments.visit(place))
    }

    /// The record at `place`.
    pub(super) fn record(&self, place: Place) -> Record<'_> {
        self.segments.record(place)
    }

    /// Takes in a record that was read from its medium.
    pub(super) fn insert(&mut self, address: RecordAddress, hash: u32, parts: &[&[u8]]) -> bool {
        let queue = if self.ghost.contains(hash) { Queue::Main } else { Queue::Small };
        let taken = self.add(queue, address, hash, 0, parts);
        self.inserts += u64::from(taken);
        taken
    }

    /// Takes in a record that was read from its medium, if nothing has to leave for it.
    pub(super) fn insert_beside(
        &mut self,
        address: RecordAddress,
        hash: u32,
        parts: &[&[u8]],
    ) -> bool {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let newest = [Queue::Small, Queue::Main].map(|queue| self.newest(queue));
        let has_room =
            newest.iter().all(|slot| slot.is_some_and(|slot| self.segments.has_room(slot, size)));
        let fits = has_room && !self.index.is_full() || self.fits(SEGMENT + self.index_growth());
        fits && self.insert(address, hash, parts)
    }

    /// Takes in a record from another shard, into the same queue.
    pub(super) fn adopt(&mut self, address: RecordAddress, hash: u32, record: Record<'_>) -> bool {
        let Record { queue, visits, bytes, .. } = record;
        self.add(queue, address, hash, visits, &[bytes])
    }

    /// Gives the record at `old` the address `new`, which is of this shard too.
    pub(super) fn rename(&mut self, old: (RecordAddress, u32), new: (RecordAddress, u32)) -> bool {
        if self.find(old.0, old.1).is_none() {
            return false;
        }
        let has_room = self.make_room(Queue::Main, 0); // which may evict it
        let Some(place) = self.find(old.0, old.1) else {
            return false;
        };
        self.remove(old.0, old.1);
        if !has_room || self.find(new.0, new.1).is_some() {
            return false;
        }
        self.segments.set_address(place, new.0);
        self.index.insert(new.1, place);
        true
    }

    /// Forgets the record at `address`.
    pub(super) fn remove(&mut self, address: RecordAddress, hash: u32) -> bool {
        self.find(address, hash).is_some_and(|place| self.index.remove(hash, place))
    }

    /// Changes the capacity, and frees what is too much.
    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = limit(capacity);
        // The main queue is gone through whole before a record needs one visit more to stay.
        let patience = self.main.len().max(PATIENCE);
        let mut evicted = 0;
        while !self.fits(0) && self.evict(Queue::Main, evicted / patience) {
            evicted += 1;
            self.shrink_index();
        }
        let is_empty = self.small.is_empty() && self.main.is_empty();
        if is_empty {
            (self.small, self.main) = (VecDeque::new(), VecDeque::new());
            self.shrink_index();
        }
        if is_empty || self.used() > self.capacity {
            self.segments.trim();
        }
    }

    /// What this shard has done and holds.
    pub(super) fn stats(&self) -> RecordCacheStats {
        RecordCacheStats {
            hits: self.hits,
            misses: self.misses,
            inserts: self.inserts,
            evictions: self.evictions,
            entries: to_u64(self.index.len()),
            bytes: to_u64(self.used() + self.tables()),
            capacity: to_u64(self.capacity),
        }
    }

    fn add(
        &mut self,
        queue: Queue,
        address: RecordAddress,
        hash: u32,
        visits: u8,
        parts: &[&[u8]],
    ) -> bool {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size > RECORD_MAX
            || self.find(address, hash).is_some()
            || !self.make_room(queue, size.max(1))
        {
            return false;
        }
        let slot = self.newest(queue).expect("there is room");
        let place = self.segments.append(slot, address, visits, parts);
        self.index.insert(hash, place);
        true
    }

    /// Evicts until `queue` has a segment with room for `size` bytes (none is needed for 0) and the
    /// index has room for one more entry. False when the capacity is too small for that.
    fn make_room(&mut self, queue: Queue, size: usize) -> bool {
        let mut evicted = 0;
        loop {
            let newest = self.newest(queue);
            let has_room =
                size == 0 || newest.is_some_and(|slot| self.segments.has_room(slot, size));
            let growth = if self.index.is_full() { self.index_growth() } else { 0 };
            let segment = if has_room { 0 } else { SEGMENT };
            if self.fits(segment + growth) {
                self.index.reserve();
                self.fit_ghost();
                if !has_room {
                    self.open(queue);
                }
                return true;
            }
            if !self.evict(queue, evicted / PATIENCE) {
                return false;
            }
            evicted += 1;
        }
    }

    /// Shrinks index and ghost if that halves them.
    fn shrink_index(&mut self) {
        if self.index.shrink() {
            self.fit_ghost();
        }
    }

    /// Makes the ghost as large as the index.
    fn fit_ghost(&mut self) {
        self.ghost.fit(self.index.slots());
    }

    /// What index and ghost may need to grow: the old table is there until the new one, twice as
    /// large, is filled, and the ghost is half as large as the table.
    fn index_growth(&self) -> usize {
        (3 * self.index.bytes()).max(1024)
    }

    /// Whether `more` bytes can be taken into use (invariant 3).
    fn fits(&self, more: usize) -> bool {
        self.used() - self.segments.spare_bytes() + more + SEGMENT <= self.capacity
    }

    fn used(&self) -> usize {
        self.segments.bytes() + self.index.bytes() + self.ghost.bytes()
    }

    /// Memory of the tables of slots.
    fn tables(&self) -> usize {
        let queues = (self.small.capacity() + self.main.capacity()) * size_of::<usize>();
        queues + self.segments.tables()
    }

    fn open(&mut self, queue: Queue) {
        let slot = self.segments.open(queue);
        match queue {
            Queue::Small => self.small.push_back(slot),
            Queue::Main => self.main.push_back(slot),
        }
    }

    fn newest(&self, queue: Queue) -> Option<usize> {
        match queue {
            Queue::Small => self.small.back().copied(),
            Queue::Main => self.main.back().copied(),
        }
    }

    /// Evicts the oldest segment of the queue whose turn it is, to make room in `wanted`. Records
    /// of the main queue stay with more than `impatience` visits. False when there is none.
    fn evict(&mut self, wanted: Queue, impatience: usize) -> bool {
        let share = (self.capacity / SEGMENT / SMALL_PART).max(1);
        let small = self.small.len() + usize::from(wanted == Queue::Small);
        let victim = if small > share || self.main.is_empty() {
            self.small.pop_front().or_else(|| self.main.pop_front())
        } else {
            self.main.pop_front()
        };
        let Some(slot) = victim else {
            return false;
        };
        let segment = self.segments.take(slot);
        for (position, record) in segment.records() {
            self.evict_record(Place::new(slot, position), record, impatience);
        }
        self.segments.recycle(segment);
        true
    }

    fn evict_record(&mut self, place: Place, record: Record<'_>, impatience: usize) {
        let (_, hash) = record.address.hash();
        if self.index.find(hash, |other| other == place).is_none() {
            return; // dead
        }
        let (stays, visits) = match record.queue {
            Queue::Small => (record.visits >= PROMOTED, 0),
            Queue::Main => {
                (usize::from(record.visits) > impatience, record.visits.saturating_sub(1))
            }
        };
        if !stays {
            self.index.remove(hash, place);
            if record.queue == Queue::Small {
                self.ghost.remember(hash);
            }
            self.evictions += 1;
            return;
        }
        let size = record.bytes.len();
        let open = self.main.back().copied();
        let open = open.filter(|&slot| self.segments.has_room(slot, size));
        let open = open.unwrap_or_else(|| {
            let slot = self.segments.open(Queue::Main);
            self.main.push_back(slot);
            slot
        });
        let bytes = &[record.bytes];
        let moved = self.segments.append(open, record.address, visits, bytes);
        self.index.replace(hash, place, moved);
    }
}

/// What is left of a capacity when the tables of slots, about 100 bytes a segment, are paid for,
/// and no more than a shard can name.
fn limit(capacity: usize) -> usize {
    (capacity - capacity / 512).min(SLOTS_MAX * SEGMENT)
}
