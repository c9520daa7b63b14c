//! The files of a block trace, one for each processor: `NAME.blktrace.0`, `NAME.blktrace.1` and so on, compressed or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Result, TraceError};

/// The most processors that are named in a remark.
const NAMED: usize = 8;

/// Files that a path names: a file, or the files of a trace by processor (`NAME.blktrace.0`, `NAME.blktrace.1`,
/// compressed or not) when `NAME` itself is not there.
///
/// # Errors
/// When there is neither.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let missing = || {
        let why = "no such file, and no files of a trace by processor (NAME.blktrace.0, ...)";
        TraceError::NotFound(format!("{}: {why}", path.display()))
    };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(missing)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).map_err(|_| missing())?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let file = entry.file_name();
        let Some(rest) = file.to_str().and_then(|file| file.strip_prefix(name)) else { continue };
        let rest = rest.strip_prefix(".blktrace.").or_else(|| {
            // The name may have been said with its suffix.
            rest.strip_prefix('.').filter(|_| name.ends_with(".blktrace"))
        });
        let Some(rest) = rest else { continue };
        let digits = rest.split('.').next().unwrap_or_default();
        if let Ok(processor) = digits.parse::<u32>() {
            found.push((processor, entry.path()));
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(missing());
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The trace that a file of one processor belongs to, by its folder and name, and the processor.
fn processor_of(path: &Path) -> Option<(PathBuf, u32)> {
    let name = path.file_name()?.to_str()?;
    let (stem, rest) = name.rsplit_once(".blktrace.")?;
    let processor = rest.split('.').next()?.parse().ok()?;
    Some((path.with_file_name(stem), processor))
}

/// Remarks on files of processors that are missing between those of a trace, lie beside it unread, or are the only one.
pub(super) fn remarks(paths: &[&Path]) -> Vec<String> {
    let mut traces: BTreeMap<PathBuf, BTreeSet<u32>> = BTreeMap::new();
    for (trace, processor) in paths.iter().filter_map(|path| processor_of(path)) {
        traces.entry(trace).or_default().insert(processor);
    }
    traces.iter().filter_map(|(trace, read)| remark(trace, read)).collect()
}

fn remark(trace: &Path, read: &BTreeSet<u32>) -> Option<String> {
    let beside = files_of(trace).unwrap_or_default();
    let beside: BTreeSet<u32> =
        beside.iter().filter_map(|path| processor_of(path)).map(|(_, number)| number).collect();
    let list = |numbers: &[u32]| {
        let shown: Vec<String> = numbers.iter().take(NAMED).map(u32::to_string).collect();
        let more = if numbers.len() > NAMED { ", ..." } else { "" };
        format!("{}{more}", shown.join(", "))
    };
    let name = trace.display();
    let unread: Vec<u32> = beside.difference(read).copied().collect();
    if !unread.is_empty() {
        return Some(format!(
            "files of other processors ({}) lie beside it and were not read: name {name} to read all",
            list(&unread)
        ));
    }
    let last = *read.last()?;
    let missing: Vec<u32> =
        (0..last).filter(|number| !read.contains(number)).take(NAMED + 1).collect();
    if !missing.is_empty() {
        return Some(format!(
            "{name}.blktrace has no file of processor {}: their requests are not in the result",
            list(&missing)
        ));
    }
    (read.len() == 1).then(|| {
        format!(
            "{name}.blktrace has the file of one processor alone: a machine with more leaves one for each, and their \
             requests are not in the result"
        )
    })
}
