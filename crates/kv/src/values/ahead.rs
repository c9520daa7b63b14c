//! Read-ahead for cursors: records that are wanted together are read at once, and the further a cursor
//! goes through a block of old values, which lie in key order, the more of it is read at a time, and
//! before it is needed.

pub(crate) mod run;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;

use crate::media::class::Media;
use crate::media::in_flight::InFlight;
use crate::types::error::Result;
use crate::types::ids::BlockId;
use crate::values::ahead::run::{Run, WINDOW_MAX};
use crate::values::block::{Piece, ValueBlock, Values, Wanted, read_pieces};
use crate::values::budget::Counted;
use crate::values::cache::record::Origin;

/// Reads values for a cursor.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// One for each block that the walk is in; the one used last at the end.
    runs: Vec<BlockRun>,
    /// One for each class of which something is read ahead of need.
    in_flight: Vec<InFlight>,
    /// A record that lies in two windows.
    joined: Vec<u8>,
    /// The blocks of old values that the walk has come to.
    met: BTreeSet<BlockId>,
    /// The first read of each, since [`ReadAhead::take_first_reads`]: the block, and the bytes that are not of the
    /// record that was wanted.
    first_reads: Vec<(BlockId, u64)>,
    forward: bool,
    /// Bytes of the values that the walk has read.
    walked: u64,
    /// While it reads ahead of need.
    long: Option<Counted>,
    /// The bytes of all windows and of spare buffers, since the first.
    held: Option<Counted>,
}

struct BlockRun {
    block: Arc<ValueBlock>,
    run: Run,
    /// Whether it is of use for records to come.
    lasts: bool,
    /// Where the walk is in it, if records of it are wanted now.
    at: Option<u64>,
    /// How often others were read since one of it was.
    idle: u32,
}

/// Where a walk goes.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) forward: bool,
    /// It is expected to end with the records that are wanted now.
    pub(crate) ends: bool,
}

impl Way {
    /// To the end.
    pub(crate) const FORWARD: Way = Way { forward: true, ends: false };
}

/// Bytes that the first read of a block of old values takes: a drive answers it about as fast as one of 4 KiB.
pub(crate) const FIRST_WINDOW: u64 = 8 << 10;
/// Blocks in which a cursor can be at a time.
const RUNS: usize = 128;
/// A block of which nothing was wanted in so many reads is one that the walk has left: it would keep its
/// share from others for ever.
const IDLE_MAX: u32 = 32;
/// The most that is read ahead of need of one block, in bytes.
const AHEAD_MAX: u64 = 1 << 20;
/// With less for a cursor, in bytes, nothing is read ahead of need.
const AHEAD_LEAST: u64 = 2 * WINDOW_MAX;
/// Buffers that are kept for reads to come of a class, in bytes: those of a few windows.
const SPARE_MAX: u64 = 4 * WINDOW_MAX;
/// A walk that has read more, in bytes, is one through data and not to a few rows.
const LONG_WALK: u64 = 256 << 10;

impl ReadAhead {
    /// Another walk begins: it goes elsewhere.
    pub(crate) fn begin(&mut self) {
        self.clear();
        self.long = None;
        let spare = self.spare_bytes();
        if let Some(held) = &mut self.held {
            held.set(spare);
        }
        self.met.clear();
        self.first_reads.clear();
        self.walked = 0;
    }

    /// The blocks of old values that the walk has come to since it was asked, each with the bytes that
    /// were read of it then besides the record that was wanted.
    pub(crate) fn take_first_reads(&mut self) -> Vec<(BlockId, u64)> {
        std::mem::take(&mut self.first_reads)
    }

    /// Hands the value of each record to `each`, with the record's index. The records are in the order
    /// of the walk.
    pub(crate) fn read(
        &mut self,
        values: &Values,
        wanted: Vec<Wanted<'_>>,
        way: Way,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let missing = values.cached(wanted, &mut each);
        if missing.is_empty() {
            return Ok(());
        }
        if std::mem::replace(&mut self.forward, way.forward) != way.forward {
            self.clear();
        }
        let budget = values.windows.of_one(self.held.as_ref().map_or(0, Counted::part));
        // A read may fail because of the bytes that it was to take along.
        let loaded = self.load(&missing, Some(way), budget);
        loaded.or_else(|_| self.load(&missing, None, budget))?;
        if !way.ends && budget >= AHEAD_LEAST {
            self.go_ahead(values, &missing, way.forward, budget);
        }
        for (at, one) in missing.iter().enumerate() {
            let taken = self.take(values, one, &mut each);
            if taken.is_err() {
                // Bytes read ahead may be the ones that failed, or are not sound.
                self.clear();
                self.load(&missing[at..], None, budget)?;
                self.take(values, one, &mut each)?;
            }
        }
        let windows = self.leave(way.forward, budget);
        self.keep_spare(budget);
        let held_bytes = windows + self.spare_bytes();
        let all = &values.windows.held;
        self.held.get_or_insert_with(|| Counted::in_sum(all)).set(held_bytes);
        Ok(())
    }

