//! Traces and a synthetic database's load, as the simulator takes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker_base::policy::Access;
use esker_cache::replay::{Trace, TraceBuilder};
use esker_trace::{MysqlLoad, MysqlOptions, Op, Request, TraceError};

use super::options::FlashCacheOptions;
use crate::LabError;

/// Requests of a workload, one after the other.
pub(crate) type Requests = Box<dyn Iterator<Item = Result<Request, TraceError>>>;

/// Where a workload comes from.
pub(crate) enum WorkloadSource {
    /// The files of one trace; `is_found` when a folder was named, not the trace.
    Files { name: String, files: Vec<PathBuf>, is_found: bool },
    /// A database server, made up.
    Mysql { name: String },
}

/// Returns all workloads, and notes about them.
pub(crate) fn sources(
    options: &FlashCacheOptions,
) -> Result<(Vec<WorkloadSource>, Vec<String>), LabError> {
    let mut sources = Vec::new();
    if options.transactions > 0 {
        let name =
            format!("MySQL-like, {} of data", esker_base::units::human_bytes(options.data_bytes));
        sources.push(WorkloadSource::Mysql { name });
    }
    for path in &options.traces {
        if path.is_dir() {
            sources.extend(of_folder(path)?);
        } else {
            let files = esker_trace::read::files_of(path)?;
            sources.push(WorkloadSource::Files { name: name_of(path), files, is_found: false });
        }
    }
    Ok((sources, Vec::new()))
}

fn of_folder(path: &Path) -> Result<Vec<WorkloadSource>, LabError> {
    let unreadable =
        |error: std::io::Error| LabError::Invalid(format!("{}: {error}", path.display()));
    let traces = traces_of(path).map_err(unreadable)?.into_iter();
    Ok(traces.map(|(name, files)| WorkloadSource::Files { name, files, is_found: true }).collect())
}

/// The traces of a folder, each with a name of its own and its files. The files of a trace by
/// processor (`NAME.blktrace.0`, `NAME.blktrace.1`, compressed or not) are one; every other file is
/// one by itself, but for notes (`.md`).
///
/// # Errors
/// When the folder cannot be read.
pub fn traces_of(folder: &Path) -> std::io::Result<Vec<(String, Vec<PathBuf>)>> {
    let mut traces: BTreeMap<String, Vec<(u32, PathBuf)>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        if !file.is_file() || file.extension().is_some_and(|ending| ending == "md") {
            continue;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (trace, processor) = match by_processor(&name) {
            Some((trace, processor)) => (format!("{trace}.blktrace"), processor),
            None => (name, 0),
        };
        traces.entry(trace).or_default().push((processor, file));
    }
    let short: Vec<String> = traces.keys().map(|trace| name_of(Path::new(trace))).collect();
    let named = traces.into_iter().zip(&short).map(|((trace, mut files), name)| {
        files.sort();
        let is_alone = short.iter().filter(|other| *other == name).count() == 1;
        let name = if is_alone { name.clone() } else { trace };
        (name, files.into_iter().map(|(_, file)| file).collect())
    });
    Ok(named.collect())
}

/// Trace and processor of `NAME.blktrace.0` or `NAME.blktrace.0.zst`.
fn by_processor(file: &str) -> Option<(&str, u32)> {
    let (trace, rest) = file.split_once(".blktrace.")?;
    Some((trace, rest.split('.').next()?.parse().ok()?))
}

/// `pgbench-ext4` of `/traces/pgbench-ext4.blktrace.0.zst`.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

impl WorkloadSource {
    pub(crate) fn name(&self) -> &str {
        match self {
            WorkloadSource::Files { name, .. } | WorkloadSource::Mysql { name } => name,
        }
    }

    /// Whether nobody has asked for just this one.
    pub(crate) fn is_found(&self) -> bool {
        matches!(self, WorkloadSource::Files { is_found: true, .. })
    }

    /// The requests in their order, as the simulator takes them.
    pub(crate) fn load(&self, options: &FlashCacheOptions) -> Result<Trace, LabError> {
        let requests = self.requests(options)?.take(options.most_requests);
        Ok(built(&requests.collect::<Result<Vec<_>, _>>()?)?)
    }

    /// The requests in their order.
    pub(crate) fn requests(&self, options: &FlashCacheOptions) -> Result<Requests, LabError> {
        match self {
            WorkloadSource::Files { files, .. } => {
                let options = esker_trace::Options::default();
                Ok(Box::new(esker_trace::Trace::open(files, &options)?))
            }
            WorkloadSource::Mysql { .. } => {
                let load = MysqlLoad::new(MysqlOptions {
                    data_bytes: options.data_bytes,
                    pool_bytes: options.data_bytes / 16,
                    scan_bytes: options.data_bytes / 64,
                    seed: options.seed,
                    ..MysqlOptions::default()
                })?;
                // A transaction reads about 14 pages, of which the pool has a part.
                let count = usize::try_from(options.transactions.saturating_mul(8));
                Ok(Box::new(load.take(count.unwrap_or(usize::MAX)).map(Ok)))
            }
        }
    }
}

pub(super) fn built(requests: &[Request]) -> Result<Trace, esker_cache::CacheError> {
    let mut builder = TraceBuilder::new();
    for request in requests {
        let access = match request.op {
            Op::Read => Access::Read,
            Op::Write => Access::Write,
            Op::Discard | Op::Flush => continue,
        };
        let blocks = request.blocks();
        let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
        builder.at(request.time_ns);
        builder.push_to(request.device, blocks.start, count, access);
    }
    builder.finish()
}
