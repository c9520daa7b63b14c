//! The seam of Esker. Everything is a [`Device`], and a device is opened as queue pairs.
//!
//! | module | content |
//! | --- | --- |
//! | [`command`] | [`Command`], [`Completion`]: the input and the output |
//! | [`error`] | [`DeviceError`]: which device, operation and address, and why |
//! | [`fdp`] | [`DataPlacement`]: a drive that keeps streams of writes apart, and reports on them |
//! | [`mod@identity`] | [`Identity`]: the facts that tell a device from others, in every life of it |
//! | [`stats`] | [`DeviceStats`]: work that each layer of a stack has carried |
//! | [`blocking`] | [`Port`]: one command at a time, and a pool of ports for many threads |
//! | [`memory`] | [`MemoryDevice`]: sparse, volatile, for tests and caches |
//! | [`mod@file`] | [`FileDevice`]: a file or a raw block device, through `io_uring` |
//! | [`null`] | [`NullDevice`]: stores nothing, to measure the seam |
//! | [`stripe`] | [`Stripe`]: several devices as one, without redundancy |
//! | [`write_through`] | [`WriteThrough`]: a device without its volatile write cache |
//! | [`immediate`] | [`Immediate`](immediate::Immediate): the queue pair of devices that finish commands at once |
//! | [`forward!`] | the methods of a queue pair over another one that only pass a call on |
//! | [`mod@occupant`] | [`fn@occupant`]: whether a device is someone's, asked before it is taken |
//! | [`conformance`] | the checks that every device's tests run against it |
//!
//! # The contract
//!
//! 1. Commands in flight have no order among themselves, not even on the same LBA.
//! 2. A completed flush makes durable every write *completed* before the flush was submitted,
//!    through any queue pair of the device. A completed write with FUA is durable by itself.
//! 3. Any other write may, after a crash, be there, be missing, or be torn at LBA granularity.
//! 4. An LBA that was never written, or was discarded, reads as zeroes or as older content;
//!    one that was zeroed reads as zeroes, and so does one that was discarded where
//!    [`Device::discards_zero`].
//! 5. A failed write leaves its LBAs undefined; a failed flush makes nothing durable.
//! 6. A read that succeeds has written every byte of its buffer: its content before may be
//!    another user's. After a read that failed the buffer holds anything, and is shown to nobody.

pub mod blocking;
pub mod command;
pub mod conformance;
pub mod error;
pub mod fdp;
pub mod file;
mod forward;
pub mod identity;
pub mod immediate;
pub mod memory;
pub mod null;
pub mod occupant;
pub mod stats;
pub mod stripe;
pub mod write_through;

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::LbaCount;

pub use blocking::{Port, PortPool};
pub use command::{Command, Completion, Op, OpKind, PlacementId, Tag};
pub use error::{Cause, DeviceError, MAX_DEPTH};
pub use fdp::DataPlacement;
pub use file::{Create, FileDevice, FileOptions, Preference};
pub use identity::{Fact, Identity};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use occupant::{Occupant, occupant};
pub use stats::{Counters, DeviceStats};
pub use stripe::Stripe;
pub use write_through::WriteThrough;

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

/// Something with logical blocks: a file, a drive, a model of one, a volume, a remote namespace.
pub trait Device: Send + Sync {
    /// The name that errors and statistics carry: a path, an address, a model's name.
    fn name(&self) -> &str;

    /// The device's properties. Its capacity may grow between two calls; nothing else changes.
    fn geometry(&self) -> Geometry;

    /// Opens a queue pair that holds up to `depth` commands (1 to [`MAX_DEPTH`]).
    ///
    /// # Errors
    /// When the depth is out of range, or the device has no more queue pairs to give or is closed.
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError>;

    /// Whether a discard, once completed, leaves zeroes on the whole of its range until that is
    /// written again. Like a write it may be missing after a crash, whole or in part, if it was
    /// not flushed.
    fn discards_zero(&self) -> bool {
        false
    }

    /// How many bytes it can hold, those included that it holds, where that may be less than its capacity: a
    /// file holds as much as its file system has room for. It may change at any time.
    fn usable_bytes(&self) -> Option<u64> {
        None
    }

    /// Facts that tell it from other devices, the same whenever it is opened; none where nothing
    /// lasting does. A device that only passes commands on has the identity of the one under it.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Whether its queue pairs never make their user wait: to be opened, to take commands, and to be polled.
    /// They work, or leave the work to others. A user that has other things to do at the same time drives
    /// them itself, and gives other devices a thread.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Work that this device and the devices under it have carried so far.
    fn stats(&self) -> DeviceStats;

    /// Remarks for the user on how the device was opened (a fallback taken, say).
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Data placement, if the device is a namespace of a drive that has it.
    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        None
    }
}

/// A submission queue and a completion queue, owned by one thread.
///
/// Every command that [`QueuePair::submit`] takes is completed exactly once. Dropping a queue pair
/// waits for the commands in flight, so that no buffer is freed under the device.
pub trait QueuePair: Send {
    /// Takes commands from the front of `commands` until it is empty or the queue is full, starts
    /// them, and returns how many it took. A command that is wrong in itself (beyond the
    /// capacity, not a multiple of the LBA size) is taken too and completes with an error.
    ///
    /// # Errors
    /// When the queue pair itself is broken; nothing was taken.
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError>;

    /// Appends finished commands to `done` without blocking, and returns how many.
    ///
    /// # Errors
    /// When the queue pair itself is broken.
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError>;

    /// Like [`QueuePair::poll`], but blocks until a command finishes or `timeout` has passed.
    /// Returns 0 at once when nothing is in flight. `None` waits for as long as it takes.
    ///
    /// # Errors
    /// When the queue pair itself is broken.
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError>;

    /// How many commands were taken and not yet handed back by poll or wait.
    fn in_flight(&self) -> usize;
}