    fn position(&self, piece: &Piece<'_>) -> Option<usize> {
        let (id, start, end) = (piece.block.id, piece.start, piece.end());
        self.runs.iter().rposition(|it| it.block.id == id && it.run.covers(start, end))
    }

    /// Reads windows, all at once, so that every record is in one: beyond them in the direction of the walk, or
    /// not. A window that cannot be read is left out.
    fn load(&mut self, missing: &[Wanted<'_>], way: Option<Way>, budget: u64) -> Result<()> {
        let mut pieces = Vec::new();
        let mut filled = Vec::new();
        for (at, one) in missing.iter().enumerate() {
            let piece = one.piece();
            if self.position(&piece).is_some() {
                continue;
            }
            // The log's values lie in the order of their writing: the neighbour of one is not the next.
            let way = way.filter(|_| !one.block.is_log());
            let run = self.run_of(one.block, way.is_some());
            // Where the walk comes to it, a part may be there, or on the way.
            let forward = way.is_none_or(|way| way.forward);
            let (from, to) = self.runs[run].run.missing((piece.start, piece.end()), forward);
            let needed = to_usize(to - from);
            let piece = Piece { start: from, size: needed, ..piece };
            let piece = match way {
                Some(Way { forward, ends: false }) => self.widen(run, piece, forward, budget),
                Some(Way { forward, ends: true }) => span(piece, &missing[at..], forward),
                None => piece,
            };
            let Piece { block, start, size } = piece;
            if way.is_some() && self.met.insert(block.id) {
                let (.., read_bytes) = block.allocation.span(start, size);
                let used = if way.is_some_and(|way| way.ends) { size } else { needed };
                self.first_reads.push((block.id, (read_bytes - used) as u64));
            }
            self.runs[run].run.want(start, piece.end());
            filled.push(run);
            pieces.push(piece);
        }
        let runs = &mut self.runs;
        let mut read: Vec<Option<(AlignedBuf, usize)>> = pieces.iter().map(|_| None).collect();
        let result = read_pieces(&pieces, |n, buf, skip| {
            read[n] = Some((buf, skip));
            Ok(())
        });
        if result.is_err() {
            self.clear();
            return result;
        }
        for (run, read) in filled.into_iter().zip(read) {
            let (buf, skip) = read.expect("every piece was read");
            runs[run].run.fill(buf, skip);
        }
        Ok(())
    }

    /// The run of a block, or a new one that does not last.
    fn run_of(&mut self, block: &Arc<ValueBlock>, lasts: bool) -> usize {
        let of_block = |it: &BlockRun| lasts && it.lasts && it.block.id == block.id;
        self.runs.iter().rposition(of_block).unwrap_or_else(|| {
            let (block, run) = (block.clone(), Run::default());
            self.runs.push(BlockRun { block, run, lasts, at: None, idle: 0 });
            self.runs.len() - 1
        })
    }

    /// Bytes that each block may take: half is for bytes already read, half for those read ahead.
    fn share(&self, budget: u64) -> u64 {
        let lasting = self.runs.iter().filter(|it| it.lasts).count() as u64;
        budget / 2 / lasting.max(1)
    }

    /// A window around a record of old values.
    fn widen<'a>(
        &mut self,
        run: usize,
        record: Piece<'a>,
        forward: bool,
        budget: u64,
    ) -> Piece<'a> {
        let most = self.share(budget).clamp(FIRST_WINDOW, WINDOW_MAX);
        let Piece { block, start, .. } = record;
        let sizes = (FIRST_WINDOW, most);
        let run = &mut self.runs[run].run;
        let (from, to) = run.widen((start, record.end()), forward, sizes, &block.allocation);
        Piece { block, start: from, size: to_usize(to - from) }
    }

    /// Notes how far the walk comes with these records in each block, and begins to read the bytes behind.
    fn go_ahead(&mut self, values: &Values, missing: &[Wanted<'_>], forward: bool, budget: u64) {
        for one in missing {
            let of_block = |it: &&mut BlockRun| it.lasts && it.block.id == one.block.id;
            if let Some(it) = self.runs.iter_mut().rfind(of_block) {
                let piece = one.piece();
                it.at = Some(if forward { piece.end() } else { piece.start });
            }
        }
        let most = self.share(budget).min(AHEAD_MAX);
        for it in &mut self.runs {
            let Some(at) = it.at else { continue };
            let allocation = &it.block.allocation;
            let ahead = it.run.ahead(allocation, (at, forward), most);
            if ahead > 0
                && let Some(reads) = reads_of(&mut self.in_flight, &allocation.media)
            {
                let all = &values.windows.walks;
                self.long.get_or_insert_with(|| Counted::in_sum(all)).set(1);
                // Bytes whose read-ahead fails are read when they are needed, and an error is one then.
                let _ = it.run.go_ahead(allocation, reads, (at, forward), ahead);
            }
        }
    }

    /// Hands on the value of a record that a window has.
    fn take(
        &mut self,
        values: &Values,
        one: &Wanted<'_>,
        each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let piece = one.piece();
        let run = self.position(&piece).expect("load() covers all of them");
        let reads = under_way(&mut self.in_flight, one.block.media());
        let BlockRun { run, idle, .. } = &mut self.runs[run];
        *idle = 0;
        // Records that a long walk reads are not read again before other records are.
        let source = if self.walked > LONG_WALK { Origin::LongWalk } else { Origin::Medium };
        self.walked += piece.size as u64;
        let record = run.get((piece.start, piece.end()), reads, &mut self.joined)?;
        values.take(one, record, source, each)
    }

    /// Lets go of windows that the walk has left behind, and of the blocks that it has not come to for long, the
    /// sooner the more there are. Returns the bytes of those that are left.
    fn leave(&mut self, forward: bool, budget: u64) -> u64 {
        let in_flight = &mut self.in_flight;
        for it in &mut self.runs {
            if let Some(at) = it.at {
                it.run.leave(at, forward, under_way(in_flight, it.block.media()));
            }
        }
        self.runs.sort_by_key(|it| Reverse(it.idle));
        let mut bytes: u64 = self.runs.iter().map(|it| it.run.bytes()).sum();
        let mut count = self.runs.len();
        self.runs.retain_mut(|it| {
            let kept = it.lasts && it.idle < IDLE_MAX && bytes <= budget && count <= RUNS;
            if !kept {
                (bytes, count) = (bytes - it.run.bytes(), count - 1);
                it.run.clear(under_way(in_flight, it.block.media()));
            }
            (it.at, it.idle) = (None, it.idle + 1);
            kept
        });
        bytes
    }

    /// Lets go of buffers that exceed a part of the budget, and of queue pairs that it is too small for.
    fn keep_spare(&mut self, budget: u64) {
        let most = SPARE_MAX.min(budget / 4);
        self.in_flight.iter_mut().for_each(|reads| reads.keep_spare(most));
        if self.joined.capacity() as u64 > most {
            self.joined = Vec::new();
        }
        if budget < AHEAD_LEAST && !self.runs.iter().any(|it| it.run.is_under_way()) {
            self.in_flight.clear();
        }
    }

    fn spare_bytes(&self) -> u64 {
        self.in_flight.iter().map(InFlight::spare_bytes).sum()
    }

    fn clear(&mut self) {
        for mut it in self.runs.drain(..) {
            it.run.clear(under_way(&mut self.in_flight, it.block.media()));
        }
    }
}

