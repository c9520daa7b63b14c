//! Reads the journal: the content of the two areas, and whether they are whole.
//!
//! Called by `store` when a cache is opened.
//!
//! Invariants
//! 1. A record counts when it has the cache's id, the area's sequence, its own offset, the next
//!    number and the checksum of the record before it. The first that does not ends the area.
//! 2. A record is written when the one before it is durable. So a torn record is the last one;
//!    a good record behind a bad one means damage, and damage is an error.
//! 3. A newer record in an area without a beginning means damage, too.
//! 4. An area that the newest record says is needed has to be there, up to the record that the
//!    newest area was begun after.

use esker_base::units::{round_up, to_u64, to_usize};

use crate::CacheError;
use crate::layout::Layout;
use crate::medium::Medium;
use crate::omf::{Change, FormatError, RecordHeader, RecordKind, Superblock, record_size};

/// Content of an area.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) sequence: u64,
    /// Pages of the table that were about to be written.
    pub(crate) pages: Vec<u32>,
    pub(crate) last: RecordHeader,
    start: RecordHeader,
    /// Where the next record goes.
    pub(crate) end: u64,
    pub(crate) next_number: u64,
    pub(crate) crc: u32,
}

/// Content of the journal.
pub(crate) struct Replayed {
    /// The area before the current one, if it is still needed.
    pub(crate) previous: Option<Area>,
    /// The area that is written.
    pub(crate) current: Area,
}

/// Reads both areas.
pub(crate) fn replay(
    medium: &mut Medium,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<Replayed, CacheError> {
    let mut areas: Vec<Area> = Vec::new();
    let mut absent = Vec::new();
    let mut worst = FormatError::Magic("a journal record");
    for index in [0, 1] {
        let bytes = medium.read(layout.area(index), to_usize(layout.area_bytes))?;
        match read_area(&bytes, superblock, index, medium.lba_size()) {
            Ok(area) => areas.push(area),
            Err(Unread::Absent(error)) => {
                worst = error;
                absent.push((index, bytes));
            }
            Err(Unread::Damaged(at, error)) => {
                let at = layout.area(index) + at;
                return Err(CacheError::corrupt(medium.name(), "the journal", at, &error));
            }
        }
    }
    areas.sort_by_key(|area| area.sequence);
    let broken = |error: &FormatError| {
        Err(CacheError::corrupt(medium.name(), "the journal", layout.area(0), error))
    };
    let Some(current) = areas.pop() else { return broken(&worst) };
    // An area whose beginning is gone was never begun, or is older; unless it was damaged.
    for (index, bytes) in absent {
        let is_newer = |tail: &[u8]| {
            RecordHeader::decode(tail).is_ok_and(|(header, _, _)| {
                header.id == superblock.id && header.sequence > current.sequence
            })
        };
        let mut tails = (0..bytes.len()).step_by(medium.lba_size()).map(|at| &bytes[at..]);
        if tails.any(is_newer) {
            let at = layout.area(index);
            return Err(CacheError::corrupt(medium.name(), "the journal", at, &worst));
        }
    }
    if !current.last.needs_previous {
        return Ok(Replayed { previous: None, current });
    }
    let Some(previous) = areas.pop() else { return broken(&worst) };
    let links = [
        ("the sequence of the area before", previous.sequence + 1, current.sequence),
        ("the number of its last record", previous.next_number, current.start.number),
        ("the checksum of its last record", previous.crc.into(), current.start.previous_crc.into()),
    ];
    match links.into_iter().find(|(_, found, expected)| found != expected) {
        Some((what, found, expected)) => broken(&FormatError::Mismatch { what, found, expected }),
        None => Ok(Replayed { previous: Some(previous), current }),
    }
}

#[derive(Debug)]
enum Unread {
    /// The area was never begun, or a crash tore its beginning.
    Absent(FormatError),
    /// Something in it was changed after it was written.
    Damaged(u64, FormatError),
}

fn read_area(
    bytes: &[u8],
    superblock: &Superblock,
    index: u64,
    lba_size: usize,
) -> Result<Area, Unread> {
    let absent =
        |what, found, expected| Unread::Absent(FormatError::Mismatch { what, found, expected });
    let (start, _, start_crc) = RecordHeader::decode(bytes).map_err(Unread::Absent)?;
    if start.id != superblock.id {
        return Err(absent("the cache's id", start.id, superblock.id));
    }
    if start.kind != RecordKind::Start || start.offset != 0 || start.sequence % 2 != index {
        return Err(absent("the start of an area", start.sequence % 2, index));
    }
    let step = |changes| round_up(to_u64(record_size(changes)), to_u64(lba_size));
    let mut area = Area {
        sequence: start.sequence,
        pages: Vec::new(),
        last: start,
        start,
        end: step(0),
        next_number: start.number + 1,
        crc: start_crc,
    };
    let follows = |area: &Area, at: u64| {
        let tail = bytes.get(to_usize(at)..).unwrap_or_default();
        let (header, changes, crc) = RecordHeader::decode(tail)?;
        let checks = [
            ("the cache's id", header.id, superblock.id),
            ("the sequence", header.sequence, area.sequence),
            ("the offset", header.offset.into(), at),
            ("the number", header.number, area.next_number),
            ("the checksum before", header.previous_crc.into(), area.crc.into()),
        ];
        match checks.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(FormatError::Mismatch { what, found, expected }),
            None => Ok((header, changes, crc)),
        }
    };
    let end = loop {
        match follows(&area, area.end) {
            Ok((header, changes, crc)) => {
                area.end += step(changes.len());
                if header.kind == RecordKind::Pages {
                    area.pages.extend(changes.iter().map(|change| change.slot));
                }
                area.last = header;
                area.next_number += 1;
                area.crc = crc;
            }
            Err(error) => break error,
        }
    };
    // Nothing is behind the last record, unless something was damaged (invariant 2).
    let is_later = |at: u64| {
        let tail = bytes.get(to_usize(at)..).unwrap_or_default();
        RecordHeader::decode(tail).is_ok_and(|(header, _, _)| {
            header.id == superblock.id
                && header.sequence == area.sequence
                && header.number >= area.next_number
        })
    };
    let lbas = (area.end..to_u64(bytes.len())).step_by(lba_size);
    match lbas.into_iter().any(is_later) {
        true => Err(Unread::Damaged(area.end, end)),
        false => Ok(area),
    }
}

