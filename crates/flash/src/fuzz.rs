//! Fuzz targets: any bytes in place of a structure of a drive's image, or of an option that a user gives. Each says
//! whether they were accepted. Run by `fuzz/`, and on their corpora by the test below.
//!
//! 1. No bytes make a target panic.
//! 2. Accepted bytes are encoded to bytes that decode to the same.
//! 3. A structure is decoded with its checksum as it is, and with one that fits.

#![allow(unreachable_pub)] // public for `fuzz/` alone

use esker_base::checksum::crc32c;
use esker_base::codec::Decoder;
use esker_base::units::to_usize;

use crate::FlashError;
use crate::drive::omf::{BLOCK, Checkpoint, Frame, Superblock};
use crate::ftl::Cleaning;

/// A superblock, and the parameters of a drive in it.
pub fn flash_superblock(data: &[u8]) -> bool {
    // The checksum is behind the last byte that is not zero, or among the zeroes there.
    let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    (0..8).any(|back| {
        sound(data, end.saturating_sub(back), |bytes| {
            let found = Superblock::decode(bytes)?;
            if let Ok(encoded) = found.encode() {
                assert!(Superblock::decode(&encoded).is_ok_and(|again| again == found));
            }
            if found.parameters.check().is_ok() {
                assert!(Checkpoint::most_bytes(&found.parameters, 1) > 0);
            }
            Ok(())
        })
    })
}

/// A checkpoint of the epoch that it states.
pub fn flash_checkpoint(data: &[u8]) -> bool {
    let epoch = u64_at(data, 8);
    let size = Checkpoint::size(data, epoch).unwrap_or_default();
    sound(data, usize::try_from(size.saturating_sub(4)).unwrap_or(usize::MAX), |bytes| {
        let found = Checkpoint::decode(bytes, epoch)?;
        let again = Checkpoint::decode(&found.encode(epoch)?, epoch)?;
        assert_eq!(again, found);
        Ok(())
    })
}

/// A frame of the journal, of the epoch and the number that it states.
pub fn flash_frame(data: &[u8]) -> bool {
    let (epoch, index) = (u64_at(data, 8), to_usize(u64_at(data, 4) & 0xffff_ffff));
    let index = u32::try_from(index).unwrap_or_default();
    sound(data, BLOCK - 4, |bytes| {
        let Some(found) = Frame::decode(bytes, epoch, index)? else {
            return Err(FlashError::Corrupt("no frame".into()));
        };
        assert_eq!(Frame::decode(&found.encode(), epoch, index)?, Some(found));
        Ok(())
    })
}

/// A way of cleaning, as a user says it.
pub fn flash_cleaning(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let cleaning = text.parse::<Cleaning>();
    if let Ok(cleaning) = &cleaning {
        assert_eq!(cleaning.to_string().parse::<Cleaning>().as_ref(), Ok(cleaning));
    }
    cleaning.is_ok()
}

/// Whether bytes are accepted as they are, or with a checksum of all before `at` there.
fn sound(data: &[u8], at: usize, decode: impl Fn(&[u8]) -> Result<(), FlashError>) -> bool {
    let mut mended = data.to_vec();
    if let Some((meant, sum)) = mended.split_at_mut_checked(at)
        && let Some(sum) = sum.first_chunk_mut()
    {
        *sum = crc32c(meant).to_le_bytes();
    }
    decode(data).is_ok() | decode(&mended).is_ok()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    Decoder::new(bytes.get(at..).unwrap_or_default()).u64("field").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use esker_sim::fuzz::{Target, Watched, replay};

    use super::*;
    use crate::drive::omf::tests as omf;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    #[test]
    fn corpora_are_accepted_and_mutations_do_no_harm() {
        let one = |name, run, bytes| Target::new(name, run, vec![("golden", bytes)]);
        let checkpoint = omf::checkpoint().encode(8).unwrap();
        replay(&[
            one("flash_superblock", flash_superblock, omf::superblock().encode().unwrap()),
            one("flash_checkpoint", flash_checkpoint, checkpoint),
            one("flash_frame", flash_frame, omf::frame().encode()),
            Target::of_texts(
                "flash_cleaning",
                flash_cleaning,
                &[("choices", "choices:10"), ("greedy", "greedy")],
            ),
        ]);
    }
}
