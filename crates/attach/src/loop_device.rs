//! Makes and releases loop devices.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::Clock;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::wire::LoopConfig;
use crate::{AttachError, mount_table, sys};

const CONTROL: &str = "/dev/loop-control";
/// The block devices' major number of the loop driver, and that of its control.
const MAJOR: u32 = 7;
const CONTROL_NUMBER: (u32, u32) = (10, 237);
/// How often a device that was free may be taken by somebody else first.
const ATTEMPTS: usize = 64;
/// How long a device may take to be free.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(2);

/// A block device over a file.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    number: u32,
    /// Kept open, so that it cannot become another one's meanwhile.
    device: OwnedFd,
    path: PathBuf,
}

impl LoopDevice {
    /// A new loop device over `file` with blocks of `block_size` bytes.
    pub(crate) fn make(
        file: &Path,
        block_size: u32,
        read_only: bool,
    ) -> Result<LoopDevice, AttachError> {
        let control = open_node(Path::new(CONTROL), FileType::CharacterDevice, CONTROL_NUMBER)
            .map_err(|errno| {
                let why = format!(
                    "{errno}; is the loop driver in this kernel (modprobe loop), and are you root?"
                );
                AttachError::Unsupported { path: CONTROL.into(), why }
            })?;
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let backing = rustix::fs::open(file, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| AttachError::os("opening it for a loop device", file, errno, ""))?;
        let config = LoopConfig {
            fd: u32::try_from(backing.as_raw_fd()).expect("descriptors are not negative"),
            block_size,
            read_only,
            name: file.as_os_str().as_bytes(),
        };
        let mut last = Errno::BUSY;
        for _ in 0..ATTEMPTS {
            let number = sys::loop_get_free(&control).map_err(|errno| {
                AttachError::os(
                    "finding a free loop device",
                    CONTROL,
                    errno,
                    "free one with losetup -d",
                )
            })?;
            let path = node(number);
            let opened = open_node(&path, FileType::BlockDevice, (MAJOR, number));
            match opened.and_then(|device| {
                sys::loop_configure(&device, config.encode())?;
                Ok(device)
            }) {
                Ok(device) => return Ok(LoopDevice { number, device, path }),
                // Somebody was faster, or closes it only now.
                Err(errno @ (Errno::BUSY | Errno::NXIO | Errno::AGAIN)) => last = errno,
                Err(errno) => {
                    let advice = "the kernel must know LOOP_CONFIGURE (Linux 5.8)";
                    return Err(AttachError::os("setting it up", &path, errno, advice));
                }
            }
            Clock::real().sleep(STEP);
        }
        Err(AttachError::os("finding a free loop device", CONTROL, last, "try again"))
    }

    /// The block device.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the size that its file has.
    pub(crate) fn follow_size(&self) -> Result<(), AttachError> {
        sys::loop_set_capacity(&self.device).map_err(|errno| {
            let advice = "detach and attach it again, to use the new size";
            AttachError::os("giving it the size of its file", &self.path, errno, advice)
        })
    }

    /// The partitions that the kernel has found on it; a node that is missing is made.
    pub(crate) fn partitions(&self) -> Vec<PathBuf> {
        let block = PathBuf::from(format!("/sys/block/loop{}", self.number));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(block).into_iter().flatten().flatten() {
            let path = Path::new("/dev").join(entry.file_name());
            if path == self.path || !mount_table::is_of(&self.path, &path) {
                continue;
            }
            let number = std::fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
            let number = number.trim().split_once(':');
            let number =
                number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
            if number.is_some_and(|number| open_node(&path, FileType::BlockDevice, number).is_ok())
            {
                found.push(path);
            }
        }
        found.sort();
        found
    }

