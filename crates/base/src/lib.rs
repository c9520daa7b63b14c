//! The ground of every crate of Esker; nothing here does I/O, but for making files and reading
//! what the system says of itself.
//!
//! | module | content |
//! | --- | --- |
//! | [`units`] | `Lba`, `LbaCount`, checked conversions between integer widths |
//! | [`append`] | [`AppendBuf`]: memory that is read while it is appended to |
//! | [`buf`] | [`AlignedBuf`]: memory a device can read and write directly; [`Slab`]: buffers of one size, on huge pages |
//! | [`codec`] | the little-endian encoder and decoder that all media and wire formats use |
//! | [`checksum`] | CRC-32C |
//! | [`clock`] | [`Clock`]: real, dilated or virtual time |
//! | [`files`] | makes files and directories, never under `/dev` |
//! | [`latency`] | [`Histogram`](latency::Histogram): how long things take |
//! | [`memory`] | gives freed memory back to the operating system; how much there is |
//! | [`pace`] | [`Pace`](pace::Pace): limits of operations and bytes a second |
//! | [`pool`] | [`BufPool`]: buffers that are used again |
//! | [`prefetch()`] | asks for memory ahead of need |
//! | [`policy`] | replacement policies over the slots of a cache |
//! | [`process`] | [`Owner`](process::Owner): the process that opened something, and not a fork of it; calls at exit |
//! | [`progress`] | [`Progress`], [`OnProgress`](progress::OnProgress): how far long work is, and an observer that may call it off |
//! | [`rng`] | [`Rng`]: seeded random numbers |
//! | [`silence`] | [`Silence`](silence::Silence): waiting by progress, not by age |
//! | [`sync`] | locks that a forked child can use: [`Mutex`](sync::Mutex), [`Condvar`](sync::Condvar), [`RwLock`](sync::RwLock) |
//! | [`thread`] | named threads |
//! | [`error`] | [`ErrorKind`]: the kinds of error, by the remedy for callers |
//!
//! A module enters this crate when two crates of the third rung need it, not before.

pub mod append;
pub mod buf;
pub mod checksum;
pub mod clock;
pub mod codec;
pub mod error;
pub mod files;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod latency;
pub mod memory;
pub mod pace;
pub mod policy;
pub mod pool;
mod prefetch;
pub mod process;
pub mod progress;
pub mod rng;
pub mod silence;
pub mod sync;
pub mod thread;
pub mod units;

pub use append::AppendBuf;
pub use buf::AlignedBuf;
pub use buf::slab::Slab;
pub use clock::{Clock, Nanos};
pub use error::ErrorKind;
pub use pool::BufPool;
pub use prefetch::prefetch;
pub use progress::Progress;
pub use rng::Rng;
pub use units::{Lba, LbaCount};
