//! A pool of drives that is open in this process: requests to it, over HTTP or not, and its volumes over NVMe/TCP.
//!
//! | module | content |
//! | --- | --- |
//! | `hosts`, [`view`], [`answer`], `request` | the bodies of both ways |
//! | `opening`, `operations` | devices that changes open, one at a time; changes that were made, by their ids |
//! | `explain` | the waits of a slow volume |
//! | `export` | volumes over NVMe/TCP |
//! | `served` | [`Served`]: an open pool that answers |
//! | `cycle` | devices that stand on the pool itself |
//! | `routes` | requests to an open pool |
//! | `metrics` | metrics for Prometheus |
//! | `service` | [`PoolService`]: the process that owns a pool |

pub mod answer;
mod cycle;
mod explain;
mod export;
mod hosts;
mod metrics;
mod opening;
mod operations;
pub(crate) mod request;
pub(crate) mod routes;
mod served;
mod service;
pub mod view;

pub use hosts::HostView;
pub use routes::description;
pub use served::Served;
pub use service::{PoolOptions, PoolService};
