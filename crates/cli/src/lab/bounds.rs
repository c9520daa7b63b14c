//! Changes of an experiment to a machine, and how they are undone: a folder, cgroups, swap, zram, `vm.page-cluster`.
//!
//! Invariants
//! 1. A process of its own undoes everything when this one ends, however it ends: it waits for the end of a pipe.
//! 2. It is started before anything is changed beyond the folder, and each change is noted in the folder before it is
//!    made.
//! 3. Swap that was on before stays on.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use esker_base::units::{human_bytes, to_usize};
use esker_base::{ErrorKind, files};
use esker_pager::PAGE;

use super::cleaner::Cleaner;
use crate::failure::{Failure, Result};

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
const ZRAM: &str = "/sys/class/zram-control";
/// Free space that is left on the drive.
const SPARE: u64 = 1 << 30;
/// Notes for the cleaner: the device that swaps, the number of a zram device, that the cluster is another one.
const SWAP_ON: &str = "swap.on";
const ZRAM_NUMBER: &str = "zram.number";
const CLUSTER_SET: &str = "cluster.set";

/// Undoes everything; arguments: the folder, the former `vm.page-cluster`, cgroups.
const CLEANER: &str = r#"
trap '' INT TERM HUP QUIT
cat > /dev/null
folder=$1 cluster=$2 status=0
shift 2
for group in "$@"; do
    tries=0
    while [ -e "$group/cgroup.procs" ] && [ $tries -lt 100 ]; do
        processes=$(cat "$group/cgroup.procs")
        [ -n "$processes" ] || break
        kill -9 $processes 2> /dev/null
        sleep 0.1
        tries=$((tries + 1))
    done
done
if [ -e "$folder/swap.on" ]; then
    device=$(cat "$folder/swap.on")
    if grep -qF "$device " /proc/swaps; then
        swapoff "$device" || status=1
    fi
fi
if [ -s "$folder/zram.number" ] && [ $status = 0 ]; then
    number=$(cat "$folder/zram.number")
    echo 1 > "/sys/block/zram$number/reset" || status=1
    echo "$number" > /sys/class/zram-control/hot_remove || status=1
fi
[ ! -e "$folder/cluster.set" ] || echo "$cluster" > /proc/sys/vm/page-cluster
for group in "$@"; do
    [ ! -e "$group" ] || rmdir "$group" || status=1
done
[ $status != 0 ] || rm -rf --one-file-system "$folder" || status=1
exit $status
"#;

/// The folder and the bounds of all runs.
pub(super) struct Bounds {
    folder: PathBuf,
    /// Where runs are bounded, or why they cannot be.
    cgroup: Result<PathBuf, String>,
    /// Where their processor time is counted, or why it is not.
    cpu: Result<PathBuf, String>,
    cleaner: Cleaner,
}

