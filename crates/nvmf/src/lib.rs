//! NVMe over TCP: a target that serves devices, and an initiator that is one.

pub mod auth;
pub mod conn;
pub mod error;
pub mod initiator;
mod socket;
pub mod target;
pub mod wire;

pub use error::NvmfError;
pub use initiator::{Initiator, InitiatorConfig};
pub use target::{Target, TargetConfig};
