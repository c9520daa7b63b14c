//! Figures of the kernel about this process: CPU time, bytes, memory (clock_gettime(2),
//! proc_pid_io(5), proc_pid_status(5)), and the space that a directory takes on its device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads so far, also of those that ended, user and system, in nanoseconds.
/// Work of the kernel's own threads for the process is in nobody's.
pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Bytes between this process and block devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// Fetched from a device: no bytes that the page cache answered.
    pub(crate) read: u64,
    /// Written, or put into the page cache to be written, less bytes given up before that.
    pub(crate) written: u64,
}

/// Bytes so far; none where the kernel does not count them.
pub(crate) fn bytes() -> Option<Bytes> {
    parse_bytes(&fs::read_to_string("/proc/self/io").ok()?)
}

fn parse_bytes(text: &str) -> Option<Bytes> {
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        line.trim().parse().ok()
    };
    let given_up = field("cancelled_write_bytes")?;
    let written = field("write_bytes")?.saturating_sub(given_up);
    Some(Bytes { read: field("read_bytes")?, written })
}

/// The most memory that was resident since [`forget_peak`], in bytes; mapped files included.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Begins a new peak (proc_pid_clear_refs(5)).
pub(crate) fn forget_peak() {
    // Where it is not allowed, the peak is that of the whole run.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that the files in `dir` and below take on their device.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // A file that maintenance has just removed.
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_given_up_before_they_were_written_do_not_count() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\n\
                    cancelled_write_bytes: 1024\n";
        assert_eq!(parse_bytes(text), Some(Bytes { read: 4096, written: 7168 }));
        assert_eq!(parse_bytes("read_bytes: 4096\n"), None);
    }

    #[test]
    fn the_time_of_threads_that_ended_is_counted() {
        let before = cpu_ns();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let began = cpu_ns();
                while cpu_ns() < began + 5_000_000 {}
            });
        });
        assert!(cpu_ns() >= before + 5_000_000);
    }

    #[test]
    fn a_directory_takes_what_its_files_take() {
        let dir = std::env::temp_dir().join(format!("bench-compare-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).unwrap();
        fs::write(dir.join("inner/file"), vec![1; 100_000]).unwrap();
        let bytes = disk_bytes(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(disk_bytes(&dir), 0);
    }
}
