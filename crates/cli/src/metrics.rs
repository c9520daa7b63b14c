//! `--metrics`: where a process tells its metrics.

use std::net::SocketAddr;

use esker_serve::metrics::{Collector, Exporter};

use crate::failure::Result;
use crate::host::COMMIT;
use crate::stderr::tell;

/// Answers for metrics if an address was given, and says where on standard error.
///
/// # Errors
/// `Conflict` when the address cannot be had.
pub(crate) fn if_asked(
    address: Option<SocketAddr>,
    collectors: impl FnOnce() -> Vec<Box<dyn Collector>>,
) -> Result<Option<Exporter>> {
    let Some(address) = address else { return Ok(None) };
    let exporter = Exporter::start(address, COMMIT, collectors(), Vec::new())?;
    tell!("esker: {}", exporter.place());
    Ok(Some(exporter))
}
