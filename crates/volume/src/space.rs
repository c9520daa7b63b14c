//! The table of segments and the free slots of the drives. Sees `types`, `omf` and `drive`.
//!
//! Invariants
//! 1. A slot is free, or belongs to one segment of the table, or to one that was freed and waits.
//! 2. `live_bytes` of a segment is the sum of what the map points to in it, rounded to sectors.
//! 3. A segment that became empty keeps its slots until a checkpoint is durable that does not name it, and no reader
//!    that began before is left.

mod room;

pub(crate) use room::{Lasting, Room};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::Rng;
use esker_base::units::to_u64;

use crate::drive::Layout;
use crate::omf::root::SegmentRow;
use crate::space::room::segments_in;
use crate::types::id::{DriveIndex, Generation, SegmentId, Seqno, SlotIndex};
use crate::types::u32_of;

/// The class of a segment's data, which dies together as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Leaves and nodes of the map.
    Metadata,
    /// Blocks that leave the write buffer.
    Fresh,
    /// Blocks that were moved by cleaning while young.
    Warm,
    /// Blocks that were moved by cleaning when they were old.
    Cold,
    /// Blocks that leave the write buffer and will be overwritten soon, as what they replaced was.
    Hot,
    /// Blocks that were written with this placement handle of a volume, from 1 on.
    Stream(u8),
}

/// Placement handles of a volume. What is written with the first one, or with none, is told apart by lifespan.
pub(crate) const HANDLES: u8 = 4;

impl Class {
    /// All of them, by their number.
    pub const ALL: [Class; 8] = [
        Class::Metadata,
        Class::Fresh,
        Class::Warm,
        Class::Cold,
        Class::Hot,
        Class::Stream(1),
        Class::Stream(2),
        Class::Stream(3),
    ];

    pub(crate) fn number(self) -> u8 {
        match self {
            Class::Metadata => 0,
            Class::Fresh => 1,
            Class::Warm => 2,
            Class::Cold => 3,
            Class::Hot => 4,
            Class::Stream(handle) => 4 + handle,
        }
    }

    pub(crate) fn of_number(number: u8) -> Class {
        Class::ALL.get(usize::from(number)).copied().unwrap_or(Class::Cold)
    }

    /// Whether it is only opened where there is space enough: what belongs there may go to the fresh ones, too.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Class::Hot | Class::Stream(_))
    }
}

/// Where the chunks of a segment are. As long as a reader has it, they stay there.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) id: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) parity: u8,
    /// Those of data, then the parities.
    pub(crate) places: Vec<(DriveIndex, SlotIndex)>,
}

impl Chunks {
    fn of(row: &SegmentRow) -> Arc<Chunks> {
        let SegmentRow { id, generation, parity, chunks, .. } = row;
        let (id, generation, parity) = (*id, *generation, *parity);
        Arc::new(Chunks { id, generation, parity, places: chunks.clone() })
    }

    /// How many of them hold data.
    pub(crate) fn data(&self) -> usize {
        self.places.len() - usize::from(self.parity)
    }
}

/// A segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) row: SegmentRow,
    pub(crate) chunks: Arc<Chunks>,
    pub(crate) class: Class,
    /// A writer goes on to append to it.
    pub(crate) is_open: bool,
    /// Something in it could not be read or was wrong: it is to be moved first.
    pub(crate) is_damaged: bool,
}

impl Segment {
    pub(crate) fn data_chunks(&self) -> usize {
        self.row.chunks.len() - usize::from(self.row.parity)
    }
}

/// The slots of a drive.
#[derive(Debug, Default)]
struct Slots {
    free: BTreeSet<u32>,
    count: u32,
    /// Bytes of the drive.
    bytes: u64,
    /// Whether new segments may be put there.
    is_allocatable: bool,
    /// The drive is being emptied: its slots do not count for what volumes can hold. New segments are put there only
    /// while the others have no room (`keep/retire.rs`).
    is_emptying: bool,
}

/// A segment that became empty.
struct Freed {
    /// The checkpoint before the one that does not name it.
    stamp: u64,
    slots: Vec<(DriveIndex, SlotIndex)>,
    /// Where readers that began before look for its chunks.
    held: Arc<Chunks>,
}

