//! The tests of this crate that need no process of their own, as one program: it is linked once, and they run
//! beside each other.

#[path = "../support/moody.rs"]
mod moody;
#[path = "../support/paced.rs"]
mod paced;
#[path = "../support/rig.rs"]
mod rig;

mod buffer_end;
mod chains;
mod changes;
mod cold;
mod conformance;
mod crash;
mod faults;
mod flights;
mod goals;
mod handles;
mod huge;
mod lies;
mod members;
mod missing;
mod model;
mod neighbours;
mod open;
mod panics;
mod queue;
mod readers;
mod rejoin;
mod reported;
mod retire;
mod scrub;
mod share;
mod slow;
mod snapshots;
mod space;
mod threads;
mod waiting;
mod what_if;
