//! The trace that a command reads, and remarks on a trace.

use std::path::{Path, PathBuf};

use esker_base::units::human_bytes;
use esker_trace::read::files_of;
use esker_trace::{Options, Trace, Written};

use crate::args::TraceInput;
use crate::failure::Result;
use crate::figures::grouped;
use crate::stderr::tell;

/// Opens the trace that was said.
pub(super) fn open(input: &TraceInput) -> Result<Trace> {
    let options =
        Options { format: input.format, unit_bytes: input.unit, event: input.event.into() };
    Ok(Trace::open(&paths(input)?, &options)?)
}

pub(super) fn paths(input: &TraceInput) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for file in &input.files {
        paths.extend(files_of(file)?);
    }
    Ok(paths)
}

/// The title of a trace: the names of its files.
pub(super) fn title(input: &TraceInput) -> String {
    let names: Vec<String> = input
        .files
        .iter()
        .map(|file| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned())
        .collect();
    names.join(", ")
}

/// Writes the remarks on a trace to standard error.
pub(super) fn remark(trace: &Trace) {
    for remark in trace.remarks() {
        tell!("note: {remark}");
    }
}

/// A sentence about a file in the compact format.
pub(super) fn said_of(path: &Path, written: &Written) -> String {
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
