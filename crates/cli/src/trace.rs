//! `esker trace`: traces of block I/O: what they consist of, what caches would miss, new ones.

mod advise;
mod info;
mod mrc;
mod record;
mod replay;

use std::path::{Path, PathBuf};

use esker_base::units::human_bytes;
use esker_trace::read::files_of;
use esker_trace::{Options, Trace, Writer, Written};

use crate::args::{TraceCommand, TraceInput};
use crate::failure::{Failure, Result};
use crate::figures::grouped;
use crate::output;

/// Runs a command.
pub(crate) fn run(command: &TraceCommand) -> Result {
    match command {
        TraceCommand::Info { input, no_reuse, json } => info::show(input, !no_reuse, *json),
        TraceCommand::Convert { input, output } => convert(input, output),
        TraceCommand::Mrc(args) => mrc::show(args),
        TraceCommand::Replay(args) => replay::show(args),
        TraceCommand::Advise(args) => advise::show(args),
        TraceCommand::Record { device, seconds, output, buffer, command } => {
            record::record(device, *seconds, output, *buffer, command)
        }
    }
}

/// Opens the trace that was said.
pub(crate) fn open(input: &TraceInput) -> Result<Trace> {
    let options =
        Options { format: input.format, unit_bytes: input.unit, event: input.event.into() };
    Ok(Trace::open(&paths(input)?, &options)?)
}

fn paths(input: &TraceInput) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for file in &input.files {
        paths.extend(files_of(file)?);
    }
    Ok(paths)
}

/// What people call the trace.
fn title(input: &TraceInput) -> String {
    let names: Vec<String> = input
        .files
        .iter()
        .map(|file| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned())
        .collect();
    names.join(", ")
}

/// What the reader of a trace should know goes to standard error.
fn remark(trace: &Trace) {
    for remark in trace.remarks() {
        eprintln!("note: {remark}");
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

/// A sentence about a file in the compact format.
fn said_of(path: &Path, written: &Written) -> String {
    let each = if written.requests > 0 {
        format!(", {:.2} bytes a request", written.bytes as f64 / written.requests as f64)
    } else {
        String::new()
    };
    format!(
        "{}: {} requests in {}{each}\n",
        path.display(),
        grouped(written.requests),
        human_bytes(written.bytes)
    )
}
