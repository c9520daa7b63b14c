//! The tests of this crate that need no process of their own, as one program: it is linked once, and they run
//! beside each other.

#[path = "../common/mod.rs"]
mod common;

mod crash;
mod disk;
mod drive_model;
mod emulate;
mod faults;
mod former;
mod formulas;
mod ftl;
mod host_drive;
mod host_managed;
mod image;
mod namespaces;
mod profiles;
mod ssd;
mod timing;
mod wear;
