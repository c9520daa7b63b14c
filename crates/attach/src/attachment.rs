//! An attachment: a mounted device, from beginning to end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::{Clock, thread};
use esker_device::{Device, Port};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use crate::engine::{Engine, Volume};
use crate::loop_device::LoopDevice;
use crate::mount_table::ours_at;
use crate::server::awake::{self, Awake};
use crate::server::{Leading, Shared, serve};
use crate::{AttachError, holders, mount, sys};

/// The name of the file in the directory at which a device is attached.
pub const FILE_NAME: &str = "disk";
/// The largest request, in bytes: the kernel's default limit (`fs.fuse.max_pages_limit`).
const MAX_WRITE: u32 = 1 << 20;
/// How long the kernel may take for its first request.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the kernel may take to let go of a file that nobody uses any more.
const LINGER: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(5);

/// How to attach a device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether to make a loop device over the file.
    pub loop_device: bool,
    /// How many threads serve it, at least 1. Each has a queue pair of the device.
    pub threads: usize,
    /// For how long, when there is nothing to do, one thread looks for requests before it sleeps.
    /// It looks only while that has paid off lately.
    pub spin: Duration,
    /// Whether the machine's idle processors look for work too instead of halting, while requests
    /// come so fast that no thread that serves them sleeps. Needs root.
    pub keep_awake: bool,
    /// Whether the mount point may have content, which is hidden while the device is attached.
    pub nonempty: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            loop_device: false,
            threads: 2,
            spin: Duration::from_micros(50),
            keep_awake: false,
            nonempty: false,
        }
    }
}

/// A device that is attached. Dropping it ends it in any case ([`Attachment::abandon`]).
pub struct Attachment {
    mount_point: PathBuf,
    file: PathBuf,
    device: Arc<dyn Device>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    loop_device: Option<LoopDevice>,
    connection: Option<u32>,
    /// Whether it was not unmounted here yet.
    is_mounted: bool,
    /// Bytes of the device that the kernel knows.
    size: u64,
}

