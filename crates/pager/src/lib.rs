//! More memory than DRAM: a memory region that is paged to a [`Device`](esker_device::Device).
//!
//! A program's region is registered with userfaultfd. A pager, which may be a thread of the program or
//! another process, brings pages in when they are touched and takes them out when the budget is
//! used. Linux only.
//!
//! | module | contents |
//! | --- | --- |
//! | [`types`] | sizes, [`Options`], [`PagerError`], [`Stats`] |
//! | [`launch`] | a process of its own that serves a program |
//! | [`raw`] | system calls without the C library |
//! | [`trap`] | system calls that are held for the pager |
//! | `unserved` | programs that have not introduced themselves |
//! | [`uffd`] | the ioctls of userfaultfd |
//! | `filter` | instructions of filters of system calls |
//! | [`protocol`] | messages between a program and its pager |
//! | `pages` | the state of every page |
//! | `slots` | places on the device |
//! | `heap` | an allocator that keeps its own data elsewhere |
//! | `ranges` | which pages are reserved |
//! | `areas` | paged memory outside the region |
//! | `predict` | which pages will be wanted |
//! | `walk` | which pages a walk along pointers will want |
//! | `staging` | pages that have left memory and may come back |
//! | `order` | how pages leave, where the memory is |
//! | [`client`] | the program's side of a region, and its helper |
//! | `link` | the pager's end of a program |
//! | `space` | one address space with a region |
//! | [`awake`] | processors that do not sleep between faults |
//! | `engine` | decisions at a fault, and which pages leave memory |
//! | `shared` | state that the threads share |
//! | `chase` | the thread that follows a snapshot's walk |
//! | `inject` | the thread that puts the library into programs |
//! | `greet` | programs that connect |
//! | [`server`] | [`Pager`]: the thread that serves programs |
//! | [`probe()`] | whether memory can be paged here |
//! | `forks` | forks of a process that has arenas |
//! | `signal` | faults served by the thread that faults |
//! | [`arena`] | [`Arena`]: paged memory for a program that asks for it |
//! | [`bytes`] | an arena's memory, or that of its peers, as slices |
//!
//! Imports run from the bottom of this table to its top.

#[cfg(not(target_os = "linux"))]
compile_error!("userfaultfd is Linux's");

mod areas;
pub mod arena;
pub mod awake;
pub mod bytes;
mod chase;
pub mod client;
mod compressed;
mod engine;
mod filter;
mod forks;
mod greet;
mod heap;
mod inject;

pub mod launch;
mod link;
mod order;
mod pages;
mod predict;
mod probe;
pub mod protocol;
mod ranges;
pub mod raw;
pub mod server;
mod shared;
mod signal;
mod slots;
mod space;
mod staging;
#[cfg(test)]
mod tests;
pub mod trap;
pub mod types;
pub mod uffd;
mod unserved;
mod walk;

pub use arena::{Arena, Mode};
pub use probe::{Probe, probe};
pub use server::Pager;
pub use types::{LEAST_BUDGET, Options, PAGE, PagerError, Stats};
