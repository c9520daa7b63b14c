//! The laboratory: experiments whose published figures stand beside Esker's.
//!
//! | module | content |
//! | --- | --- |
//! | [`fdp`] | savings of data placement when several stores share a drive |
//! | [`flash_cache`] | a flash cache as it was in 2013, is, and could be |
//! | [`host_ssd`] | worth of a drive that the host manages, to reads and to paged programs |
//! | [`memory`] | programs with paged memory, beside the same on swap and on zram |
//! | [`hse`] | worth of a staging drive in front of cheap flash to the engine |
//! | [`pooled`] | worth of one pool of drives over the network to Cassandra, beside local drives |
//! | [`plan`] | gains of staging, placement, a cache or a pool for a load of one's own |
//! | [`device_load`] | a load on any device: `fio`'s work, or a trace replayed |
//! | [`compare`] | two runs of an experiment beside each other |
//! | [`study`](mod@study) | [`Study`]: the shape of them all; [`Report`]: a run of one |
//! | [`spread`], [`steps`] | figures of several runs; how far a study is |
//! | [`live`] | runs that go on, as a page at each moment |
//! | [`store`] | the engine as a store under test |
//! | [`erase()`] | discards all of a device before an experiment |
//!
//! A study goes from options to figures, and from these to verdicts and to a document. The document gives the text and the
//! page, the figures the JSON. Nothing here prints or writes files.

pub mod compare;
pub mod device_load;
mod erase;
pub mod error;
pub mod fdp;
pub mod flash_cache;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod host_ssd;
pub mod hse;
pub mod live;
pub mod memory;
pub mod plan;
pub mod pooled;
pub mod spread;
pub mod steps;
pub mod store;
pub mod study;
mod text;

pub use erase::erase;
pub use error::LabError;
pub use spread::Spread;
pub use study::{About, Follow, Report, Study};
