//! Keys as numbers: the hash that filters and caches know a key by, and the head that searches compare first.

use xxhash_rust::xxh3::xxh3_64;

/// The hash of a key that filters are made of.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The first eight bytes of a key, or fewer, as a number: of two keys, the one with the smaller head is
/// the smaller one.
pub(crate) fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let size = key.len().min(bytes.len());
    bytes[..size].copy_from_slice(&key[..size]);
    u64::from_be_bytes(bytes)
}
