//! Mounts and unmounts: with `mount(2)` for root, through `fusermount3` for everybody else.
//!
//! The source of the mount is `esker:PID`, for people to read. The number is that of the process's own namespace, so
//! nothing is ever sent to it.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::AttachError;
use crate::mount_table::{FILE_SYSTEM, SOURCE, ours_at, resolved};

/// Where the kernel's end is.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Opens a channel to the kernel.
pub(crate) fn open_channel() -> Result<OwnedFd, Errno> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// Checks that a device can be attached at a path, and gives the path without links and dots. The directory's
/// content is hidden while a device is attached: `hides` allows that there is something.
pub(crate) fn check_mount_point(path: &Path, hides: bool) -> Result<PathBuf, AttachError> {
    let invalid = |why: &str| AttachError::Invalid { path: path.to_owned(), why: why.to_owned() };
    // Before the path is looked at: a server that is stopped would not answer.
    if ours_at(&resolved(path)).is_some() {
        return Err(invalid(
            "a device is attached here; detach it first with `esker detach`, or name another directory",
        ));
    }
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            let advice = "name a directory that exists";
            return Err(AttachError::os("looking at the mount point", path, errno, advice));
        }
    };
    if !found.is_dir() {
        return Err(invalid("it is no directory; name an empty one"));
    }
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // A directory that cannot be read is taken for an empty one: the system reports the problem with it.
    let first = std::fs::read_dir(&path).ok().and_then(|mut entries| entries.next()?.ok());
    if let Some(first) = first.filter(|_| !hides) {
        return Err(invalid(&format!(
            "it is not empty (it has {:?}), and what it has would be hidden while the device is attached; name an \
             empty directory, or allow it with --nonempty",
            first.file_name()
        )));
    }
    Ok(path)
}

/// Mounts at a directory, and gives the channel to the kernel.
pub(crate) fn mount(at: &Path, read_only: bool) -> Result<OwnedFd, AttachError> {
    if rustix::process::geteuid().is_root() {
        mount_as_root(at, read_only)
    } else {
        mount_through_helper(at, read_only)
    }
}

fn source() -> String {
    format!("{SOURCE}{}", std::process::id())
}

fn mount_as_root(at: &Path, read_only: bool) -> Result<OwnedFd, AttachError> {
    let channel = open_channel().map_err(|errno| {
        let why = format!("{errno}; is FUSE in this kernel (modprobe fuse), and allowed here?");
        AttachError::Unsupported { path: DEVICE.into(), why }
    })?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    if read_only {
        flags |= MountFlags::RDONLY;
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let options = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other,default_permissions",
        channel.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).expect("numbers and words");
    rustix::mount::mount(source(), at, FILE_SYSTEM, flags, options.as_c_str()).map_err(
        |errno| {
            AttachError::os(
                "mounting",
                at,
                errno,
                "mounting must be allowed here (capability SYS_ADMIN)",
            )
        },
    )?;
    Ok(channel)
}

fn mount_through_helper(at: &Path, read_only: bool) -> Result<OwnedFd, AttachError> {
    let refused = |why: String| AttachError::Unsupported { path: at.to_owned(), why };
    let failed = |what| move |errno| AttachError::os(what, at, errno, "try again");
    // The helper's end must stay open in the helper, ours must not.
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )
    .map_err(failed("making a pair of sockets"))?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)
        .map_err(failed("setting up a socket"))?;
    let mut options = format!("fsname={},subtype=esker,nosuid,nodev", source());
    if read_only {
        options.push_str(",ro");
    }
    let helper = Command::new("fusermount3")
        .args(["-o", &options, "--"])
        .arg(at)
        .envs([("_FUSE_COMMFD", theirs.as_raw_fd().to_string())])
        .stdin(Stdio::null())
        .status();
    drop(theirs);
    let status = helper.map_err(|error| {
        refused(format!("fusermount3 did not run ({error}); install fuse3, or be root"))
    })?;
    if !status.success() {
        return Err(refused("fusermount3 refused, and has said why".to_owned()));
    }
    let channel = receive(&ours).map_err(failed("receiving the channel from fusermount3"))?;
    let flags = rustix::fs::fcntl_getfl(&channel).map_err(failed("reading flags"))?;
    rustix::fs::fcntl_setfl(&channel, flags | OFlags::NONBLOCK).map_err(failed("setting flags"))?;
    rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC)
        .map_err(failed("setting flags"))?;
    Ok(channel)
}

/// The descriptor that the helper has sent.
fn receive(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut byte = [0; 1];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::empty(),
    )?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(Errno::BADMSG)
}

/// Unmounts; `lazily` as soon as nobody uses it, and at once for every process that does not use it yet.
pub(crate) fn unmount(at: &Path, lazily: bool) -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW);
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(at);
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(Errno::BUSY),
        Err(_) => Err(Errno::NOENT),
    }
}

/// Unmounts as root, whatever is open, after having ended the connection to the process that serves it.
pub(crate) fn force(at: &Path) -> Result<(), Errno> {
    rustix::mount::unmount(at, UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}
