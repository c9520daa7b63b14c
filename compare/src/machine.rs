//! Facts about the machine of the figures, from `/proc` and `/sys` of Linux. Facts that cannot be
//! read are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use esker_base::units::human_bytes;

/// The machine's memory in bytes.
pub(crate) fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Commit, kernel, processor, memory and the device under `dir`, by name.
pub(crate) fn environment(dir: &Path) -> BTreeMap<String, String> {
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        let (_, name) = line.split_once(": ")?;
        let cores = text.lines().filter(|line| line.starts_with("processor")).count();
        Some(format!("{name}, {cores} of them"))
    });
    let facts = [
        ("esker", Some(concat!("commit ", env!("ESKER_COMMIT")).to_owned())),
        ("kernel", line_of("/proc/sys/kernel/osrelease")),
        ("processor", processor),
        ("memory", memory_bytes().map(human_bytes)),
        ("device", device(dir)),
        ("load average at the start", line_of("/proc/loadavg")),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn line_of(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The filesystem that holds `dir`, and the facts that its block device tells.
fn device(dir: &Path) -> Option<String> {
    let dir = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let (source, filesystem) = mount_of(&mounts, &dir)?;
    let mut text = format!("{filesystem} on {source}");
    // A partition is in the directory of its disk.
    let block = fs::canonicalize(format!("/sys/class/block/{}", source.rsplit('/').next()?));
    let Ok(block) = block else { return Some(text) };
    let disk = if block.join("partition").exists() { block.parent()?.to_owned() } else { block };
    let fact = |name: &str| line_of(disk.join(name));
    if let Some(model) = fact("device/model") {
        text += &format!(", {model}");
    } else if let Ok(driver) = fs::read_link(disk.join("device/driver")) {
        text += &format!(", driver {}", driver.file_name()?.to_string_lossy());
    }
    if let Some(sectors) = fact("size").and_then(|sectors| sectors.parse::<u64>().ok()) {
        text += &format!(", {}", human_bytes(sectors * 512));
    }
    if let Some(scheduler) = fact("queue/scheduler") {
        text += &format!(", scheduler {scheduler}");
    }
    Some(text)
}

/// Device and type of the filesystem that `path` is on: of the mounts above it the deepest, and of
/// several there the last.
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<(&'a str, &'a str)> {
    let each = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (source, at, filesystem) = (fields.next()?, fields.next()?, fields.next()?);
        path.starts_with(at).then_some((at.len(), source, filesystem))
    });
    each.max_by_key(|(depth, ..)| *depth).map(|(_, source, filesystem)| (source, filesystem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_above_a_path_holds_it() {
        let mounts =
            "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw 0 0\n/dev/c /database btrfs rw 0 0\n";
        let of = |path: &str| mount_of(mounts, Path::new(path));
        assert_eq!(of("/data/x"), Some(("/dev/b", "xfs")));
        assert_eq!(of("/database"), Some(("/dev/c", "btrfs")));
        assert_eq!(of("/home"), Some(("/dev/a", "ext4")));
    }

    #[test]
    fn the_machine_says_what_it_is() {
        assert!(memory_bytes().unwrap() > 1 << 28);
        assert!(environment(&std::env::temp_dir()).contains_key("kernel"));
    }
}
