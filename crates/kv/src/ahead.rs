//! Read-ahead for cursors: records that are wanted together are read at once, and the further a cursor
//! goes through a block of old values, which lie in key order, the more of it is read at a time.

use std::collections::BTreeSet;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;

use crate::error::Result;
use crate::value::{Piece, Values, Wanted, read_pieces};

/// Reads values for a cursor.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// The most recent one at the end.
    windows: Vec<Window>,
    /// The blocks of old values that the walk has come to.
    met: BTreeSet<u64>,
    /// What was read on coming to each, since [`ReadAhead::take_first_reads`]: the block, and bytes that
    /// are not of the record that was wanted.
    first_reads: Vec<(u64, u64)>,
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

/// Bytes of a block in DRAM.
struct Window {
    block: u64,
    start: u64,
    size: usize,
    /// Empty until it is read.
    bytes: AlignedBuf,
    /// Where `start` is in `bytes`.
    skip: usize,
    /// Whether it is of use for records to come.
    lasts: bool,
}

/// Windows a cursor keeps: one for each kvset that it merges, as long as there are not too many.
const WINDOWS: usize = 32;
/// What the first read of a block of old values takes along: a drive answers it about as fast as
/// one of 4 KiB.
pub(crate) const FIRST_WINDOW: u64 = 8 << 10;
/// The largest window, and the distance at which a read still counts as following another one.
const WINDOW_MAX: u64 = 128 << 10;

impl Window {
    fn end(&self) -> u64 {
        self.start + self.size as u64
    }

    fn covers(&self, piece: &Piece<'_>) -> bool {
        let end = piece.start + piece.size as u64;
        self.block == piece.block.id && piece.start >= self.start && end <= self.end()
    }

    fn slice(&self, piece: &Piece<'_>) -> &[u8] {
        let at = self.skip + to_usize(piece.start - self.start);
        &self.bytes[at..at + piece.size]
    }
}

impl ReadAhead {
    /// Another walk begins.
    pub(crate) fn begin(&mut self) {
        self.met.clear();
        self.first_reads.clear();
    }

    /// The blocks of old values that the walk has come to since it was asked, each with the bytes that
    /// were read of it then besides the record that was wanted.
    pub(crate) fn take_first_reads(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.first_reads)
    }

    /// Hands the value of each record to `each`, with the record's index. The records are in the order
    /// of the walk.
    pub(crate) fn read(
        &mut self,
        values: &Values,
        kvs: u32,
        wanted: Vec<Wanted<'_>>,
        way: Way,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let missing = values.cached(wanted, &mut each);
        if missing.is_empty() {
            return Ok(());
        }
        // What cannot be read may be what was to be taken along.
        self.load(&missing, Some(way)).or_else(|_| self.load(&missing, None))?;
        for one in &missing {
            let piece = one.piece();
            let window = self.windows.iter().rev().find(|window| window.covers(&piece));
            let record = window.expect("load() covers all of them").slice(&piece);
            values.take(kvs, one, record, &mut each)?;
        }
        self.windows.retain(|window| window.lasts);
        self.windows.drain(..self.windows.len().saturating_sub(WINDOWS));
        Ok(())
    }

    /// Reads windows, all at once, so that every record is in one: beyond them in the direction of the
    /// walk, or not. What cannot be read leaves none.
    fn load(&mut self, missing: &[Wanted<'_>], way: Option<Way>) -> Result<()> {
        let known = self.windows.len();
        let mut pieces = Vec::new();
        for (at, one) in missing.iter().enumerate() {
            let piece = one.piece();
            if self.windows.iter().any(|window| window.covers(&piece)) {
                continue;
            }
            // The log's values lie in the order of their writing: what is next to one is not next.
            let way = way.filter(|_| !one.block.is_log());
            let lasts = way.is_some();
            let record = piece.size;
            let piece = match way {
                Some(Way { forward, ends: false }) => self.widen(piece, forward),
                Some(Way { forward, ends: true }) => span(piece, &missing[at..], forward),
                None => piece,
            };
            let Piece { block, start, size } = piece;
            if lasts && self.met.insert(block.id) {
                let (.., read_bytes) = block.allocation.span(start, size);
                let used = if way.is_some_and(|way| way.ends) { size } else { record };
                self.first_reads.push((block.id, (read_bytes - used) as u64));
            }
            let bytes = AlignedBuf::zeroed(0);
            self.windows.push(Window { block: block.id, start, size, bytes, skip: 0, lasts });
            pieces.push(piece);
        }
        let windows = &mut self.windows;
        let result = read_pieces(&pieces, |n, buf, skip| {
            let window = &mut windows[known + n];
            (window.bytes, window.skip) = (buf, skip);
            Ok(())
        });
        if result.is_err() {
            self.windows.clear();
        }
        result
    }

    /// A window around a record of old values: twice as large each time when it goes on where another
    /// one of the block ends, which has then served.
    fn widen<'a>(&mut self, record: Piece<'a>, forward: bool) -> Piece<'a> {
        let Piece { block, start, size } = record;
        let size = size as u64;
        let near = |window: &&mut Window| {
            let gap = if forward {
                start.checked_sub(window.end())
            } else {
                window.start.checked_sub(start + size)
            };
            window.block == block.id && gap.is_some_and(|gap| gap < WINDOW_MAX)
        };
        let most = WINDOW_MAX.min(block.media().transfer.largest() as u64 / 2).max(size);
        let mut wanted = FIRST_WINDOW.clamp(size, most);
        if let Some(follows) = self.windows.iter_mut().find(near) {
            follows.lasts = false;
            wanted = (2 * follows.size as u64).clamp(size, most);
        }
        let (from, to) = if forward {
            (start, (start + wanted).min(block.allocation.bytes()))
        } else {
            ((start + size).saturating_sub(wanted), start + size)
        };
        Piece { block, start: from, size: to_usize(to - from) }
    }
}

/// What lies from a record of old values to the last one of its block that is wanted with it, as far as
/// there is little in between and one transfer takes it.
fn span<'a>(record: Piece<'a>, wanted: &[Wanted<'_>], forward: bool) -> Piece<'a> {
    let Piece { block, start, size } = record;
    let (mut from, mut to) = (start, start + size as u64);
    let most = block.media().transfer.largest() as u64 / 2;
    let its = wanted.iter().map(Wanted::piece).filter(|piece| piece.block.id == block.id);
    for piece in its {
        let end = piece.start + piece.size as u64;
        let (first, last) = (piece.start.min(from), end.max(to));
        let gap = if forward { piece.start.saturating_sub(to) } else { from.saturating_sub(end) };
        let is_ahead = if forward { first == from } else { last == to };
        if is_ahead && gap <= FIRST_WINDOW && last - first <= most {
            (from, to) = (first, last);
        }
    }
    Piece { block, start: from, size: to_usize(to - from) }
}
