//! Freed memory that the allocator holds back, and how much memory a process may take.

#![allow(unsafe_code)]

use std::fs;
use std::path::Path;

/// Gives memory that was freed, but is held by the allocator, back to the operating system, so
/// that resident memory follows the memory in use. Costs some milliseconds: for after large jobs.
///
/// glibc keeps memory that a thread has freed in that thread's arena; other allocators decide on
/// their own, and for them this does nothing.
pub fn release_unused() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time, from any thread (MT-Safe in its manual).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Keeps what the allocator holds back small, for a whole program: to be called at its start, before other threads. A
/// library leaves that to the program it is in.
///
/// glibc gives blocks from 128 KiB on mappings of their own, until one is freed: then it serves larger and larger ones
/// from its heaps, where what is freed stays resident. This keeps the limit where it was. For other allocators it does
/// nothing.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator, before there are other threads.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// The memory of this machine, and no more than the control groups of this process allow, in bytes. Where neither is
/// known it is `u64::MAX`.
#[must_use]
pub fn limit() -> u64 {
    machine().min(group_limit(Path::new("/")).unwrap_or(u64::MAX))
}

fn machine() -> u64 {
    // SAFETY: it reads a number of the system.
    let of = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok();
    let bytes = of(libc::_SC_PHYS_PAGES).zip(of(libc::_SC_PAGESIZE));
    bytes.map_or(u64::MAX, |(pages, size)| pages.saturating_mul(size))
}

/// Where hierarchies of control groups are mounted: that of version 2 alone or beside others, and that of memory.
const HIERARCHIES: [(&str, &str, &str); 3] = [
    ("", "sys/fs/cgroup", "memory.max"),
    ("", "sys/fs/cgroup/unified", "memory.max"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// The least limit of the groups of this process and of those that they are in, under a root directory. A container
/// may see its own group as the root of the hierarchy, under the name that it has outside.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut least = None;
    for (controller, mount, file) in HIERARCHIES {
        let own = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let of = parts.next()?.split(',').any(|one| one == controller);
            parts.next().filter(|_| of)
        });
        let own = own.unwrap_or_default().trim_start_matches('/');
        for group in Path::new(own).ancestors() {
            let text = fs::read_to_string(root.join(mount).join(group).join(file));
            // A group without a limit says `max`.
            let limit = text.ok().and_then(|text| text.trim().parse::<u64>().ok());
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays out these files under a directory of their own, and returns the limit that they say.
    fn limit_of(name: &str, files: &[(&str, &str)]) -> Option<u64> {
        let own = format!("esker-memory-{}-{name}", std::process::id());
        let root = std::env::temp_dir().join(own);
        for (path, text) in files {
            let path = root.join(path);
            crate::files::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let limit = group_limit(&root);
        fs::remove_dir_all(&root).unwrap();
        limit
    }

    #[test]
    fn least_limit_of_a_group_and_those_around_it_counts() {
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let outer = ("sys/fs/cgroup/a/memory.max", "300\n");
        let inner = ("sys/fs/cgroup/a/b/memory.max", "500\n");
        assert_eq!(limit_of("both", &[own, outer, inner]), Some(300));
        assert_eq!(limit_of("own", &[own, inner]), Some(500));
        assert_eq!(limit_of("none", &[own, ("sys/fs/cgroup/a/b/memory.max", "max\n")]), None);
        let contained = ("sys/fs/cgroup/memory.max", "200\n");
        assert_eq!(limit_of("contained", &[own, contained]), Some(200));
    }

    #[test]
    fn limit_of_a_group_of_version_1_counts() {
        let own = ("proc/self/cgroup", "4:cpu,memory:/x\n3:cpuset:/y\n0::/\n");
        let limit = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "700\n");
        let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit_of("one", &[own, limit, unlimited]), Some(700));
    }

    #[test]
    fn machine_has_memory() {
        assert!((1 << 20..u64::MAX).contains(&limit()), "{}", limit());
    }
}