/// Segments and slots.
pub(crate) struct Space {
    layout: Layout,
    /// By their ids.
    segments: Vec<Option<Segment>>,
    drives: BTreeMap<DriveIndex, Slots>,
    /// Their slots wait for a checkpoint and for readers.
    freed: Vec<Freed>,
    next_generation: Generation,
    /// Of all classes but metadata.
    live_blocks: u64,
    /// The room on the drives that stay, and on those that are used now.
    stay: Room,
    used: Room,
}

impl Space {
    pub(crate) fn new(layout: Layout) -> Space {
        Space {
            layout,
            segments: Vec::new(),
            drives: BTreeMap::new(),
            freed: Vec::new(),
            next_generation: Generation(1),
            live_blocks: 0,
            stay: Room::default(),
            used: Room::default(),
        }
    }

    /// The table of a checkpoint, on drives of so many bytes, of which some are being emptied.
    pub(crate) fn recover(
        layout: Layout,
        drives: &[(DriveIndex, u64, bool)],
        rows: &[SegmentRow],
        next_generation: Generation,
    ) -> Space {
        let mut space = Space::new(layout);
        space.next_generation = next_generation;
        for (drive, bytes, is_emptying) in drives {
            space.add_drive(*drive, *bytes);
            if *is_emptying {
                space.begin_emptying(*drive);
            }
        }
        for row in rows {
            for (drive, slot) in &row.chunks {
                if let Some(slots) = space.drives.get_mut(drive) {
                    slots.free.remove(&slot.0);
                }
            }
            let class = Class::of_number(row.class);
            space.live_blocks += if class == Class::Metadata { 0 } else { row.live_bytes };
            space.put(row.clone(), class, false);
        }
        space
    }

    pub(crate) fn add_drive(&mut self, drive: DriveIndex, bytes: u64) {
        let count = self.layout.slots(bytes);
        let free = (0..count).collect();
        let slots = Slots { free, count, bytes, is_allocatable: true, is_emptying: false };
        self.drives.insert(drive, slots);
        self.recount();
    }

    /// A drive is there again: the slots are free that no segment has there, and none had until a moment ago.
    pub(crate) fn return_drive(&mut self, drive: DriveIndex, bytes: u64) {
        self.add_drive(drive, bytes);
        let owned = self.segments.iter().flatten().flat_map(|segment| &segment.row.chunks);
        let waiting = self.freed.iter().flat_map(|freed| &freed.slots);
        if let Some(slots) = self.drives.get_mut(&drive) {
            for (_, slot) in owned.chain(waiting).filter(|(owner, _)| *owner == drive) {
                slots.free.remove(&slot.0);
            }
        }
    }

    /// Data is moved from this drive to others, and nothing new is put on it.
    pub(crate) fn begin_emptying(&mut self, drive: DriveIndex) {
        if let Some(slots) = self.drives.get_mut(&drive) {
            (slots.is_emptying, slots.is_allocatable) = (true, false);
        }
        self.recount();
    }

    /// The drive stays, and is one like the others.
    pub(crate) fn end_emptying(&mut self, drive: DriveIndex) {
        if let Some(slots) = self.drives.get_mut(&drive) {
            (slots.is_emptying, slots.is_allocatable) = (false, true);
        }
        self.recount();
    }

    /// Whether the drives that are being emptied may be used meanwhile.
    pub(crate) fn use_emptying(&mut self, may: bool) {
        for slots in self.drives.values_mut().filter(|slots| slots.is_emptying) {
            slots.is_allocatable = may;
        }
        self.recount();
    }

    /// The drives that are being emptied.
    pub(crate) fn emptying(&self) -> Vec<DriveIndex> {
        let drives = self.drives.iter().filter(|(_, slots)| slots.is_emptying);
        drives.map(|(drive, _)| *drive).collect()
    }

    /// Whether drives are being emptied.
    pub(crate) fn has_emptying(&self) -> bool {
        self.drives.values().any(|slots| slots.is_emptying)
    }

    /// Whether drives are being emptied and are used meanwhile.
    pub(crate) fn uses_emptying(&self) -> bool {
        self.drives.values().any(|slots| slots.is_emptying && slots.is_allocatable)
    }

    /// Forgets a drive that no segment is on.
    pub(crate) fn forget_drive(&mut self, drive: DriveIndex) {
        self.drives.remove(&drive);
        self.recount();
    }

