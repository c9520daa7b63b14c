//! How the budget is divided between the programs' pages, copies of pages that have just left, and compressed copies.
//!
//! Compressed copies take memory from the staging area first, then from the programs' pages. They get more of it while
//! that saves more time by reads than it costs by pages that leave too soon. Hits in their oldest quarter tell what more
//! of them are worth; hits in the staging area tell what more memory for pages is worth.

use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::{to_nanos, to_u64};

use crate::compressed::Compressed;
use crate::types::CHUNK;

/// The budget is divided again after so many hits and reads, or so many pages that left the staging area.
const HITS: u64 = 512;
const RETIRED: u64 = 4096;
/// The time of a fault that finds a compressed copy, without the time that every fault takes.
const RESTORE_NS: u64 = 6_000;
/// A read of the device takes so long until one was measured.
const FIRST_READ_NS: u64 = 60_000;
/// Pages are compressed for at most one in so many nanoseconds.
const MOST_TIME: u64 = 4;
/// When compressing does not pay, one page in so many is still tried.
const SELDOM: u64 = 64;
/// Copies are worth their memory if they hold at least so many pages for each hundred.
const LEAST_PERCENT: usize = 150;
/// Chunks' worth of memory that is left for pages and the staging area.
const LEFT: usize = 8;
/// Fewest chunks of the staging area.
const FEWEST_CHUNKS: usize = 4;
/// Fewest segments: one with copies, and one to pack them into.
const FEWEST: usize = 2;

/// How the budget is divided, and what happened since it was divided last.
pub(super) struct Shares {
    /// Pages of the budget, without buffers.
    frames: usize,
    /// Chunks of the staging area where no memory is for compressed copies.
    chunks: usize,
    /// Most pages in memory, whatever there is.
    most: usize,
    /// Segments of compressed copies that there may be; none: pages are not compressed.
    segments: usize,
    /// The mean time of a read of the device, in nanoseconds.
    read_ns: u64,
    /// One page in so many is compressed.
    every: u64,
    since: Nanos,
    reads: u64,
    staged: u64,
    restored: u64,
    /// Of these, in the oldest quarter.
    restored_old: u64,
    /// Pages that left the staging area, those that were compressed, and those of which a copy was kept.
    retired: u64,
    tried: u64,
    compressed: u64,
    compressing_ns: u64,
}

impl Shares {
    pub(super) fn new(frames: usize, chunks: usize, compress: bool) -> Shares {
        Shares {
            frames,
            chunks,
            most: usize::MAX,
            segments: if compress { FEWEST } else { 0 },
            read_ns: FIRST_READ_NS,
            every: 1,
            since: Nanos(0),
            reads: 0,
            staged: 0,
            restored: 0,
            restored_old: 0,
            retired: 0,
            tried: 0,
            compressed: 0,
            compressing_ns: 0,
        }
    }

    /// Segments of compressed copies that there may be.
    pub(super) fn segments(&self) -> usize {
        self.segments
    }

    /// Most pages in memory.
    #[cfg(test)]
    pub(super) fn set_most(&mut self, pages: usize) {
        self.most = pages;
    }

    /// A page was read from the device for a fault.
    pub(super) fn note_read(&mut self, span: Duration) {
        self.reads += 1;
        let ns = to_nanos(span).min(1 << 40);
        self.read_ns = (self.read_ns * 63 + ns) / 64;
    }

    /// A page was found in the staging area.
    pub(super) fn note_staged(&mut self) {
        self.staged += 1;
    }

    /// A page was found compressed.
    pub(super) fn note_restored(&mut self, is_old: bool) {
        self.restored += 1;
        self.restored_old += u64::from(is_old);
    }

    /// The time that a compressed copy saves which is found, in nanoseconds.
    fn saved_ns(&self) -> u64 {
        self.read_ns.saturating_sub(RESTORE_NS)
    }

    /// Whether compressed copies should have more memory, or less; none: as much as they have. They hold `percent` pages
    /// for each hundred of memory.
    fn is_wanted(&self, chunks: usize, percent: usize) -> Option<bool> {
        if self.reads + self.staged + self.restored < HITS / 4 {
            // The program only fills memory.
            return None;
        }
        if percent < LEAST_PERCENT {
            return Some(false);
        }
        let gain = self.restored_old * self.saved_ns() * 4 / to_u64(self.segments).max(1);
        // A page that leaves too soon is compressed, or read again.
        let lost = self.compressed * RESTORE_NS + (self.tried - self.compressed) * self.saved_ns();
        let loss = self.staged * lost / self.tried.max(1) / to_u64(chunks).max(1);
        if gain > loss + loss / 4 {
            Some(true)
        } else {
            (gain < loss || gain == 0).then_some(false)
        }
    }

    /// Decides how many pages are compressed.
    fn judge_time(&mut self, elapsed: Duration) {
        let elapsed = to_nanos(elapsed);
        let is_too_much = self.compressing_ns > elapsed / MOST_TIME;
        let is_worth_it = self.restored * self.saved_ns() > self.compressing_ns;
        self.every = if is_worth_it && !is_too_much {
            (self.every / 2).max(1)
        } else {
            (self.every * 2).min(SELDOM)
        };
    }

