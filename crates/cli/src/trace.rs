//! `esker trace`: traces of block I/O: their content, the misses of caches, new ones.

mod advise;
mod info;
mod input;
mod mrc;
mod record;
mod replay;

use std::path::Path;

use esker_trace::Writer;

use crate::args::{TraceCommand, TraceInput};
use crate::failure::{Failure, Result};
use crate::output;
use input::{open, paths, remark, said_of};

/// Runs a command.
pub(crate) fn run(command: &TraceCommand) -> Result {
    match command {
        TraceCommand::Info { input, sample, no_reuse, json } => {
            info::show(input, sample, !no_reuse, *json)
        }
        TraceCommand::Convert { input, output } => convert(input, output),
        TraceCommand::Mrc(args) => mrc::show(args),
        TraceCommand::Replay(args) => replay::show(args),
        TraceCommand::Advise(args) => advise::show(args),
        TraceCommand::Record { device, seconds, output, buffer, command } => {
            record::record(device, *seconds, output, *buffer, command)
        }
    }
}

fn convert(input: &TraceInput, output: &Path) -> Result {
    for path in paths(input)? {
        if same_file(&path, output) {
            let what = "it is the trace itself; name another file";
            return Err(Failure::usage(format!("{}: {what}", output.display())));
        }
    }
    let mut trace = open(input)?;
    let advice = "name a file that can be written, on a file system with room";
    let failed = |error| Failure::file(output, &error, advice);
    // Half of it would look like a trace that was cut.
    let written = output::write_whole(output, failed, |out| {
        Ok(esker_trace::convert_to(&mut trace, Writer::new(out, output)?)?)
    })?;
    remark(&trace);
    output::print(&said_of(output, &written))
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
