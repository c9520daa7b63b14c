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
//! | [`metrics`] | metrics for Prometheus: the exporter, and a collector for each kind of thing |
//! | [`events`] | events that end a service, and its messages |
//! | [`target`] | devices served over NVMe/TCP |
//!
//! Nothing here reads arguments, looks at the environment or prints.

#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss)] // counts become figures for people

pub mod error;
pub mod events;
pub mod http;
pub mod metrics;
pub mod process;
pub mod target;
pub mod token;

pub use error::{Result, ServeError};
