//! From a specification in one line to an open device: `ssd:micron-7450?capacity=8GiB&time=10x`.
//!
//! | module | content |
//! | --- | --- |
//! | [`spec`] | [`Spec`]: a specification as a value; text to it and back |
//! | [`time`] | [`Time`]: how fast a model is |
//! | [`stack`] | [`Stack`]: opens specifications; those that name one drive share it |
//! | `traced` | [`Traced`]: a device that records its requests |
//! | `drive` | makes, finds and checks drives |
//! | [`closings`] | [`Closings`]: failures of devices that were closed with their last user |
//! | [`pool`] | [`OpenPool`]: a pool that its volumes share; the last one closes it |
//! | [`served`] | pools that other processes serve |
//! | `missing` | messages about a device that is not there |
//! | [`error`] | [`StackError`] |
//!
//! # Grammar
//!
//! ```text
//! specification = path | scheme ":" [body] ["?" key "=" value *("&" key "=" value)]
//! ```
//!
//! 1. A spec without a scheme and a colon is the path of a file or a raw block device, as it is. So
//!    a path wins over a scheme by beginning with `/` or `./`.
//! 2. In the body and in values, `%` and two hexadecimal digits are a byte; `%`, `&`, `?` (in the
//!    body), `(` and `)` are written so.
//! 3. A body or a value that is a device is a specification in parentheses: `(mem:1GiB?lba=512)`; several devices
//!    stand one after the other: `(/dev/nvme0n1)(/dev/nvme1n1)`.
//!    The inner spec is read by itself: nothing in it is written differently, but a path without a
//!    scheme needs its parentheses in pairs. At most eight lie within one another.
//! 4. Each key comes at most once. An unknown name is an error that lists the known ones.
//! 5. The text of a [`Spec`] reads back as the same one.
//!
//! # Devices that are made, and their sizes
//!
//! With [`Create::Never`](esker_device::Create) nothing is made but devices that end with the process: memory, models
//! without an image, and caches on them. A file has the size it has; `capacity` is the size of a new one, or one to
//! which it is extended.
//!
//! ```
//! use esker_device::{Create, Device};
//! use esker_stack::{Spec, Stack};
//!
//! # fn main() -> Result<(), esker_stack::StackError> {
//! let stack = Stack::new();
//! let first: Spec = "ssd:micron-7450?capacity=1GiB&fdp=on&namespaces=2&drive=a".parse()?;
//! let second: Spec = "ssd:?drive=a&nsid=2".parse()?;
//! let first = stack.open(&first, Create::IfMissing)?;
//! let second = stack.open(&second, Create::IfMissing)?; // on the same drive
//! assert_eq!(first.device.geometry(), second.device.geometry());
//! assert!(second.remarks().iter().any(|remark| remark.starts_with("assumed: ")));
//! # Ok(())
//! # }
//! ```

pub mod closings;
mod drive;
pub mod error;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod missing;
pub mod pool;
pub mod served;
pub mod spec;
pub mod stack;
pub mod time;
mod traced;

pub use closings::{Closings, ServeCache};
pub use error::StackError;
pub use pool::OpenPool;
pub use spec::{
    CacheSpec, DiskSpec, FileSpec, FtlSide, IfExists, MemorySpec, NullSpec, RemoteSpec, Spec,
    SsdSpec, StripeSpec, TracedSpec, VolumeSpec, parse_uuid, show_uuid,
};
pub use stack::{CacheParts, Model, Opened, Stack};
pub use time::Time;
pub use traced::Traced;
