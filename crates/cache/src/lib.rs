//! A flash cache in front of a disk, and the simulator that replays traces through its policies.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mapping`] | [`Mapping`]: which set a block of the origin belongs to |
//! | [`replay`] | the simulator: traces through policies, sizes and geometries |
//! | [`sets`] | [`Sets`], [`Set`]: blocks in cache, where, dirty or not, and the next victim |
//! | [`writeback`] | [`WriteBack`]: when dirty blocks are written back, and with which neighbours |
//! | [`cache`] | [`Cache`]: a device over an origin and a flash device |
//! | [`options`] | [`CreateOptions`], [`OpenOptions`], [`Mode`], [`Bounds`] |
//! | [`stats`] | [`Stats`]: hits, misses, bytes, dirty blocks |
//! | [`omf`], [`layout`] | every byte of metadata on the flash device, and where it lies |
//! | `medium` | the flash device, byte by byte |
//! | `copies`, `owner` | the copies of the superblock; signs that the flash device has another owner |
//! | `journal`, `store` | reads the journal; superblock, journal and table of an open cache |
//! | `state`, `shared` | a set in use; state that the queue pairs share |
//! | `queue` | a queue pair: reads, writes, discards |
//! | `commit`, `clean` | makes names durable; writes dirty blocks back |
//! | `pairing`, `origin` | [`Pairing`]: whether an origin is the one that the flash device knows; its samples |
//! | `resize` | more or fewer slots, in use |
//! | `admit`, `counts` | admission of blocks: streams, history, the budget of writes; counters |
//! | [`error`] | [`CacheError`] |
//!
//! A *block* is a number: 4 KiB of the origin, counted from its start. A *slot* is a number as
//! well: 4 KiB of the flash. Nothing in `mapping` and `sets` does I/O.

mod admit;
pub mod cache;
mod clean;
mod commit;
mod copies;
mod counts;
pub mod error;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod journal;
pub mod layout;
pub mod mapping;
mod medium;
pub mod omf;
pub mod options;
mod origin;
mod owner;
mod pairing;
mod queue;
pub mod replay;
mod resize;
pub mod sets;
mod shared;
mod state;
pub mod stats;
mod store;
pub mod writeback;

pub use cache::{Cache, Info};
pub use error::CacheError;
pub use layout::Layout;
pub use mapping::{Mapping, Placement};
pub use options::{Admission, Background, Bounds, CreateOptions, Division, Mode, OpenOptions};
pub use pairing::{Dirty, Pairing};
pub use sets::{Geometry, Set, Sets};
pub use stats::Stats;
pub use writeback::WriteBack;