    pub(crate) fn next_generation(&self) -> Generation {
        self.next_generation
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(id.index())?.as_mut()
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().flatten()
    }

    fn put(&mut self, row: SegmentRow, class: Class, is_open: bool) {
        let at = row.id.index();
        if self.segments.len() <= at {
            self.segments.resize(at + 1, None);
        }
        let chunks = Chunks::of(&row);
        self.segments[at] = Some(Segment { row, chunks, class, is_open, is_damaged: false });
    }

    /// How many segments of this width can be allocated at most.
    pub(crate) fn free_segments(&self, width: usize) -> u64 {
        let free = self.drives.values().filter(|slots| slots.is_allocatable);
        segments_in(&free.map(|slots| to_u64(slots.free.len())).collect::<Vec<_>>(), width)
    }

    /// The same without the drives that are being emptied.
    pub(crate) fn free_elsewhere(&self, width: usize) -> u64 {
        let free = self.drives.values().filter(|slots| !slots.is_emptying);
        segments_in(&free.map(|slots| to_u64(slots.free.len())).collect::<Vec<_>>(), width)
    }

    /// Slots of each drive that has some: of those that stay, or of all that are used now.
    pub(crate) fn slots_for(&self, which: Lasting) -> Vec<(DriveIndex, u64)> {
        let counts = |slots: &Slots| match which {
            Lasting::Stay => !slots.is_emptying,
            Lasting::Used => slots.is_allocatable,
        };
        let drives = self.drives.iter().filter(|(_, slots)| slots.count > 0 && counts(slots));
        drives.map(|(drive, slots)| (*drive, slots.count.into())).collect()
    }

    /// The room on these drives.
    pub(crate) fn room(&self, which: Lasting) -> Room {
        match which {
            Lasting::Stay => self.stay,
            Lasting::Used => self.used,
        }
    }

    fn recount(&mut self) {
        let room = |which| {
            let slots: Vec<u64> = self.slots_for(which).iter().map(|(_, slots)| *slots).collect();
            Room::of(&slots, self.layout.shape.width)
        };
        (self.stay, self.used) = (room(Lasting::Stay), room(Lasting::Used));
    }

    /// Whether `width` drives beside these have a free slot.
    pub(crate) fn can_allocate(&self, width: u16, excluded: &[DriveIndex]) -> bool {
        let free = self.drives.iter().filter(|(drive, slots)| {
            slots.is_allocatable && !slots.free.is_empty() && !excluded.contains(drive)
        });
        free.count() >= width.into()
    }

    /// A new segment of up to `width` chunks on drives of their own, at least one of them for data.
    pub(crate) fn allocate(
        &mut self,
        class: Class,
        width: u16,
        parity: u8,
        excluded: &[DriveIndex],
    ) -> Option<SegmentId> {
        let mut rng = Rng::new(self.next_generation.0);
        let free = self.drives.iter().filter(|(drive, slots)| {
            slots.is_allocatable && !slots.free.is_empty() && !excluded.contains(drive)
        });
        let mut order: Vec<(usize, u64, DriveIndex)> =
            free.map(|(drive, slots)| (slots.free.len(), rng.u64(), *drive)).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.truncate(width.into());
        if order.len() <= parity.into() || order.len() < self.narrowest(width, excluded) {
            return None;
        }
        // The emptiest drives were chosen; which of them has the parities is left to chance.
        order.sort_unstable_by_key(|(_, chance, _)| *chance);
        let mut chunks = Vec::with_capacity(order.len());
        for (_, _, drive) in order {
            let slots = self.drives.get_mut(&drive).expect("just found");
            let slot = slots.free.pop_first().expect("not empty");
            chunks.push((drive, SlotIndex(slot)));
        }
        let generation = self.next_generation;
        self.next_generation.0 += 1;
        let id = self.unused_id();
        let row = SegmentRow {
            id,
            generation,
            class: class.number(),
            parity,
            seal_copy: 0,
            rows: 0,
            live_bytes: 0,
            born: Seqno(0),
            chunks,
            summaries: Vec::new(),
        };
        self.put(row, class, true);
        Some(id)
    }

