//! Live pages of what the command does.

use esker_report::Subject;
use esker_serve::live::Live;

use crate::failure::Result;
use crate::stderr::tell;

/// Serves a page at a port of 127.0.0.1, and says where on standard error.
///
/// # Errors
/// As [`Live::start`].
pub(crate) fn start<S: Subject>(port: u16, subject: S) -> Result<Live<S>> {
    let live = Live::start(port, subject)?;
    tell!("esker: live at {}", live.url());
    Ok(live)
}
