//! The mark of the write buffer's end on the media: without it a loss of the last frames on all copies looks like the end.
//! Sees `drive` and `omf`.

use esker_base::units::to_usize;

use crate::buffer::Ring;
use crate::drive::{Fleet, Io, Read, Write};
use crate::omf::mark::{COPIES, MARK_BYTES, Mark};
use crate::types::id::DriveIndex;

/// A ring: its epoch, its bytes, and the members that have a copy.
type RingPlace<'a> = (u64, u64, &'a [DriveIndex]);

/// Where a copy of the mark lies on a member.
fn place(fleet: &Fleet, ring_bytes: u64, member: DriveIndex, copy: u8) -> Option<u64> {
    let drive = fleet.get(member)?;
    fleet.layout.mark_offset(drive.role, drive.bytes, ring_bytes, copy)
}

/// Whether there is a place for the mark on each copy of the ring: there is none behind a ring of earlier software.
pub(crate) fn has_place(fleet: &Fleet, ring: &Ring) -> bool {
    ring.members.iter().all(|member| place(fleet, ring.bytes, *member, 0).is_some())
}

/// The newest mark of a ring, of whichever copy has it.
pub(crate) fn find(io: &mut Io, ring: &Ring) -> Option<Mark> {
    let copies =
        ring.members.iter().flat_map(|member| (0..COPIES).map(move |copy| (*member, copy)));
    let placed = copies.filter_map(|(drive, copy)| {
        let offset = place(io.fleet(), ring.bytes, drive, copy)?;
        Some((copy, Read { drive, offset, size: to_usize(MARK_BYTES) }))
    });
    let (copies, reads): (Vec<u8>, Vec<Read>) = placed.unzip();
    let pool = io.fleet().pool;
    let answers = copies.into_iter().zip(io.read(&reads));
    let marks = answers
        .filter_map(|(copy, answer)| Mark::decode(&answer.ok()?, pool, ring.epoch, copy).ok());
    marks.max_by_key(|mark| mark.number)
}

/// Writes a mark to all copies of a ring, durably. Says which failed.
pub(crate) fn write(
    io: &mut Io,
    (epoch, ring_bytes, members): RingPlace<'_>,
    mark: &Mark,
) -> Vec<DriveIndex> {
    let mut bytes = mark.encode(io.fleet().pool, epoch);
    bytes.resize(to_usize(MARK_BYTES), 0);
    let fleet = io.fleet().clone();
    let placed = members.iter().filter_map(|member| {
        let offset = place(&fleet, ring_bytes, *member, mark.copy())?;
        Some(Write { drive: *member, offset, bytes: &bytes, class: None, fua: true })
    });
    let writes: Vec<Write<'_>> = placed.collect();
    let results = writes.iter().zip(io.write(&writes));
    results.filter(|(_, result)| result.is_err()).map(|(write, _)| write.drive).collect()
}
