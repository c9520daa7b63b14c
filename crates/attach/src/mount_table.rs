//! The table of mounts: `/proc/self/mountinfo` (proc(5)).

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Text before the number of the process in the source of a mount.
pub(crate) const SOURCE: &str = "esker:";
/// The type of the file system.
pub(crate) const FILE_SYSTEM: &str = "fuse.esker";

/// The process that has attached a device at exactly this path.
pub(crate) fn server_of(path: &Path) -> Option<u32> {
    // The last mount lies on top.
    lines().iter().rev().filter_map(|line| parse(line)).find(|mount| mount.at == path)?.server()
}

/// Where a block device, or a partition of it, is mounted.
pub(crate) fn mounts_from(device: &Path) -> Vec<PathBuf> {
    let lines = lines();
    let mounts = lines.iter().filter_map(|line| parse(line));
    mounts.filter(|one| is_of(device, &one.source)).map(|one| one.at).collect()
}

/// Whether a path is a block device or a partition of it: `/dev/loop0`, `/dev/loop0p1`.
pub(crate) fn is_of(device: &Path, path: &Path) -> bool {
    let (Some(device), Some(path)) = (device.to_str(), path.to_str()) else { return false };
    let Some(rest) = path.strip_prefix(device) else { return false };
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|one| one.is_ascii_digit());
    rest.is_empty() || rest.strip_prefix('p').is_some_and(digits)
}

fn lines() -> Vec<Vec<u8>> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// A line of the table.
struct Mount {
    at: PathBuf,
    kind: Vec<u8>,
    source: PathBuf,
}

impl Mount {
    /// The process that serves it, if it is one of Esker's.
    fn server(&self) -> Option<u32> {
        let is_ours = self.kind == FILE_SYSTEM.as_bytes();
        self.source.to_str().filter(|_| is_ours)?.strip_prefix(SOURCE)?.parse().ok()
    }
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ');
    let at = unescape(words.nth(4)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = words.next()?.to_vec();
    Some(Mount { at, kind, source: unescape(words.next()?) })
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
        let server = |line: &str| parse(line.as_bytes()).and_then(|mount| mount.server());
        let ours = line("/mnt/a\\040b", "fuse.esker", "esker:417");
        let mount = parse(ours.as_bytes()).unwrap();
        assert_eq!((mount.at.as_path(), mount.server()), (Path::new("/mnt/a b"), Some(417)));
        assert_eq!(server(&line("/mnt", "fuse.sshfs", "esker:417")), None);
        assert_eq!(server(&line("/mnt", "fuse.esker", "esker:x")), None);
        for cut in 0..ours.len() {
            let _ = parse(&ours.as_bytes()[..cut]);
        }
        assert_eq!(unescape(b"/a\\").as_os_str().as_bytes(), b"/a\\");
        assert_eq!(unescape(b"/a\\999").as_os_str().as_bytes(), b"/a\\999");
    }

    #[test]
    fn partitions_are_of_their_device_and_other_devices_are_not() {
        let is_of = |path: &str| is_of(Path::new("/dev/loop1"), Path::new(path));
        assert!(is_of("/dev/loop1") && is_of("/dev/loop1p1") && is_of("/dev/loop1p12"));
        assert!(!is_of("/dev/loop10") && !is_of("/dev/loop1p") && !is_of("/dev/loop1x1"));
    }
}
