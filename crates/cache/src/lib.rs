//! A flash cache in front of a disk, and the simulator that replays traces through its policies.
//!
//! | module | what |
//! | --- | --- |
//! | [`mapping`] | [`Mapping`]: which set a block of the origin belongs to |
//! | [`replay`] | the simulator: traces through policies, sizes and geometries |
//! | [`sets`] | [`Sets`], [`Set`]: what is cached, where, dirty or not, and what goes next |
//! | [`writeback`] | [`WriteBack`]: when dirty blocks are written back, and with which neighbours |
//! | [`error`] | [`CacheError`] |
//!
//! A *block* is a number: 4 KiB of the origin, counted from its start. A *slot* is a number as
//! well: 4 KiB of the flash. Nothing in `mapping` and `sets` does I/O.

pub mod error;
pub mod mapping;
pub mod replay;
pub mod sets;
pub mod writeback;

pub use error::CacheError;
pub use mapping::{Mapping, Placement};
pub use sets::{Geometry, Set, Sets};
pub use writeback::WriteBack;
