//! Devices that record what they are asked.

use std::path::PathBuf;

use super::{Spec, bytes_of, path_of};
use crate::syntax::{Key, Keys, Parts, number};

/// How many requests the buffer holds where nothing is said: 32 MiB.
const BUFFER: u32 = 1 << 20;

/// A device that records what it is asked: see [`Traced`](crate::Traced).
#[derive(Clone, Debug, PartialEq)]
pub struct TracedSpec {
    /// The device that does it.
    pub inner: Spec,
    /// The file of the trace, which is made anew.
    pub to: PathBuf,
    /// How many requests may wait to be written, 32 bytes each; 1,048,576 where nothing is said.
    pub buffer: Option<u32>,
}

impl TracedSpec {
    const KEYS: [Key; 2] = [("to", "FILE"), ("buffer", "REQUESTS")];

    pub(super) fn of(parts: &Parts) -> Result<TracedSpec, String> {
        let mut keys = Keys::of("traced:", parts, &TracedSpec::KEYS)?;
        let inner = parts.spec("traced:(mem:1GiB)?to=FILE")?.clone();
        let to = keys.bytes("to")?.ok_or("the file of the trace is missing; say to=FILE")?;
        let buffer = keys.take("buffer", number(1, 1 << 30))?;
        Ok(TracedSpec { inner, to: path_of(to)?, buffer })
    }

    pub(super) fn parts(&self) -> Parts {
        let mut parts = Parts::new(self.inner.clone());
        parts.push("to", Some(bytes_of(&self.to)));
        parts.push("buffer", self.buffer.map(|buffer| buffer.to_string()));
        parts
    }

    pub(crate) fn buffer(&self) -> usize {
        usize::try_from(self.buffer.unwrap_or(BUFFER)).expect("64 bits")
    }
}
