//! The limits of keys and values that a caller meets.

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1344;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;
