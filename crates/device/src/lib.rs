//! The seam of Esker. Everything is a [`Device`], and a device is opened as queue pairs.
//!
//! | module | content |
//! | --- | --- |
//! | `device` | [`Device`], [`QueuePair`]: the two traits |
//! | `geometry` | [`Geometry`]: properties that a user has to know |
//! | `op_kind` | [`OpKind`]: an operation without its arguments |
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
mod device;
pub mod error;
pub mod fdp;
pub mod file;
mod forward;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod geometry;
pub mod identity;
pub mod immediate;
pub mod memory;
pub mod null;
pub mod occupant;
mod op_kind;
pub mod stats;
pub mod stripe;
pub mod write_through;

pub use blocking::{Port, PortPool};
pub use command::{Command, Completion, Op, PlacementId, Tag};
pub use device::{Device, QueuePair};
pub use error::{Cause, DeviceError, MAX_DEPTH, SystemError};
pub use fdp::DataPlacement;
pub use file::{Create, FileDevice, FileOptions, Preference};
pub use geometry::Geometry;
pub use identity::{Fact, Identity};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use occupant::{Occupant, occupant};
pub use op_kind::OpKind;
pub use stats::{Counters, DeviceStats};
pub use stripe::Stripe;
pub use write_through::WriteThrough;
