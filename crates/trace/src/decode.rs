//! Common parts of the decoders of all formats: how a trace is to be read, and requests a batch at a time.

use crate::error::Result;
use crate::format::Format;
use crate::input::Input;
use crate::names::Names;
use crate::request::Request;

/// Which events of a block trace are requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// Q: a request enters the block layer, as applications ask for it.
    #[default]
    Queue,
    /// D: a request goes to the driver, merged and scheduled.
    Issue,
    /// C: a request is complete.
    Complete,
}

/// How a trace is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None` recognises it.
    pub format: Option<Format>,
    /// The bytes of a unit of address, where the format leaves it open
    /// ([`Format::default_unit_bytes`]): 512 to 1 MiB.
    pub unit_bytes: Option<u64>,
    /// Which events of blktrace and blkparse are requests.
    pub event: Event,
}

impl Options {
    /// The unit of address of a format that leaves it open.
    pub(crate) fn unit(&self, format: Format) -> u64 {
        self.unit_bytes.or(format.default_unit_bytes()).unwrap_or(512)
    }
}

/// How many requests a decoder yields at a time, about.
pub(crate) const BATCH: usize = 1024;

/// Turns the bytes of one file into requests.
pub(crate) trait Decode: Send {
    /// Appends about [`BATCH`] requests. `false` when there is nothing more.
    fn decode(&mut self, names: &mut Names, batch: &mut Vec<Request>) -> Result<bool>;

    /// The input that it reads from, if that may end early.
    fn input(&self) -> Option<&Input> {
        None
    }

    /// Remarks for the reader of the trace, once it was read.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}