    /// Fewer chunks than this are not taken as long as drives are there: space would be wasted on parities.
    fn narrowest(&self, width: u16, excluded: &[DriveIndex]) -> usize {
        let serving = self.drives.iter().filter(|(drive, slots)| {
            slots.is_allocatable && slots.count > 0 && !excluded.contains(drive)
        });
        usize::from(width).min(serving.count())
    }

    fn unused_id(&self) -> SegmentId {
        let unused = self.segments.iter().position(Option::is_none);
        SegmentId(u32_of(unused.unwrap_or(self.segments.len())))
    }

    /// A free slot on a drive that is none of these: one on the emptiest of them.
    pub(crate) fn allocate_chunk(
        &mut self,
        taken: &[DriveIndex],
    ) -> Option<(DriveIndex, SlotIndex)> {
        let others = self
            .drives
            .iter_mut()
            .filter(|(drive, slots)| slots.is_allocatable && !taken.contains(drive));
        let (drive, slots) = others.max_by_key(|(_, slots)| slots.free.len())?;
        Some((*drive, SlotIndex(slots.free.pop_first()?)))
    }

    /// Chunks of a segment are in other slots now; those that they leave wait like those of a segment that became
    /// empty. False when the segment is not the same any more.
    pub(crate) fn move_chunks(
        &mut self,
        row: &SegmentRow,
        moves: &[(usize, (DriveIndex, SlotIndex))],
        stamp: u64,
    ) -> bool {
        let segment = self.get_mut(row.id);
        let same =
            segment.filter(|s| s.row.generation == row.generation && s.row.chunks == row.chunks);
        let Some(segment) = same else { return false };
        let mut left = Vec::with_capacity(moves.len());
        for (chunk, to) in moves {
            left.push(std::mem::replace(&mut segment.row.chunks[*chunk], *to));
        }
        let held = std::mem::replace(&mut segment.chunks, Chunks::of(&segment.row));
        self.freed.push(Freed { stamp, slots: left, held });
        true
    }

    /// Gives back a slot that no checkpoint names.
    pub(crate) fn give_back(&mut self, drive: DriveIndex, slot: SlotIndex) {
        if let Some(slots) = self.drives.get_mut(&drive) {
            slots.free.insert(slot.0);
        }
    }

    /// Something of this size now lives in a segment.
    pub(crate) fn add_live(&mut self, id: SegmentId, bytes: u64) {
        if let Some(segment) = self.segments.get_mut(id.index()).and_then(Option::as_mut) {
            segment.row.live_bytes += bytes;
            self.live_blocks += if segment.class == Class::Metadata { 0 } else { bytes };
        }
    }

    /// Something of this size no longer lives in a segment.
    pub(crate) fn release(&mut self, id: SegmentId, bytes: u64) {
        if let Some(segment) = self.segments.get_mut(id.index()).and_then(Option::as_mut) {
            debug_assert!(segment.row.live_bytes >= bytes, "{id} has less than that");
            let bytes = bytes.min(segment.row.live_bytes);
            segment.row.live_bytes -= bytes;
            self.live_blocks -= if segment.class == Class::Metadata { 0 } else { bytes };
        }
    }

    /// Closed segments that are empty: a checkpoint makes their slots free.
    pub(crate) fn empty_segments(&self) -> u64 {
        to_u64(self.segments().filter(|segment| is_empty(segment)).count())
    }

    /// Takes the empty segments out of the table. Their slots wait in `freed` until `stamp` is passed.
    pub(crate) fn take_empty(&mut self, stamp: u64) {
        for place in &mut self.segments {
            if let Some(segment) = place.take_if(|segment| is_empty(segment)) {
                let (slots, held) = (segment.row.chunks, segment.chunks);
                self.freed.push(Freed { stamp, slots, held });
            }
        }
    }

    /// The slots of segments that were freed before `stamp` and that no reader holds: they are free now.
    pub(crate) fn reclaim(&mut self, stamp: u64) -> Vec<(DriveIndex, SlotIndex)> {
        let mut slots = Vec::new();
        self.freed.retain(|freed| {
            let waits = freed.stamp >= stamp || Arc::strong_count(&freed.held) > 1;
            if !waits {
                slots.extend(freed.slots.iter().copied());
            }
            waits
        });
        for (drive, slot) in &slots {
            self.give_back(*drive, *slot);
        }
        slots
    }

    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The rows for a checkpoint.
    pub(crate) fn rows(&self) -> Vec<SegmentRow> {
        self.segments().map(|segment| segment.row.clone()).collect()
    }

