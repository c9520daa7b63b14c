//! The copies of the superblock: finds the newest, changes all, repairs damaged ones.
//!
//! Called by `store` and by the cache when it is made, opened or detached; calls `owner` when the beginning is damaged.
//!
//! Invariants
//! 1. Copy 0 is durable before the others are changed. So copy 0 is the newest one, if it is whole.
//! 2. Before a copy is changed, all of them are whole, and of the same superblock. So a crash tears none that is needed.
//! 3. A superblock of another size has its copy 2 elsewhere. That one is durable, and then the old one is gone,
//!    before copy 0 counts the size. So no copy 2 that can be found is older than the superblock that counts.
//! 4. Nothing is written over the marks of another owner.

use esker_base::units::{round_down, to_u64};
use esker_device::DeviceError;

use crate::CacheError;
use crate::medium::Medium;
use crate::omf::{
    BLOCK, BLOCK_SIZE, COPIES, FormatError, RecordHeader, RecordKind, Superblock, TAIL,
};
use crate::owner::owner;

/// The superblock of a flash device.
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    /// Copies that are damaged.
    pub(crate) damaged: Vec<u32>,
    /// Copies that do not say the same: these, and older ones.
    differing: Vec<u32>,
}

/// Finds the superblock of a flash device. Nothing is written.
pub(crate) fn find(medium: &mut Medium) -> Result<Found, CacheError> {
    let none = |medium: &mut Medium| {
        // A device that cannot be read may hold anything: that there is no cache is the answer all the same.
        let found = owner(medium).unwrap_or_default();
        CacheError::NoCache { device: medium.name().to_owned(), found }
    };
    // A device without room for a superblock has no cache; creating one there reports the reason.
    if medium.bytes() < 2 * BLOCK {
        return Err(none(medium));
    }
    let heads = [0, 1].map(|copy| read(medium, u64::from(copy) * BLOCK, copy));
    let newest = heads.iter().flatten().max_by_key(|found| found.generation).cloned();
    let is_other = |error: &FormatError| matches!(error, FormatError::Version { .. });
    let rest = match newest {
        // A later version knows better what stands at the end.
        None if !heads.iter().flat_map(|head| head.as_ref().err()).any(is_other) => {
            places(medium)?.into_iter().find_map(|place| read(medium, place, 2).ok())
        }
        newest => newest,
    };
    let Some(mut superblock) = rest else {
        let [first, second] = heads.map(|head| head.expect_err("neither is good"));
        let is_none =
            |error: &FormatError| matches!(error, FormatError::Empty | FormatError::Magic(_));
        return Err(match (first, second) {
            (first, second) if is_none(&first) && is_none(&second) => none(medium),
            (FormatError::Unreadable(error), FormatError::Unreadable(_)) => error.into(),
            (first, second) => {
                let worse = if is_none(&first) { second } else { first };
                CacheError::corrupt(medium.name(), "the superblock", 0, &worse)
            }
        });
    };
    if heads.iter().any(Result::is_err)
        && let Some(found) = owner(medium)?
    {
        return Err(CacheError::Overwritten { device: medium.name().to_owned(), found });
    }
    let last = superblock.last_copy().map(|place| read(medium, place, 2));
    let copies: Vec<_> = heads.into_iter().chain(last).collect();
    let own = copies.iter().flatten().filter(|copy| copy.id == superblock.id);
    if let Some(newest) = own.max_by_key(|copy| copy.generation) {
        superblock = newest.clone();
    }
    let numbered = || (0..COPIES).zip(&copies);
    let damaged = numbered().filter(|(_, copy)| copy.is_err()).map(|(n, _)| n).collect();
    let is_same = |copy: &Result<Superblock, FormatError>| copy.as_ref() == Ok(&superblock);
    let differing = numbered().filter(|(_, copy)| !is_same(copy)).map(|(n, _)| n).collect();
    Ok(Found { damaged, differing, superblock })
}

/// Reads the superblock that is copy `copy` at `place`.
fn read(medium: &mut Medium, place: u64, copy: u32) -> Result<Superblock, FormatError> {
    if place + BLOCK > medium.bytes() {
        return Err(FormatError::Empty);
    }
    let bytes = medium.read(place, BLOCK_SIZE).map_err(FormatError::Unreadable)?;
    let found = Superblock::decode(&bytes, copy)?;
    match found.copy(copy) {
        Some(expected) if expected == place => Ok(found),
        expected => {
            let expected = expected.unwrap_or_default();
            Err(FormatError::Mismatch { what: "the place", found: place, expected })
        }
    }
}

