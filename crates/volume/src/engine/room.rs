//! The room of a pool: what volumes can hold, and how many segments are free for what.

use esker_base::units::to_u64;

use crate::engine::{Core, Shared};
use crate::space::{Lasting, Room, Space};
use crate::types::BLOCK;

impl Shared {
    /// Chunks of a segment, and how many of them are parities, given the drives that can take one.
    pub(crate) fn shape_now(&self, space: &Space) -> (u16, u8) {
        self.shape_on(space.room(Lasting::Used).drives)
    }

    /// The same on so many drives.
    pub(crate) fn shape_on(&self, drives: usize) -> (u16, u8) {
        let shape = self.fleet.layout.shape;
        let drives = u16::try_from(drives).unwrap_or(u16::MAX);
        let width = shape.width.min(drives);
        // With fewer drives than that there is less protection, rather than none to write to.
        let most = u8::try_from(width.saturating_sub(1)).unwrap_or(u8::MAX);
        (width, shape.parity.min(most))
    }

    /// The most that volumes can hold, as it is stored; and what is kept free for cleaning. Drives that are being emptied
    /// do not count.
    pub(crate) fn usable(&self, core: &Core) -> (u64, u64) {
        self.usable_in(core.space.room(Lasting::Stay))
    }

    /// The same in a room.
    pub(crate) fn usable_in(&self, room: Room) -> (u64, u64) {
        let layout = self.fleet.layout;
        let shape = layout.shape;
        let (width, parity) = self.shape_on(room.drives);
        let k = usize::from(width) - usize::from(parity);
        let total = room.segments * layout.data_bytes(k);
        let spare = total / 100 * u64::from(shape.spare_percent.max(5));
        // A checkpoint may write all pages of the map, of 12 KiB for 2 MiB each, or as many as are in memory.
        let pages =
            (total / 170).min(to_u64(self.options.map_bytes)).div_ceil(layout.data_bytes(k).max(1));
        let kept = spare.max(((10 + 2 * pages) * layout.data_bytes(k)).min(total / 2));
        // Summaries and the ends of units take some more.
        ((total - kept) / 100 * 97, kept)
    }

    /// Segments that a checkpoint may need for pages of the map.
    pub(crate) fn page_segments(&self, core: &Core) -> u64 {
        let (width, parity) = self.shape_now(&core.space);
        self.page_segments_of(core, width, parity)
    }

    /// The same of segments of so many chunks and parities.
    pub(crate) fn page_segments_of(&self, core: &Core, width: u16, parity: u8) -> u64 {
        let layout = self.fleet.layout;
        let bytes = layout.data_bytes(usize::from(width.saturating_sub(parity.into())).max(1));
        let pages = core.map.leaf_count() * (12 << 10);
        pages.min(to_u64(self.options.map_bytes)).div_ceil(bytes)
    }

    /// Bytes of an unusually full pool that may still be written over what is there.
    pub(crate) fn slack(usable: u64) -> u64 {
        usable / 50 + 16 * BLOCK
    }

    /// Whether what is stored fits the drives that are not being emptied.
    pub(crate) fn fits_elsewhere(&self, core: &Core) -> bool {
        core.space.live_blocks() <= self.usable(core).0
    }

    /// Free segments on the drives that are not being emptied, and those that a checkpoint may need there for pages of the
    /// map.
    pub(crate) fn free_elsewhere(&self, core: &Core) -> (u64, u64) {
        let (width, parity) = self.shape_on(core.space.room(Lasting::Stay).drives);
        let free = core.space.free_elsewhere(width.into());
        (free, self.page_segments_of(core, width, parity))
    }

    /// Segments that drives that are being emptied will take of the others, beyond what they have there: where the others
    /// are as many as a segment has chunks, a chunk is copied, and else what lives in it is moved to narrower ones.
    fn segments_to_come(&self, core: &Core) -> u64 {
        let emptying = core.space.emptying();
        let drives = core.space.room(Lasting::Stay).drives;
        let (width, parity) = self.shape_on(drives);
        let data_chunks = usize::from(width.saturating_sub(parity.into())).max(1);
        let (width, bytes) = (u64::from(width.max(1)), self.fleet.layout.data_bytes(data_chunks));
        let (mut to_come, mut there) = (0, 0);
        for segment in core.space.segments() {
            let chunks = segment.row.chunks.iter();
            let leaving = to_u64(chunks.filter(|(drive, _)| emptying.contains(drive)).count());
            let all = to_u64(segment.row.chunks.len());
            match leaving {
                0 => {}
                _ if all <= to_u64(drives) => to_come += leaving,
                _ => {
                    to_come += (segment.row.live_bytes * width).div_ceil(bytes.max(1));
                    there += all - leaving;
                }
            }
        }
        to_come.saturating_sub(there).div_ceil(width)
    }

    /// The same by which cleaning goes: on the drives that stay, as long as what is stored fits; else on all that are used.
    /// With `to_come` without what will be moved there: less than none where that is more than there is room for yet.
    pub(crate) fn cleaning_room(&self, core: &Core, to_come: bool) -> (i64, i64) {
        let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
        if core.space.has_emptying() && self.fits_elsewhere(core) {
            let (free, pages) = self.free_elsewhere(core);
            let coming = if to_come { self.segments_to_come(core) } else { 0 };
            return (signed(free) - signed(coming), signed(pages));
        }
        let (width, _) = self.shape_now(&core.space);
        (signed(core.space.free_segments(width.into())), signed(self.page_segments(core)))
    }
}
