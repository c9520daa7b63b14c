//! A tracing instance of our own in tracefs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Result, TraceError};

const PREFIX: &str = "esker-";

/// Where tracefs is mounted.
pub(super) fn mounted() -> Result<PathBuf> {
    let path = Path::new("/proc/self/mounts");
    let mounts =
        fs::read_to_string(path).map_err(|error| TraceError::file(path, "reading", error))?;
    find(&mounts).ok_or_else(|| {
        TraceError::NotFound(
            "tracefs is not mounted; mount it with `mount -t tracefs nodev /sys/kernel/tracing`"
                .to_owned(),
        )
    })
}

/// The first tracefs of a list of mounts.
fn find(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (place, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "tracefs").then(|| PathBuf::from(place.replace("\\040", " ")))
    })
}

/// An instance, which is gone when this is dropped.
pub(super) struct Instance {
    path: PathBuf,
    removed: bool,
}

impl Instance {
    /// Makes an instance under a mounted tracefs, after removing those of processes that are gone.
    pub(super) fn create(tracefs: &Path) -> Result<Instance> {
        let instances = tracefs.join("instances");
        for entry in fs::read_dir(&instances).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let process = process.and_then(|rest| rest.split('-').next());
            let is_number = |text: &&str| text.parse::<u32>().is_ok();
            if let Some(process) = process.filter(is_number)
                && !Path::new("/proc").join(process).exists()
            {
                // Someone else may be doing the same.
                let _ = fs::remove_dir(entry.path());
            }
        }
        for attempt in 0..64 {
            let path = instances.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Instance { path, removed: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(TraceError::file(&path, "making a tracing instance", error));
                }
            }
        }
        let what = "this process has 64 captures running; end one first";
        Err(TraceError::Conflict(format!("{}: {what}", instances.display())))
    }

    pub(super) fn failed(&self, name: &str, doing: &'static str, error: io::Error) -> TraceError {
        TraceError::file(&self.path.join(name), doing, error)
    }

    pub(super) fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.path.join(name)).map_err(|e| self.failed(name, "reading", e))
    }

    pub(super) fn write(&self, name: &str, value: &str) -> Result<()> {
        fs::write(self.path.join(name), value).map_err(|e| self.failed(name, "writing", e))
    }

    /// The raw buffers of all processors, without blocking.
    pub(super) fn pipes(&self) -> Result<Vec<File>> {
        let mut pipes = Vec::new();
        for folder in self.processors()? {
            let path = folder.join("trace_pipe_raw");
            let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
            let pipe = OpenOptions::new().read(true).custom_flags(nonblocking).open(&path);
            pipes.push(pipe.map_err(|error| TraceError::file(&path, "opening", error))?);
        }
        Ok(pipes)
    }

    /// The size of one read of a raw buffer.
    pub(super) fn page_bytes(&self) -> usize {
        let kib = self.read("buffer_subbuf_size_kb").ok();
        let kib = kib.and_then(|text| text.trim().parse::<usize>().ok());
        kib.map_or(rustix::param::page_size(), |kib| kib * 1024)
    }

    /// Events that the kernel could not keep.
    pub(super) fn lost(&self) -> Result<u64> {
        let mut lost = 0;
        for folder in self.processors()? {
            let path = folder.join("stats");
            let stats = fs::read_to_string(&path)
                .map_err(|error| TraceError::file(&path, "reading", error))?;
            lost += lost_of(&stats);
        }
        Ok(lost)
    }

    fn processors(&self) -> Result<Vec<PathBuf>> {
        let path = self.path.join("per_cpu");
        let folders = fs::read_dir(&path).map_err(|e| self.failed("per_cpu", "reading", e))?;
        let mut folders: Vec<PathBuf> = folders.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        Ok(folders)
    }

    /// Removes the instance, with all its settings.
    pub(super) fn remove(mut self) -> Result<()> {
        self.removed = true;
        fs::remove_dir(&self.path).map_err(|error| self.failed("", "removing", error))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.removed {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Count of lost events in a processor's `stats`.
fn lost_of(stats: &str) -> u64 {
    const LOST: [&str; 3] = ["overrun", "commit overrun", "dropped events"];
    let counts = stats.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        LOST.contains(&name.trim()).then(|| value.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefs_is_found_among_mounts() {
        let mounts = "proc /proc proc rw 0 0\nnodev /sys/kernel/tracing tracefs rw,nosuid 0 0\n";
        assert_eq!(find(mounts), Some("/sys/kernel/tracing".into()));
        assert_eq!(find("nodev /my\\040place tracefs rw 0 0\n"), Some("/my place".into()));
        assert_eq!(find("tracefs /x tmpfs rw 0 0\nshort\n"), None);
    }

    #[test]
    fn lost_events_are_added_up() {
        let stats = "entries: 9\noverrun: 3\ncommit overrun: 1\nbytes: 77\ndropped events: 2\n";
        assert_eq!(lost_of(stats), 6);
        assert_eq!(lost_of("nothing"), 0);
    }
}
