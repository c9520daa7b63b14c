//! The process that has a file locked, as the kernel tells it (`/proc/locks`).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{major, minor};

/// The most bytes of a command line that are shown.
const SHOWN: usize = 80;

/// Names the processes that have locked a file as a whole (`flock`); says so where that cannot be told.
pub(super) fn holder(file: &File) -> String {
    let found = file.metadata().ok().and_then(|found| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        Some(pids(&locks, (major(found.dev()), minor(found.dev()), found.ino())))
    });
    let named: Vec<String> = found.unwrap_or_default().into_iter().map(named).collect();
    match &named[..] {
        [] => {
            "which process has it cannot be told from here (it may be in another container)".into()
        }
        [one] => format!("{one} has it"),
        several => format!("{} have it", several.join(" and ")),
    }
}

/// The processes that have a lock on the file of this device and inode, those that wait for one left out.
///
/// A line is `1: FLOCK  ADVISORY  WRITE 4711 08:02:131085 0 EOF`, the device in hexadecimal.
fn pids(locks: &str, (major, minor, inode): (u32, u32, u64)) -> Vec<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    let mut found = Vec::new();
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { continue };
        // A process of another namespace has no number here.
        if file == wanted
            && let Ok(pid) = pid.parse()
            && pid > 0
        {
            found.push(pid);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A process by its number and its command.
fn named(pid: u32) -> String {
    if pid == std::process::id() {
        return format!("this process ({pid})");
    }
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) if !line.is_empty() => format!("process {pid} ({})", command(&line)),
        Ok(_) => format!("process {pid}"),
        // A lock is of the open file: children that it was passed on to keep it.
        Err(_) => format!("process {pid}, or a child of it, as it has ended,"),
    }
}

/// A command line whose arguments end with a zero each, bounded and escaped.
fn command(line: &[u8]) -> String {
    let line = line.strip_suffix(&[0]).unwrap_or(line);
    let words: Vec<u8> = line.iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
    let shown = String::from_utf8_lossy(&words[..words.len().min(SHOWN)]).into_owned();
    let more = if words.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_the_file_are_told_from_others() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:02:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:02:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:02:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  14 fd:1f:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 08:02:78 0 EOF\n";
        assert_eq!(pids(locks, (8, 2, 77)), [12]);
        assert_eq!(pids(locks, (0xfd, 0x1f, 77)), [14]);
        assert_eq!(pids(locks, (8, 2, 78)), [0; 0], "a process of another namespace");
    }

    #[test]
    fn command_is_bounded_and_escaped() {
        assert_eq!(command(b"esker\0pool\0serve\0"), "esker pool serve");
        let long = command(&[&b"a\n"[..], &[b'x'; 200]].concat());
        assert!(long.starts_with("a\\nx") && long.ends_with("x...") && long.len() < 90, "{long}");
    }
}
