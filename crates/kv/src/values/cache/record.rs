//! Records as the record cache knows them: key and hash, address, version; and which shard has one.

use esker_base::units::to_usize;

use crate::types::ids::{KvsId, RecordAddress, Seqno};
use crate::types::key::key_hash;

/// How many shards there are, each with a lock of its own.
pub(crate) const SHARDS: usize = 16;

/// The key of a record, and its hash.
#[derive(Clone, Copy)]
pub(crate) struct RecordKey<'a> {
    pub(crate) kvs: KvsId,
    pub(crate) key: &'a [u8],
    /// That of [`key_hash`].
    pub(crate) key_hash: u64,
}

impl<'a> RecordKey<'a> {
    pub(crate) fn new(kvs: KvsId, key: &'a [u8]) -> RecordKey<'a> {
        RecordKey { kvs, key, key_hash: key_hash(key) }
    }

    /// The hash that the cache knows the record by.
    pub(crate) fn hash(&self) -> u64 {
        record_hash(self.kvs, self.key_hash)
    }
}

/// The hash of a record whose key has the hash `key_hash`.
pub(crate) fn record_hash(kvs: KvsId, key_hash: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 divided by the golden ratio
    key_hash ^ u64::from(kvs.0).wrapping_mul(ODD)
}

/// Which shard holds the record with this hash.
pub(crate) fn shard_of(hash: u64) -> usize {
    to_usize(hash >> 32) % SHARDS
}

/// The bits of a record's hash that tell it from others of its shard.
pub(crate) fn in_shard(hash: u64) -> u32 {
    u32::try_from(hash & u64::from(u32::MAX)).expect("32 bits")
}

/// A version of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) address: RecordAddress,
    /// An age as of which it is the newest of its key.
    pub(crate) age: Seqno,
    /// Whether it ever expires.
    pub(crate) expires: bool,
}

/// Where a record comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was read from its medium, because somebody wanted it.
    Medium,
    /// It was read on a long walk: nothing leaves for it.
    LongWalk,
    /// It was ingested.
    Memtable,
}

/// Statistics of the cache: its work and its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordCacheStats {
    /// Reads that found their record.
    pub(crate) hits: u64,
    /// Those of them that found it by its key.
    pub(crate) hits_by_key: u64,
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
    /// Limit to which `bytes` may grow.
    pub(crate) capacity: u64,
}

/// A record that is looked for by its address.
#[derive(Clone, Copy)]
pub(crate) struct Sought {
    pub(crate) hash: u64,
    pub(crate) address: RecordAddress,
    /// The reader knows it to be the newest of its key as of this age.
    pub(crate) age: Seqno,
}

impl Sought {
    pub(crate) fn shard(&self) -> usize {
        shard_of(self.hash)
    }
}
