//! Constants of the whole engine: the limits of keys and values, and the version of the on-media format.

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1344;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 1 << 20;

/// The version of all structures on media (`omf`).
pub(crate) const VERSION: u16 = 1;
