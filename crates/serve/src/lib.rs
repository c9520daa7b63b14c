//! Processes that serve: devices over NVMe/TCP, a pool with its requests, and metrics of both.
//!
//! Rooms, from the ground up; each imports from lower ones alone.
//!
//! | module | content |
//! | --- | --- |
//! | [`error`] | [`ServeError`]: the problem and the remedy |
//! | [`process`] | memory, CPU time and descriptors of this process |
//! | [`http`] | a small server for clients that nobody trusts |
//! | [`token`] | the token of its clients |
//! | [`live`] | the page of something that goes on |
//! | [`metrics`] | metrics for Prometheus: the exporter, and a collector for each kind of thing |
//! | [`events`] | events that end a service, and its messages |
//! | [`socket`] | servers at a UNIX socket |
//! | [`requests`] | tables of requests, their description, and their way over HTTP |
//! | [`target`] | devices served over NVMe/TCP, and requests to it |
//! | [`caches`] | caches in use, which are asked at a socket |
//! | [`pool`] | a pool with its requests, and its volumes over NVMe/TCP |
//!
//! Nothing here reads arguments, looks at the environment or prints.

#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss)] // counts become figures for people

pub mod caches;
pub mod error;
pub mod events;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod http;
pub mod live;
pub mod metrics;
pub mod pool;
pub mod process;
pub mod requests;
pub mod socket;
pub mod target;
pub mod token;

pub use error::{Result, ServeError};
