//! Changes of `esker lab host-ssd --real` to a machine, and how they are undone: a folder with three files, a memory
//! cgroup, a swap file, `vm.page-cluster`.
//!
//! Invariants
//! 1. A process of its own undoes everything when this one ends, however it ends: it waits for the end of a pipe.
//! 2. It is started before anything is changed beyond the folder.

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
use super::side;
use crate::failure::{Failure, Result};

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// Bytes of the swap file and of the pager's file, in multiples of the memory: DuckDB takes more than its table.
pub(super) const FILE_TO_MEMORY: u64 = 8;
/// Of these the pager's file may reach beyond the written bytes, as programs reserve more than they use.
const RESERVE_TO_MEMORY: u64 = 32;
/// Free space that is left on the drive.
const SPARE: u64 = 1 << 30;

/// Undoes everything; arguments: the folder, the cgroup, the former `vm.page-cluster`.
const CLEANER: &str = r#"
trap '' INT TERM HUP QUIT
cat > /dev/null
folder=$1 cgroup=$2 cluster=$3 status=0
tries=0
while [ -e "$cgroup/cgroup.procs" ] && [ $tries -lt 100 ]; do
    processes=$(cat "$cgroup/cgroup.procs")
    [ -n "$processes" ] || break
    kill -9 $processes 2> /dev/null
    sleep 0.1
    tries=$((tries + 1))
done
if [ -e "$folder/swap.on" ]; then
    swapoff "$folder/swap" || status=1
    echo "$cluster" > /proc/sys/vm/page-cluster
fi
[ ! -e "$cgroup" ] || rmdir "$cgroup" || status=1
rm -f "$folder/table" "$folder/pages" "$folder/swap.on"
[ $status != 0 ] || rm -f "$folder/swap"
rmdir "$folder" || status=1
exit $status
"#;

/// The folder and the bounds of all runs.
pub(super) struct Bounds {
    folder: PathBuf,
    /// Where runs are bounded, or why they cannot be.
    cgroup: Result<PathBuf, String>,
    swap: Result<(), String>,
    cleaner: Cleaner,
}

impl Bounds {
    /// Makes the files, the cgroup and the swap file, as far as this machine lets it.
    pub(super) fn new(dir: &Path, data: u64, memory: u64) -> Result<Bounds> {
        let failed =
            |error: &io::Error| Failure::file(dir, error, "name another folder with --real");
        let dir = fs::canonicalize(dir).map_err(|error| failed(&error))?;
        check_room(&dir, data + 2 * FILE_TO_MEMORY * memory + SPARE)?;
        let name = format!("esker-host-ssd-{}", std::process::id());
        let folder = dir.join(&name);
        files::create_dir_all(&folder).map_err(|error| failed(&error))?;
        let cgroup = cgroups().map(|root| root.join(&name));
        let cluster = fs::read_to_string(PAGE_CLUSTER).unwrap_or_default();
        let none = PathBuf::from("/nonexistent");
        let group = cgroup.as_ref().unwrap_or(&none).as_os_str();
        let arguments = [folder.as_os_str(), group, OsStr::new(cluster.trim())];
        let cleaner = Cleaner::start(CLEANER, &arguments).map_err(|error| {
            let _ = fs::remove_dir(&folder);
            Failure::file(Path::new("sh"), &error, "install a shell")
        })?;
        let swap = Err(String::new());
        let mut bounds = Bounds { folder, cgroup, swap, cleaner };
        bounds.cgroup = bounds.cgroup.clone().and_then(|path| match files::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(format!("{}: {error}: run it as root", path.display())),
        });
        bounds.write_files(data, memory).map_err(|error| failed(&error))?;
        bounds.swap = bounds.start_swap();
        Ok(bounds)
    }

    pub(super) fn table(&self) -> PathBuf {
        self.folder.join("table")
    }

    pub(super) fn pages(&self) -> PathBuf {
        self.folder.join("pages")
    }

    fn write_files(&self, data: u64, memory: u64) -> io::Result<()> {
        let mut chunk = vec![0; PAGE];
        let table = write_file(&self.table(), data, |page| {
            side::fill(page, &mut chunk);
            chunk.clone()
        })?;
        let _ = rustix::fs::fadvise(&table, 0, None, rustix::fs::Advice::DontNeed);
        let zeroes = vec![0; PAGE];
        let pages = write_file(&self.pages(), FILE_TO_MEMORY * memory, |_| zeroes.clone())?;
        pages.set_len(RESERVE_TO_MEMORY * memory)?;
        let _ = rustix::fs::fadvise(&pages, 0, None, rustix::fs::Advice::DontNeed);
        let swap = write_file(&self.swap_file(), FILE_TO_MEMORY * memory, |_| zeroes.clone())?;
        swap.set_permissions(fs::Permissions::from_mode(0o600))
    }

    fn swap_file(&self) -> PathBuf {
        self.folder.join("swap")
    }

    /// Has the kernel use the swap file first.
    fn start_swap(&self) -> Result<(), String> {
        if let Err(why) = &self.cgroup {
            return Err(why.clone());
        }
        let file = self.swap_file();
        call(Command::new("mkswap").arg("-q").arg(&file))?;
        // The cleaner has to know before it is on.
        files::write(&self.folder.join("swap.on"), "").map_err(|error| error.to_string())?;
        let started = call(Command::new("swapon").args(["-p", "32767"]).arg(&file));
        if started.is_err() {
            let _ = fs::remove_file(self.folder.join("swap.on"));
        }
        started
    }

    /// Bounds the next run to so many bytes, and says in which cgroup; with a cluster, it may swap.
    pub(super) fn bound(&self, bytes: u64, cluster: Option<u32>) -> Result<PathBuf, String> {
        let cgroup = self.cgroup.clone()?;
        if cluster.is_some() {
            self.swap.clone()?;
        }
        let set = |path: PathBuf, text: String| {
            files::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        set(cgroup.join("memory.force_empty"), "0".to_owned())?;
        set(cgroup.join("memory.limit_in_bytes"), bytes.to_string())?;
        set(cgroup.join("memory.max_usage_in_bytes"), "0".to_owned())?;
        let swappiness = if cluster.is_some() { 60 } else { 0 };
        set(cgroup.join("memory.swappiness"), swappiness.to_string())?;
        if let Some(cluster) = cluster {
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
                "{} could not be cleared away: run `swapoff {}`, then remove the folder",
                self.folder.display(),
                self.swap_file().display()
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
                "{}: {needed} are needed, and {free} are free; take a smaller --real-data",
                dir.display()
            ),
        ));
    }
    Ok(())
}

/// Writes a file page by page, so that it has no holes, and flushes it.
fn write_file(path: &Path, size: u64, mut page: impl FnMut(usize) -> Vec<u8>) -> io::Result<File> {
    let mut out = BufWriter::with_capacity(1 << 20, files::create_new(path)?);
    for n in 0..to_usize(size) / PAGE {
        out.write_all(&page(n))?;
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(file)
}

/// Where memory cgroups of version 1 are.
pub(super) fn cgroups() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
        let is_memory = options.split(',').any(|one| one == "memory");
        (kind == "cgroup" && is_memory).then(|| PathBuf::from(place))
    });
    found.ok_or_else(|| "no memory cgroup of version 1 is mounted".to_owned())
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
