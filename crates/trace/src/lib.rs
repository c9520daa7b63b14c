//! Traces of block I/O: the requests of some program to some device, one by one.
//!
//! | module | contents |
//! | --- | --- |
//! | [`request`] | [`Request`], and the 4 KiB blocks that it refers to |
//! | [`mod@format`] | [`Format`]: the formats there are |
//! | [`read`] | [`Trace`]: an iterator of requests from files of any of them, recognised by content |
//! | `input`, `decode` | the bytes of a file, decompressed; the common parts of decoders |
//! | [`compact`] | [`Writer`]: a format of our own, a few bytes a request |
//! | [`recorder`] | [`Recorder`]: requests gathered from the data path of a program |
//! | [`stats`] | [`Stats`]: requests, references, footprint, hot sets, reuse |
//! | [`reuse`] | reuse distances |
//! | [`mrc`] | miss-ratio curves: exact, sampled, and the optimum |
//! | [`load`] | [`MysqlLoad`]: requests like a database's, from a seed |
//! | [`capture`] | [`Capture`]: the requests to a real block device, through the kernel's tracing |
//! | [`sample`] | [`Sample`]: of the blocks of a trace, by a hash of their places |
//! | [`memory`] | [`Memory`]: for state that grows with a trace |
//! | [`keys`] | block keys: hashing, dense numbers |
//! | [`error`] | [`TraceError`]: which file, where, why |
//!
//! ```no_run
//! # fn main() -> Result<(), esker_trace::TraceError> {
//! let trace = esker_trace::Trace::open_file("mysql.csv.gz".as_ref())?;
//! for request in trace {
//!     for block in esker_trace::block_refs(&request?) {
//!         let _ = (block.key, block.write);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod capture;
pub mod compact;
mod decode;
pub mod error;
pub mod format;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod input;
pub mod keys;
pub mod load;
pub mod memory;
pub mod mrc;
mod names;
mod omf;
pub mod read;
pub mod recorder;
pub mod request;
pub mod reuse;
pub mod sample;
pub mod stats;

pub use capture::Capture;
pub use compact::{Writer, Written, convert, convert_to};
pub use error::{Place, TraceError};
pub use format::{Columns, Format};
pub use load::{MysqlLoad, MysqlOptions};
pub use memory::Memory;
pub use read::{Event, Options, Trace};
pub use recorder::{Recorder, Recording};
pub use request::{BLOCK_BYTES, BlockRef, Op, Request, block_key, block_refs};
pub use sample::Sample;
pub use stats::{Stats, StatsBuilder};
