//! Reads bytes of segments and verifies them, many at a time: started, then told what arrives. What is wrong, cannot be
//! read, or takes too long is computed from the other chunks, and verified in the same way before anyone sees it.
//!
//! A fetch reads what is wanted from the chunks that have it. It becomes *wide* when an answer is an error, or is wrong,
//! or is late, or when the drive is known to be slow: all chunks of the rows are asked then. The first answers that
//! verify count; what arrives after that is dropped.
//!
//! Invariants
//! 1. Bytes leave a fetch only after their checksum was found right.
//! 2. A drive that is slow has one read of a fetch at a time, by which it can be seen to be well again; another one is
//!    asked of it only where the others do not suffice.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::checksum::crc32c;
use esker_base::units::{round_down, round_up, to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, Nanos};
use esker_device::Op;

use crate::drive::layout::Piece;
use crate::drive::{Arrival, Fleet, Lanes, Ticket};
use crate::omf::envelope::fragment_crc;
use crate::parity;
use crate::space::Chunks;
use crate::types::id::{DriveIndex, LineageId, SegmentId};
use crate::types::{SECTOR, sectors_of, u32_of};

/// Bytes that could not be read, or were wrong, with as many chunks left out as there are parities.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) why: String,
}

/// The checksum of what is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sum {
    /// Of a fragment or a page, seeded with what it is.
    Seeded { lineage: LineageId, index: u64, crc: u32 },
    /// Of the bytes alone.
    Plain(u32),
}

/// A part of a fetch with a checksum of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The byte of the fetch at which it begins.
    pub(crate) at: usize,
    pub(crate) size: usize,
    pub(crate) sum: Sum,
    /// Its owner's number for it.
    pub(crate) tag: u32,
}

/// An answer for a part, and the drives that had it wrong.
pub(crate) type Answer = Result<(Vec<u8>, Vec<DriveIndex>), Broken>;

/// A piece that is read from the chunk that has it.
struct Direct {
    piece: Piece,
    buf: Option<AlignedBuf>,
}

/// The state of a chunk's part of a row.
enum Cell {
    Unasked,
    Pending,
    Here(AlignedBuf),
    Failed,
}

/// Bytes on their way.
struct Fetch {
    owner: u64,
    stamp: u32,
    chunks: Arc<Chunks>,
    sector: u32,
    size: usize,
    parts: Vec<Part>,
    directs: Vec<Direct>,
    /// Direct reads that have not arrived.
    left: usize,
    has_failed: bool,
    /// For each piece, a cell for each chunk; empty as long as only the direct reads were asked for.
    cells: Vec<Vec<Cell>>,
    /// Of a wide one: an answer for each part, as far as there is one.
    answers: Vec<Option<Answer>>,
}

/// The outcome of a fetch.
pub(crate) struct Fetched {
    fetch: Fetch,
}

impl Fetched {
    pub(crate) fn owner(&self) -> u64 {
        self.fetch.owner
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.fetch.parts
    }

    pub(crate) fn segment(&self) -> SegmentId {
        self.fetch.chunks.id
    }

    /// The bytes of a part, and the drives that had it wrong.
    pub(crate) fn part(&self, number: usize) -> Result<(&[u8], &[DriveIndex]), &Broken> {
        match self.fetch.answers.get(number) {
            Some(answer) => match answer.as_ref().expect("a fetch ends with all answers") {
                Ok((bytes, bad)) => Ok((bytes, bad)),
                Err(broken) => Err(broken),
            },
            None => Ok((self.fetch.direct_bytes(&self.fetch.parts[number]), &[])),
        }
    }

    /// The buffer that the whole of it was read into, if that was right.
    pub(crate) fn take_whole(&mut self) -> Option<AlignedBuf> {
        let is_direct = self.fetch.answers.is_empty();
        self.fetch.directs[0].buf.take().filter(|buf| is_direct && buf.len() == self.fetch.size)
    }
}

/// Fetches that go on, on one [`Lanes`].
#[derive(Default)]
pub(crate) struct Fetches {
    slots: Vec<Option<Fetch>>,
    free: Vec<u32>,
    /// Those that ended.
    ended: Vec<Fetched>,
    /// When direct reads become late: slot and stamp, in the order in which they were started.
    due: VecDeque<(Nanos, u32, u32)>,
    /// Memory of fetches that are over, to be used again; nothing else of them, for they hold chunks.
    spare: Vec<(Vec<Part>, Vec<Direct>)>,
    spare_bufs: Vec<AlignedBuf>,
}

