//! The tests of this crate that need no process of their own, as one program: it is linked once, and they run
//! beside each other.

#[path = "../support/oracle.rs"]
mod oracle;
#[path = "../support/rig.rs"]
mod rig;

mod age;
mod budget;
mod conformance;
mod crash;
mod damage;
mod faults;
mod forgetful;
mod former;
mod fuzz;
mod in_use;
mod lying;
mod pair;
mod panics;
mod placement;
mod read_ahead;
mod records;
mod refused;
mod resize;
mod threads;
