//! Reads the journal: the content of the two areas, and whether they are whole.
//!
//! Called by `store` when a cache is opened.
//!
//! An area has two copies, one before version 4, with the same records at the same offsets. A record is read from
//! whichever copy is sound.
//!
//! Invariants
//! 1. A record counts when it has the cache's id, the area's sequence, its own offset, the next
//!    number and the checksum of the record before it. The first that no copy has ends the area.
//! 2. A record is written when the one before it is durable in all copies. So a torn record is the last one;
//!    a good record behind one without a good copy means damage, and damage is an error.
//! 3. A newer record in an area without a beginning, or with an older one, means damage, too.
//! 4. An area that the newest record says is needed has to be there, up to the record that the
//!    newest area was begun after.

use std::collections::BTreeSet;

use esker_base::units::{round_up, to_u64, to_usize};
use esker_device::DeviceError;

use crate::CacheError;
use crate::layout::Layout;
use crate::medium::{self, Medium};
use crate::omf::{
    BLOCK, Change, FormatError, RecordHeader, RecordKind, SINGLE, Superblock, record_size,
};

/// Bytes of an area that are compared, or repaired, at once.
const CHUNK: u64 = 1 << 20;

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
    /// Where the last record is.
    last_at: u64,
    damaged: Vec<Part>,
}

/// Bytes of the flash device with journal records that another copy has whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where the damage is, and the sound copy of it.
    at: u64,
    sound: u64,
    pub(crate) size: u64,
    /// Whether it is the newest record, which a crash may have torn.
    pub(crate) is_last: bool,
}

impl Area {
    /// Parts of it that are damaged in one copy.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = Part> + '_ {
        self.damaged.iter().copied()
    }
}

/// Content of the journal.
pub(crate) struct Replayed {
    /// The area before the current one, if it is still needed.
    pub(crate) previous: Option<Area>,
    /// The area that is written.
    pub(crate) current: Area,
}

/// Bytes of an area: those of each copy that differs from the one before it.
struct Content {
    copies: Vec<Vec<u8>>,
    /// Where each copy begins on the flash device.
    places: Vec<u64>,
    /// Blocks of each copy that could not be read.
    unread: Vec<medium::Unread>,
}

impl Content {
    fn read(medium: &mut Medium, layout: &Layout, index: u64) -> Result<Content, DeviceError> {
        let (places, size) = (layout.areas_of(index).collect::<Vec<_>>(), layout.area_bytes);
        let [first, second] = places[..] else {
            // Nothing stands in for bytes that cannot be read.
            let bytes = medium.read(places[0], to_usize(size))?;
            return Ok(Content { copies: vec![bytes], places, unread: vec![Vec::new()] });
        };
        let (bytes, unread) = medium.read_sound(first, to_usize(size))?;
        let mut unread = vec![unread, Vec::new()];
        // Nearly always they are the same, and one is enough in memory.
        for at in (0..size).step_by(to_usize(CHUNK)) {
            let part = to_usize(CHUNK.min(size - at));
            let (other, others) = medium.read_sound(second + at, part)?;
            if other != bytes[to_usize(at)..to_usize(at) + part] {
                let (other, others) = medium.read_sound(second, to_usize(size))?;
                unread[1] = others;
                return Ok(Content { copies: vec![bytes, other], places, unread });
            }
            unread[1].extend(others);
        }
        Ok(Content { copies: vec![bytes], places, unread })
    }

    /// Decodes what each copy has at an offset.
    fn decode(&self, at: u64) -> impl Iterator<Item = Result<Record, FormatError>> + '_ {
        self.copies
            .iter()
            .map(move |bytes| RecordHeader::decode(bytes.get(to_usize(at)..).unwrap_or_default()))
    }

    /// Why no copy of the block at an offset could be read, if none could.
    fn unreadable(&self, at: u64) -> Option<FormatError> {
        let block = at / BLOCK * BLOCK;
        let of = |(unread, place): (&medium::Unread, &u64)| {
            let found = unread.iter().find(|(at, _)| *at == place + block);
            found.map(|(_, error)| error.clone())
        };
        let errors: Option<Vec<DeviceError>> =
            self.unread.iter().zip(&self.places).map(of).collect();
        errors.and_then(|errors| errors.into_iter().next()).map(FormatError::Unreadable)
    }

    /// Notes the copies that have no sound record at `at`, where others have one of `size` bytes.
    fn note(&self, is_sound: &[bool], at: u64, size: u64, damaged: &mut Vec<Part>) {
        let Some(sound) = is_sound.iter().position(|is_sound| *is_sound) else { return };
        let bad = is_sound.iter().zip(&self.places).filter(|(is_sound, _)| !**is_sound);
        for (_, place) in bad {
            let part =
                Part { at: place + at, sound: self.places[sound] + at, size, is_last: false };
            match damaged.last_mut() {
                Some(last) if last.at + last.size == part.at && last.size < CHUNK => {
                    last.size += size;
                }
                _ => damaged.push(part),
            }
        }
    }
}

