//! `esker bench`: loads that are measured.
//!
//! | module | content |
//! | --- | --- |
//! | `ycsb` | the workloads of YCSB on a database |
//! | `device` | a load on any device |

mod device;
mod ycsb;

use crate::args::BenchCommand;
use crate::failure::Result;

/// Runs a load.
pub(crate) fn run(command: &BenchCommand) -> Result {
    match command {
        BenchCommand::Ycsb(args) => ycsb::run(args),
        BenchCommand::Device(args) => device::run(args),
    }
}