impl Bounds {
    /// Makes the folder `esker-NAME-PID` below `dir`, which `option` has named, and the cgroups, as far as this machine
    /// lets it. So many bytes have to be free there.
    ///
    /// # Errors
    /// A folder that cannot be made, or has no room.
    pub(super) fn new(dir: &Path, option: &str, name: &str, needed: u64) -> Result<Bounds> {
        let cure = format!("name another folder with {option}");
        let failed = |error: &io::Error| Failure::file(dir, error, &cure);
        let dir = fs::canonicalize(dir).map_err(|error| failed(&error))?;
        check_room(&dir, needed + SPARE)?;
        let name = format!("esker-{name}-{}", std::process::id());
        let folder = dir.join(&name);
        files::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let [memory, cpu] =
            ["memory", "cpuacct"].map(|kind| cgroups_of(kind).map(|root| root.join(&name)));
        let cluster = fs::read_to_string(PAGE_CLUSTER).unwrap_or_default();
        let mut arguments = vec![folder.as_os_str(), OsStr::new(cluster.trim())];
        arguments.extend([&memory, &cpu].into_iter().flatten().map(|path| path.as_os_str()));
        let cleaner = Cleaner::start(CLEANER, &arguments).map_err(|error| {
            let _ = fs::remove_dir(&folder);
            Failure::file(Path::new("sh"), &error, "install a shell")
        })?;
        let make = |path: PathBuf| match files::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(format!("{}: {error}: run it as root", path.display())),
        };
        let (cgroup, cpu) = (memory.and_then(make), cpu.and_then(make));
        Ok(Bounds { folder, cgroup, cpu, cleaner })
    }

    /// The folder of all files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The memory cgroup, or why there is none.
    pub(super) fn cgroup(&self) -> Result<&Path, String> {
        self.cgroup.as_deref().map_err(Clone::clone)
    }

    /// The cgroup that counts processor time, or why there is none.
    pub(super) fn cpu(&self) -> Result<&Path, String> {
        self.cpu.as_deref().map_err(Clone::clone)
    }

    fn note(&self, name: &str, text: &str) -> Result<(), String> {
        files::write(&self.folder.join(name), text).map_err(|error| error.to_string())
    }

    /// Has a file or a device swap, before all others.
    pub(super) fn start_swap(&self, device: &Path) -> Result<(), String> {
        self.cgroup()?;
        call(Command::new("mkswap").arg("-q").arg(device))?;
        // The cleaner has to know before it is on.
        self.note(SWAP_ON, &device.display().to_string())?;
        let started = call(Command::new("swapon").args(["-p", "32767"]).arg(device));
        if started.is_err() {
            let _ = fs::remove_file(self.folder.join(SWAP_ON));
        }
        started
    }

    /// Ends it.
    pub(super) fn stop_swap(&self, device: &Path) -> Result<(), String> {
        call(Command::new("swapoff").arg(device))?;
        fs::remove_file(self.folder.join(SWAP_ON)).map_err(|error| error.to_string())
    }

    /// Makes a device of compressed memory for so many bytes, and says its name.
    pub(super) fn add_zram(&self, bytes: u64) -> Result<String, String> {
        let failed = |error: io::Error| format!("{ZRAM}: {error}: load the module zram, as root");
        let control = PathBuf::from(ZRAM);
        let number = fs::read_to_string(control.join("hot_add")).map_err(failed)?;
        self.note(ZRAM_NUMBER, number.trim())?;
        let name = format!("zram{}", number.trim());
        let size = PathBuf::from("/sys/block").join(&name).join("disksize");
        files::write(&size, bytes.to_string()).map_err(failed)?;
        Ok(name)
    }

    /// Bounds the next run to so many bytes, and says in which cgroup; with a cluster, it may swap.
    pub(super) fn bound(&self, bytes: u64, cluster: Option<u32>) -> Result<PathBuf, String> {
        let cgroup = self.cgroup()?.to_owned();
        let set = |path: PathBuf, text: String| {
            files::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        set(cgroup.join("memory.force_empty"), "0".to_owned())?;
        set(cgroup.join("memory.limit_in_bytes"), bytes.to_string())?;
        set(cgroup.join("memory.max_usage_in_bytes"), "0".to_owned())?;
        let swappiness = if cluster.is_some() { 60 } else { 0 };
        set(cgroup.join("memory.swappiness"), swappiness.to_string())?;
        if let Some(cluster) = cluster {
            self.note(CLUSTER_SET, "")?;
            set(PathBuf::from(PAGE_CLUSTER), cluster.to_string())?;
        }
        Ok(cgroup)
    }

    /// The most bytes that the last run was charged for.
    pub(super) fn peak(&self) -> Option<u64> {
        let path = self.cgroup.as_ref().ok()?.join("memory.max_usage_in_bytes");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Undoes everything.
    pub(super) fn end(mut self) -> Result {
        if self.cleaner.end() {
            return Ok(());
        }
        Err(Failure::new(
            ErrorKind::Io,
            format!(
                "{} could not be cleared away: run `swapoff` on what /proc/swaps has of it, then remove the folder",
                self.folder.display()
            ),
        ))
    }
}

fn check_room(dir: &Path, needed: u64) -> Result {
    let found = rustix::fs::statvfs(dir);
    let found = found.map_err(|error| Failure::file(dir, &error.into(), "name another folder"))?;
    let free = found.f_bavail * found.f_frsize;
    if free < needed {
        let (needed, free) = (human_bytes(needed), human_bytes(free));
        return Err(Failure::new(
            ErrorKind::NoSpace,
            format!(
                "{}: {needed} are needed, and {free} are free; name another folder, or measure less",
                dir.display()
            ),
        ));
    }
    Ok(())
}

/// Writes a file page by page, so that it has no holes, flushes it, and drops it from the page cache. Only its owner may
/// read it, as swap demands.
pub(super) fn write_file(
    path: &Path,
    size: u64,
    mut page: impl FnMut(usize) -> Vec<u8>,
) -> io::Result<File> {
    let mut out = BufWriter::with_capacity(1 << 20, files::create_new(path)?);
    for n in 0..to_usize(size) / PAGE {
        out.write_all(&page(n))?;
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Where memory cgroups of version 1 are.
pub(super) fn cgroups() -> Result<PathBuf, String> {
    cgroups_of("memory")
}

/// Where cgroups of version 1 of a kind are.
fn cgroups_of(wanted: &str) -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
        let is_wanted = options.split(',').any(|one| one == wanted);
        (kind == "cgroup" && is_wanted).then(|| PathBuf::from(place))
    });
    found.ok_or_else(|| format!("no {wanted} cgroup of version 1 is mounted"))
}

/// Runs a command; its standard error is the reason why it failed.
fn call(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}: install util-linux"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
