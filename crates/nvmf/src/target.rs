//! A target: serves devices as namespaces to hosts, over NVMe/TCP.
//!
//! Its rooms, from the ground up; each sees only those before it:
//!
//! | room | content |
//! | --- | --- |
//! | [`config`] | the devices served, their hosts, the limits |
//! | `portal` | the addresses that hosts connect to |
//! | [`refusals`] | hosts that were not let in |
//! | [`metrics`] | counters of commands and bytes |
//! | `ids` | connections and commands by number |
//! | `limits` | the connections that hosts may have, the memory of a worker that they may hold, and for how long |
//! | `reservation` | reservations of namespaces, and their file |
//! | `subsystem` | subsystems and namespaces; commands that a device does not end in time |
//! | `controller`, `controller_ids` | the association of a host with a subsystem; the ids of these |
//! | `shared` | state that the workers share; their mail |
//! | `connection` | one connection: its state, memory and commands; a worker's queue pairs on the devices |
//! | `fdp` | data placement, in bytes of the specification |
//! | `io` | commands of I/O queues |
//! | `admin` | commands of the admin queue, and Fabrics commands |
//! | `worker` | event loops: connections at work, the addresses that hosts connect to |
//! | `server` | [`Target`]; its portals and hosts; another configuration for one that runs |
//!
//! Each worker is one thread with its own connections, queue pairs and buffers. A controller's
//! queues may be on several workers; the state they share is behind a lock that only admin commands
//! take.

mod admin;
pub mod config;
mod connection;
mod controller;
mod controller_ids;
mod fdp;
mod ids;
mod io;
mod limits;
pub mod metrics;
mod portal;
pub mod refusals;
pub(crate) mod reservation;
mod server;
mod shared;
mod subsystem;
mod worker;

pub use config::{
    Access, HostConfig, Limits, NamespaceConfig, PortalConfig, SubsystemConfig, TargetConfig,
};
pub use metrics::{FlowMetrics, TargetMetrics};
pub use refusals::{Refusal, RefusalReason};
pub use server::Target;
pub use server::hosts::{ConnectedHost, ServedNamespace};
pub use server::portals::PortalState;