/// The reads of a class.
pub(crate) fn under_way<'f>(
    in_flight: &'f mut [InFlight],
    media: &Arc<Media>,
) -> Option<&'f mut InFlight> {
    in_flight.iter_mut().find(|reads| Arc::ptr_eq(reads.media(), media))
}

/// The reads of a class, or a new one; `None` when the device has no more queue pairs to give.
pub(crate) fn reads_of<'f>(
    in_flight: &'f mut Vec<InFlight>,
    media: &Arc<Media>,
) -> Option<&'f mut InFlight> {
    if under_way(in_flight, media).is_none() {
        in_flight.push(InFlight::ahead(media, SPARE_MAX).ok()?);
    }
    under_way(in_flight, media)
}

/// Range from a record of old values to the last one of its block that is wanted with it, as far as there is little
/// in between and one transfer takes it.
fn span<'a>(record: Piece<'a>, wanted: &[Wanted<'_>], forward: bool) -> Piece<'a> {
    let Piece { block, start, .. } = record;
    let (mut from, mut to) = (start, record.end());
    let most = block.media().transfer.largest() as u64 / 2;
    let its = wanted.iter().map(Wanted::piece).filter(|piece| piece.block.id == block.id);
    for piece in its {
        let (first, last) = (piece.start.min(from), piece.end().max(to));
        let gap =
            if forward { piece.start.saturating_sub(to) } else { from.saturating_sub(piece.end()) };
        let is_ahead = if forward { first == from } else { last == to };
        if is_ahead && gap <= FIRST_WINDOW && last - first <= most {
            (from, to) = (first, last);
        }
    }
    Piece { block, start: from, size: to_usize(to - from) }
}