/// Buffers and fetches that are kept for others.
const SPARE: usize = 256;

/// The aligned part of a unit that has a piece.
fn around(piece: &Piece) -> (usize, usize) {
    let start = to_usize(round_down(to_u64(piece.within), 4096));
    let end = to_usize(round_up(to_u64(piece.within + piece.size), 4096));
    (start, end - start)
}

/// A fetch before it is started.
pub(crate) struct Wanted(Fetch);

impl Wanted {
    /// Adds a part behind the last one, if it follows in the same unit, or is the same bytes.
    pub(crate) fn extend(
        &mut self,
        unit: usize,
        chunks: &Arc<Chunks>,
        sector: u32,
        size: usize,
        sum: Sum,
        tag: u32,
    ) -> bool {
        let fetch = &mut self.0;
        let last = *fetch.parts.last().expect("a fetch has a part");
        let is_same = sector == fetch.sector + sectors_of(last.at) && last.size == size;
        if is_same && Arc::ptr_eq(&fetch.chunks, chunks) {
            fetch.parts.push(Part { at: last.at, size, sum, tag });
            return true;
        }
        let start = to_usize(u64::from(fetch.sector) * SECTOR);
        let follows = sector == fetch.sector + sectors_of(fetch.size)
            && fetch.size.is_multiple_of(to_usize(SECTOR))
            && Arc::ptr_eq(&fetch.chunks, chunks)
            && start / unit == (start + fetch.size + size - 1) / unit;
        if follows {
            fetch.parts.push(Part { at: fetch.size, size, sum, tag });
            fetch.size += size;
        }
        follows
    }

    pub(crate) fn size(&self) -> usize {
        self.0.size
    }

    /// Whether it is exactly whole pages, so that it can be read to where it is wanted.
    pub(crate) fn is_aligned(&self) -> bool {
        (u64::from(self.0.sector) * SECTOR).is_multiple_of(4096) && self.0.size.is_multiple_of(4096)
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.0.parts
    }
}

impl Fetches {
    /// Bytes of a segment that are wanted, with one part so far.
    pub(crate) fn want(
        &mut self,
        owner: u64,
        chunks: &Arc<Chunks>,
        sector: u32,
        size: usize,
        sum: Sum,
        tag: u32,
    ) -> Wanted {
        let (parts, directs) = self.spare.pop().unwrap_or_default();
        let mut fetch = Fetch {
            owner,
            stamp: 0,
            chunks: chunks.clone(),
            sector,
            size,
            parts,
            directs,
            left: 0,
            has_failed: false,
            cells: Vec::new(),
            answers: Vec::new(),
        };
        fetch.parts.push(Part { at: 0, size, sum, tag });
        Wanted(fetch)
    }

