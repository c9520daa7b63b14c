//! The tests of this crate that need no process of their own, as one program: it is linked once, and they run
//! beside each other.

#[path = "../common/mod.rs"]
mod common;

mod backup;
mod bytes;
mod campaign;
mod closing;
mod compact;
mod compression;
mod crash;
mod cursors;
mod cut;
mod damage;
mod deleted;
mod face;
mod fenced;
mod former;
mod images;
mod joined;
mod limits;
mod lying;
mod many;
mod model;
mod named;
mod panics;
mod placement;
mod policy;
mod prefixes;
mod progress;
mod ranges;
mod read_only;
mod readers;
mod reads;
mod record_cache;
mod recovery;
mod repair;
mod salvage;
mod scrub;
mod sorting;
mod space;
mod threads;
mod transactions;
mod transfers;
mod ttl;
mod unnamed;
mod walks;
