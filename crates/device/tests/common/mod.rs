//! Temporary directories, mounts and loop devices, gone when dropped.

#![allow(dead_code)] // every test file uses its part

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Says loudly that a test did not run.
#[allow(clippy::print_stderr)]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// A directory of its own.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// Where cargo keeps the files of tests: a file system with direct I/O, usually.
    pub(crate) fn new() -> TempDir {
        TempDir::on(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub(crate) fn on(parent: &Path) -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("esker-device-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether a command of the system ran and succeeded; its output, trimmed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// A file system mounted for a test.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// A tmpfs on `at` with these options, if it can be mounted (root can, mostly).
    pub(crate) fn tmpfs(at: &Path, options: &str) -> Option<Mount> {
        let at = at.to_owned();
        let path = at.to_str()?;
        run("mount", &["-t", "tmpfs", "-o", options, "esker-test", path])?;
        Some(Mount(at))
    }

    /// A new ext4 on a block device, mounted with these options, if both can be done.
    pub(crate) fn ext4(disk: &Path, at: &Path, options: &str) -> Option<Mount> {
        let at = at.to_owned();
        let (disk, path) = (disk.to_str()?, at.to_str()?);
        run("mkfs.ext4", &["-q", disk])?;
        run("mount", &["-o", options, disk, path])?;
        Some(Mount(at))
    }

    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let path = self.0.to_str().unwrap();
        run("mount", &["-o", &options, path]).expect("remount");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

/// A loop device over a file.
pub(crate) struct Loop(String);

impl Loop {
    /// A block device of `bytes` bytes, if it can be set up (root can, mostly).
    pub(crate) fn new(dir: &Path, bytes: u64) -> Option<Loop> {
        let path = dir.join("medium");
        fs::File::create(&path).ok()?.set_len(bytes).ok()?;
        let args = ["--find", "--show", "--direct-io=on", path.to_str()?];
        run("losetup", &args).map(Loop)
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}
