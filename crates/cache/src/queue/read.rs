//! Reads: hits come from the flash device, misses from the origin, and missed blocks are filled in
//! behind the host's back.
//!
//! Invariants
//! 1. A slot that is read is pinned, so it holds its block until the read has finished.
//! 2. A block that is filled in was read from the origin while nobody wrote it: a write or a
//!    discard that begins in between cancels the fill.
//! 3. A block that is read ahead is filled in like a missed one. A read of it by the same queue
//!    pair waits, holding nothing; a read that fails with it is repeated as the host asked.

use esker_base::AlignedBuf;
use esker_base::units::{to_u64, to_usize};
use esker_device::{DeviceError, Op};

use super::{Io, Pump, Side, What, lost};
use crate::CacheError;
use crate::counts::add;
use crate::omf::{BLOCK, BLOCK_SIZE};
use crate::sets::Set;
use crate::state::Allocated;
use esker_base::policy::Access;

/// Result of looking up a block that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Hit { slot: u32, is_clean: bool },
    Miss { fill: bool },
}

impl Pump {
    pub(super) fn start_read(&mut self, work: usize) {
        let is_stream = self.works[work].flow.bypasses;
        let blocks = self.blocks_of(work);
        if self.ahead.range(blocks.clone()).next().is_some() {
            return self.parked.push_back(work);
        }
        let limit = self.segment_blocks();
        if blocks.end - blocks.start == 1 {
            match self.look_up(blocks.start, is_stream) {
                Ok(found @ Found::Miss { .. }) if self.works[work].flow.ahead_blocks > 0 => {
                    let mut found = vec![found];
                    self.look_ahead(work, blocks.end, limit - 1, &mut found);
                    self.read_segment(work, blocks, found[0], &found, true);
                }
                Ok(found) => self.read_segment(work, blocks, found, &[found], true),
                Err(error) => self.fail(work, error),
            }
            return self.end_read(work);
        }
        let mut found = Vec::with_capacity(to_usize(blocks.end - blocks.start));
        for block in blocks.clone() {
            match self.look_up(block, is_stream) {
                Ok(one) => found.push(one),
                Err(error) => {
                    self.fail(work, error);
                    break;
                }
            }
        }
        let all = to_u64(found.len());
        let mut at = 0;
        while at < all {
            let first = found[to_usize(at)];
            let follows = |next: u64| match (first, found[to_usize(next)]) {
                (Found::Hit { slot, is_clean }, Found::Hit { slot: other, is_clean: same }) => {
                    u64::from(other) == u64::from(slot) + (next - at)
                        && is_clean == same
                        && self.shared.is_same_set(slot, other)
                }
                (Found::Miss { .. }, Found::Miss { .. }) => true,
                _ => false,
            };
            let mut end = at + 1;
            while end < all && end - at < limit && follows(end) {
                end += 1;
            }
            let range = blocks.start + at..blocks.start + end;
            let is_all = at == 0 && range == blocks;
            if range.end == blocks.end && matches!(first, Found::Miss { .. }) {
                self.look_ahead(work, range.end, limit - (end - at), &mut found);
            }
            let found = match range.end == blocks.end {
                true => &found[to_usize(at)..],
                false => &found[to_usize(at)..to_usize(end)],
            };
            self.read_segment(work, range, first, found, is_all);
            at = end;
        }
        self.end_read(work);
    }

    /// The most blocks in one command to a device.
    pub(super) fn segment_blocks(&self) -> u64 {
        let shared = &self.shared;
        let origin = shared.origin_geometry.max_transfer_size;
        let most = origin.min(shared.flash_geometry.max_transfer_size);
        (u64::from(most) / BLOCK).max(1)
    }

