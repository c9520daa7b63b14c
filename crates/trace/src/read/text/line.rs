//! A line of text, and the terms that several formats share.

use crate::decode::Events;
use crate::names::Names;
use crate::read::fields::quoted;
use crate::request::Request;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const MICROSECOND_NS: u64 = 1_000;
pub(super) const SECTOR: u64 = 512;

pub(super) fn unknown_op(name: &str, field: &[u8], expected: &str) -> String {
    format!("{name} is {}, not {expected}", quoted(field))
}

/// Reads the lines of one format.
pub(crate) trait Line: Send {
    /// Appends the requests of a line that is not empty. The error names the problem.
    fn line(
        &mut self,
        line: &[u8],
        names: &mut Names,
        requests: &mut Vec<Request>,
    ) -> Result<(), String>;

    /// Whether lines were seen that only this format has, even if none was a request.
    fn has_begun(&self) -> bool {
        false
    }

    /// Remarks on parts that were not understood and did not matter.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many events there were of each kind, if the format has events.
    fn events(&self) -> Events {
        Events::default()
    }
}