    /// Whether a drive is one of those that the table knows.
    pub(crate) fn knows(&self, drive: DriveIndex) -> bool {
        self.drives.contains_key(&drive)
    }

    /// Bytes of all drives.
    pub(crate) fn raw_bytes(&self) -> u64 {
        self.drives.values().map(|slots| slots.bytes).sum()
    }

    /// All slots of all drives.
    pub(crate) fn all_slots(&self) -> u64 {
        self.drives.values().map(|slots| u64::from(slots.count)).sum()
    }

    /// Bytes of blocks that live in segments.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live_blocks
    }

    /// Free slots, and slots that wait, of all drives.
    pub(crate) fn slot_counts(&self) -> (u64, u64) {
        let free = self.drives.values().map(|slots| to_u64(slots.free.len())).sum();
        let known = |drive: &DriveIndex| self.drives.contains_key(drive);
        let waiting = self.freed.iter().flat_map(|freed| &freed.slots);
        let waiting = to_u64(waiting.filter(|(drive, _)| known(drive)).count());
        (free, waiting)
    }

    /// Slots of one drive: free, and all.
    pub(crate) fn slots_of(&self, drive: DriveIndex) -> (u64, u64) {
        let slots = self.drives.get(&drive);
        slots.map_or((0, 0), |slots| (to_u64(slots.free.len()), slots.count.into()))
    }

    /// Whether the table has no contradictions: every slot once.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let owned = self.segments().flat_map(|segment| {
            segment.row.chunks.iter().map(|chunk| (*chunk, segment.row.id.to_string()))
        });
        let waiting = self.freed.iter().flat_map(|freed| &freed.slots);
        let waiting = waiting.map(|chunk| (*chunk, "a freed segment".to_owned()));
        for ((drive, slot), owner) in owned.chain(waiting) {
            let is_free = self.drives.get(&drive).is_some_and(|s| s.free.contains(&slot.0));
            if is_free {
                return Err(format!("{slot} of {drive} is free, and {owner} has it"));
            }
            if self.drives.contains_key(&drive) && !seen.insert((drive, slot)) {
                return Err(format!("{slot} of {drive} belongs to {owner} and to another one"));
            }
        }
        Ok(())
    }
}

/// Whether a checkpoint makes the slots of a segment free.
pub(crate) fn is_empty(segment: &Segment) -> bool {
    !segment.is_open && segment.row.live_bytes == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omf::label::Shape;

    fn space() -> Space {
        let shape = Shape {
            parity: 1,
            width: 3,
            spare_percent: 15,
            unit_bytes: 8 << 10,
            chunk_bytes: 64 << 10,
            log_bytes: 64 << 10,
            root_bytes: 64 << 10,
        };
        let mut space = Space::new(Layout::new(shape));
        (0..4).for_each(|drive| space.add_drive(DriveIndex(drive), 2 << 20));
        space
    }

    #[test]
    fn slot_that_a_chunk_leaves_waits_for_a_checkpoint() {
        let mut space = space();
        let id = space.allocate(Class::Fresh, 3, 1, &[]).unwrap();
        let row = space.get(id).unwrap().row.clone();
        let taken: Vec<DriveIndex> = row.chunks.iter().map(|(drive, _)| *drive).collect();
        let to = space.allocate_chunk(&taken).unwrap();
        assert!(!taken.contains(&to.0));
        let (free, waiting) = space.slot_counts();
        let reader = space.get(id).unwrap().chunks.clone();
        assert!(space.move_chunks(&row, &[(1, to)], 7));
        assert_eq!(space.slot_counts(), (free, waiting + 1));
        space.check().unwrap();
        assert!(space.reclaim(7).is_empty());
        assert!(space.reclaim(8).is_empty(), "a reader looks at it");
        drop(reader);
        assert!(space.reclaim(7).is_empty(), "the last checkpoint names it");
        assert_eq!(space.reclaim(8), [row.chunks[1]]);
        // Not twice, and not a segment that is another one by now.
        assert!(!space.move_chunks(&row, &[(1, to)], 8));
    }
}
