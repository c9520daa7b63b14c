//! The requests of a trace.

use esker_trace::{MysqlLoad, Options, Request, Trace};

use super::inputs::{TraceLoad, TraceSource};
use crate::LabError;

/// All requests of a trace that are replayed, in their order.
pub(super) fn requests(load: &TraceLoad) -> Result<Vec<Request>, LabError> {
    let most = load.requests;
    match &load.source {
        TraceSource::Database(options) => Ok(MysqlLoad::new(options.clone())?.take(most).collect()),
        TraceSource::Files { files, .. } => {
            let mut all = Vec::new();
            for request in Trace::open(files, &Options::default())?.take(most) {
                all.push(request?);
            }
            Ok(all)
        }
    }
}

/// Whether the requests of a trace carry times.
pub(super) fn have_times(source: &TraceSource) -> Result<bool, LabError> {
    match source {
        TraceSource::Database(_) => Ok(true),
        TraceSource::Files { files, .. } => {
            Ok(Trace::open(files, &Options::default())?.format().has_times())
        }
    }
}
