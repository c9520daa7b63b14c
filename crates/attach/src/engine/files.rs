//! The file system that the kernel sees: a directory with one file.

use std::sync::Arc;

use esker_base::clock::unix_time;
use esker_device::Device;
use rustix::io::Errno;

use super::locks::RangeLocks;
use crate::wire::{
    AttributeChange, Attributes, DirectoryEntry, FileKind, InitReply, InitRequest, StatFs,
    directory,
};

/// The directory; the kernel begins with this one.
pub(crate) const DIRECTORY: u64 = 1;
/// The file.
pub(crate) const FILE: u64 = 2;

/// The protocol that is spoken; the kernel speaks it whatever newer one it knows.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`, `FUSE_ASYNC_DIO`, `FUSE_PARALLEL_DIROPS`,
/// `FUSE_MAX_PAGES`.
const WANTED: u32 = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 18 | 1 << 22;
/// How many requests of direct I/O may be under way.
const MAX_BACKGROUND: u16 = 256;
const PAGE: u32 = 4096;

/// The device, and the state that all threads share about it.
pub(crate) struct Volume {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) locks: RangeLocks,
    pub(crate) read_only: bool,
    /// The largest read and write that the kernel is told to send, in bytes: whole pages.
    pub(crate) max_write: u32,
    name: &'static str,
    uid: u32,
    gid: u32,
    time_s: u64,
}

impl Volume {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        name: &'static str,
        read_only: bool,
        max_write: u32,
    ) -> Volume {
        Volume {
            device,
            locks: RangeLocks::default(),
            read_only,
            max_write,
            name,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            time_s: unix_time().as_secs(),
        }
    }

    /// How many bytes the file has.
    pub(crate) fn size(&self) -> u64 {
        let geometry = self.device.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    }

    /// Agrees on how to speak.
    pub(crate) fn init(&self, asked: &InitRequest) -> Result<Vec<u8>, Errno> {
        // 7.28 is the first with requests of more than 32 pages (Linux 4.20).
        if asked.major != MAJOR || asked.minor < 28 {
            return Err(Errno::PROTO);
        }
        let reply = InitReply {
            minor: asked.minor.min(MINOR),
            max_readahead: asked.max_readahead,
            flags: asked.flags & WANTED,
            max_background: MAX_BACKGROUND,
            max_write: self.max_write,
            max_pages: u16::try_from(self.max_write / PAGE).unwrap_or(u16::MAX),
        };
        Ok(reply.encode())
    }

    pub(crate) fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attributes, Errno> {
        match parent {
            DIRECTORY if name == self.name.as_bytes() => self.attributes(FILE),
            _ => Err(Errno::NOENT),
        }
    }

    pub(crate) fn attributes(&self, node: u64) -> Result<Attributes, Errno> {
        let (kind, size, permissions) = match node {
            DIRECTORY => (FileKind::Directory, 0, 0o700),
            FILE if self.read_only => (FileKind::Regular, self.size(), 0o400),
            FILE => (FileKind::Regular, self.size(), 0o600),
            _ => return Err(Errno::NOENT),
        };
        let (uid, gid, time_s) = (self.uid, self.gid, self.time_s);
        let block_size = self.device.geometry().lba_size;
        Ok(Attributes { node, kind, size, permissions, uid, gid, block_size, time_s })
    }

    /// A device has the size it has, and its file an owner and a mode.
    pub(crate) fn set(&self, node: u64, change: AttributeChange) -> Result<Attributes, Errno> {
        match change {
            AttributeChange::Times => {}
            AttributeChange::Size(_) if self.read_only => return Err(Errno::ROFS),
            AttributeChange::Size(size) if node == FILE && size == self.size() => {}
            AttributeChange::Size(_) | AttributeChange::Other => return Err(Errno::PERM),
        }
        self.attributes(node)
    }

    pub(crate) fn open(&self, node: u64, writes: bool) -> Result<(), Errno> {
        match node {
            FILE if writes && self.read_only => Err(Errno::ROFS),
            FILE => Ok(()),
            DIRECTORY => Err(Errno::ISDIR),
            _ => Err(Errno::NOENT),
        }
    }

    pub(crate) fn directory(&self, offset: u64, size: u32) -> Vec<u8> {
        let entry = |node, kind, name| DirectoryEntry { node, kind, name };
        let entries = [
            entry(DIRECTORY, FileKind::Directory, &b"."[..]),
            entry(DIRECTORY, FileKind::Directory, b".."),
            entry(FILE, FileKind::Regular, self.name.as_bytes()),
        ];
        directory(&entries, offset, size)
    }

    pub(crate) fn statfs(&self) -> StatFs {
        let geometry = self.device.geometry();
        // The loop driver takes this for the granularity of discards.
        let block_size =
            geometry.discard_granularity.clamp(geometry.lba_size, PAGE.max(geometry.lba_size));
        StatFs { blocks: self.size() / u64::from(block_size), block_size }
    }
}
