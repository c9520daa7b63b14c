//! Maintenance: moving what the write buffer holds into segments, checkpoints, and deciding what is due. Sees `engine`
//! and what is below.

pub(crate) mod bundle;
pub(crate) mod checkpoint;
pub(crate) mod clean;
pub(crate) mod degraded;
pub(crate) mod destage;
mod mark;
pub(crate) mod output;
pub(crate) mod rebuild;
mod reclaim;
mod repair;
pub(crate) mod retire;
pub(crate) mod salvage;
pub(crate) mod step;
pub(crate) mod sweep;
pub(crate) mod verify;

pub(crate) use reclaim::{drain, drain_all, ensure_space, make_room, sweep_on};
