//! Devices that record the requests that they get.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use esker_base::files;
use esker_trace::{TraceError, Writer};

use super::syntax::{Key, Keys, Parts, name_of, number, one_of};
use super::{Spec, bytes_of, path_of};

/// How many requests the buffer holds where nothing is said: 32 MiB.
const BUFFER: u32 = 1 << 20;

/// Treatment of a trace that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// The recording goes on with it.
    Append,
    /// It is made anew.
    Replace,
}

const IF_EXISTS: [(&str, IfExists); 2] =
    [("append", IfExists::Append), ("replace", IfExists::Replace)];

/// A device that records its requests: see [`Traced`](crate::Traced).
#[derive(Clone, Debug, PartialEq)]
pub struct TracedSpec {
    /// The device that does it.
    pub inner: Spec,
    /// The file of the trace.
    pub to: PathBuf,
    /// Treatment of a file that is there; it is refused where nothing is said.
    pub if_exists: Option<IfExists>,
    /// How many requests may wait to be written, 32 bytes each; 1,048,576 where nothing is said.
    pub buffer: Option<u32>,
}

impl TracedSpec {
    const KEYS: [Key; 3] =
        [("to", "FILE"), ("if-exists", "append|replace"), ("buffer", "REQUESTS")];

    pub(super) fn of(parts: &Parts) -> Result<TracedSpec, String> {
        let mut keys = Keys::of("traced:", parts, &TracedSpec::KEYS)?;
        let inner = parts.spec("traced:(mem:1GiB)?to=FILE")?.clone();
        let to = keys.bytes("to")?.ok_or("the file of the trace is missing; say to=FILE")?;
        let if_exists = keys.take("if-exists", one_of(&IF_EXISTS))?;
        let buffer = keys.take("buffer", number(1, 1 << 30))?;
        Ok(TracedSpec { inner, to: path_of(to)?, if_exists, buffer })
    }

    pub(super) fn parts(&self) -> Parts {
        let mut parts = Parts::new(self.inner.clone());
        parts.push("to", Some(bytes_of(&self.to)));
        parts.push("if-exists", self.if_exists.map(|what| name_of(&IF_EXISTS, &what)));
        parts.push("buffer", self.buffer.map(|buffer| buffer.to_string()));
        parts
    }

    /// Refuses a file that is there, unless something was said of it, and one under `/dev`.
    pub(crate) fn check(&self) -> Result<(), TraceError> {
        if self.if_exists.is_none() && self.to.symlink_metadata().is_ok() {
            return Err(TraceError::exists(&self.to));
        }
        files::may_create(&self.to)
            .map_err(|error| TraceError::NotFound(format!("{}: {error}", self.to.display())))
    }

    /// Opens the file as it was said.
    pub(crate) fn writer(&self) -> Result<Writer<BufWriter<File>>, TraceError> {
        match self.if_exists {
            Some(IfExists::Append) if self.to.exists() => Writer::append(&self.to),
            Some(IfExists::Replace) => Writer::create(&self.to),
            _ => Writer::create_new(&self.to),
        }
    }

    pub(crate) fn buffer(&self) -> usize {
        usize::try_from(self.buffer.unwrap_or(BUFFER)).expect("64 bits")
    }
}