    /// Starts a fetch at this moment, of the pool's clock and of the one that counts the patience. A buffer of its size
    /// is read into, if it is whole pages.
    pub(crate) fn start(
        &mut self,
        lanes: &mut Lanes,
        now: (Nanos, Nanos),
        wanted: Wanted,
        mut into: Option<AlignedBuf>,
    ) {
        let Wanted(mut fetch) = wanted;
        let fleet = lanes.fleet().clone();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32_of(self.slots.len() - 1)
        });
        fetch.stamp = lanes.next_stamp();
        let (sector, size) = (fetch.sector, fetch.size);
        let pieces = fleet.layout.pieces(fetch.chunks.data(), sector, size);
        fetch.directs.extend(pieces.map(|piece| Direct { piece, buf: None }));
        let is_doubtful = fetch.chunks.parity > 0
            && fetch.directs.iter().any(|direct| {
                let (drive, _) = fetch.chunks.places[direct.piece.chunk];
                !fleet.is_prompt(drive)
            });
        if is_doubtful {
            fetch.widen(&fleet, lanes, now, slot);
        } else {
            fetch.left = fetch.directs.len();
            let is_only = fetch.left == 1;
            for number in 0..fetch.directs.len() {
                let (drive, offset, size) = fetch.place(&fleet, number, None);
                let fits = is_only && into.as_ref().is_some_and(|buf| buf.len() == size);
                let buf = into.take_if(|_| fits).unwrap_or_else(|| self.buf(size));
                let ticket = fetch.ticket(slot, number, None);
                lanes.start_at(now, ticket, drive, offset, Op::Read { lba: Lba(0), buf });
            }
            if fetch.chunks.parity > 0 {
                self.due.push_back((now.0 + fleet.hedge_after(), slot, fetch.stamp));
            }
        }
        self.slots[to_usize(slot.into())] = Some(fetch);
        self.spare_bufs.extend(into);
    }

    /// A buffer, with any content.
    pub(crate) fn buf(&mut self, size: usize) -> AlignedBuf {
        let found = self.spare_bufs.iter().rposition(|buf| buf.len() == size);
        found.map_or_else(|| AlignedBuf::zeroed(size), |at| self.spare_bufs.swap_remove(at))
    }

    /// Takes what has arrived, if it is for one of these.
    pub(crate) fn arrive(&mut self, lanes: &mut Lanes, arrival: Arrival) {
        let Arrival { ticket, result, buf } = arrival;
        let at = to_usize(ticket.slot.into());
        let place = self.slots.get_mut(at).and_then(Option::as_mut);
        let Some(fetch) = place.filter(|fetch| fetch.stamp == ticket.stamp) else { return };
        let buf = buf.filter(|_| result.is_ok());
        let (number, chunk) = (to_usize((ticket.part >> 16).into()), ticket.part & 0xffff);
        let is_over = if fetch.cells.is_empty() {
            fetch.left -= 1;
            fetch.has_failed |= buf.is_none();
            fetch.directs[number].buf = buf;
            if fetch.left > 0 {
                return;
            }
            let fleet = lanes.fleet().clone();
            let is_over = !fetch.has_failed && fetch.is_right(&fleet);
            if !is_over {
                let now = fleet.moment();
                fetch.widen(&fleet, lanes, now, ticket.slot);
            }
            is_over
        } else {
            let chunk = match chunk {
                DIRECT => fetch.directs[number].piece.chunk,
                chunk => to_usize(chunk.into()),
            };
            let cell = &mut fetch.cells[number][chunk];
            if matches!(cell, Cell::Here(_)) {
                return; // the second of two answers
            }
            *cell = buf.map_or(Cell::Failed, Cell::Here);
            let fleet = lanes.fleet().clone();
            fetch.solve(&fleet, lanes, ticket.slot)
        };
        if is_over {
            self.end(ticket.slot);
        }
    }

    /// Asks other drives for what is late, and says when the next one will be.
    pub(crate) fn hedge(
        &mut self,
        lanes: &mut Lanes,
        now: impl Fn() -> (Nanos, Nanos),
    ) -> Option<Nanos> {
        while let Some(&(due, slot, stamp)) = self.due.front() {
            let fetch = self.slots[to_usize(slot.into())].as_mut();
            match fetch.filter(|fetch| fetch.stamp == stamp && fetch.cells.is_empty()) {
                None => {}
                Some(_) if due > now().0 => return Some(due),
                Some(fetch) => {
                    let fleet = lanes.fleet().clone();
                    fetch.widen(&fleet, lanes, now(), slot);
                }
            }
            self.due.pop_front();
        }
        None
    }

    fn end(&mut self, slot: u32) {
        let fetch = self.slots[to_usize(slot.into())].take().expect("it goes on");
        self.free.push(slot);
        self.ended.push(Fetched { fetch });
    }

    /// One that ended.
    pub(crate) fn take_ended(&mut self) -> Option<Fetched> {
        self.ended.pop()
    }

    /// Keeps the memory of one that was looked at.
    pub(crate) fn put_back(&mut self, fetched: Fetched) {
        let Fetch { mut parts, mut directs, .. } = fetched.fetch;
        for direct in directs.drain(..) {
            if self.spare_bufs.len() < SPARE {
                self.spare_bufs.extend(direct.buf);
            }
        }
        parts.clear();
        if self.spare.len() < SPARE {
            self.spare.push((parts, directs));
        }
    }

    /// How many go on.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// In a ticket, in the place of a chunk: the read that was asked for first.
const DIRECT: u32 = 0xffff;

impl Fetch {
    fn ticket(&self, slot: u32, piece: usize, chunk: Option<usize>) -> Ticket {
        let part = u32_of(piece) << 16 | chunk.map_or(DIRECT, u32_of);
        Ticket { slot, stamp: self.stamp, part }
    }

    /// Where the row of a piece lies on a chunk, or on the one that has the piece: drive, offset, size.
    fn place(
        &self,
        fleet: &Fleet,
        number: usize,
        chunk: Option<usize>,
    ) -> (DriveIndex, u64, usize) {
        let piece = &self.directs[number].piece;
        let (start, size) = around(piece);
        let (drive, slot) = self.chunks.places[chunk.unwrap_or(piece.chunk)];
        (drive, fleet.layout.unit_offset(slot, piece.row) + to_u64(start), size)
    }

