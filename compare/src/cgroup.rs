//! A memory cgroup for one process: its heap, its stacks and its share of the page cache together
//! stay below a limit. Version 1 and 2 of the kernel's interface
//! (Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// How many times the group is asked to go before it is left behind: the kernel may take a moment
/// to notice that its last process ended.
const REMOVALS: u32 = 50;

/// A group; removed when dropped.
pub(crate) struct Cgroup {
    dir: PathBuf,
    files: Files,
}

/// The names of one version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Files {
    limit: &'static str,
    peak: &'static str,
}

const V1: Files = Files { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes" };
const V2: Files = Files { limit: "memory.max", peak: "memory.peak" };

impl Cgroup {
    /// A new group of at most `limit_bytes`, without swap.
    pub(crate) fn create(name: &str, limit_bytes: u64) -> Result<Cgroup, Failure> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let Some((root, files)) = hierarchy(&mounts) else {
            return Err(Failure::new(
                "no memory cgroup is mounted on this machine; give --memory none to run without \
                 a limit",
            ));
        };
        let dir = root.join(name);
        let refused = |what: &str, cause: io::Error| {
            Failure::new(format!(
                "{what} {}: {cause}; run as root on a machine that delegates its memory \
                 controller, or give --memory none",
                dir.display()
            ))
        };
        if files == V2 {
            // Already there where a service manager uses it; the limit's file tells in the end.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        fs::create_dir(&dir).map_err(|cause| refused("cannot create the memory cgroup", cause))?;
        let group = Cgroup { dir: dir.clone(), files };
        fs::write(dir.join(files.limit), limit_bytes.to_string())
            .map_err(|cause| refused("cannot limit the memory cgroup", cause))?;
        let swap = if files == V1 { "memory.swappiness" } else { "memory.swap.max" };
        // There is no such file where the kernel cannot swap.
        let _ = fs::write(dir.join(swap), "0");
        Ok(group)
    }

    /// The file into which a process writes its number to join.
    pub(crate) fn processes(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The most that all in it took together so far, in bytes.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.dir.join(self.files.peak)).ok()?.trim().parse().ok()
    }
}

/// Puts this process into the group that [`Cgroup::processes`] names.
pub(crate) fn join(processes: &Path) -> io::Result<()> {
    fs::write(processes, std::process::id().to_string())
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let clock = esker_base::Clock::real();
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            clock.sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("warning: could not remove the cgroup {}", self.dir.display());
    }
}

/// Where the memory controller is, from /proc/mounts: version 1 where it is mounted, for a
/// controller is in one hierarchy only.
fn hierarchy(mounts: &str) -> Option<(PathBuf, Files)> {
    let of = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (dir, filesystem, options) = (fields.next()?, fields.next()?, fields.next()?);
            let fits = option.is_empty() || options.split(',').any(|found| found == option);
            (filesystem == kind && fits).then(|| PathBuf::from(dir))
        })
    };
    of("cgroup", "memory").map(|dir| (dir, V1)).or_else(|| Some((of("cgroup2", "")?, V2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_in_either_version() {
        let v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                  cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(hierarchy(v1), Some((PathBuf::from("/sys/fs/cgroup/memory"), V1)));
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(hierarchy(v2), Some((PathBuf::from("/sys/fs/cgroup"), V2)));
        assert_eq!(hierarchy("/dev/vda / ext4 rw 0 0\n"), None);
    }
}
