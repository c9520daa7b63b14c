//! NVMe over TCP: a target that serves devices, and an initiator that is one.

pub mod conn;
pub mod wire;
