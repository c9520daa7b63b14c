//! Finds the attachment at a mount point, ends its connection by force, and clears away the leftovers of a crash.
//! Nothing is kept on disk for that: the table of mounts has the number of the connection, and the kernel says
//! whether a process serves it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use esker_base::thread;
use rustix::io::Errno;

use crate::attachment::FILE_NAME;
use crate::holders::{self, Holder};
use crate::mount_table::{self, Ours, ours_at, resolved};
use crate::{AttachError, loop_device, mount};

/// The kernel's files of connections (fusectl).
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// How long a file system may take to answer: a dead connection does at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// A device that is attached, perhaps by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The number of its FUSE connection, which no other mount on this machine has.
    pub connection: u32,
    /// The user who attached it.
    pub owner: u32,
    /// The loop devices over the file.
    pub loops: Vec<PathBuf>,
    /// The number that the process which serves it has in its own namespace.
    pid: u32,
}

/// An answer to the question whether a process serves an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The file system answers.
    Served,
    /// The process has ended without detaching, or the connection was ended by force.
    Dead,
    /// No answer comes: the process is stopped, or its device hangs.
    Silent,
}

/// Returns the attachment at a mount point, from the table of mounts alone.
///
/// # Errors
/// `NotAttached` when nothing of Esker's is.
pub fn find(mount_point: &Path) -> Result<Attached, AttachError> {
    let resolved = resolved(mount_point);
    let Some(Ours { pid, connection, owner }) = ours_at(&resolved) else {
        return Err(AttachError::NotAttached(mount_point.to_owned()));
    };
    let loops = loop_device::over(&resolved.join(FILE_NAME));
    Ok(Attached { mount_point: resolved, connection, owner, loops, pid })
}

/// The process that serves the attachment with this FUSE connection, the minor number of its file system. None where
/// it cannot be seen, as in another namespace or of another user.
#[must_use]
pub fn server(connection: u32) -> Option<u32> {
    mount_table::ours_of(connection).and_then(|mount| holders::server(mount.pid))
}

impl Attached {
    /// Asks the file system whether it is served. It takes two seconds at most.
    #[must_use]
    pub fn state(&self) -> State {
        let (say, said) = channel();
        let path = self.mount_point.clone();
        // A thread of its own waits for a server that does not answer; it ends with the process.
        let asked = thread::spawn("esker-probe", move || {
            let answer = rustix::fs::statvfs(path); // the kernel keeps no answer of it
            let _ = say.send(answer.map(drop)); // nobody waits any more
        });
        match asked.ok().and_then(|_| said.recv_timeout(PATIENCE).ok()) {
            Some(Ok(())) => State::Served,
            Some(Err(Errno::NOTCONN | Errno::CONNABORTED)) => State::Dead,
            Some(Err(_)) => State::Served,
            None => State::Silent,
        }
    }

    /// The process that serves it, as this one sees it, for messages; none where it cannot be seen.
    #[must_use]
    pub fn server(&self) -> Option<u32> {
        holders::server(self.pid)
    }

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

    /// Whether it is mounted still.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        ours_at(&self.mount_point).is_some_and(|mount| mount.connection == self.connection)
    }

    /// Ends the connection to the process that serves it, which is not asked: whoever uses the device gets errors
    /// from now on, and the process, if it runs, ends by itself.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn abort(&self) -> Result<(), AttachError> {
        if !self.is_mounted() {
            return Ok(()); // another one may have its number
        }
        let path = Path::new(CONNECTIONS).join(self.connection.to_string()).join("abort");
        let aborted =
            OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"1"));
        if aborted.is_ok() {
            return Ok(());
        }
        // Those files need not be mounted; root ends a connection while it unmounts, too.
        mount::force(&self.mount_point).map_err(|errno| {
            let advice = "do it as root";
            AttachError::os("ending the connection", &self.mount_point, errno, advice)
        })
    }

    /// Clears away the leftovers of a connection that has ended: its loop devices and the mount. Returns the
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
        if self.is_mounted() {
            mount::unmount(&self.mount_point, true).map_err(|errno| {
                let advice = "unmount it with `umount -l` as root";
                AttachError::os("unmounting", &self.mount_point, errno, advice)
            })?;
        }
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
