//! How often a process makes a file durable, counted by the kernel without a cost to anything else.
//!
//! The tracepoint at the entry of a filesystem's own fsync is counted with perf_event_open(2): it
//! sees fsync, fdatasync, msync and io_uring's alike, and no other call passes it. A counter is
//! opened before the process has threads, which inherit it.
#![allow(unsafe_code)] // perf_event_open(2) has no safe wrapper

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::process::Command;

/// One for each filesystem that may hold a database.
const TRACEPOINTS: [&str; 3] =
    ["ext4/ext4_sync_file_enter", "xfs/xfs_file_fsync", "btrfs/btrfs_sync_file"];

/// `struct perf_event_attr` in its first published size, 64 bytes.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 64);

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_ATTR_SIZE: u32 = 64;
/// The second bit of the flags: threads to come are counted too.
const INHERIT: u64 = 1 << 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The numbers of the tracepoints on this machine; empty where they cannot be had.
pub(crate) fn tracepoints() -> Vec<u64> {
    let mounted = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].iter().find_map(|root| {
        let ids = TRACEPOINTS.map(|name| fs::read_to_string(format!("{root}/events/{name}/id")));
        let ids: Vec<u64> = ids.iter().flatten().filter_map(|id| id.trim().parse().ok()).collect();
        (!ids.is_empty()).then_some(ids)
    });
    mounted.unwrap_or_else(tracepoints_unmounted)
}

/// The same by a mount that only a child sees, so that nothing is left behind.
fn tracepoints_unmounted() -> Vec<u64> {
    let ids = TRACEPOINTS.map(|name| format!("/sys/kernel/tracing/events/{name}/id")).join(" ");
    let script = format!("mount -t tracefs tracefs /sys/kernel/tracing && cat {ids}; true");
    let answer = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    let text = answer.map(|answer| answer.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(|id| id.trim().parse().ok()).collect()
}

/// Counts from its opening on.
pub(crate) struct Syncs(Vec<File>);

impl Syncs {
    /// Counts for this process: this thread, and those that it and its like start from now on.
    /// None where the kernel refuses.
    pub(crate) fn of_this_process(tracepoints: &[u64]) -> Option<Syncs> {
        let files: Option<Vec<File>> = tracepoints.iter().map(|&id| open(id)).collect();
        files.filter(|files| !files.is_empty()).map(Syncs)
    }

    /// How often so far.
    pub(crate) fn count(&self) -> Option<u64> {
        let each = self.0.iter().map(|file| {
            let mut count = [0; 8];
            (&*file).read_exact(&mut count).ok()?;
            Some(u64::from_ne_bytes(count))
        });
        each.sum()
    }
}

fn open(tracepoint: u64) -> Option<File> {
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: PERF_ATTR_SIZE,
        config: tracepoint,
        flags: INHERIT,
        ..PerfEventAttr::default()
    };
    let (this_thread, any_cpu, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
    // SAFETY: the kernel reads 64 bytes at `attr`, as its size field says, and keeps no reference;
    // the other arguments are plain numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            this_thread,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Some(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_of_all_threads_are_counted() {
        let Some(syncs) = Syncs::of_this_process(&tracepoints()) else {
            eprintln!("SKIPPED: this machine does not let syncs be counted");
            return;
        };
        let path = std::env::temp_dir().join(format!("bench-compare-sync-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let before = syncs.count().unwrap();
        file.sync_all().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| file.sync_data().unwrap());
        });
        let after = syncs.count().unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(after - before, 2, "or the filesystem of {} is another", path.display());
    }
}
