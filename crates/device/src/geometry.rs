//! Properties of devices.

use esker_base::LbaCount;

/// Properties of a device that its user has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes per LBA: a power of two from 512 to 4,096.
    pub lba_size: u32,
    /// How many LBAs there are. A growing file states the size it may grow to.
    pub capacity: LbaCount,
    /// The write size in bytes at which the device works best; a multiple of `lba_size`.
    pub preferred_write_size: u32,
    /// The largest read or write in bytes; a multiple of `lba_size`.
    pub max_transfer_size: u32,
    /// The smallest discard that frees anything, in bytes; zero when discard frees nothing.
    pub discard_granularity: u32,
    /// How many placement ids writes may carry (0 to this, exclusive); zero when it has none.
    pub placement_handles: u16,
    /// Whether completed writes may be lost before a flush.
    pub volatile_write_cache: bool,
}