    fn matches(&self, part: &Part, bytes: &[u8]) -> bool {
        match part.sum {
            Sum::Plain(crc) => crc32c(bytes) == crc,
            Sum::Seeded { lineage, index, crc } => {
                fragment_crc(lineage, index, self.chunks.generation, bytes) == crc
            }
        }
    }

    /// The bytes of a part of a fetch that is one piece, as they were read.
    fn direct_bytes(&self, part: &Part) -> &[u8] {
        let Direct { piece, buf } = &self.directs[0];
        let start = piece.within - around(piece).0 + part.at;
        &buf.as_ref().expect("it has arrived")[start..start + part.size]
    }

    /// Whether the direct reads have all parts right. What lies in several pieces is put together.
    fn is_right(&mut self, fleet: &Fleet) -> bool {
        if self.directs.len() == 1 {
            return self.parts.iter().all(|part| self.matches(part, self.direct_bytes(part)));
        }
        for number in 0..self.parts.len() {
            let part = self.parts[number];
            let mut bytes = Vec::with_capacity(part.size);
            for (piece, start, size) in self.pieces_of(fleet, &part) {
                let buf = self.directs[piece].buf.as_ref().expect("all have arrived");
                bytes.extend_from_slice(&buf[start..start + size]);
            }
            if !self.matches(&part, &bytes) {
                self.answers.clear();
                return false;
            }
            self.answers.push(Some(Ok((bytes, Vec::new()))));
        }
        true
    }

    /// Asks all chunks of the rows.
    fn widen(&mut self, fleet: &Fleet, lanes: &mut Lanes, now: (Nanos, Nanos), slot: u32) {
        let count = self.chunks.places.len();
        self.answers.extend(self.parts.iter().map(|_| None));
        for number in 0..self.directs.len() {
            let direct = self.directs[number].piece.chunk;
            let arrived = self.directs[number].buf.take();
            let is_pending = self.left > 0 && arrived.is_none();
            let mut cells: Vec<Cell> = (0..count).map(|_| Cell::Unasked).collect();
            match arrived {
                // A wrong cell may have been read wrong only: then it is asked for again.
                Some(buf) if self.left > 0 => cells[direct] = Cell::Here(buf),
                _ if is_pending => cells[direct] = Cell::Pending,
                _ => {}
            }
            self.cells.push(cells);
        }
        self.ask(fleet, lanes, now, slot, false);
    }

    /// Asks the chunks that were not asked; slow drives only if they are idle, or if `all`.
    fn ask(&mut self, fleet: &Fleet, lanes: &mut Lanes, now: (Nanos, Nanos), slot: u32, all: bool) {
        for number in 0..self.directs.len() {
            for chunk in 0..self.chunks.places.len() {
                if !matches!(self.cells[number][chunk], Cell::Unasked) {
                    continue;
                }
                let (drive, offset, size) = self.place(fleet, number, Some(chunk));
                if !all && fleet.is_slow(drive) && lanes.in_flight_on(drive) > 0 {
                    continue;
                }
                self.cells[number][chunk] = Cell::Pending;
                let buf = AlignedBuf::zeroed(size);
                let ticket = self.ticket(slot, number, Some(chunk));
                lanes.start_at(now, ticket, drive, offset, Op::Read { lba: Lba(0), buf });
            }
        }
    }