    /// Looks a block up and pins its slot, or begins to fill it in.
    fn look_up(&self, block: u64, is_stream: bool) -> Result<Found, CacheError> {
        let (shared, counts) = (&*self.shared, &*self.counts);
        if block >= shared.blocks {
            return Ok(Found::Miss { fill: false });
        }
        let is_lost = shared.is_lost();
        shared.door.see(block, Access::Read);
        let mut set = match shared.set_of(block) {
            Ok(set) => set,
            // Nothing dirty is there that is not known of: the origin has it.
            Err(_) if shared.unread_dirty() == 0 => {
                add(&counts.read_misses, 1);
                return Ok(Found::Miss { fill: false });
            }
            Err(error) => return Err(error),
        };
        if let Some(index) = set.set.lookup(block) {
            let is_clean = !set.set.is_dirty(index);
            if is_lost && is_clean {
                add(&counts.read_misses, 1);
                return Ok(Found::Miss { fill: false });
            }
            if !is_clean && shared.flash_forgot() && !set.is_durably_dirty(index) {
                let lba = shared.origin_lba(block * BLOCK);
                return Err(lost(shared, lba, BLOCK, esker_device::OpKind::Read).into());
            }
            set.set.hit(index, Access::Read);
            set.pin(index);
            add(&counts.read_hits, 1);
            let slot = shared.slot(set.set.index(), index);
            return Ok(Found::Hit { slot, is_clean });
        }
        add(&counts.read_misses, 1);
        if is_stream {
            add(&counts.bypassed_reads, 1);
        }
        let is_full = self.fills >= 4 * self.depth;
        let is_wanted = !is_lost
            && !is_stream
            && !is_full
            && shared.admits()
            && (set.set.held() < set.set.slots()
                || shared.door.admits(block, || set.set.comes_again(block)));
        let fill = is_wanted && !shared.is_in_range(block) && set.begin_fill(block);
        Ok(Found::Miss { fill })
    }

    /// Begins to fill in blocks from `first` on that nobody has asked for, as many as the stream
    /// is worth and `most` at most, until one is not to be filled in.
    fn look_ahead(&mut self, work: usize, first: u64, most: u64, found: &mut Vec<Found>) {
        let wanted = self.works[work].flow.ahead_blocks.min(most);
        let shared = self.shared.clone();
        for block in first..shared.blocks.min(first + wanted) {
            let is_full = self.fills >= 4 * self.depth;
            if shared.is_lost() || is_full || !shared.admits() {
                break;
            }
            let Ok(mut set) = shared.set_of(block) else { break };
            let has_room = set.set.held() < set.set.slots() || shared.door.admits_unasked();
            let is_absent = set.set.lookup(block).is_none() && !shared.is_in_range(block);
            if !(has_room && is_absent && set.begin_fill(block)) {
                break;
            }
            self.ahead.insert(block);
            add(&self.counts.read_ahead, 1);
            found.push(Found::Miss { fill: true });
        }
    }

    /// Sends the command for neighbouring blocks that were found alike. A miss also covers the blocks
    /// of `found` beyond them, which are read ahead.
    fn read_segment(
        &mut self,
        work: usize,
        blocks: std::ops::Range<u64>,
        first: Found,
        found: &[Found],
        is_all: bool,
    ) {
        let host = self.works[work].offset;
        let start = self.part(work, blocks.start).start;
        let end = self.part(work, blocks.end - 1).end;
        let (mut from, mut to) = (start, end);
        let is_partial = !start.is_multiple_of(BLOCK) || !end.is_multiple_of(BLOCK);
        let what = match first {
            Found::Hit { slot, is_clean } => {
                let lba_size = u64::from(self.shared.flash_geometry.lba_size);
                if !(start.is_multiple_of(lba_size) && end.is_multiple_of(lba_size)) {
                    (from, to) = (blocks.start * BLOCK, blocks.end * BLOCK);
                }
                let count = u32::try_from(blocks.end - blocks.start).expect("a segment is small");
                let skip = to_usize(start - from);
                What::Hit { block: blocks.start, slot, count, skip, is_clean }
            }
            Found::Miss { .. } => {
                let fill: Vec<bool> =
                    found.iter().map(|one| *one == Found::Miss { fill: true }).collect();
                let whole = to_u64(fill.len()) * BLOCK;
                let most = u64::from(self.shared.origin_geometry.max_transfer_size);
                let is_any = fill.iter().any(|&fill| fill);
                let is_ahead = blocks.start + to_u64(fill.len()) > blocks.end;
                if (is_partial || is_ahead) && is_any && whole <= most {
                    // Blocks beyond the cacheable ones have no fill, and may not be whole.
                    if fill[0] {
                        from = blocks.start * BLOCK;
                    }
                    if *fill.last().expect("not empty") {
                        to = (blocks.start + to_u64(fill.len())) * BLOCK;
                    }
                }
                What::Miss { block: blocks.start, skip: to_usize(start - from), fill }
            }
        };
        let is_direct = is_all && (from, to) == (start, end);
        let buf = match is_direct {
            true => self.works[work].buf.take().expect("the host's buffer"),
            false => AlignedBuf::zeroed(to_usize(to - from)),
        };
        let (side, lba) = match &what {
            What::Hit { slot, .. } => {
                (Side::Flash, self.shared.flash_lba(*slot, from - blocks.start * BLOCK))
            }
            _ => (Side::Origin, self.shared.origin_lba(from)),
        };
        self.works[work].outstanding += 1;
        let io = Io { work, at: start - host, size: end - start, is_direct, what };
        self.send(side, io, Op::Read { lba, buf });
    }