    /// Frees it, if nobody uses it. Gives it back otherwise.
    pub(crate) fn release(self) -> Result<(), (LoopDevice, AttachError)> {
        if let Err(error) = check_unused(&self.path) {
            return Err((self, error));
        }
        if let Err(errno) = sys::loop_clear(&self.device)
            && errno != Errno::NXIO
        {
            let path = self.path.clone();
            let why = format!("it could not be freed ({errno}); close it and try again");
            return Err((self, AttachError::Busy { path, why }));
        }
        drop(self.device);
        if wait_until_free(self.number) {
            return Ok(());
        }
        let path = self.path.clone();
        let why = "somebody has it open; it goes when they close it".to_owned();
        match open_node(&path, FileType::BlockDevice, (MAJOR, self.number)) {
            Ok(device) => Err((LoopDevice { device, ..self }, AttachError::Busy { path, why })),
            Err(_) => Ok(()),
        }
    }

    /// Frees it now, or when its last user closes it.
    pub(crate) fn release_anyway(self) {
        // A loop device that cannot be freed was freed before.
        let _ = sys::loop_clear(&self.device);
    }
}

/// Waits until a loop device stands on nothing.
fn wait_until_free(number: u32) -> bool {
    let clock = Clock::real();
    let deadline = clock.now() + PATIENCE;
    while backing_file(number).is_some() {
        if clock.now() > deadline {
            return false;
        }
        clock.sleep(STEP);
    }
    true
}

/// Fails if a loop device is mounted, or held by another block device.
pub(crate) fn check_unused(path: &Path) -> Result<(), AttachError> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::BUSY) => {
            let why = match &mount_table::mounts_from(path)[..] {
                [] => {
                    "something stands on it, or it is mounted elsewhere; free it first".to_owned()
                }
                mounts => {
                    let at: Vec<String> =
                        mounts.iter().map(|at| at.display().to_string()).collect();
                    format!("it is mounted; unmount it first: umount {}", at.join(" "))
                }
            };
            Err(AttachError::Busy { path: path.to_owned(), why })
        }
        _ => Ok(()),
    }
}

/// The loop devices over a file.
pub(crate) fn over(file: &Path) -> Vec<PathBuf> {
    let Ok(blocks) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let mut found = Vec::new();
    for block in blocks.flatten() {
        let name = block.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok());
        if let Some(number) = number
            && backing_file(number).is_some_and(|backing| backing == file)
        {
            found.push(node(number));
        }
    }
    found.sort();
    found
}

/// Frees a loop device that somebody else has made. Says whether it is free now.
pub(crate) fn clear(path: &Path) -> Result<bool, AttachError> {
    let failed =
        |errno| AttachError::os("freeing it", path, errno, "free it with `losetup -d` as root");
    let number = path.to_str().and_then(|path| path.strip_prefix("/dev/loop")?.parse().ok());
    let Some(number) = number else { return Err(failed(Errno::INVAL)) };
    let device = open_node(path, FileType::BlockDevice, (MAJOR, number)).map_err(failed)?;
    match sys::loop_clear(&device) {
        Ok(()) | Err(Errno::NXIO) => {}
        Err(errno) => return Err(failed(errno)),
    }
    drop(device);
    if check_unused(path).is_err() {
        return Ok(false);
    }
    Ok(wait_until_free(number))
}

fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn backing_file(number: u32) -> Option<PathBuf> {
    let path = format!("/sys/block/loop{number}/loop/backing_file");
    let text = std::fs::read(path).ok()?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    // The kernel says so once the file is not to be reached by its name.
    let text = text.strip_suffix(b" (deleted)").unwrap_or(text);
    Some(std::ffi::OsStr::from_bytes(text).into())
}

/// Opens a device node, which is made if there is none: in a container nobody makes them.
fn open_node(path: &Path, kind: FileType, number: (u32, u32)) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    match open() {
        Err(Errno::NOENT | Errno::NXIO) => {}
        other => return other,
    }
    let device = rustix::fs::makedev(number.0, number.1);
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device) {
        Ok(()) | Err(Errno::EXIST) => open(),
        Err(errno) => Err(errno),
    }
}
