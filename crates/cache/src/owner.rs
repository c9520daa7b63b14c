//! Signs that a flash device has another owner: a file system, a volume, an array, another structure of Esker's.
//!
//! Asked by `copies` when the copies of the superblock at the beginning are damaged, before they are written anew.
//! Data in slots have no checksums, so nobody could tell which of them an owner has overwritten.
//!
//! A partition table alone is no owner of the rest. The partitions are: one that begins with a file system is.

use esker_base::units::to_u64;
use esker_device::occupant::{self, MARKS, Mark, OURS};
use esker_device::{DeviceError, Occupant};

use crate::medium::Medium;

/// Bytes looked at from the beginning of a device, or of a partition.
const LOOKED_AT: usize = 128 << 10;
/// The most partitions of a table.
const MOST_PARTITIONS: usize = 128;

/// Marks of owners, beside those that begin behind zeroes.
const AT_THE_BEGINNING: [Mark; 19] = [
    ("an XFS file system", 0, b"XFSB"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a ReFS file system", 3, b"ReFS\0\0\0\0"),
    ("a FAT file system", 54, b"FAT12   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("an F2FS file system", 0x400, &0xf2f5_2010_u32.to_le_bytes()),
    ("a device of BlueStore", 0, b"bluestore block device"),
    ("an encrypted volume (LUKS)", 0, b"LUKS\xba\xbe"),
    ("a physical volume of LVM", 0, b"LABELONE"),
    ("a physical volume of LVM", 512, b"LABELONE"),
    ("a physical volume of LVM", 1024, b"LABELONE"),
    ("a physical volume of LVM", 1536, b"LABELONE"),
    ("a member of an array (md)", 0, &0xa92b_4efc_u32.to_le_bytes()),
    ("swap space", 0xff6, b"SWAPSPACE2"),
    ("swap space", 0xff6, b"SWAP-SPACE"),
    ("swap space", 0x3ff6, b"SWAPSPACE2"),
    ("swap space", 0xfff6, b"SWAPSPACE2"),
];

/// The owner whose marks are on a device, if any are known.
pub(crate) fn owner(medium: &mut Medium) -> Result<Option<Occupant>, DeviceError> {
    let first = read(medium, 0)?;
    if let Some((what, at)) = marked(&first) {
        return Ok(Some(Occupant { what, offset: to_u64(at) }));
    }
    for start in partitions(&first) {
        let is_whole = start > 0 && start.is_multiple_of(to_u64(medium.lba_size()));
        if !is_whole || start >= medium.bytes() {
            continue;
        }
        if let Some((what, at)) = marked(&read(medium, start)?) {
            return Ok(Some(Occupant { what, offset: start + to_u64(at) }));
        }
    }
    Ok(None)
}

/// Whether a device begins with a partition table.
pub(crate) fn has_partition_table(medium: &mut Medium) -> Result<bool, DeviceError> {
    let first = read(medium, 0)?;
    Ok(first.get(510..512) == Some(&[0x55, 0xaa]) || entries(&first).is_some())
}

/// The bytes from here on that are looked at, as far as they can be read.
fn read(medium: &mut Medium, start: u64) -> Result<Vec<u8>, DeviceError> {
    let left = usize::try_from(medium.bytes() - start).unwrap_or(usize::MAX);
    let size = LOOKED_AT.min(left) / medium.lba_size() * medium.lba_size();
    Ok(medium.read_sound(start, size)?.0)
}

/// The owner of these bytes, and where it shows.
fn marked(bytes: &[u8]) -> Option<(&'static str, usize)> {
    let ext = || is_ext(bytes).then_some(("an ext2, ext3 or ext4 file system", 0x438));
    let mark = occupant::marked(bytes, &AT_THE_BEGINNING);
    let mark = mark.or_else(|| occupant::marked(bytes, &OURS));
    mark.or_else(|| occupant::marked(bytes, &MARKS)).or_else(ext)
}

/// Two bytes are a weak mark: fields beside them have few values.
fn is_ext(bytes: &[u8]) -> bool {
    let field = |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
    let number = |at: usize| field(at).map_or(u32::MAX, u32::from_le_bytes);
    let (block_size, revision) = (number(0x418), number(0x44c));
    bytes.get(0x438..0x43a) == Some(&[0x53, 0xef]) && block_size <= 6 && revision <= 1
}

/// Where the entries of a GPT begin, their size, and the bytes of its LBAs.
fn entries(bytes: &[u8]) -> Option<(usize, usize, u64)> {
    let unit = [512, 4096].into_iter().find(|at| bytes.get(*at..at + 8) == Some(b"EFI PART"))?;
    let lba = u64::from_le_bytes(bytes.get(unit + 72..unit + 80)?.try_into().ok()?);
    let size = u32::from_le_bytes(bytes.get(unit + 84..unit + 88)?.try_into().ok()?);
    let at = usize::try_from(lba).ok()?.checked_mul(unit)?;
    let size = usize::try_from(size).ok().filter(|size| *size >= 128)?;
    Some((at, size, to_u64(unit)))
}

/// Where the partitions of a table in these bytes begin.
fn partitions(bytes: &[u8]) -> Vec<u64> {
    if let Some((at, size, unit)) = entries(bytes) {
        let entries = bytes.get(at..).unwrap_or_default().chunks_exact(size);
        let used = entries.take(MOST_PARTITIONS).filter(|entry| entry[..16] != [0; 16]);
        let first = used.filter_map(|entry| entry[32..40].try_into().ok().map(u64::from_le_bytes));
        return first.filter_map(|lba| lba.checked_mul(unit)).collect();
    }
    if bytes.get(510..512) != Some(&[0x55, 0xaa]) {
        return Vec::new();
    }
    let entries = bytes[446..510].chunks_exact(16).filter(|entry| entry[4] != 0);
    let first = entries.map(|entry| u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]));
    first.flat_map(|lba| [512, 4096].map(|unit| u64::from(lba) * unit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_owners_are_found() {
        for (what, at, mark) in AT_THE_BEGINNING.into_iter().chain(MARKS) {
            let mut bytes = vec![0; LOOKED_AT];
            bytes[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(marked(&bytes), Some((what, at)));
        }
        let mut bytes = vec![0; LOOKED_AT];
        assert_eq!(marked(&bytes), None);
        bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        assert!(marked(&bytes).is_some_and(|(what, _)| what.contains("ext4")));
        bytes[0x418..0x41c].fill(b'x');
        assert_eq!(marked(&bytes), None, "text with the same two bytes");
    }

    #[test]
    fn any_bytes_may_be_looked_at() {
        let mut rng = esker_base::Rng::new(1);
        for size in [0, 1, 511, 512, 600, 4096, 5000, 20_000] {
            for _ in 0..200 {
                let mut bytes: Vec<u8> = (0..size).map(|_| rng.u64().to_le_bytes()[0]).collect();
                for (at, mark) in
                    [(510, &[0x55, 0xaa][..]), (512, b"EFI PART"), (4096, b"EFI PART")]
                {
                    if rng.chance(1, 2) && size >= at + mark.len() {
                        bytes[at..at + mark.len()].copy_from_slice(mark);
                    }
                    if rng.chance(1, 2) && size >= at + 100 {
                        bytes[at + 72..at + 100].fill(0);
                        bytes[at + 72] = 2;
                        bytes[at + 84] = 128;
                    }
                }
                let _ = (marked(&bytes), partitions(&bytes));
            }
        }
    }
}
