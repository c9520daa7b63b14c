//! Limits on hosts: the connections that they may have, the memory that they may hold, and for how long.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod pace;
pub(crate) mod throttle;
