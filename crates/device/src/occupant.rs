//! Whether a device is someone's already: asked before it is taken, because its content would be lost.

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba};

use crate::blocking::Port;
use crate::error::DeviceError;
use crate::{Device, Geometry};

/// How much of a device is looked at, in bytes.
const LOOKED_AT: u64 = 128 << 10;
/// Bytes at its beginning that have to be zeroes. Not all that is looked at: an owner that left has
/// zeroed its header and has discarded the rest, which a block device may keep.
const ZEROES: usize = 4096;
/// Bytes of a read: every device takes so many.
const READ_BYTES: u64 = 4096;
/// The mark of an owner: its kind, the byte offset, and the bytes there.
pub type Mark = (&'static str, usize, &'static [u8]);

/// The mark of a partition table.
const TABLE: Mark = ("a partition table (GPT)", 0x1000, b"EFI PART");
/// Marks of owners that begin behind zeroes.
pub const MARKS: [Mark; 4] = [
    ("a member of an array (md)", 0x1000, &0xa92b_4efc_u32.to_le_bytes()),
    ("a device of bcache or bcachefs", 0x1018, &[0xc6, 0x85, 0x73, 0xf6]),
    ("a device of btrfs", 0x1_0040, b"_BHRfS_M"),
    // The checksum at the end of the first label's configuration.
    ("a device of ZFS", 0x1_ffd8, &0x0210_da7a_b10c_7a11_u64.to_le_bytes()),
];

/// Marks of what Esker itself puts on devices and in files; a cache's is [`CACHE`].
pub const OURS: [Mark; 6] = [
    ("a drive of an Esker pool", 0, b"EKVP"),
    ("a drive of an Esker pool", 0x1000, b"EKVP"),
    ("a part of an Esker KVDB", 0, b"ESKMEDIA"),
    ("an image of a drive of Esker's", 0, b"ESKRSSD1"),
    ("an image of a drive of Esker's", 0x1000, b"ESKRSSD1"),
    ("a trace of Esker's", 0, b"ESKTRACE"),
];
/// The mark of a cache's flash device.
pub const CACHE: Mark = ("a cache of Esker's", 0, b"ESKCACHE");

/// Says what bytes, the first of a device or a file, are of, where that is Esker's.
#[must_use]
pub fn ours(bytes: &[u8]) -> Option<&'static str> {
    let found = marked(bytes, &OURS).or_else(|| marked(bytes, &[CACHE]));
    found.map(|(what, _)| what)
}

/// Sign that a device is someone's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The kind of owner, as far as it can be told.
    pub what: &'static str,
    /// Where it shows, in bytes.
    pub offset: u64,
}

/// Looks for whoever has a device: it does not begin with zeroes, or has the mark of a file system, an array
/// or a partition table that begins behind them.
///
/// # Errors
/// The device's.
pub fn occupant(device: &dyn Device) -> Result<Option<Occupant>, DeviceError> {
    let Geometry { lba_size, capacity, .. } = device.geometry();
    let bytes = capacity.bytes(lba_size).min(LOOKED_AT);
    let mut port = Port::open(device, 1)?;
    let mut first = Vec::with_capacity(to_usize(bytes));
    for at in (0..bytes).step_by(to_usize(READ_BYTES)) {
        let buf = AlignedBuf::zeroed(to_usize(READ_BYTES.min(bytes - at)));
        first.extend_from_slice(&port.read(Lba(at / u64::from(lba_size)), buf)?);
    }
    let data = first.iter().take(ZEROES).position(|&byte| byte != 0).map(|at| ("data", at));
    let found = data.or(marked(&first, &[TABLE])).or(marked(&first, &MARKS));
    Ok(found.map(|(what, at)| Occupant { what, offset: to_u64(at) }))
}

/// The kind of owner whose mark is in these bytes, the first of a device, and where it shows.
#[must_use]
pub fn marked(bytes: &[u8], marks: &[Mark]) -> Option<(&'static str, usize)> {
    let stands_at = |at: usize, mark: &[u8]| bytes.get(at..at + mark.len()) == Some(mark);
    marks.iter().find(|(_, at, mark)| stands_at(*at, mark)).map(|&(what, at, _)| (what, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn found(content: &[u8], lba_size: u32) -> Option<(&'static str, u64)> {
        let device = MemoryDevice::new("memory", to_u64(content.len()), lba_size);
        let content = AlignedBuf::padded(content, to_usize(lba_size.into()));
        Port::open(&device, 1).unwrap().write(Lba(0), content, None).unwrap();
        occupant(&device).unwrap().map(|found| (found.what, found.offset))
    }

    #[test]
    fn owner_of_a_device_is_found() {
        let first = [0, 510, 512, 1080, 4095].map(|at| ("data", at, &[1_u8][..]));
        for (what, at, mark) in MARKS.into_iter().chain([TABLE]).chain(first) {
            let mut content = vec![0; 256 << 10];
            content[at..at + mark.len()].copy_from_slice(mark);
            for lba_size in [512, 4096] {
                assert_eq!(found(&content, lba_size), Some((what, to_u64(at))));
            }
        }
    }

    #[test]
    fn what_is_eskers_is_told() {
        assert_eq!(ours(b"ESKCACHE and more"), Some("a cache of Esker's"));
        assert_eq!(ours(b"EKVP"), Some("a drive of an Esker pool"));
        assert_eq!(
            ours(&[&[0; 0x1000][..], b"ESKRSSD1"].concat()),
            Some("an image of a drive of Esker's")
        );
        assert_eq!((ours(b""), ours(b"something else")), (None, None));
    }

    #[test]
    fn rest_behind_a_removed_header_is_nobodys() {
        for bytes in [512, 4096, 64 << 10, 256 << 10] {
            let mut content = vec![0; bytes];
            content.iter_mut().skip(ZEROES).for_each(|byte| *byte = 0xe5);
            assert_eq!(found(&content, 512), None, "{bytes} bytes");
        }
    }
}
