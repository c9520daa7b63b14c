//! Replies.
//!
//! | offset | size | header | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | len | of the whole reply |
//! | 4 | 4 | error | 0, or an error number below zero |
//! | 8 | 8 | unique | of the request |

use esker_base::codec::Encoder;
use esker_base::units::to_u64;
use rustix::io::Errno;

/// Bytes of a reply's header.
const REPLY_HEADER_SIZE: usize = 16;
/// Seconds for which the kernel may keep names and attributes: nobody else changes them.
const VALID_S: u64 = 3600;
/// `FOPEN_DIRECT_IO`: no page cache.
const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// `FOPEN_PARALLEL_DIRECT_WRITES`: writes need not wait for each other.
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

/// The header of a reply with `body_size` bytes behind it.
pub(crate) fn header(
    unique: u64,
    outcome: Result<(), Errno>,
    body_size: usize,
) -> [u8; REPLY_HEADER_SIZE] {
    let len = u32::try_from(REPLY_HEADER_SIZE + body_size).expect("replies are below 4 GiB");
    let error = outcome.map_or_else(|errno| -errno.raw_os_error(), |()| 0);
    let mut bytes = [0; REPLY_HEADER_SIZE];
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&error.to_le_bytes());
    bytes[8..].copy_from_slice(&unique.to_le_bytes());
    bytes
}

/// The answer to the first request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitReply {
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u32,
    /// How many requests of direct I/O may be under way.
    pub(crate) max_background: u16,
    /// The largest write, in bytes.
    pub(crate) max_write: u32,
    /// The most pages in a request.
    pub(crate) max_pages: u16,
}

impl InitReply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.u32(7).u32(self.minor).u32(self.max_readahead).u32(self.flags);
        e.u16(self.max_background).u16(self.max_background).u32(self.max_write);
        e.u32(1).u16(self.max_pages).u16(0).bytes(&[0; 32]);
        e.0
    }
}

/// Kind of a node of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Directory,
    Regular,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) node: u64,
    pub(crate) kind: FileKind,
    pub(crate) size: u64,
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The size in bytes that reads and writes had best have.
    pub(crate) block_size: u32,
    /// Seconds since 1970.
    pub(crate) time_s: u64,
}

impl Attributes {
    fn encode(&self, e: &mut Encoder) {
        let (mode, links) = match self.kind {
            FileKind::Directory => (S_IFDIR, 2),
            FileKind::Regular => (S_IFREG, 1),
        };
        e.u64(self.node).u64(self.size).u64(self.size.div_ceil(512));
        e.u64(self.time_s).u64(self.time_s).u64(self.time_s);
        e.u32(0).u32(0).u32(0).u32(mode | self.permissions).u32(links);
        e.u32(self.uid).u32(self.gid).u32(0).u32(self.block_size).u32(0);
    }
}

/// A node under its name.
pub(crate) fn entry_reply(attributes: &Attributes) -> Vec<u8> {
    let mut e = Encoder::default();
    e.u64(attributes.node).u64(0).u64(VALID_S).u64(VALID_S).u32(0).u32(0);
    attributes.encode(&mut e);
    e.0
}

/// A node's attributes.
pub(crate) fn attributes_reply(attributes: &Attributes) -> Vec<u8> {
    let mut e = Encoder::default();
    e.u64(VALID_S).u32(0).u32(0);
    attributes.encode(&mut e);
    e.0
}

/// An open file, or with `is_file` false an open directory.
pub(crate) fn open_reply(is_file: bool) -> Vec<u8> {
    let flags = if is_file { FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES } else { 0 };
    let mut e = Encoder::default();
    e.u64(0).u32(flags).u32(0);
    e.0
}

/// How much of a write was done.
pub(crate) fn write_reply(size: u32) -> [u8; 8] {
    u64::from(size).to_le_bytes()
}

/// The room of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatFs {
    pub(crate) blocks: u64,
    pub(crate) block_size: u32,
}

impl StatFs {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.u64(self.blocks).u64(0).u64(0).u64(1).u64(0);
        e.u32(self.block_size).u32(255).u32(self.block_size).u32(0).bytes(&[0; 24]);
        e.0
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryEntry<'a> {
    pub(crate) node: u64,
    pub(crate) kind: FileKind,
    pub(crate) name: &'a [u8],
}

/// As many entries from index `offset` on as `size` bytes hold.
pub(crate) fn directory(entries: &[DirectoryEntry<'_>], offset: u64, size: u32) -> Vec<u8> {
    let mut e = Encoder::default();
    for (index, entry) in entries.iter().enumerate() {
        let index = to_u64(index);
        if index < offset {
            continue;
        }
        let needed = (24 + entry.name.len()).next_multiple_of(8);
        if to_u64(e.0.len() + needed) > u64::from(size) {
            break;
        }
        let kind = match entry.kind {
            FileKind::Directory => 4,
            FileKind::Regular => 8,
        };
        let length = u32::try_from(entry.name.len()).expect("a name has at most 255 bytes");
        e.u64(entry.node).u64(index + 1).u32(length).u32(kind).bytes(entry.name);
        let padded = e.0.len().next_multiple_of(8);
        e.0.resize(padded, 0);
    }
    e.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_sizes_of_linux_fuse_h() {
        let attributes = Attributes {
            node: 2,
            kind: FileKind::Regular,
            size: 1 << 20,
            permissions: 0o600,
            uid: 0,
            gid: 0,
            block_size: 4096,
            time_s: 1,
        };
        assert_eq!(entry_reply(&attributes).len(), 128);
        assert_eq!(attributes_reply(&attributes).len(), 104);
        assert_eq!(open_reply(true).len(), 16);
        assert_eq!(StatFs { blocks: 1, block_size: 4096 }.encode().len(), 80);
        let init = InitReply {
            minor: 31,
            max_readahead: 0,
            flags: 0,
            max_background: 1,
            max_write: 1 << 20,
            max_pages: 256,
        };
        assert_eq!(init.encode().len(), 64);
        let bytes = header(0x0102, Err(Errno::IO), 3);
        assert_eq!(bytes, [19, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_directory_is_read_in_pieces() {
        let entry = |node, name| DirectoryEntry { node, kind: FileKind::Regular, name };
        let entries = [entry(1, &b"."[..]), entry(2, b"disk")];
        assert_eq!(directory(&entries, 0, 4096).len(), 64);
        assert_eq!(directory(&entries, 0, 40).len(), 32);
        assert_eq!(directory(&entries, 1, 4096)[24..28], *b"disk");
        assert!(directory(&entries, 2, 4096).is_empty());
    }
}
