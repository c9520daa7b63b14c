//! The record cache: hot values in DRAM, record by record, because hot records are scattered and a
//! page would hold mostly their cold neighbours.
//!
//! A record is found by KVS and key. A get asks for it before it searches any kvset
//! ([`RecordCache::newest`]); whoever knows the address of a record already asks by that
//! ([`RecordCache::with`]): the record at an address never changes. Filled when values are read and when
//! they are ingested, and told by maintenance when a record moves.
//!
//! Records lie in segments of a fixed size ([`segment`]); eviction is S3-FIFO over whole segments
//! ([`shard`]), found by their hash ([`index`]), with the keys of records that left the small queue remembered for
//! a while ([`ghost`]).
//!
//! # Why a record found by its key is the right one
//!
//! The *age* of a kvset is the seqno of the newest record it was made of, and that of a tree the age
//! of the newest kvset that was ever added to it. Memtables are ingested whole and in their order, so
//! all that a tree of age `a` knows of its keys was written up to `a`, and every tree of that
//! age knows the same, whatever maintenance has made of its kvsets: merged (the result has the age of
//! the newest input), split, joined, sorted. A cached record carries an age as of which it is the
//! newest version of its key. To a reader whose memtables say nothing of the key, and whose tree has
//! - that age, it is the value;
//! - an older age, it may be too new, and is not taken;
//! - a newer age `b`, it is the value unless something up to `b` hides it. That version or delete is in a kvset
//!   that is newer than the record's age, which the filters and prefixes of those tell without I/O; or it was a
//!   delete that compaction has dropped, with all that it hid, and then the tree remembers the age up to which it
//!   has forgotten deletes ([`crate::tree::view::Tree::is_newest`]).
//!
//! So publishing a view need not invalidate anything, and does not race with threads that fill the cache.
//! Ids of KVSs are never given out again. Whether a record has expired is for its reader to say, which has no
//! expiry here: such records are found by their address alone.
//!
//! Invariants
//! 1. A record found at an address is exactly the one inserted for it.
//! 2. There is one record of a key at most, and none takes the place of one with a newer age.
//! 3. A record is the newest version of its key up to its age.
//! 4. Segments, index and ghost together never take more than the capacity, whatever it is set to.
//! 5. No allocation per record: segments are recycled, and the index and the ghost double.

mod ghost;
mod index;
mod many;
pub(crate) mod record;
mod segment;
mod shard;

use esker_base::Slab;
use esker_base::units::{to_u64, to_usize};

use crate::sync::Mutex;
use crate::types::ids::{RecordAddress, Seqno};
use crate::values::cache::record::{
    Origin, RecordCacheStats, RecordKey, SHARDS, Version, in_shard, shard_of,
};
use shard::Shard;

/// A cache of records, for any number of threads.
pub(crate) struct RecordCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl RecordCache {
    /// A cache that takes at most `capacity` bytes, which are allocated as they are needed. Every
    /// shard needs room for two segments: below 4.2 MiB it holds nothing.
    pub(crate) fn new(capacity: u64) -> RecordCache {
        let slab = Slab::new(segment::SEGMENT);
        let shard = || Mutex::new(Shard::new(per_shard(capacity), slab.clone()));
        RecordCache { shards: std::array::from_fn(|_| shard()) }
    }

    /// Changes the capacity. A smaller one evicts and frees the excess before it returns, a few segments
    /// of a shard at a time: others come in between.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        for shard in &self.shards {
            let mut evicted = 0;
            while !shard.lock().set_capacity(per_shard(capacity), &mut evicted) {}
        }
    }

    /// Hands the value of `key` in a tree of this age to `read`; false when it is not cached or not known to be
    /// the newest. `is_newest` says whether the newest one as of another age is the newest in the tree; both
    /// hold up one shard.
    pub(crate) fn newest(
        &self,
        key: &RecordKey<'_>,
        age: Seqno,
        is_newest: impl FnOnce(Seqno) -> bool,
        read: impl FnOnce(&[u8]),
    ) -> bool {
        let mut shard = self.shard(key.hash()).lock();
        shard.visit_newest(key, age, is_newest).map(read).is_some()
    }

    /// Copies the record with this hash at `address` to `out`, in place of its content; false, and
    /// `out` is unchanged, when it is not cached. The reader knows it to be the newest of its key as of
    /// `age`.
    pub(crate) fn get(
        &self,
        hash: u64,
        address: RecordAddress,
        age: Seqno,
        out: &mut Vec<u8>,
    ) -> bool {
        let copy = |value: &[u8]| {
            out.clear();
            out.extend_from_slice(value);
        };
        self.with(hash, address, age, copy).is_some()
    }

    /// Like [`RecordCache::get`], but hands the record to `read`, which holds up one shard meanwhile.
    fn with<R>(
        &self,
        hash: u64,
        address: RecordAddress,
        age: Seqno,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        self.shard(hash).lock().visit(in_shard(hash), address, age).map(read)
    }

    /// Asks for the memory in which a search for the record with this hash begins.
    pub(crate) fn prefetch_entry(&self, hash: u64) {
        self.shard(hash).lock().prefetch_entry(in_shard(hash));
    }

    /// Takes in a version of a record, whose value is `parts` one after the other, in place of an older
    /// version. False when it is too large ([`segment::RECORD_MAX`]), when the capacity is too small for
    /// any record, or when it or a newer one was there already.
    pub(crate) fn insert(
        &self,
        key: &RecordKey<'_>,
        version: &Version,
        parts: &[&[u8]],
        source: Origin,
    ) -> bool {
        self.shard(key.hash()).lock().insert(key, version, parts, source)
    }

    /// The record with this hash at `old` was rewritten at `new`: a cached copy stays, as hot as it was.
    /// False when it is not cached now.
    pub(crate) fn rename(&self, hash: u64, old: RecordAddress, new: RecordAddress) -> bool {
        self.shard(hash).lock().rename(in_shard(hash), old, new)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[shard_of(hash)]
    }

    /// The figures of all shards together.
    pub(crate) fn stats(&self) -> RecordCacheStats {
        let mut total = RecordCacheStats::default();
        for shard in &self.shards {
            let shard = shard.lock().stats();
            total.hits += shard.hits;
            total.hits_by_key += shard.hits_by_key;
            total.misses += shard.misses;
            total.inserts += shard.inserts;
            total.evictions += shard.evictions;
            total.entries += shard.entries;
            total.bytes += shard.bytes;
            total.capacity += shard.capacity;
        }
        total
    }
}

fn per_shard(capacity: u64) -> usize {
    to_usize(capacity / to_u64(SHARDS))
}

#[cfg(test)]
mod tests;
