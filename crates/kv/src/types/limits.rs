//! Constants of the whole engine: the limits of keys, values, names and metadata.

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1344;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;

/// The longest name of a KVS, in bytes.
pub const KVS_NAME_MAX: usize = 255;
/// The most metadata of the caller's that a KVS has, in bytes.
pub const METADATA_MAX: usize = 4096;
/// The longest bound of a range of keys, in bytes: the key right behind the longest one is a bound, too.
pub(crate) const BOUND_MAX: usize = KEY_MAX + 1;