    pub(super) fn finish_read(
        &mut self,
        io: Io,
        result: Result<(), DeviceError>,
        buf: Option<AlignedBuf>,
    ) {
        let buf = buf.expect("a read gives its buffer back");
        let mut skip = 0;
        match &io.what {
            What::Hit { block, slot, count, skip: before, is_clean } => {
                skip = *before;
                let mut state = self.shared.set_of_slot(*slot);
                for n in 0..*count {
                    let index = self.shared.index(slot + n);
                    let is_still_clean = state.set.block(index) == Some(block + u64::from(n))
                        && !state.set.is_dirty(index);
                    if result.is_err() && is_still_clean && state.withdraw(index) {
                        self.shared.pending.lock().push(slot + n);
                    }
                    state.unpin(index);
                }
                drop(state);
                if result.is_err() && *is_clean {
                    return self.retry_at_origin(io, buf);
                }
            }
            What::Miss { block, skip: before, fill } => {
                skip = *before;
                self.fill_in(*block, fill, io.at, io.work, &buf, skip, result.is_ok());
                let is_more = to_u64(buf.len()) > io.size;
                if result.is_err() && is_more {
                    return self.retry_at_origin(io, buf);
                }
            }
            _ => {}
        }
        if let Err(error) = result {
            let is_lost = self.shared.is_lost() && matches!(io.what, What::Hit { .. });
            let (lba, size) = (self.works[io.work].lba, self.works[io.work].size);
            let error = match is_lost {
                true => lost(&self.shared, lba, size, esker_device::OpKind::Read),
                false => error,
            };
            self.works[io.work].error.get_or_insert(error);
        }
        if io.is_direct {
            self.works[io.work].buf = Some(buf);
        } else {
            let (at, size) = (to_usize(io.at), to_usize(io.size));
            let host = self.works[io.work].buf.as_mut().expect("the host's buffer");
            host[at..at + size].copy_from_slice(&buf[skip..skip + size]);
        }
        self.works[io.work].outstanding -= 1;
        self.end_read(io.work);
    }

    /// The flash device failed to read content that the origin has, too; or the origin, more than
    /// the host asked for.
    fn retry_at_origin(&mut self, io: Io, buf: AlignedBuf) {
        let lba = self.shared.origin_lba(self.works[io.work].offset + io.at);
        let (is_direct, buf) = match io.is_direct {
            true => (true, buf),
            false => (false, AlignedBuf::zeroed(to_usize(io.size))),
        };
        let io = Io { what: What::Retry, is_direct, ..io };
        self.send(Side::Origin, io, Op::Read { lba, buf });
    }

    fn end_read(&mut self, work: usize) {
        if self.works[work].outstanding == 0 {
            self.complete(work);
        }
    }