/// Calls `take` with every change of an area that was read, in their order. It reads them once more: all of them at
/// once take several times the memory of a cache.
pub(crate) fn changes(
    medium: &mut Medium,
    superblock: &Superblock,
    layout: &Layout,
    area: &Area,
    mut take: impl FnMut(Change),
) -> Result<(), CacheError> {
    let start = layout.area_of(area.sequence);
    let bytes = medium.read(start, to_usize(area.end))?;
    let mut at = 0;
    while at < area.end {
        let found = RecordHeader::decode(&bytes[to_usize(at)..]);
        let (header, changes, _) = found.map_err(|error| {
            // It was whole a moment ago.
            CacheError::corrupt(medium.name(), "the journal", start + at, &error)
        })?;
        at += round_up(to_u64(record_size(changes.len())), to_u64(medium.lba_size()));
        if header.kind != RecordKind::Pages {
            superseding(superblock, &header, changes).into_iter().for_each(&mut take);
        }
    }
    Ok(())
}

/// The changes of a record; clean names of another epoch are void.
fn superseding(
    superblock: &Superblock,
    header: &RecordHeader,
    mut changes: Vec<Change>,
) -> Vec<Change> {
    use crate::omf::Name;
    if header.clean_epoch != superblock.clean_epoch {
        for change in &mut changes {
            if matches!(change.name, Name::Clean(_)) {
                change.name = Name::None;
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omf::{Name, RecordHeader};

    #[test]
    fn a_record_counts_only_behind_the_one_it_was_written_after() {
        let superblock = Superblock {
            mode: 0,
            state: 0,
            mapping: 0,
            generation: 1,
            id: 7,
            origin_bytes: 1 << 20,
            flash_bytes: 1 << 20,
            set_slots: 16,
            rows: crate::omf::Rows::one(16),
            run_blocks: 4,
            sets: 2,
            clean_epoch: 1,
            area_bytes: 64 << 10,
            origin: crate::omf::Origin::default(),
        };
        let header = |kind, number, offset, previous_crc| RecordHeader {
            kind,
            needs_previous: false,
            id: 7,
            sequence: 1,
            number,
            offset,
            previous_crc,
            clean_epoch: 1,
            dirty: 0,
            named: 0,
        };
        let (start, crc) = header(RecordKind::Start, 1, 0, 0).encode(&[]);
        let change = Change { slot: 3, name: Name::Dirty(5) };
        let changes_behind = |previous_crc: u32, number: u64, offset: u32| {
            let record =
                header(RecordKind::Names, number, offset, previous_crc).encode(&[change]).0;
            let mut bytes = vec![0; 64 << 10];
            bytes[..start.len()].copy_from_slice(&start);
            bytes[512..512 + record.len()].copy_from_slice(&record);
            read_area(&bytes, &superblock, 1, 512).map(|area| area.next_number - 2)
        };
        assert_eq!(changes_behind(crc, 2, 512).unwrap(), 1);
        // It is the next one by its number, but was written behind another.
        assert!(!matches!(changes_behind(crc ^ 1, 2, 512), Ok(1)));
        assert!(!matches!(changes_behind(crc, 2, 1024), Ok(1)));
        assert!(!matches!(changes_behind(crc, 3, 512), Ok(1)));
    }
}
