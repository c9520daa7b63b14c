//! The trace that a command reads, and remarks on a trace.

use std::path::{Path, PathBuf};

use esker_base::units::{counted, human_bytes};
use esker_trace::read::files_of;
use esker_trace::{Memory, Options, Sample, Trace, Written};

use crate::args::{SampleArg, TraceInput};
use crate::failure::Result;
use crate::host;
use crate::stderr::tell;

/// Opens the trace that was said.
pub(super) fn open(input: &TraceInput) -> Result<Trace> {
    let options = Options {
        format: input.format,
        unit_bytes: input.unit,
        event: input.event.into(),
        columns: input.columns,
    };
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

/// Memory for the state of a trace: what this machine and this process's control group have left.
pub(super) fn memory() -> Memory {
    Memory::new(host::memory_left)
}

/// The sample that was said, in extents of so many blocks.
pub(super) fn sample_of(arg: &SampleArg, extent_blocks: u64) -> Option<Sample> {
    arg.sample.map(|rate| Sample::new(rate, extent_blocks))
}

/// A clause that says that figures are those of a sample.
pub(super) fn sampled(sample: Option<Sample>) -> String {
    sample.map_or_else(String::new, |sample| {
        format!(", estimated from a sample of {:.4} % of its blocks", 100.0 * sample.rate())
    })
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
        "{}: {} in {}{each}\n",
        path.display(),
        counted(written.requests, "request"),
        human_bytes(written.bytes)
    )
}
