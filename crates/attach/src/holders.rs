//! Users of an attachment: processes and file systems. A process has an open file, a mapping or a
//! directory under the mount point or on the loop device; a file system is mounted from it. All of
//! it is in `/proc` (proc(5)); of processes of other users only root is told.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{mount, mount_table};

/// Holders that are named in a message; the others are counted.
const NAMED: usize = 4;

/// A process, or a file system, that keeps a device from being detached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process.
    Process {
        /// Its number.
        pid: u32,
        /// Its command name.
        name: String,
        /// The path that it has open.
        path: PathBuf,
    },
    /// A file system.
    Mount {
        /// The block device.
        device: PathBuf,
        /// Where it is mounted.
        at: PathBuf,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid, name, path } => {
                write!(f, "process {pid} ({name}) has {} open", path.display())
            }
            Holder::Mount { device, at } => {
                write!(f, "{} is mounted at {}", device.display(), at.display())
            }
        }
    }
}

/// Returns the users of the attachment at a mount point, and of the loop devices over it.
pub(crate) fn of(mount_point: &Path, loops: &[PathBuf]) -> Vec<Holder> {
    let is_its = |path: &Path| {
        path.starts_with(mount_point) || loops.iter().any(|one| mount_table::is_of(one, path))
    };
    let mounts = loops.iter().flat_map(|device| {
        let at = mount_table::mounts_from(device).into_iter();
        at.map(|at| Holder::Mount { device: device.clone(), at })
    });
    let mut found: Vec<Holder> = mounts.collect();
    // The process that serves it has the loop device open.
    let server = mount_table::ours_at(mount_point).and_then(|mount| server(mount.pid));
    for (pid, process) in processes() {
        if pid == std::process::id() || Some(pid) == server {
            continue;
        }
        if let Some(path) = held_by(&process, is_its) {
            let name = std::fs::read(process.join("comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim_end().escape_debug().to_string();
            found.push(Holder::Process { pid, name, path });
        }
    }
    found
}

/// The processes that this one sees, with their directories.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// The number here of a process that serves a mount and has the number `own` in its own namespace. A second one may
/// look the same.
pub(crate) fn server(own: u32) -> Option<u32> {
    let serves = |process: &Path| {
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let innermost = numbers.and_then(|numbers| numbers.split_whitespace().last());
        innermost.and_then(|number| number.parse().ok()) == Some(own)
            && links(process).any(|path| path == Path::new(mount::DEVICE))
    };
    processes().find(|(_, process)| serves(process)).map(|(pid, _)| pid)
}

/// The paths that a process has open or is in. Links are read and never followed: the file system may not answer any
/// more.
fn links(process: &Path) -> impl Iterator<Item = PathBuf> {
    let fds = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let fds = fds.map(|entry| entry.path());
    let places = ["cwd", "root", "exe"].map(|name| process.join(name)).into_iter();
    places.chain(fds).filter_map(|link| std::fs::read_link(link).ok())
}

/// The first of such paths that a process has open, maps or is in.
fn held_by(process: &Path, is_its: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    links(process).find(|path| is_its(path)).or_else(|| {
        let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
        let paths =
            maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
        paths.into_iter().find(|path| is_its(path))
    })
}

/// Returns holders in a sentence; without known ones, the command that finds them.
#[must_use]
pub fn said(holders: &[Holder], mount_point: &Path) -> String {
    if holders.is_empty() {
        return format!("`fuser -vm {}` as root lists what uses it", mount_point.display());
    }
    let mut parts: Vec<String> = holders.iter().take(NAMED).map(Holder::to_string).collect();
    if holders.len() > NAMED {
        parts.push(format!("{} more", holders.len() - NAMED));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_has_a_file_open_or_is_in_a_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        assert_eq!(of(&at, &[]), []);
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(&at).spawn().unwrap();
        let found = of(&at, &[]);
        child.kill().unwrap();
        child.wait().unwrap();
        let name = "sleep".to_owned();
        assert_eq!(found, [Holder::Process { pid: child.id(), name, path: at.clone() }]);
        assert_eq!(
            said(&found, &at),
            format!("process {} (sleep) has {} open", child.id(), at.display())
        );
    }

    #[test]
    fn many_holders_are_counted() {
        let one =
            |pid| Holder::Process { pid, name: "fio".to_owned(), path: PathBuf::from("/mnt/disk") };
        let all: Vec<Holder> = (1..=7).map(one).collect();
        let text = said(&all, Path::new("/mnt"));
        assert!(text.contains("process 4 (fio)") && text.ends_with(", 3 more"), "{text}");
        assert!(said(&[], Path::new("/mnt")).contains("fuser -vm /mnt"));
    }
}
