//! One shard: an index over segments, and S3-FIFO (Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO
//! Queues are All You Need for Cache Eviction", SOSP 2023) in which whole segments are evicted.
//!
//! New records go to the small queue, and to the main queue when they are read and the ghost
//! remembers them. A newer version of a record takes the place of the older one, with its visits. A
//! record that leaves the small queue moves to the main queue if it was read there, else to the
//! ghost. (The paper asks for two reads; with one, skewed reads hit more, also with scans among
//! them: `evicting_by_segments_costs_next_to_no_hits`.) A record that leaves the main queue goes in
//! again at its end, with one visit less, if it was read at all.
//!
//! Invariants
//! 1. An index entry names a record in a slot in use, under the hash of its key. No two name the
//!    same key. A record that no entry names is dead.
//! 2. The newest segment of a queue is the one that is appended to.
//! 3. In use but for the spare segment is at most the capacity less one segment: an evicted segment finds room for
//!    its survivors before its own room is free.

use std::collections::VecDeque;

use esker_base::Slab;
use esker_base::units::to_u64;

use super::ghost::Ghost;
use super::index::Index;
use super::segment::{
    CachePlace, CachedRecord, Queue, RECORD_MAX, SEGMENT, SLOTS_MAX, Segments, footprint,
    size_of_parts,
};
use crate::types::ids::{RecordAddress, Seqno};
use crate::values::cache::record::{Origin, RecordCacheStats, RecordKey, Version, in_shard};

/// The small queue has this part of the memory.
const SMALL_PART: usize = 10;
/// Visits that move a record from the small to the main queue.
const PROMOTED: u8 = 1;
/// After so many segments evicted for one place, a record needs one visit more to stay: this
/// bounds how long an insert takes when everything is hot.
const PATIENCE: usize = 4;
/// So many segments are evicted at most before others come to the shard: a millisecond's worth.
const AT_ONCE: usize = 16;

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
    hits_by_key: u64,
    misses: u64,
    inserts: u64,
    evictions: u64,
}

impl Shard {
    pub(super) fn new(capacity: usize, slab: Slab) -> Shard {
        Shard {
            capacity: limit(capacity),
            index: Index::default(),
            segments: Segments::new(slab),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: Ghost::default(),
            hits: 0,
            hits_by_key: 0,
            misses: 0,
            inserts: 0,
            evictions: 0,
        }
    }

    /// Where the record at `address` is.
    fn find(&self, hash: u32, address: RecordAddress) -> Option<CachePlace> {
        self.index.find(hash, |place| self.segments.record(place).address() == address)
    }

