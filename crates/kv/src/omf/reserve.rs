//! The list of the reserve, behind the class header in the first 4 KiB of a class that is a file: where the file system
//! has given the file blocks that nothing uses.
//!
//! | offset | size | name | meaning |
//! | --- | --- | --- | --- |
//! | 512 | 8 | magic | `ESKRESRV` |
//! | 520 | 4 | runs | how many follow, at most [`MOST`] |
//! | 524 | 4 | crc | CRC-32C of bytes 512 to 523 and of the runs |
//! | 528 + 16n | 8 | lba | the first LBA of run n |
//! | 536 + 16n | 8 | count | how many LBAs it has |
//!
//! The list is a hint. It is written in place, without a flush, and may name what is in use: readers take of it what the
//! manifest leaves free. A list that is not whole is none.

use esker_base::checksum::crc32c;
use esker_base::codec::{Decoder, Encoder};

/// Where the list begins, in bytes: in another sector than the class header, so that no write of it tears that.
pub(crate) const OFFSET: usize = 512;
/// The most runs that it names.
pub(crate) const MOST: usize = 220;

const MAGIC: &[u8; 8] = b"ESKRESRV";
const HEAD: usize = 16;

/// The list of runs, each with its first LBA and its count; the first [`MOST`] of them.
pub(crate) fn encode(runs: &[(u64, u64)]) -> Vec<u8> {
    let runs = &runs[..runs.len().min(MOST)];
    let count = u32::try_from(runs.len()).expect("at most MOST");
    let mut list = Encoder::default();
    for (lba, count) in runs {
        list.u64(*lba).u64(*count);
    }
    let mut e = Encoder::default();
    e.bytes(MAGIC).u32(count);
    let crc = crc32c(&[&e.0[..], &list.0].concat());
    e.u32(crc).bytes(&list.0);
    e.0
}

/// The runs that a list at the start of `bytes` names; none where there is no whole list.
pub(crate) fn decode(bytes: &[u8]) -> Vec<(u64, u64)> {
    decoded(bytes).unwrap_or_default()
}

fn decoded(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let mut d = Decoder::new(bytes);
    if d.bytes(8, "magic").ok()? != MAGIC {
        return None;
    }
    let count = usize::try_from(d.u32("runs").ok()?).ok().filter(|count| *count <= MOST)?;
    let crc = d.u32("crc").ok()?;
    let list = bytes.get(HEAD..HEAD + 16 * count)?;
    if crc != crc32c(&[&bytes[..HEAD - 4], list].concat()) {
        return None;
    }
    let mut d = Decoder::new(list);
    let mut run = || Some((d.u64("lba").ok()?, d.u64("count").ok()?));
    let runs: Option<Vec<(u64, u64)>> = (0..count).map(|_| run()).collect();
    runs.filter(|runs| runs.iter().all(|(lba, count)| lba.checked_add(*count).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_read_as_written_and_none_where_it_is_damaged() {
        let runs: Vec<(u64, u64)> = (0..300).map(|n| (100 * n, n + 1)).collect();
        for count in [0, 1, MOST, 300] {
            let mut bytes = encode(&runs[..count]);
            assert!(OFFSET + bytes.len() <= 4096);
            assert_eq!(decode(&bytes), runs[..count.min(MOST)]);
            for at in 0..bytes.len() {
                bytes[at] ^= 1;
                assert_eq!(decode(&bytes), [], "{at}");
                bytes[at] ^= 1;
            }
            let short = bytes.len() - 1;
            assert_eq!(decode(&bytes[..short]), []);
        }
        assert_eq!(decode(&[0; 4096 - OFFSET]), []);
    }
}
