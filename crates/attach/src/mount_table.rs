//! The table of mounts: `/proc/self/mountinfo` (proc(5)).

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Text before the number of the process in the source of a mount.
pub(crate) const SOURCE: &str = "esker:";
/// The type of the file system.
pub(crate) const FILE_SYSTEM: &str = "fuse.esker";

/// A mount of Esker's, as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    /// The number that the process which serves it has in its own namespace of processes.
    pub(crate) pid: u32,
    /// The number of its FUSE connection, which no other mount on the machine has.
    pub(crate) connection: u32,
    /// The user who mounted it.
    pub(crate) owner: u32,
}

/// The mount of Esker's at exactly this path. No file system is asked for it: one whose server is stopped would
/// not answer.
pub(crate) fn ours_at(path: &Path) -> Option<Ours> {
    // The last mount lies on top.
    lines().iter().rev().filter_map(|line| parse(line)).find(|mount| mount.at == path)?.ours()
}

/// The mount of Esker's with this connection, wherever it is.
pub(crate) fn ours_of(connection: u32) -> Option<Ours> {
    let lines = lines();
    let mut ours = lines.iter().filter_map(|line| parse(line)?.ours());
    ours.find(|mount| mount.connection == connection)
}

/// The path without links and dots, as the table of mounts has it. The last part is not asked whether it is a
/// link if something of Esker's is mounted there.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
    let lexical = match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute.clone(),
    };
    match ours_at(&lexical) {
        Some(_) => lexical,
        None => std::fs::canonicalize(&absolute).unwrap_or(lexical),
    }
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
pub(crate) struct Mount {
    at: PathBuf,
    /// `MAJOR:MINOR` of the file system.
    number: Vec<u8>,
    kind: Vec<u8>,
    source: PathBuf,
    options: Vec<u8>,
}

impl Mount {
    /// The mount, if it is one of Esker's.
    pub(crate) fn ours(&self) -> Option<Ours> {
        let is_ours = self.kind == FILE_SYSTEM.as_bytes();
        let pid = self.source.to_str().filter(|_| is_ours)?.strip_prefix(SOURCE)?.parse().ok()?;
        let (_, minor) = std::str::from_utf8(&self.number).ok()?.split_once(':')?;
        let options = std::str::from_utf8(&self.options).ok()?;
        let owner = options.split(',').find_map(|option| option.strip_prefix("user_id="))?;
        Some(Ours { pid, connection: minor.parse().ok()?, owner: owner.parse().ok()? })
    }
}

pub(crate) fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ');
    let number = words.nth(2)?.to_vec();
    let at = unescape(words.nth(1)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = words.next()?.to_vec();
    let source = unescape(words.next()?);
    let options = words.next().unwrap_or_default().to_vec();
    Some(Mount { at, number, kind, source, options })
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
            format!(
                "36 35 0:98 / {at} rw,noatime master:1 shared:2 - {kind} {source} rw,user_id=7,group_id=8"
            )
        };
        let found = |line: &str| parse(line.as_bytes()).and_then(|mount| mount.ours());
        let ours = line("/mnt/a\\040b", "fuse.esker", "esker:417");
        let mount = parse(ours.as_bytes()).unwrap();
        let expected = Ours { pid: 417, connection: 98, owner: 7 };
        assert_eq!((mount.at.as_path(), mount.ours()), (Path::new("/mnt/a b"), Some(expected)));
        assert_eq!(found(&line("/mnt", "fuse.sshfs", "esker:417")), None);
        assert_eq!(found(&line("/mnt", "fuse.esker", "esker:x")), None);
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
