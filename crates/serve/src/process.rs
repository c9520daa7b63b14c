//! Facts about a process, from `/proc` of Linux (Documentation/filesystems/proc.rst). Facts that cannot be read are left
//! out.

use std::fmt::Display;
use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows this process as many descriptors as the system lets it have: drives and connections take several each. Not
/// for a process that starts others, which would inherit the limit.
pub fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }); // as many as there are
}

/// The most memory this process has had resident so far, in bytes.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// The memory this process has resident now, in bytes.
#[must_use]
pub fn rss_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// CPU time of this process so far, user and system, in nanoseconds.
#[must_use]
pub fn cpu_ns() -> Option<u64> {
    cpu_ns_of("self")
}

/// The same of the process with this number, or of this one: `self`.
#[must_use]
pub fn cpu_ns_of(process: impl Display) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    process_ticks(&stat).map(ticks_ns)
}

/// User and system time of a process (proc(5): fields 14 and 15).
fn process_ticks(stat: &str) -> Option<u64> {
    // The second field is the name in parentheses, and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |index: usize| rest.split_whitespace().nth(index)?.parse::<u64>().ok();
    Some(field(11)? + field(12)?)
}

/// Nanoseconds of the kernel's ticks.
#[must_use]
pub fn ticks_ns(ticks: u64) -> u64 {
    ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_places() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0";
        assert_eq!(process_ticks(stat), Some(42));
        assert!(process_ticks("1 (a").is_none());
    }

    #[test]
    fn linux_tells_memory_and_cpu_time_of_a_process() {
        let (now, peak) = (rss_bytes().unwrap(), peak_rss_bytes().unwrap());
        // Other tests free memory between the two, and Linux brings the peak up to date a little late.
        assert!(now > 100 << 10 && peak > now / 2, "{now} {peak}");
        let before = cpu_ns().unwrap();
        let mut x = 1u64;
        while cpu_ns().unwrap() < before + 20_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    }
}
