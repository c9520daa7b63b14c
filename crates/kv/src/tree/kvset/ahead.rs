//! Pages for a walk through a kvset: when one after the other is not in DRAM, more are read at a time, and
//! then before they are needed.

use esker_base::units::to_usize;

use crate::media::in_flight::InFlight;
use crate::omf::page::PAGE_SIZE;
use crate::tree::kvset::extents::KeyExtents;
use crate::types::error::Result;
use crate::values::ahead::run::{Run, WINDOW_MAX};
use crate::values::ahead::{reads_of, under_way};

/// Pages that a walk has of the extents of a kvset.
#[derive(Default)]
pub(crate) struct PagesAhead {
    /// Which of the extents `run` is of.
    extent: usize,
    forward: bool,
    run: Run,
    in_flight: Vec<InFlight>,
    joined: Vec<u8>,
}

/// The first read of pages in a row.
const FIRST: u64 = 2 * PAGE_SIZE as u64;
/// The most that is read ahead of need, in bytes: the keys of some thousand rows.
const AHEAD_MAX: u64 = 2 * WINDOW_MAX;

impl KeyExtents {
    /// The extent that holds the byte at `offset`, which there is, and where in it that is.
    fn place(&self, mut offset: u64) -> (usize, u64) {
        let mut extent = 0;
        while offset >= self.extents[extent].bytes() {
            offset -= self.extents[extent].bytes();
            extent += 1;
        }
        (extent, offset)
    }
}

impl PagesAhead {
    /// Its bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        self.run.bytes() + self.in_flight.iter().map(InFlight::spare_bytes).sum::<u64>()
    }

    /// The bytes of the page at `offset`, to which the walk comes.
    ///
    /// # Errors
    /// When it, or the range to be taken along, cannot be read.
    pub(super) fn read(&mut self, keys: &KeyExtents, offset: u64, forward: bool) -> Result<&[u8]> {
        let (extent, start) = keys.place(offset);
        let allocation = &keys.extents[extent];
        let end = start + PAGE_SIZE as u64;
        if (self.extent, self.forward) != (extent, forward) {
            let before = &keys.extents[self.extent].media;
            self.run.clear(under_way(&mut self.in_flight, before));
            (self.extent, self.forward) = (extent, forward);
        }
        if !self.run.covers(start, end) {
            let sizes = (FIRST, WINDOW_MAX);
            let (from, to) = self.run.widen((start, end), forward, sizes, allocation);
            let size = to_usize(to - from);
            let (buf, skip) = allocation.read_at(from, size)?;
            self.run.want(from, to);
            self.run.fill(buf, skip);
        }
        let (behind, at) = if forward { (start, end) } else { (end, start) };
        let ahead = self.run.ahead(allocation, (at, forward), AHEAD_MAX);
        if ahead > 0
            && let Some(reads) = reads_of(&mut self.in_flight, &allocation.media)
        {
            // A page whose read-ahead fails is read when it is needed, and an error is one then.
            let _ = self.run.go_ahead(allocation, reads, (at, forward), ahead);
        }
        let mut reads = under_way(&mut self.in_flight, &allocation.media);
        self.run.leave(behind, forward, reads.as_deref_mut());
        self.run.get((start, end), reads, &mut self.joined)
    }
}