    /// Where the record of a key is.
    fn find_key(&self, key: &RecordKey<'_>) -> Option<CachePlace> {
        self.index.find(in_shard(key.hash()), |place| {
            self.segments.prefetch(place); // it most probably is
            self.segments.record(place).is_of(key)
        })
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

    /// Reads the record at `address`, and counts nothing.
    pub(super) fn peek(&self, hash: u32, address: RecordAddress) -> Option<&[u8]> {
        self.find(hash, address).map(|place| self.segments.record(place).value())
    }

    /// Reads the record at `address`, which was found to be the newest of its key as of `age`, and
    /// counts that.
    pub(super) fn visit(&mut self, hash: u32, address: RecordAddress, age: Seqno) -> Option<&[u8]> {
        let Some(place) = self.find(hash, address) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.prove(place, age);
        Some(self.segments.visit(place))
    }

    /// Reads the record of a key if it is the newest as of `age`, and counts that. `is_newest` says
    /// whether the newest one as of another age is.
    pub(super) fn visit_newest(
        &mut self,
        key: &RecordKey<'_>,
        age: Seqno,
        is_newest: impl FnOnce(Seqno) -> bool,
    ) -> Option<&[u8]> {
        let place = self.find_key(key)?;
        let known = self.segments.record(place).version();
        if known.expires || known.age != age && !is_newest(known.age) {
            return None;
        }
        self.hits += 1;
        self.hits_by_key += 1;
        self.prove(place, age);
        Some(self.segments.visit(place))
    }

    /// The record at `place` is the newest of its key as of `age`, too.
    fn prove(&mut self, place: CachePlace, age: Seqno) {
        if self.segments.record(place).version().age < age {
            self.segments.set_age(place, age);
        }
    }

    /// Takes in a version of a record, unless it is there or a newer one is.
    pub(super) fn insert(
        &mut self,
        key: &RecordKey<'_>,
        version: &Version,
        parts: &[&[u8]],
        source: Origin,
    ) -> bool {
        let hash = in_shard(key.hash());
        let size = key.key.len() + size_of_parts(parts);
        let known = self.find_key(key);
        if let Some(place) = known {
            let there = self.segments.record(place).version();
            if there.address == version.address {
                self.prove(place, version.age);
                return false;
            }
            if there.age > version.age {
                return false;
            }
            if size > RECORD_MAX {
                self.index.remove(hash, place);
            }
        }
        if size > RECORD_MAX {
            return false;
        }
        if source == Origin::LongWalk && !self.has_room_beside(size) {
            return false;
        }
        let old = known.map(|place| (place, self.segments.record(place)));
        let again = || matches!(source, Origin::Medium) && self.ghost.contains(hash);
        let (queue, visits) = match old {
            Some((_, record)) => (record.queue, record.visits()),
            None => (if again() { Queue::Main } else { Queue::Small }, 0),
        };
        match old {
            Some((place, record)) if footprint(record.bytes()) == footprint(size) => {
                self.segments.write(place, key, version, parts, visits);
            }
            _ => {
                if !self.make_room(queue, size) {
                    return false;
                }
                let slot = self.newest(queue).expect("there is room");
                let place = self.segments.append(slot, key, version, parts, visits);
                // Making room may have moved the older version, or evicted it.
                match self.find_key(key) {
                    Some(old) => self.index.replace(hash, old, place),
                    None => self.index.insert(hash, place),
                }
            }
        }
        self.inserts += 1;
        true
    }

    /// Whether nothing has to leave for a record whose key and value have `size` bytes.
    fn has_room_beside(&self, size: usize) -> bool {
        let newest = [Queue::Small, Queue::Main].map(|queue| self.newest(queue));
        let has_room =
            newest.iter().all(|slot| slot.is_some_and(|slot| self.segments.has_room(slot, size)));
        has_room && !self.index.is_full() || self.fits(SEGMENT + self.index_growth())
    }

    /// The record at `old` is at `new` from now on.
    pub(super) fn rename(&mut self, hash: u32, old: RecordAddress, new: RecordAddress) -> bool {
        let place = self.find(hash, old);
        if let Some(place) = place {
            self.segments.set_address(place, new);
        }
        place.is_some()
    }

    /// Changes the capacity, and frees the excess; false when it has evicted a few segments of it and is to
    /// be called again. `evicted` is how many these calls have evicted together.
    pub(super) fn set_capacity(&mut self, capacity: usize, evicted: &mut usize) -> bool {
        self.capacity = limit(capacity);
        // The main queue is gone through whole before a record needs one visit more to stay.
        let patience = self.main.len().max(PATIENCE);
        let most = *evicted + AT_ONCE;
        while !self.fits(0) {
            if *evicted == most {
                // As much as there is: an insert meanwhile does not evict all the rest.
                self.capacity = self.used() - self.segments.spare_bytes() + SEGMENT;
                return false;
            }
            if !self.evict(Queue::Main, *evicted / patience) {
                break;
            }
            *evicted += 1;
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
        true
    }

    /// The statistics of this shard: its work and its content.
    pub(super) fn stats(&self) -> RecordCacheStats {
        RecordCacheStats {
            hits: self.hits,
            hits_by_key: self.hits_by_key,
            misses: self.misses,
            inserts: self.inserts,
            evictions: self.evictions,
            entries: to_u64(self.index.len()),
            bytes: to_u64(self.used() + self.tables()),
            capacity: to_u64(self.capacity),
        }
    }

    /// Evicts until `queue` has a segment with room for `size` bytes and the index has room for one more entry. False when the capacity is too small for that.
    fn make_room(&mut self, queue: Queue, size: usize) -> bool {
        let mut evicted = 0;
        loop {
            let newest = self.newest(queue);
            let has_room = newest.is_some_and(|slot| self.segments.has_room(slot, size));
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

    /// Bytes that index and ghost may need to grow: the old table is there until the new one, twice as large, is
    /// filled, and the ghost is half as large as the table.
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
            self.evict_record(CachePlace::new(slot, position), record, impatience);
        }
        self.segments.recycle(segment);
        true
    }

    fn evict_record(&mut self, place: CachePlace, record: CachedRecord<'_>, impatience: usize) {
        let hash = in_shard(record.hash());
        if self.index.find(hash, |other| other == place).is_none() {
            return; // dead
        }
        let visits = record.visits();
        let (stays, visits) = match record.queue {
            Queue::Small => (visits >= PROMOTED, 0),
            Queue::Main => (usize::from(visits) > impatience, visits.saturating_sub(1)),
        };
        if !stays {
            self.index.remove(hash, place);
            if record.queue == Queue::Small {
                self.ghost.remember(hash);
            }
            self.evictions += 1;
            return;
        }
        let open = self.main.back().copied();
        let open = open.filter(|&slot| self.segments.has_room(slot, record.bytes()));
        let open = open.unwrap_or_else(|| {
            let slot = self.segments.open(Queue::Main);
            self.main.push_back(slot);
            slot
        });
        let moved = self.segments.append_copy(open, record, visits);
        self.index.replace(hash, place, moved);
    }
}

/// Rest of a capacity, in bytes, when the tables of slots, about 100 bytes a segment, are paid for, and no more
/// than a shard can name.
fn limit(capacity: usize) -> usize {
    (capacity - capacity / 512).min(SLOTS_MAX * SEGMENT)
}
