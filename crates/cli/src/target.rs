//! `esker target`: devices served over NVMe/TCP, and their traffic.

use std::sync::Arc;

use esker_serve::events::Waiting;
use esker_serve::target::{TargetService, status};

use crate::args::{ServeArgs, TargetCommand};
use crate::failure::Result;
use crate::output;
use crate::pool::link::stack;

/// Runs a command.
pub(crate) fn run(command: &TargetCommand) -> Result {
    match command {
        TargetCommand::Serve(args) => serve(args),
        TargetCommand::Status { metrics } => output::print(&status(*metrics)?),
    }
}

fn serve(args: &ServeArgs) -> Result {
    // Before anything is open: a signal that comes early ends it in order, too.
    let mut events = Waiting::new(args.time)?;
    let tell = &output::tell;
    let mut target = TargetService::start(args.options(), Arc::new(stack()), tell)?;
    output::print(&target.greeting())?;
    target.run(&mut events, tell);
    Ok(target.close()?)
}