impl Attachment {
    /// Attaches a device at a directory: from now on `disk` in it is the device, and with
    /// [`Options::loop_device`] there is a block device too.
    ///
    /// # Errors
    /// `Invalid` when the mount point is none, taken or not empty, `Unsupported` when this machine has no FUSE
    /// or no loop devices or this user may not use them, or the device's.
    pub fn start(
        device: Arc<dyn Device>,
        mount_point: &Path,
        options: &Options,
    ) -> Result<Attachment, AttachError> {
        let mount_point = mount::check_mount_point(mount_point, options.nonempty)?;
        let volume = Volume::new(device.clone(), FILE_NAME, options.read_only, MAX_WRITE);
        let volume = Arc::new(volume);
        let mut engines = Vec::new();
        for _ in 0..options.threads.max(1) {
            engines.push(Engine::new(volume.clone())?);
        }
        let os = |what: &'static str| {
            let path = mount_point.clone();
            move |errno: Errno| AttachError::os(what, path, errno, "try again")
        };
        let shared = Arc::new(Shared::new(volume).map_err(os("making an event"))?);
        let awake = match options.keep_awake {
            true => Some(Awake::open().map_err(|errno| {
                let advice = "do it as root, or without keeping awake";
                AttachError::os("opening", awake::PATH, errno, advice)
            })?),
            false => None,
        };
        let mut leading = Some(Leading { spin: options.spin, awake });
        let session = mount::mount(&mount_point, options.read_only)?;
        let mut attachment = Attachment::mounted(mount_point.clone(), device, shared);
        // From here on, dropping the attachment unmounts it when a step fails.
        let (begun, has_begun) = channel();
        for (index, engine) in engines.into_iter().enumerate() {
            let channel = match index {
                0 => rustix::io::fcntl_dupfd_cloexec(&session, 0),
                _ => further_channel(&session),
            };
            let channel = channel.map_err(os("opening a channel"))?;
            let (shared, begun) = (attachment.shared.clone(), begun.clone());
            let name = format!("esker-fuse-{index}");
            let leading = leading.take();
            let thread =
                thread::spawn(&name, move || serve(shared, channel, engine, leading, begun));
            let thread = thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
            attachment.threads.push(thread.map_err(os("starting a thread"))?);
        }
        drop((session, begun));
        match has_begun.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let why = "the kernel does not speak FUSE 7.28 or later (Linux 4.20)".to_owned();
                return Err(AttachError::Unsupported { path: mount_point, why });
            }
        }
        if options.loop_device {
            let block_size = attachment.device.geometry().lba_size;
            let made = LoopDevice::make(&attachment.file, block_size, options.read_only)?;
            attachment.loop_device = Some(made);
        }
        Ok(attachment)
    }

    /// A fresh mount, without threads that serve it.
    fn mounted(mount_point: PathBuf, device: Arc<dyn Device>, shared: Arc<Shared>) -> Attachment {
        let file = mount_point.join(FILE_NAME);
        let size = shared.volume.size();
        let connection = ours_at(&mount_point).map(|mount| mount.connection);
        Attachment {
            mount_point,
            file,
            device,
            shared,
            threads: Vec::new(),
            loop_device: None,
            connection,
            is_mounted: true,
            size,
        }
    }

    /// The file that is the device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The block device over the file, if one was made.
    #[must_use]
    pub fn loop_path(&self) -> Option<&Path> {
        self.loop_device.as_ref().map(LoopDevice::path)
    }

    /// Has the file, and the block device over it, follow a device that was given another size. Returns the size in
    /// bytes if it has changed since the last call.
    ///
    /// # Errors
    /// The kernel's; the next call says nothing of the same size again.
    pub fn follow_size(&mut self) -> Result<Option<u64>, AttachError> {
        let size = self.shared.volume.size();
        if size == self.size {
            return Ok(None);
        }
        self.size = size;
        // The kernel keeps a file's size until it is made to ask for it.
        rustix::fs::statx(rustix::fs::CWD, &self.file, AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE)
            .map_err(|errno| {
                AttachError::os("asking for the size of", &self.file, errno, "try again")
            })?;
        if let Some(device) = &self.loop_device {
            device.follow_size()?;
        }
        Ok(Some(size))
    }

    /// The partitions that the block device has, as block devices.
    #[must_use]
    pub fn partitions(&self) -> Vec<PathBuf> {
        self.loop_device.as_ref().map(LoopDevice::partitions).unwrap_or_default()
    }

    /// Whether it is being served; it is not when somebody else has unmounted it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.has_ended()
    }

    /// Whether it is at its mount point: not when it was unmounted, here or by somebody else.
    fn is_mounted(&self) -> bool {
        let there = ours_at(&self.mount_point).map(|mount| mount.connection);
        self.is_mounted && there.is_some() && there == self.connection
    }

    /// The number of its FUSE connection, which no other mount on this machine has; none where the table of mounts
    /// cannot be read.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// Ends it: frees the loop device, unmounts, and makes everything durable. When somebody
    /// uses it, nothing has happened, and it can be tried again; unless its threads have ended by
    /// themselves: then it is unmounted in any case.
    ///
    /// # Errors
    /// `Busy` when the loop device is mounted or the file is open; `Panicked` when a thread has,
    /// all else being done; or the device's for the flush.
    pub fn stop(&mut self) -> Result<(), AttachError> {
        match self.loop_device.take() {
            // Its users get errors alone, and are not waited for.
            Some(device) if !self.is_running() => device.release_anyway(),
            Some(device) => {
                if let Err((device, error)) = device.release() {
                    self.loop_device = Some(device);
                    return Err(error);
                }
            }
            None => {}
        }
        if self.is_mounted() {
            self.unmount()?;
        }
        self.is_mounted = false;
        let served = self.join();
        let flushed = self.flush();
        served.and(flushed)
    }

    fn flush(&self) -> Result<(), AttachError> {
        if !self.shared.volume.read_only {
            Port::open(&*self.device, 1)?.flush()?;
        }
        Ok(())
    }

    fn unmount(&self) -> Result<(), AttachError> {
        let clock = Clock::real();
        let deadline = clock.now() + LINGER;
        loop {
            // Users of a mount that nobody serves any more get errors alone.
            match mount::unmount(&self.mount_point, !self.is_running()) {
                // The loop driver lets go of the file a little later than of the device.
                Err(Errno::BUSY) if clock.now() < deadline => clock.sleep(STEP),
                Err(Errno::BUSY) => {
                    let holders = holders::of(&self.mount_point, &[]);
                    let who = holders::said(&holders, &self.mount_point);
                    let why = format!("it is in use; close what uses it: {who}");
                    return Err(AttachError::Busy { path: self.mount_point.clone(), why });
                }
                // EINVAL: it is not mounted any more.
                Ok(()) | Err(Errno::INVAL) => return Ok(()),
                Err(errno) => {
                    let advice = "unmount it with `umount` as root";
                    return Err(AttachError::os("unmounting", &self.mount_point, errno, advice));
                }
            }
        }
    }

    /// Ends it, whoever uses it: they get errors from then on. Writes without a flush are as after
    /// a crash.
    pub fn abandon(&mut self) {
        if let Some(device) = self.loop_device.take() {
            // At the latest it goes when its last user does.
            device.release_anyway();
        }
        if self.is_mounted() {
            // Others may just have unmounted it.
            let _ = mount::unmount(&self.mount_point, true);
        }
        self.is_mounted = false;
        self.shared.end();
        let _ = self.join(); // one that panicked has ended as well
    }

    /// Waits until all threads have ended.
    fn join(&mut self) -> Result<(), AttachError> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                let mount_point = self.mount_point.clone();
                outcome =
                    Err(AttachError::Panicked { mount_point, message: thread::said(&*panic) });
            }
        }
        outcome
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// A channel of its own for a further thread; if that is not allowed, the same one.
fn further_channel(session: &std::os::fd::OwnedFd) -> Result<std::os::fd::OwnedFd, Errno> {
    let own = mount::open_channel().and_then(|channel| {
        sys::clone_channel(&channel, session)?;
        Ok(channel)
    });
    match own {
        Ok(channel) => Ok(channel),
        Err(_) => rustix::io::fcntl_dupfd_cloexec(session, 0),
    }
}

#[cfg(test)]
mod tests {
    use esker_device::MemoryDevice;

    use super::*;

    #[test]
    fn mount_that_no_thread_has_served_yet_is_unmounted_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let mount_point = mount::check_mount_point(dir.path(), false).unwrap();
        let Ok(session) = mount::mount(&mount_point, false) else {
            return eprintln!("SKIPPED: this user cannot mount");
        };
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("memory", 1 << 20, 4096));
        let volume = Volume::new(device.clone(), FILE_NAME, false, MAX_WRITE);
        let shared = Arc::new(Shared::new(Arc::new(volume)).unwrap());
        let attachment = Attachment::mounted(mount_point.clone(), device, shared);
        assert!(attachment.is_mounted());
        drop(attachment);
        drop(session);
        let left = ours_at(&mount_point);
        let _ = mount::unmount(&mount_point, true); // if the test fails, for the directory's sake
        assert_eq!(left, None);
    }
}
