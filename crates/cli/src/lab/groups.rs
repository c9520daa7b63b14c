//! Memory cgroups of the study's programs, and a process of its own that clears away when this one ends.
//!
//! Invariants
//! 1. The process that clears away is started before anything else, and waits for the end of a pipe: it works however
//!    this one ends.
//! 2. Every program of the study is in a cgroup below [`Groups::root`], so it is found without its number.

use std::path::{Path, PathBuf};

use esker_base::ErrorKind;

use super::cleaner::Cleaner;
use super::programs::{Run, folder, write, wrong};
use crate::failure::{Failure, Result};

/// Ends programs, file systems, attached devices, cgroups; arguments: the folder of the run, the cgroup.
const CLEANER: &str = r#"
trap '' INT TERM HUP QUIT
cat > /dev/null
folder=$1 group=$2
end() {
    signal=$1 tries=0
    shift
    while [ $tries -lt 100 ]; do
        processes=$(cat "$@" 2> /dev/null)
        [ -n "$processes" ] || return 0
        kill -"$signal" $processes 2> /dev/null
        sleep 0.1
        tries=$((tries + 1))
    done
}
mounts() {
    awk -v below="$folder/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac
}
end KILL "$group"/node*/cgroup.procs "$group"/clients/cgroup.procs
mounts | grep '/files-' | while read -r at; do
    timeout 20 umount "$at" 2> /dev/null || umount -l "$at"
done
end TERM "$group"/storage/cgroup.procs
end KILL "$group"/storage/cgroup.procs
mounts | while read -r at; do umount -l "$at"; done
for file in /sys/block/loop*/loop/backing_file; do
    case $(cat "$file" 2> /dev/null) in
        "$folder"/*) name=${file#/sys/block/} && timeout 20 losetup -d "/dev/${name%%/*}" ;;
    esac
done
# Files in which a program has told of a failure stay.
find "$folder" -xdev \( -type d -o -type f \) -empty -delete 2> /dev/null
rmdir "$group"/* 2> /dev/null
rmdir "$group"
"#;

/// The cgroups.
pub(super) struct Groups {
    root: PathBuf,
    cleaner: Cleaner,
}

impl Groups {
    /// Makes them below the cgroup file system of memory; `folder` is that of the run.
    pub(super) fn new(memory: &Path, run: &Path) -> Run<Groups> {
        let root = memory.join(format!("esker-lab-{}", std::process::id()));
        let cleaner = Cleaner::start(CLEANER, &[run.as_os_str(), root.as_os_str()]);
        let cleaner = cleaner.map_err(|error| wrong("sh", error))?;
        let groups = Groups { root, cleaner };
        for part in [groups.root.clone(), groups.root.join("storage"), groups.root.join("clients")]
        {
            folder(&part)?;
        }
        Ok(groups)
    }

    /// The list of processes of the storage.
    pub(super) fn storage(&self) -> PathBuf {
        self.root.join("storage/cgroup.procs")
    }

    /// The list of processes of the clients.
    pub(super) fn clients(&self) -> PathBuf {
        self.root.join("clients/cgroup.procs")
    }

    /// The list of processes of a node that has so many bytes, the page cache of its files included.
    pub(super) fn node(&self, number: u32, bytes: u64) -> Run<PathBuf> {
        let group = folder(&self.root.join(format!("node{number}")))?;
        write(&group.join("memory.limit_in_bytes"), &bytes.to_string())?;
        Ok(group.join("cgroup.procs"))
    }

    /// Clears away.
    pub(super) fn end(&mut self) -> Result {
        if self.cleaner.end() {
            return Ok(());
        }
        Err(Failure::new(
            ErrorKind::Io,
            format!(
                "{} could not be removed: end its processes, then `rmdir` it",
                self.root.display()
            ),
        ))
    }
}