    /// Looks for answers that verify; true when there is one for every part, or will be none.
    fn solve(&mut self, fleet: &Fleet, lanes: &mut Lanes, slot: u32) -> bool {
        let parities = usize::from(self.chunks.parity);
        let count = self.chunks.places.len();
        let mut is_over = true;
        let mut is_stuck = false;
        for number in 0..self.parts.len() {
            if self.answers[number].is_some() {
                continue;
            }
            let part = self.parts[number];
            let pieces = self.pieces_of(fleet, &part);
            if let Some(bytes) = self.plain(&part, &pieces) {
                self.answers[number] = Some(Ok((bytes, Vec::new())));
                continue;
            }
            let is = |chunk: usize, test: fn(&Cell) -> bool| {
                pieces.iter().any(|(piece, ..)| test(&self.cells[*piece][chunk]))
            };
            let unread: Vec<usize> = (0..count)
                .filter(|chunk| is(*chunk, |cell| !matches!(cell, Cell::Here(_))))
                .collect();
            let is_open = |cell: &Cell| matches!(cell, Cell::Pending | Cell::Unasked);
            let open: Vec<usize> = (0..count).filter(|chunk| is(*chunk, is_open)).collect();
            let is_waiting =
                (0..count).any(|chunk| is(chunk, |cell| matches!(cell, Cell::Pending)));
            let found = suspicions(&unread, count, parities).into_iter().find_map(|lost| {
                let bytes = self.rebuilt(&part, &pieces, &lost)?;
                let bad = lost.iter().filter(|chunk| !open.contains(chunk));
                let bad = bad.map(|chunk| self.chunks.places[*chunk].0).collect();
                Some((bytes, bad))
            });
            match found {
                Some(found) => self.answers[number] = Some(Ok(found)),
                None if is_waiting => is_over = false,
                None if !open.is_empty() => {
                    is_over = false;
                    is_stuck = true;
                }
                None => {
                    let why = format!(
                        "{} of {}: {} of its {count} chunks cannot be read, and no {parities} of them can be left \
                         out so that the checksum is right",
                        self.chunks.id,
                        self.chunks.generation,
                        unread.len()
                    );
                    self.answers[number] = Some(Err(Broken { why }));
                }
            }
        }
        if is_stuck {
            let now = fleet.moment();
            self.ask(fleet, lanes, now, slot, true);
        }
        is_over
    }

    /// The pieces that a part lies in: the number of each, and the bytes of what was read of its row.
    fn pieces_of(&self, fleet: &Fleet, part: &Part) -> Vec<(usize, usize, usize)> {
        let unit = fleet.layout.unit_size();
        let first = to_usize(u64::from(self.sector) * SECTOR);
        let (mut at, end) = (first + part.at, first + part.at + part.size);
        let mut pieces = Vec::with_capacity(1);
        while at < end {
            let number = at / unit - first / unit;
            let size = (unit - at % unit).min(end - at);
            let start = at % unit - around(&self.directs[number].piece).0;
            pieces.push((number, start, size));
            at += size;
        }
        pieces
    }

    /// A part as the chunks that have it say it is, if they have answered and it is right.
    fn plain(&self, part: &Part, pieces: &[(usize, usize, usize)]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(part.size);
        for (piece, start, size) in pieces {
            let chunk = self.directs[*piece].piece.chunk;
            let Cell::Here(buf) = &self.cells[*piece][chunk] else { return None };
            bytes.extend_from_slice(&buf[*start..start + size]);
        }
        self.matches(part, &bytes).then_some(bytes)
    }

    /// A part as it is if these chunks are lost.
    fn rebuilt(
        &self,
        part: &Part,
        pieces: &[(usize, usize, usize)],
        lost: &[usize],
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(part.size);
        for (piece, start, size) in pieces {
            let units = self.cells[*piece].iter().map(|cell| match cell {
                Cell::Here(buf) => buf[*start..start + size].to_vec(),
                _ => vec![0; *size],
            });
            let mut units: Vec<Vec<u8>> = units.collect();
            if !parity::reconstruct(&mut units, self.chunks.parity.into(), lost) {
                return None;
            }
            bytes.extend_from_slice(&units[self.directs[*piece].piece.chunk]);
        }
        self.matches(part, &bytes).then_some(bytes)
    }
}

/// Which chunks may be the wrong ones: those that cannot be read, with none, one or two others, as far as there are
/// parities.
fn suspicions(unread: &[usize], chunks: usize, parities: usize) -> Vec<Vec<usize>> {
    let mut sets = Vec::new();
    if unread.len() > parities {
        return sets;
    }
    sets.push(unread.to_vec());
    for x in (0..chunks).filter(|x| unread.len() < parities && !unread.contains(x)) {
        sets.push([unread, &[x]].concat());
    }
    for x in (0..chunks).filter(|_| unread.is_empty() && parities >= 2) {
        sets.extend((0..x).map(|y| vec![y, x]));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicions_grow_to_the_number_of_parities() {
        assert_eq!(suspicions(&[], 3, 0), [vec![]]);
        assert_eq!(suspicions(&[], 3, 1), [vec![], vec![0], vec![1], vec![2]]);
        assert_eq!(suspicions(&[1], 3, 1), [[1]]);
        assert_eq!(suspicions(&[1], 3, 2), [vec![1], vec![1, 0], vec![1, 2]]);
        assert_eq!(suspicions(&[], 3, 2).len(), 1 + 3 + 3);
        assert!(suspicions(&[0, 1], 3, 1).is_empty());
    }
}