/// Where copy 2 may be, if nothing else tells: near the end of the device, and where the first record of the journal
/// says that the used bytes end.
fn places(medium: &mut Medium) -> Result<Vec<u64>, DeviceError> {
    let bytes = medium.bytes();
    let mut ends = vec![round_down(bytes, BLOCK)];
    if bytes >= 3 * BLOCK {
        let (first, _) = medium.read_sound(2 * BLOCK, BLOCK_SIZE)?;
        if let Ok((RecordHeader { kind: RecordKind::Start, used_blocks, .. }, _, _)) =
            RecordHeader::decode(&first)
        {
            ends.push(u64::from(used_blocks) * BLOCK);
        }
    }
    ends.dedup();
    let is_there = |end: &u64| *end > TAIL && *end <= bytes;
    Ok(ends.into_iter().filter(is_there).map(|end| end - TAIL).collect())
}

/// Writes the copies that are damaged or older anew.
pub(crate) fn mend(medium: &mut Medium, found: &Found) -> Result<(), DeviceError> {
    found.differing.iter().try_for_each(|&copy| write_copy(medium, &found.superblock, copy))?;
    forget_stale(medium, Some(&found.superblock))
}

fn write_copy(medium: &mut Medium, superblock: &Superblock, copy: u32) -> Result<(), DeviceError> {
    match superblock.copy(copy) {
        Some(place) => medium.write(place, &superblock.encode(copy), true),
        None => Ok(()),
    }
}

/// Makes every copy 2 unreadable that could be found and is not that of `kept`: of the same cache, or of any if there
/// is none to keep. A crash while the size changed leaves such a one.
fn forget_stale(medium: &mut Medium, kept: Option<&Superblock>) -> Result<(), DeviceError> {
    // A cache of an older version has slots there.
    if kept.is_some_and(|it| it.last_copy().is_none()) {
        return Ok(());
    }
    for place in places(medium)? {
        if kept.is_some_and(|it| it.last_copy() == Some(place)) {
            continue;
        }
        let found = read(medium, place, 2);
        if found.is_ok_and(|found| kept.is_none_or(|it| it.id == found.id)) {
            erase(medium, place)?;
        }
    }
    Ok(())
}

fn erase(medium: &mut Medium, place: u64) -> Result<(), DeviceError> {
    medium.zero(place, BLOCK)?;
    medium.flush()
}

/// Writes all copies of the superblock.
pub(crate) fn write(medium: &mut Medium, superblock: &Superblock) -> Result<(), CacheError> {
    let there = match find(medium) {
        Err(error @ CacheError::Overwritten { .. }) => return Err(error),
        there => there.ok().filter(|found| found.superblock.id == superblock.id),
    };
    if let Some(found) = &there {
        // A crash may have torn a copy. The others are all there is then: they are changed once it is good again.
        mend(medium, found)?;
        let (old, new) = (found.superblock.last_copy(), superblock.last_copy());
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            write_copy(medium, superblock, 2)?;
            erase(medium, old)?;
        }
    }
    write_copy(medium, superblock, 0)?;
    let rest: Vec<_> = [1, 2]
        .into_iter()
        .filter_map(|copy| Some((superblock.copy(copy)?, superblock.encode(copy))))
        .collect();
    let rest: Vec<(u64, &[u8])> = rest.iter().map(|(place, bytes)| (*place, &bytes[..])).collect();
    Ok(medium.write_copies(&rest)?)
}

/// Takes a superblock off the medium, durably, so that nothing of it comes back.
pub(crate) fn remove(medium: &mut Medium) -> Result<(), CacheError> {
    // Copies 1 and 2 are never newer than copy 0, and must not come back. Copy 0 goes with its first LBA: if a crash
    // tore it, it would be damaged, and not gone.
    let last = find(medium).ok().and_then(|found| found.superblock.last_copy());
    forget_stale(medium, None)?;
    if let Some(place) = last {
        erase(medium, place)?;
    }
    let first = to_u64(medium.lba_size());
    for (offset, size) in [(BLOCK, BLOCK), (0, first), (0, BLOCK)] {
        medium.zero(offset, size)?;
        medium.flush()?;
    }
    Ok(())
}