    /// Whether a page that leaves the staging area is to be compressed.
    pub(super) fn is_to_compress(&mut self) -> bool {
        self.retired += 1;
        self.segments > 0 && self.retired.is_multiple_of(self.every)
    }

    /// A page was compressed, in so much time.
    pub(super) fn note_compressed(&mut self, is_kept: bool, span: Duration) {
        self.tried += 1;
        self.compressed += u64::from(is_kept);
        self.compressing_ns += to_nanos(span);
    }

    /// Whether enough has happened to divide the budget again.
    pub(super) fn are_due(&self) -> bool {
        let hits = self.reads + self.staged + self.restored;
        self.segments > 0 && (hits >= HITS || self.retired >= RETIRED)
    }

    /// Divides the budget again, and gives the segments of copies. The staging area has `chunks` now.
    pub(super) fn divide(&mut self, now: Nanos, copies: &Compressed, chunks: usize) -> usize {
        self.judge_time(now.since(self.since));
        let all = self.frames / CHUNK;
        let step = (all / 64).max(1);
        match self.is_wanted(chunks, copies.percent()) {
            Some(true) if copies.is_full() => self.segments += step,
            Some(false) => self.segments -= step.min(self.segments - FEWEST),
            _ => {}
        }
        let most = (all / 4 * 3).min(all.saturating_sub(LEFT)).max(FEWEST);
        self.segments = self.segments.min(most);
        self.since = now;
        (self.reads, self.staged, self.restored, self.restored_old) = (0, 0, 0, 0);
        (self.retired, self.tried, self.compressed, self.compressing_ns) = (0, 0, 0, 0);
        self.segments
    }

    /// How many chunks the staging area is to have.
    pub(super) fn chunks(&self) -> usize {
        let taken = self.segments.min(self.chunks / 4 * 3);
        (self.chunks - taken).max(FEWEST_CHUNKS)
    }

    /// How many pages may be in memory, beside so many pages of copies.
    pub(super) fn limit(&self, copies: usize) -> usize {
        // A table of copies that grows takes from them.
        self.frames.saturating_sub(copies).max(CHUNK).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The segments after forty windows of this.
    fn after(window: impl Fn(&mut Shares)) -> usize {
        let mut shares = Shares::new(64 * CHUNK, 16, true);
        let (mut copies, mut now) = (Compressed::new(shares.segments()), Nanos(0));
        let (mut slot, mut page) = (0, vec![0; crate::types::PAGE]);
        for _ in 0..40 {
            window(&mut shares);
            while !copies.is_full() || copies.percent() < 200 {
                slot += 1;
                page[..4].copy_from_slice(&u32::to_ne_bytes(slot));
                copies.keep(slot, &page);
            }
            now = now + Duration::from_millis(100);
            let chunks = 16 - shares.segments().min(12);
            copies.set_most(shares.divide(now, &copies, chunks));
            assert!(shares.chunks() >= FEWEST_CHUNKS && shares.segments() + LEFT <= 64);
        }
        shares.segments()
    }

    fn reads(shares: &mut Shares, count: u32, micros: u64) {
        (0..count).for_each(|_| shares.note_read(Duration::from_micros(micros)));
    }

    fn compressed(shares: &mut Shares, count: u32, kept: bool) {
        for _ in 0..count {
            shares.is_to_compress();
            shares.note_compressed(kept, Duration::from_micros(4));
        }
    }

    #[test]
    fn copies_that_save_reads_get_memory() {
        let segments = after(|shares| {
            reads(shares, 500, 80);
            (0..500).for_each(|n| shares.note_restored(n % 4 == 0));
            (0..50).for_each(|_| shares.note_staged());
            compressed(shares, 1000, true);
        });
        assert!(segments > 30, "{segments}");
    }

    #[test]
    fn a_fast_device_needs_no_copies() {
        let segments = after(|shares| {
            reads(shares, 500, 5);
            (0..500).for_each(|n| shares.note_restored(n % 4 == 0));
            compressed(shares, 1000, true);
        });
        assert_eq!(segments, FEWEST);
    }

    #[test]
    fn pages_that_are_wanted_soon_and_do_not_compress_keep_their_memory() {
        let segments = after(|shares| {
            reads(shares, 100, 80);
            (0..800).for_each(|_| shares.note_staged());
            (0..100).for_each(|n| shares.note_restored(n % 4 == 0));
            compressed(shares, 200, true);
            compressed(shares, 600, false);
        });
        assert_eq!(segments, FEWEST);
    }

    #[test]
    fn compressing_in_vain_becomes_seldom_and_recovers() {
        let mut shares = Shares::new(64 * CHUNK, 16, true);
        let copies = Compressed::new(FEWEST);
        let mut now = Nanos(0);
        let mut tried = |shares: &mut Shares, is_found: bool| {
            let tried = (0..1000).filter(|_| shares.is_to_compress()).count();
            for _ in 0..tried {
                shares.note_compressed(true, Duration::from_micros(10));
                if is_found {
                    shares.note_restored(true);
                }
            }
            now = now + Duration::from_secs(1);
            shares.divide(now, &copies, 4);
            tried
        };
        assert_eq!((0..20).map(|_| tried(&mut shares, false)).last(), Some(15));
        assert_eq!((0..20).map(|_| tried(&mut shares, true)).last(), Some(1000));
    }
}
