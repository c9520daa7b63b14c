//! `esker lab memory`: runs programs with paged memory, on swap and on zram on this machine.
//!
//! | module | content |
//! | --- | --- |
//! | `inputs` | the files that programs read |
//! | `work` | each program's command, and what it needs |
//! | `watch` | memory of a run, its deadline, zram's pool |
//! | `process` | one process tree within bounds |
//! | `redis` | the load on Redis |
//! | `machine` | the above, as the plan asks for it |

mod inputs;
mod machine;
mod process;
mod redis;
mod watch;
mod work;

pub(super) use machine::{Machine, refusal};
