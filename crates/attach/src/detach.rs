//! Finds the attachment at a mount point, asks its process to end, and clears away the leftovers of
//! a crash. Nothing is kept on disk for that: the mount says which process serves it, and the
//! kernel whether the process is there.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::attachment::FILE_NAME;
use crate::holders::{self, Holder};
use crate::mount_table::server_of;
use crate::{AttachError, loop_device, mount};

/// A device that is attached, perhaps by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The process that serves it, or did.
    pub pid: u32,
    /// Whether the process has ended without detaching.
    pub is_dead: bool,
    /// The loop devices over the file.
    pub loops: Vec<PathBuf>,
}

/// Returns the attachment at a mount point.
///
/// # Errors
/// `NotAttached` when nothing of Esker's is.
pub fn find(mount_point: &Path) -> Result<Attached, AttachError> {
    // The file system may be dead: it must not be asked for its own path.
    let absolute = std::path::absolute(mount_point).unwrap_or_else(|_| mount_point.to_owned());
    let resolved = std::fs::canonicalize(&absolute).unwrap_or_else(|_| lexical(&absolute));
    let Some(pid) = server_of(&resolved) else {
        return Err(AttachError::NotAttached(mount_point.to_owned()));
    };
    let is_dead = match std::fs::metadata(&resolved) {
        Err(error) => {
            matches!(Errno::from_io_error(&error), Some(Errno::NOTCONN | Errno::CONNABORTED))
        }
        Ok(_) => false,
    };
    let loops = loop_device::over(&resolved.join(FILE_NAME));
    Ok(Attached { mount_point: resolved, pid, is_dead, loops })
}

/// The path with the links of its parent resolved.
fn lexical(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| std::fs::canonicalize(parent).ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

impl Attached {
    /// Fails if a loop device over the file is mounted.
    ///
    /// # Errors
    /// `Busy`, with the remedy.
    pub fn check_unused(&self) -> Result<(), AttachError> {
        self.loops.iter().try_for_each(|path| loop_device::check_unused(path))
    }

    /// Returns its users, as far as this user is told.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        holders::of(&self.mount_point, &self.loops)
    }

    /// Asks the process to detach and end (`SIGTERM`).
    ///
    /// # Errors
    /// When it may not be asked.
    pub fn ask_to_end(&self) -> Result<(), AttachError> {
        let failed = |errno| {
            let advice = "end the process that serves it";
            AttachError::os("asking its process to end", &self.mount_point, errno, advice)
        };
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Errno::SRCH).map_err(failed)?;
        let process = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        match rustix::process::pidfd_send_signal(process, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether it is mounted still.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        server_of(&self.mount_point).is_some()
    }

    /// Clears away the leftovers of a crashed process: its loop devices and the mount. Returns the
    /// loop devices that are mounted still; each ends when it is unmounted.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn clear(&self) -> Result<Vec<PathBuf>, AttachError> {
        let mut left = Vec::new();
        for path in &self.loops {
            if !loop_device::clear(path)? {
                left.push(path.clone());
            }
        }
        mount::unmount(&self.mount_point, true).map_err(|errno| {
            let advice = "unmount it with `umount -l` as root";
            AttachError::os("unmounting", &self.mount_point, errno, advice)
        })?;
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_attached_where_nothing_is() {
        let error = find(Path::new("/proc")).unwrap_err();
        assert!(matches!(error, AttachError::NotAttached(_)), "{error}");
    }
}
