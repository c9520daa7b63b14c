//! Facts about the machine, from `/proc` of Linux (Documentation/filesystems/proc.rst), and about this process. Facts
//! that cannot be read are left out.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use esker_base::units::{counted, to_u64};
use esker_bench::{Sample, Unit};
use esker_serve::process::ticks_ns;
pub(crate) use esker_serve::process::{
    allow_descriptors, cpu_ns, cpu_ns_of, peak_rss_bytes, rss_bytes,
};

use crate::stderr::tell;

/// The commit that this program was built from.
pub(crate) const COMMIT: &str = env!("ESKER_COMMIT");

/// How many threads run at once.
pub(crate) fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Memory that programs may still take, in bytes.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory_fact("MemAvailable:")
}

/// All memory of the machine, in bytes.
pub(crate) fn memory_of_machine() -> Option<u64> {
    memory_fact("MemTotal:")
}

fn memory_fact(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The same, and no more than the control group of this process may still take.
pub(crate) fn memory_left() -> Option<u64> {
    let machine = memory_bytes()?;
    Some(group_memory_left().map_or(machine, |group| group.min(machine)))
}

/// Bytes that the control group (version 2) of this process may still take; `None` without a limit.
fn group_memory_left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |name: &str| -> Option<u64> {
        let path = std::path::Path::new("/sys/fs/cgroup").join(own).join(name);
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    // Pages of files are given up first, and count as current.
    let stat = fs::read_to_string(format!("/sys/fs/cgroup/{own}/memory.stat")).ok()?;
    let files = stat.lines().find_map(|line| line.strip_prefix("file ")?.parse::<u64>().ok());
    let used = number("memory.current")?.saturating_sub(files.unwrap_or(0));
    Some(number("memory.max")?.saturating_sub(used))
}

/// How long this machine's processors had something to do since it started, and how long they could have had, in
/// nanoseconds of all of them together. Programs that give way to others (`nice`) are left out; time that a hypervisor
/// kept from this machine was no idleness.
pub(crate) fn processors_ns() -> Option<(u64, u64)> {
    let (busy, all) = machine_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    Some((ticks_ns(busy), ticks_ns(all)))
}

fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|one| one.parse().ok()).collect();
    // User, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen.
    let all: u64 = fields.get(..8)?.iter().sum();
    Some((all - fields[1] - fields[3] - fields[4], all))
}

/// Samples of this process while it is measured: CPU time and resident memory.
pub(crate) fn samples() -> Vec<Sample> {
    let cpu = cpu_ns().map(|ns| Sample::counter("CPU time", Unit::Nanoseconds, ns as f64));
    let resident = rss_bytes().map(|b| Sample::level("resident memory", Unit::Bytes, b as f64));
    cpu.into_iter().chain(resident).collect()
}

/// Longer work may be a slip.
const LONG: Duration = Duration::from_secs(86_400);

/// Says so of work, such as a load, that takes days.
pub(crate) fn note_long(span: Duration, work: &str) {
    if span > LONG {
        let days = span.as_secs_f64() / LONG.as_secs_f64();
        tell!("esker: note: {work} of {days:.1} days; Ctrl-C ends it, and keeps what is done");
    }
}

/// So many threads for each processor are plenty; more may be a slip.
const MANY_THREADS: usize = 64;

/// Says so of more threads than the processors have use for.
pub(crate) fn note_threads(threads: usize) {
    if threads > MANY_THREADS * cores() {
        let (threads, processors) = (to_u64(threads), to_u64(cores()));
        tell!(
            "esker: note: {} for {}: they wait for each other most of the time",
            counted(threads, "thread"),
            counted(processors, "processor")
        );
    }
}

/// The environment in which a report's figures were taken.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let first_line = |path: &str| {
        let text = fs::read_to_string(path).ok()?;
        text.lines().next().map(str::to_owned)
    };
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(": ").map(|(_, name)| name.to_owned())
    });
    let memory = memory_of_machine().map(esker_base::units::human_bytes);
    let version = concat!(env!("CARGO_PKG_VERSION"), ", commit ", env!("ESKER_COMMIT"));
    let facts = [
        ("esker", Some(version.to_owned())),
        ("kernel", first_line("/proc/sys/kernel/osrelease")),
        ("cpu", cpu),
        ("cores", Some(cores().to_string())),
        ("memory", memory),
        ("load at the start", first_line("/proc/loadavg").as_deref().and_then(load)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The share of the processors from which on other work disturbs what is measured.
const BUSY: f64 = 0.5;

/// The load of the machine from its load averages, in words.
fn load(averages: &str) -> Option<String> {
    let minute: f64 = averages.split_whitespace().next()?.parse().ok()?;
    let processors = counted(to_u64(cores()), "processor");
    let busy = if minute >= BUSY * cores() as f64 {
        "; the machine was busy: rates are not comparable"
    } else {
        ""
    };
    Some(format!("{minute:.2} on {processors}{busy}"))
}

/// The command line of this process.
pub(crate) fn command_line() -> String {
    let words: Vec<String> = std::env::args().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_places() {
        let machine = machine_ticks("cpu  10 1 9 70 5 2 2 1 0 0\ncpu0 1 1 1\n");
        assert_eq!(machine, Some((24, 100)));
        assert!(machine_ticks("intr 1").is_none());
    }

    #[test]
    fn load_is_said_in_words() {
        let cores = cores() as f64;
        let idle = load(&format!("{:.2} 8.27 5.89 3/255 12988", cores * 0.4)).unwrap();
        assert!(idle.contains(" processor") && !idle.contains("busy"), "{idle}");
        let busy = load(&format!("{:.2} 0.00 0.00 1/2 3", cores * 0.6)).unwrap();
        assert!(busy.ends_with("the machine was busy: rates are not comparable"), "{busy}");
        assert_eq!(load("nothing"), None);
    }

    #[test]
    fn environment_names_the_kernel() {
        assert!(environment().contains_key("kernel"));
    }
}
