//! The tests of this crate that need no process of their own, as one program: it is linked once, and they run
//! beside each other.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/drive.rs"]
mod drive;

mod aborts;
mod announced;
mod buffers;
mod commands;
mod identity;
mod loopback;
mod paths;
mod placement;
mod reload;
mod replaced;
mod reservations;
mod slow_devices;
mod slow_hosts;
mod specification;
mod strangers;
mod throttle;
mod unflushed;
mod waiting;
mod wire;
mod workers;
