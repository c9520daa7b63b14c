//! A device as a file of this machine, and as a block device over that file.
//!
//! A process serves one device through `/dev/fuse`, without a library in between: the mount point
//! is a directory with one file, whose size is the device's. With a loop device over that file,
//! file systems and databases use any [`Device`](esker_device::Device) through the stock kernel.
//!
//! | module | content |
//! | --- | --- |
//! | [`attachment`] | [`Attachment`]: a mounted device, from beginning to end |
//! | [`detach`] | finds the attachment at a mount point, ends its connection, clears away the leftovers of a crash |
//! | [`error`] | [`AttachError`] |
//! | `engine` | requests become commands of the device, and completions replies; no system call |
//! | `server` | the threads between `/dev/fuse` and the engine |
//! | [`holders`] | the users of an attachment |
//! | `mount`, `mount_table` | mounts, as root or through `fusermount3`; the table of mounts |
//! | `loop_device` | makes and releases loop devices |
//! | `wire` | the bytes of FUSE (`linux/fuse.h`, protocol 7.31) and of the loop driver |
//! | `sys` | the system calls that have no safe wrapper |
//!
//! # Promises
//!
//! 1. Nothing is cached: a write that was answered has completed on the device, and one that was
//!    answered after `fsync`, or through a file opened with `O_DSYNC`, is durable.
//! 2. Requests of any offset and size are right, whatever the device's LBA size. Two writes to
//!    parts of one LBA do not undo each other.
//! 3. A range that was punched or zeroed reads as zeroes.
//! 4. An error of the device is `EIO` for that request (`ENOSPC` when it is full) and for no other.

pub mod attachment;
pub mod detach;
mod engine;
pub mod error;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod holders;
mod loop_device;
mod mount;
mod mount_table;
mod server;
mod sys;
mod wire;

pub use attachment::{Attachment, Options};
pub use detach::{Attached, State, find, server};
pub use error::AttachError;
pub use holders::Holder;
