//! Finds what is attached at a mount point, asks its process to end, and clears away what a crash
//! has left. Nothing is kept on disk for that: the mount says which process serves it, and the
//! kernel whether the process is there.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::attachment::FILE_NAME;
use crate::mount::{FILE_SYSTEM, SOURCE};
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

/// What is attached at a mount point.
///
/// # Errors
/// `NotAttached` when nothing of Esker's is.
pub fn find(mount_point: &Path) -> Result<Attached, AttachError> {
    // The file system may be dead: what its path is must not be asked of it.
    let absolute = std::path::absolute(mount_point).unwrap_or_else(|_| mount_point.to_owned());
    let resolved = std::fs::canonicalize(&absolute).unwrap_or_else(|_| lexical(&absolute));
    let Some(pid) = mounts_of(&resolved) else {
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
    /// `Busy`, with what to do.
    pub fn check_unused(&self) -> Result<(), AttachError> {
        self.loops.iter().try_for_each(|path| loop_device::check_unused(path))
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
        mounts_of(&self.mount_point).is_some()
    }

    /// Clears away what a process that has crashed left: its loop devices and the mount. Returns the
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

/// The process that has attached a device at exactly this path, from
/// `/proc/self/mountinfo` (proc(5)).
pub(crate) fn mounts_of(path: &Path) -> Option<u32> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    // What was mounted last lies on top.
    text.split(|&byte| byte == b'\n').rev().find_map(|line| parse(line, path))
}

fn parse(line: &[u8], path: &Path) -> Option<u32> {
    let mut words = line.split(|&byte| byte == b' ');
    let mount_point = words.nth(4)?;
    if unescape(mount_point) != path {
        return None;
    }
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    if words.next()? != FILE_SYSTEM.as_bytes() {
        return None;
    }
    let source = std::str::from_utf8(words.next()?).ok()?;
    source.strip_prefix(SOURCE)?.parse().ok()
}

/// Spaces and such are `\040`.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut at = 0;
    while at < word.len() {
        let octal = word.get(at..at + 4).filter(|escape| escape[0] == b'\\');
        let octal = octal.and_then(|escape| std::str::from_utf8(&escape[1..]).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(word[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_mount_of_ours_is_told_from_others() {
        let line = |at: &str, kind: &str, source: &str| {
            format!("36 35 98:0 / {at} rw,noatime master:1 shared:2 - {kind} {source} rw,errors=1")
        };
        let ours = line("/mnt/a\\040b", "fuse.esker", "esker:417");
        assert_eq!(parse(ours.as_bytes(), Path::new("/mnt/a b")), Some(417));
        assert_eq!(parse(ours.as_bytes(), Path::new("/mnt/a")), None);
        let other = line("/mnt", "fuse.sshfs", "esker:417");
        assert_eq!(parse(other.as_bytes(), Path::new("/mnt")), None);
        let other = line("/mnt", "fuse.esker", "esker:x");
        assert_eq!(parse(other.as_bytes(), Path::new("/mnt")), None);
        for cut in 0..ours.len() {
            let _ = parse(&ours.as_bytes()[..cut], Path::new("/mnt/a b"));
        }
        assert_eq!(unescape(b"/a\\").as_os_str().as_bytes(), b"/a\\");
        assert_eq!(unescape(b"/a\\999").as_os_str().as_bytes(), b"/a\\999");
    }

    #[test]
    fn nothing_is_attached_where_nothing_is() {
        let error = find(Path::new("/proc")).unwrap_err();
        assert!(matches!(error, AttachError::NotAttached(_)), "{error}");
    }
}
