//! The record cache: hot values in DRAM, record by record, because hot records are scattered and a
//! page would hold mostly their cold neighbours.
//!
//! Read by every get that finds its value on a medium, filled when that value is read, and told by
//! maintenance when a record moves. What is at an address never changes, so there is nothing to
//! invalidate: an address that is no longer used is forgotten in time.
//!
//! Records lie in segments of a fixed size ([`segment`]); eviction is S3-FIFO over whole segments
//! ([`shard`]), found by their hash ([`index`]), with the addresses of what left the small queue remembered for a while ([`ghost`]).
//!
//! Invariants
//! 1. A hit returns exactly the bytes that were inserted at that address.
//! 2. Segments, index and ghost together never take more than the capacity, whatever it is set to.
//! 3. No allocation per record: segments are recycled, and the index and the ghost double.

mod ghost;
mod index;
mod segment;
mod shard;

use esker_base::units::{to_u64, to_usize};
use xxhash_rust::xxh3::xxh3_64;

use shard::Shard;

use crate::sync::{Mutex, MutexGuard};

/// How many shards there are, each with a lock of its own.
const SHARDS: usize = 16;

/// Where a record is on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordAddress {
    /// The block that holds it.
    pub(crate) block: u64,
    /// Its offset in the block, in bytes.
    pub(crate) offset: u64,
}

impl RecordAddress {
    /// The shard, and the hash within the shard.
    fn hash(self) -> (usize, u32) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.block.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        let hash = xxh3_64(&bytes);
        let low = u32::try_from(hash & u64::from(u32::MAX)).expect("32 bits");
        (to_usize(hash >> 32) % SHARDS, low)
    }
}

/// What the cache has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordCacheStats {
    /// Reads that found their record.
    pub(crate) hits: u64,
    /// Reads that did not.
    pub(crate) misses: u64,
    /// Records taken in.
    pub(crate) inserts: u64,
    /// Records pushed out for others, or by a smaller capacity.
    pub(crate) evictions: u64,
    /// Records held.
    pub(crate) entries: u64,
    /// Memory in use: segments, index and ghost.
    pub(crate) bytes: u64,
    /// What `bytes` may grow to.
    pub(crate) capacity: u64,
}

/// A cache of records by their address, for any number of threads.
pub(crate) struct RecordCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl RecordCache {
    /// A cache that takes at most `capacity` bytes, which are allocated as they are needed. Every
    /// shard needs room for two segments: below 4.2 MiB it holds nothing.
    pub(crate) fn new(capacity: u64) -> RecordCache {
        let shard = || Mutex::new(Shard::new(per_shard(capacity)));
        RecordCache { shards: std::array::from_fn(|_| shard()) }
    }

    /// Changes the capacity. A smaller one evicts and frees what is too much before it returns.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        for shard in &self.shards {
            shard.lock().set_capacity(per_shard(capacity));
        }
    }

    /// Copies the record at `address` to `out`, in place of what was there; false, and `out` is
    /// unchanged, when it is not cached.
    pub(crate) fn get(&self, address: RecordAddress, out: &mut Vec<u8>) -> bool {
        let copied = self.with(address, |bytes| {
            out.clear();
            out.extend_from_slice(bytes);
        });
        copied.is_some()
    }

    /// Hands the record at `address` to `read`, which holds up one shard meanwhile; `None` when it
    /// is not cached.
    pub(crate) fn with<R>(
        &self,
        address: RecordAddress,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let (shard, hash) = address.hash();
        self.shards[shard].lock().visit(address, hash).map(read)
    }

    /// Asks for the memory of the records at `addresses`, those that are cached: reading them soon after
    /// waits for it once and not for each.
    pub(crate) fn prefetch(&self, addresses: impl Iterator<Item = RecordAddress> + Clone) {
        for (shard, hash) in addresses.clone().map(RecordAddress::hash) {
            self.shards[shard].lock().prefetch_entry(hash);
        }
        for (shard, hash) in addresses.map(RecordAddress::hash) {
            self.shards[shard].lock().prefetch_record(hash);
        }
    }

    /// Whether the record at `address` is cached. Does not count as a read.
    pub(crate) fn contains(&self, address: RecordAddress) -> bool {
        let (shard, hash) = address.hash();
        self.shards[shard].lock().find(address, hash).is_some()
    }

    /// Takes in the record at `address`, whose bytes are `parts` one after the other. False when
    /// it is too large ([`segment::RECORD_MAX`]), when the capacity is too small for any record,
    /// or when it was there already.
    pub(crate) fn insert(&self, address: RecordAddress, parts: &[&[u8]]) -> bool {
        let (shard, hash) = address.hash();
        self.shards[shard].lock().insert(address, hash, parts)
    }

    /// Like [`RecordCache::insert`], but only where nothing has to leave for it.
    pub(crate) fn insert_beside(&self, address: RecordAddress, parts: &[&[u8]]) -> bool {
        let (shard, hash) = address.hash();
        self.shards[shard].lock().insert_beside(address, hash, parts)
    }

    /// The record at `old` was rewritten at `new`: a cached copy stays, as hot as it was. Moves no
    /// bytes within a shard, and the record's from one shard to another. False when it is not
    /// cached now.
    pub(crate) fn rename(&self, old: RecordAddress, new: RecordAddress) -> bool {
        let ((from, old_hash), (to, new_hash)) = (old.hash(), new.hash());
        if old == new {
            return self.contains(old);
        }
        if from == to {
            return self.shards[from].lock().rename((old, old_hash), (new, new_hash));
        }
        let (mut from, mut to) = self.lock_two(from, to);
        let Some(place) = from.find(old, old_hash) else {
            return false;
        };
        let taken = to.adopt(new, new_hash, from.record(place));
        from.remove(old, old_hash);
        taken
    }

    /// The figures of all shards together.
    pub(crate) fn stats(&self) -> RecordCacheStats {
        let mut total = RecordCacheStats::default();
        for shard in &self.shards {
            let shard = shard.lock().stats();
            total.hits += shard.hits;
            total.misses += shard.misses;
            total.inserts += shard.inserts;
            total.evictions += shard.evictions;
            total.entries += shard.entries;
            total.bytes += shard.bytes;
            total.capacity += shard.capacity;
        }
        total
    }

    /// Locks two different shards, always in the same order.
    fn lock_two(&self, a: usize, b: usize) -> (MutexGuard<'_, Shard>, MutexGuard<'_, Shard>) {
        if a < b {
            let first = self.shards[a].lock();
            (first, self.shards[b].lock())
        } else {
            let first = self.shards[b].lock();
            (self.shards[a].lock(), first)
        }
    }
}

fn per_shard(capacity: u64) -> usize {
    to_usize(capacity / to_u64(SHARDS))
}
#[cfg(test)]
mod tests;
