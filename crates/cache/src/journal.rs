//! Reads the journal: what the two areas say, and whether they are whole.
//!
//! Called by `store` when a cache is opened.
//!
//! Invariants
//! 1. A record counts when it has the cache's id, the area's sequence, its own offset, the next
//!    number and the checksum of the record before it. The first that does not ends the area.
//! 2. A record is written when the one before it is durable. So what a crash tore is the last one;
//!    a good record behind a bad one means damage, and damage is an error.
//! 3. A newer record in an area without a beginning means damage, too.
//! 4. An area that the newest record says is needed has to be there, up to the record that the
//!    newest area was begun after.

use esker_base::units::{round_up, to_u64, to_usize};

use crate::CacheError;
use crate::layout::Layout;
use crate::omf::{Change, FormatError, RecordHeader, RecordKind, Superblock, record_size};
use crate::store::Medium;

/// What an area says.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) sequence: u64,
    pub(crate) changes: Vec<Change>,
    /// Pages of the table that were about to be written.
    pub(crate) pages: Vec<u32>,
    pub(crate) last: RecordHeader,
    start: RecordHeader,
    /// Where the next record goes.
    pub(crate) end: u64,
    pub(crate) next_number: u64,
    pub(crate) crc: u32,
}

/// What the journal says.
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
        changes: Vec::new(),
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
                match header.kind {
                    RecordKind::Pages => area.pages.extend(changes.iter().map(|c| c.slot)),
                    _ => area.changes.append(&mut superseding(superblock, &header, changes)),
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