/// A record, its changes, and its checksum.
type Record = (RecordHeader, Vec<Change>, u32);

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
        let content = Content::read(medium, layout, index)?;
        match read_area(&content, superblock, index, medium.lba_size()) {
            Ok(area) => areas.push(area),
            Err(Unread::Absent(error)) => {
                worst = error;
                absent.push((index, content));
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
    let Some(mut current) = areas.pop() else {
        return match worst {
            FormatError::Unreadable(error) => Err(error.into()),
            worst => broken(&worst),
        };
    };
    // An area whose beginning is gone was never begun, or is older; unless it was damaged.
    for (index, content) in absent {
        let newer = later(&content, superblock, medium.lba_size(), 0, |header| {
            header.sequence > current.sequence && header.sequence % 2 == index
        });
        if let (Some(first), Some(last)) = (newer.first(), newer.last()) {
            let lost = (last + 1).saturating_sub(current.next_number.min(*first));
            let later = to_u64(newer.len());
            let error = FormatError::Lost { lost: lost.saturating_sub(later), later };
            let at = layout.area(index);
            return Err(CacheError::corrupt(medium.name(), "the journal", at, &error));
        }
    }
    current.damaged.iter_mut().for_each(|part| {
        part.is_last = layout.areas_of(current.sequence).any(|it| it + current.last_at == part.at);
    });
    if !current.last.needs_previous {
        return Ok(Replayed { previous: None, current });
    }
    let Some(previous) = areas.pop() else { return broken(&worst) };
    if previous.sequence + 1 == current.sequence && previous.next_number < current.start.number {
        let lost = current.start.number - previous.next_number;
        let later = current.next_number - current.start.number;
        return broken(&FormatError::Lost { lost, later });
    }
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

/// The first record of an area, and which copies have it. A crash may have replaced it in one copy only: the newer one
/// counts.
fn read_start(
    content: &Content,
    superblock: &Superblock,
    index: u64,
) -> Result<(RecordHeader, u32, Vec<bool>), FormatError> {
    let starts: Vec<_> = content
        .decode(0)
        .map(|start| {
            let (start, _, crc) = start?;
            let wrong = |what, found, expected| FormatError::Mismatch { what, found, expected };
            if start.id != superblock.id {
                return Err(wrong("the cache's id", start.id, superblock.id));
            }
            if start.kind != RecordKind::Start || start.offset != 0 || start.sequence % 2 != index {
                return Err(wrong("the start of an area", start.sequence % 2, index));
            }
            Ok((start, crc))
        })
        .collect();
    let newest = starts.iter().flatten().max_by_key(|(start, _)| start.sequence).copied();
    match newest {
        Some((start, crc)) => {
            let is_sound = starts.iter().map(|it| *it == Ok((start, crc))).collect();
            Ok((start, crc, is_sound))
        }
        None => Err(starts.into_iter().find_map(Result::err).expect("an area has a copy")),
    }
}

fn read_area(
    content: &Content,
    superblock: &Superblock,
    index: u64,
    lba_size: usize,
) -> Result<Area, Unread> {
    let (start, crc, is_sound) = read_start(content, superblock, index)
        .map_err(|error| Unread::Absent(content.unreadable(0).unwrap_or(error)))?;
    let step = |changes| round_up(to_u64(record_size(changes)), to_u64(lba_size));
    let mut area = Area {
        sequence: start.sequence,
        pages: Vec::new(),
        last: start,
        start,
        end: step(0),
        next_number: start.number + 1,
        crc,
        last_at: 0,
        damaged: Vec::new(),
    };
    content.note(&is_sound, 0, area.end, &mut area.damaged);
    let follows = |area: &Area, found: Result<Record, FormatError>| {
        let (header, changes, crc) = found?;
        let checks = [
            ("the cache's id", header.id, superblock.id),
            ("the sequence", header.sequence, area.sequence),
            ("the offset", header.offset.into(), area.end),
            ("the number", header.number, area.next_number),
            ("the checksum before", header.previous_crc.into(), area.crc.into()),
        ];
        match checks.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(FormatError::Mismatch { what, found, expected }),
            None => Ok((header, changes, crc)),
        }
    };
    loop {
        let found: Vec<_> = content.decode(area.end).map(|it| follows(&area, it)).collect();
        let is_sound: Vec<bool> = found.iter().map(Result::is_ok).collect();
        let Some((header, changes, crc)) = found.into_iter().find_map(Result::ok) else { break };
        let size = step(changes.len());
        content.note(&is_sound, area.end, size, &mut area.damaged);
        (area.last_at, area.end) = (area.end, area.end + size);
        if header.kind == RecordKind::Pages {
            area.pages.extend(changes.iter().map(|change| change.slot));
        }
        area.last = header;
        area.next_number += 1;
        area.crc = crc;
    }
    // Nothing is behind the last record, unless something was damaged (invariants 2 and 3).
    let later = later(content, superblock, lba_size, area.end, |header| {
        let is_newer = header.sequence > area.sequence && header.sequence % 2 == index;
        is_newer || (header.sequence == area.sequence && header.number >= area.next_number)
    });
    match later.last() {
        Some(last) => {
            let later = to_u64(later.len());
            let lost = (last + 1 - area.next_number).saturating_sub(later);
            Err(Unread::Damaged(area.end, FormatError::Lost { lost, later }))
        }
        // A record may have been there.
        None => match content.unreadable(area.end) {
            Some(error) => Err(Unread::Damaged(area.end, error)),
            None => Ok(area),
        },
    }
}

/// The numbers of this cache's records from `from` on, in any copy, that are `such`.
fn later(
    content: &Content,
    superblock: &Superblock,
    lba_size: usize,
    from: u64,
    such: impl Fn(&RecordHeader) -> bool,
) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for bytes in &content.copies {
        for at in (to_usize(from)..bytes.len()).step_by(lba_size) {
            if let Ok((header, _, _)) = RecordHeader::decode(&bytes[at..])
                && header.id == superblock.id
                && such(&header)
            {
                numbers.insert(header.number);
            }
        }
    }
    numbers
}

