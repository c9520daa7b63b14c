//! Servers over HTTP for clients that nobody trusts: metrics, the live page, requests to a pool.
//!
//! | module | content |
//! | --- | --- |
//! | `message` | [`Answer`], the head of a request, the [`Service`] that answers |
//! | `connections` | the connections of a server: their number, and the one that gives way |
//! | `server` | [`Server`]: accepts, reads, answers, ends |
//!
//! Invariants
//! 1. Clients hold `server::CONNECTIONS` descriptors at most. A new connection is always taken: the connection that
//!    has waited longest for its client is closed for it.
//! 2. No client holds anything for longer than two `server::PATIENCE`: not a silent one, nor half a request, nor one
//!    that takes no answer.
//! 3. A service sees a request when all of it is there, within its limits, and is admitted by its head.
//! 4. A service that panics fails its request, and no other.

mod connections;
mod message;
mod server;

pub use message::{Answer, Head, Service, error, text};
pub use server::Server;
pub(crate) use server::{Listener, unshared};
