//! A disk: arm, platters, sectors at their angles, and the queue of commands before them.
//!
//! | module | contents |
//! | --- | --- |
//! | `parameters` | [`DiskParameters`], and profiles of disks with their sources |
//! | `seek` | [`SeekCurve`]: how long the arm takes over a distance |
//! | `layout` | which track and which sector an LBA is |
//! | `mechanism` | where the head is, and when a sector passes under it |
//! | `model` | [`Disk`]: commands, their order, read-ahead and write cache |
//!
//! Invariants
//! 1. Time is in whole nanoseconds. The angle of the platters is the time modulo one rotation, and
//!    a sector is read or written exactly while it passes under the head.
//! 2. The mechanism does one command at a time. Among those that wait, the one that would be done
//!    first is next, among equals the oldest; none is passed over more often than allowed.
//! 3. With the write cache off, a write is finished when its last sector is on the platter.

mod layout;
mod mechanism;
mod model;
mod parameters;
mod seek;

pub use model::Disk;
pub use parameters::{DiskParameters, SeekFigures};
pub use seek::SeekCurve;