impl Part {
    /// The whole blocks in which it lies: a medium goes bad by its pages. Itself if its sound copy has damage there.
    fn widened(&self, all: &[Part]) -> Part {
        let before = self.at % BLOCK;
        let size = round_up(before + self.size, BLOCK);
        let wide = Part { at: self.at - before, sound: self.sound - before, size, ..*self };
        let is_bad =
            |other: &Part| other.at < wide.sound + wide.size && wide.sound < other.at + other.size;
        if all.iter().any(is_bad) { *self } else { wide }
    }
}

/// Writes damaged parts anew from their sound copies, durably.
pub(crate) fn mend(medium: &mut Medium, parts: &[Part]) -> Result<(), DeviceError> {
    for part in parts.iter().map(|part| part.widened(parts)) {
        for from in (0..part.size).step_by(to_usize(CHUNK)) {
            let size = to_usize(CHUNK.min(part.size - from));
            let bytes = medium.read(part.sound + from, size)?;
            medium.write(part.at + from, &bytes, false)?;
        }
    }
    if parts.is_empty() { Ok(()) } else { medium.flush() }
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
    let start = layout.area(area.sequence % 2);
    let mut bytes = match superblock.version {
        ..=SINGLE => medium.read(start, to_usize(area.end))?,
        _ => medium.read_sound(start, to_usize(area.end))?.0,
    };
    let in_first = |part: &&Part| (start..start + layout.area_bytes).contains(&part.at);
    for part in area.damaged.iter().filter(in_first) {
        let from = to_usize(part.at - start);
        let sound = medium.read(part.sound, to_usize(part.size))?;
        bytes[from..from + sound.len()].copy_from_slice(&sound);
    }
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
            version: crate::omf::VERSION,
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
            used_blocks: 0,
        };
        let (start, crc) = header(RecordKind::Start, 1, 0, 0).encode(&[]);
        let change = Change { slot: 3, name: Name::Dirty(5) };
        let changes_behind = |previous_crc: u32, number: u64, offset: u32| {
            let record =
                header(RecordKind::Names, number, offset, previous_crc).encode(&[change]).0;
            let mut bytes = vec![0; 64 << 10];
            bytes[..start.len()].copy_from_slice(&start);
            bytes[512..512 + record.len()].copy_from_slice(&record);
            let (places, unread) = (vec![8192], vec![Vec::new()]);
            let content = Content { copies: vec![bytes], places, unread };
            read_area(&content, &superblock, 1, 512).map(|area| area.next_number - 2)
        };
        assert_eq!(changes_behind(crc, 2, 512).unwrap(), 1);
        // It is the next one by its number, but was written behind another.
        assert!(!matches!(changes_behind(crc ^ 1, 2, 512), Ok(1)));
        assert!(!matches!(changes_behind(crc, 2, 1024), Ok(1)));
        assert!(!matches!(changes_behind(crc, 3, 512), Ok(1)));
    }
}