    /// Writes blocks that were read from the origin to slots, as far as nobody objected.
    #[allow(clippy::too_many_arguments)]
    fn fill_in(
        &mut self,
        first: u64,
        fill: &[bool],
        at: u64,
        work: usize,
        buf: &AlignedBuf,
        skip: usize,
        is_good: bool,
    ) {
        // Where block `first` begins in the buffer, counted from the buffer's start.
        let start = self.works[work].offset + at - to_u64(skip);
        let mut run: Option<(u64, u32, u32)> = None;
        for (block, _) in (first..).zip(fill).filter(|(_, fill)| **fill) {
            let from = (block * BLOCK).checked_sub(start).map(to_usize);
            let is_whole = from.is_some_and(|from| from + BLOCK_SIZE <= buf.len());
            let Some(slot) = self.slot_for_fill(block, is_good && is_whole) else {
                continue;
            };
            run = match run {
                Some((first, begin, count))
                    if first + u64::from(count) == block
                        && begin + count == slot
                        && self.shared.is_same_set(begin, slot) =>
                {
                    Some((first, begin, count + 1))
                }
                other => {
                    self.send_fill(other, buf, start);
                    Some((block, slot, 1))
                }
            };
        }
        self.send_fill(run, buf, start);
    }

    /// A slot to fill `block` into; else the fill is over.
    fn slot_for_fill(&mut self, block: u64, is_good: bool) -> Option<u32> {
        let found = match is_good {
            true => self.allocate_for(block, |set| !set.is_fill_cancelled(block)),
            false => None,
        };
        if found.is_none() {
            self.ahead.remove(&block);
            let mut set = self.shared.set_of(block).expect("a set in use was read");
            set.end_fill(block);
            add(&self.counts.fills_dropped, 1);
        }
        found
    }

    /// A reserved slot, for as long as `is_wanted`; names that stand in the way are taken away.
    pub(super) fn allocate_for(
        &self,
        block: u64,
        is_wanted: impl Fn(&crate::state::SetState) -> bool,
    ) -> Option<u32> {
        for _ in 0..2 {
            let mut set = self.shared.set_of(block).ok()?;
            if !is_wanted(&set) {
                return None;
            }
            let number = set.set.index();
            let batch = to_usize(u64::from(Set::slots(&set.set) / 64)).max(4);
            let (found, named) = match set.allocate(block, batch) {
                Allocated::Slot(index, named) => (Some(self.shared.slot(number, index)), named),
                Allocated::AfterCommit(named) => (None, named),
                Allocated::Full => return None,
            };
            add(&self.counts.evictions, to_u64(named.len()));
            let slots = named.into_iter().map(|index| self.shared.slot(number, index));
            self.shared.pending.lock().extend(slots);
            drop(set);
            if found.is_some() {
                return found;
            }
            self.shared.commit(&crate::commit::Wanted::Nothing).ok()?;
        }
        None
    }

    fn send_fill(&mut self, run: Option<(u64, u32, u32)>, from: &AlignedBuf, start: u64) {
        let Some((block, slot, count)) = run else { return };
        let at = to_usize(block * BLOCK - start);
        let size = to_usize(u64::from(count) * BLOCK);
        let buf = AlignedBuf::padded(&from[at..at + size], BLOCK_SIZE);
        let lba = self.shared.flash_lba(slot, 0);
        let placement = self.shared.data_placement();
        let what = What::Fill { block, slot, count };
        let io = Io { work: usize::MAX, at: 0, size: to_u64(size), is_direct: false, what };
        self.fills += 1;
        self.shared.spend(to_u64(size));
        self.send(Side::Flash, io, Op::Write { lba, buf, placement, fua: false });
    }

    pub(super) fn finish_fill(&mut self, io: &Io, result: Result<(), DeviceError>) {
        let What::Fill { block, slot, count } = io.what else { unreachable!("a fill") };
        self.fills -= 1;
        let mut set = self.shared.set_of_slot(slot);
        for n in 0..count {
            let (block, index) = (block + u64::from(n), self.shared.index(slot + n));
            self.ahead.remove(&block);
            let is_cancelled = set.end_fill(block);
            if result.is_err() {
                set.set_aside(index);
            }
            let is_known = set.set.lookup(block).is_some();
            let is_good = result.is_ok() && !is_cancelled && !is_known;
            if is_good && !self.shared.is_in_range(block) {
                set.set.place(index, block, Access::Read);
                add(&self.counts.fills, 1);
            } else {
                set.release(index);
                add(&self.counts.fills_dropped, 1);
            }
        }
    }
}
