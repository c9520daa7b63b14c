//! A small file system of a test's own, and a file on it that takes all that is free.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use esker_base::Clock;

/// Kinds of small file systems.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Tmpfs,
    /// In a file, over a loop device.
    Ext4,
}

/// A file system that is unmounted with this.
pub(crate) struct System {
    scratch: tempfile::TempDir,
}

const BYTES: u64 = 64 << 20;

fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl System {
    /// Mounts one; `None` where that cannot be done.
    pub(crate) fn mount(kind: Kind) -> Option<System> {
        let scratch = tempfile::tempdir().unwrap();
        let system = System { scratch };
        let point = system.mount_point();
        std::fs::create_dir(&point).unwrap();
        let point = point.display().to_string();
        let mounted = match kind {
            Kind::Tmpfs => {
                let size = format!("size={BYTES}");
                runs("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &point])
            }
            Kind::Ext4 => {
                let image = system.scratch.path().join("image").display().to_string();
                File::create(&image).unwrap().set_len(BYTES).unwrap();
                runs("mkfs.ext4", &["-q", "-m", "0", &image])
                    && runs("mount", &["-o", "loop", &image, &point])
            }
        };
        mounted.then_some(system)
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.scratch.path().join("mount")
    }

    /// The directory of a KVDB on it.
    pub(crate) fn dir(&self) -> PathBuf {
        self.mount_point().join("db")
    }

    /// Has another file take all that is free.
    pub(crate) fn fill(&self) {
        // Maintenance that goes on may give some back.
        let is_full = || {
            self.take_all();
            self.free_bytes() < 64 << 10
        };
        assert!((0..100).any(|_| is_full()), "{} are free", self.free_bytes());
    }

    fn take_all(&self) {
        let path = self.mount_point().join("other");
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        let mut size = 1 << 20;
        while size >= 1024 {
            match file.write(&vec![7; size]).and_then(|_| file.sync_data()) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                    size /= 2;
                }
            }
        }
    }

    /// Has that file give back some bytes.
    pub(crate) fn gives_back(&self, bytes: u64) {
        let file = OpenOptions::new().write(true).open(self.mount_point().join("other")).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(bytes)).unwrap();
        file.sync_all().unwrap();
    }

    /// Makes it read-only, as soon as the kernel has let go of files that were open to write.
    pub(crate) fn protect(&self) {
        let point = self.mount_point().display().to_string();
        let is_protected = || {
            Clock::real().sleep(Duration::from_millis(10));
            runs("mount", &["-o", "remount,ro", &point])
        };
        assert!((0..500).any(|_| is_protected()));
    }

    /// Bytes that nobody has.
    pub(crate) fn free_bytes(&self) -> u64 {
        free_bytes(&self.mount_point())
    }
}

fn free_bytes(path: &Path) -> u64 {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(path).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().nth(1).unwrap().trim().parse().unwrap()
}

impl Drop for System {
    fn drop(&mut self) {
        let point = self.mount_point().display().to_string();
        if !runs("umount", &[&point]) {
            runs("umount", &["-l", &point]);
        }
    }
}
