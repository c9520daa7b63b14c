//! Ranges of keys that were deleted, as a memtable has them: in the order of their seqnos, overlapping as they come.
//!
//! Sixteen ranges that follow each other are a block, two neighbouring blocks of a size one of twice the size, and so on.
//! A block says of each key which range is the newest of its own that holds it: steps in the order of keys, found by a
//! binary search. A reader as of any seqno looks at the few blocks that make up the ranges before that, and at up to
//! fifteen ranges one by one. So each range is in as many blocks as there are sizes, whatever it overlaps.
//!
//! Invariants
//! 1. Ranges are added in the order of their seqnos, and none is changed.
//! 2. Of each size there are as many blocks as fit; block n of a size covers the ranges from n times that size on.

use std::cmp::Ordering as Order;

use esker_base::units::to_u64;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::types::ids::{KvsId, Seqno};
use crate::types::key_list::KeyList;
use crate::types::spans::{Span, SpanBuf, bound_of};

/// Deleted ranges, to which a writer adds while others read.
pub(crate) struct DeletedRanges {
    ranges: RwLock<Ranges>,
    bytes: AtomicU64,
}

/// DRAM of a range beside its bounds, in bytes, if there are very many.
pub(crate) const RANGE_DRAM: u64 = 512;

/// So many ranges are the smallest block.
const BLOCK: usize = 16;
/// A run of ranges that touch is followed over so many steps.
const RUN: usize = 64;

#[derive(Default)]
struct Ranges {
    all: Vec<Deleted>,
    /// The lower bound of range n is bound 2n, the upper one bound 2n + 1: of no bytes where there is none.
    bounds: KeyList,
    /// Blocks of each size, the smallest size first.
    sizes: Vec<Vec<RangeBlock>>,
}

struct Deleted {
    kvs: KvsId,
    seqno: Seqno,
}

type RangeBlock = Box<[RangeStep]>;

/// From a bound on, to the next step's, this range is the newest one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RangeStep {
    bound: u32,
    /// One more than its number; 0 for none.
    newest: u32,
}

impl Default for DeletedRanges {
    fn default() -> DeletedRanges {
        DeletedRanges { ranges: RwLock::new(Ranges::default()), bytes: AtomicU64::new(0) }
    }
}

impl DeletedRanges {
    /// Adds a range. Called in seqno order.
    pub(crate) fn add(&self, kvs: KvsId, span: Span<'_>, seqno: Seqno) {
        let mut ranges = self.ranges.write();
        ranges.add(kvs, span, seqno);
        self.bytes.store(ranges.bytes(), Ordering::Relaxed);
    }

    /// DRAM in use, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The seqno of the newest range up to `seqno` that holds a key.
    pub(crate) fn newest(&self, kvs: KvsId, key: &[u8], seqno: Seqno) -> Option<Seqno> {
        let ranges = self.ranges.read();
        let count = ranges.count_through(seqno);
        let newest = ranges.covers(kvs, key, count, &mut |_| true)?;
        Some(ranges.all[newest].seqno)
    }

    /// Keys around this one that ranges up to `seqno` hold: all of a range, and perhaps of others that overlap or touch.
    pub(super) fn span(&self, kvs: KvsId, key: &[u8], seqno: Seqno) -> Option<SpanBuf> {
        let ranges = self.ranges.read();
        let mut widest: Option<SpanBuf> = None;
        let count = ranges.count_through(seqno);
        ranges.covers(kvs, key, count, &mut |span| {
            match &mut widest {
                Some(widest) => widest.widen(span),
                None => widest = Some(span.to_buf()),
            }
            false
        });
        widest
    }

    /// Whether a range newer than `seqno` has keys of `span`.
    pub(super) fn changed_within(&self, kvs: KvsId, span: Span<'_>, seqno: Seqno) -> bool {
        let ranges = self.ranges.read();
        let newer = ranges.count_through(seqno)..ranges.all.len();
        newer.into_iter().any(|n| ranges.all[n].kvs == kvs && ranges.span(n).overlaps(span))
    }

    /// Hands out all of them, in the order of their seqnos.
    pub(super) fn each(&self, mut each: impl FnMut(KvsId, Span<'_>)) {
        let ranges = self.ranges.read();
        (0..ranges.all.len()).for_each(|n| each(ranges.all[n].kvs, ranges.span(n)));
    }
}

impl Ranges {
    fn add(&mut self, kvs: KvsId, span: Span<'_>, seqno: Seqno) {
        self.all.push(Deleted { kvs, seqno });
        self.bounds.push(span.lower);
        self.bounds.push(span.upper.unwrap_or_default());
        let count = self.all.len();
        if !count.is_multiple_of(BLOCK) {
            return;
        }
        let mut block: RangeBlock = Box::new([]);
        for n in count - BLOCK..count {
            block = self.overlay(&block, &self.alone(n));
        }
        for size in 0.. {
            if self.sizes.len() == size {
                self.sizes.push(Vec::new());
            }
            self.sizes[size].push(block);
            let [.., older, newer] = &self.sizes[size][..] else { return };
            if !self.sizes[size].len().is_multiple_of(2) {
                return;
            }
            block = self.overlay(older, newer);
        }
    }

    fn bytes(&self) -> u64 {
        let blocks = self.sizes.iter().flatten().map(|block| size_of_val(&block[..]));
        let steps: usize =
            blocks.sum::<usize>() + self.all.len() / BLOCK * 2 * size_of::<RangeBlock>();
        to_u64(steps + self.all.capacity() * size_of::<Deleted>()) + self.bounds.dram_bytes()
    }

    fn span(&self, n: usize) -> Span<'_> {
        Span { lower: self.bounds.get(2 * n), upper: bound_of(self.bounds.get(2 * n + 1)) }
    }

    /// How many ranges there are up to a seqno.
    fn count_through(&self, seqno: Seqno) -> usize {
        match self.all.last() {
            Some(last) if last.seqno <= seqno => self.all.len(),
            _ => self.all.partition_point(|range| range.seqno <= seqno),
        }
    }

    /// A block of one range.
    fn alone(&self, n: usize) -> [RangeStep; 2] {
        let lower = u32::try_from(2 * n).expect("fewer than 2^31 ranges");
        [
            RangeStep { bound: lower, newest: lower / 2 + 1 },
            RangeStep { bound: lower + 1, newest: 0 },
        ]
    }

    /// Place of a bound among all keys of all KVSs: one without bytes above is behind its KVS.
    fn place(&self, bound: u32) -> (KvsId, bool, &[u8]) {
        let at = bound as usize;
        let (kvs, bytes) = (self.all[at / 2].kvs, self.bounds.get(at));
        (kvs, at % 2 == 1 && bytes.is_empty(), bytes)
    }

    /// The sum of both, the newer one first.
    fn overlay(&self, older: &[RangeStep], newer: &[RangeStep]) -> RangeBlock {
        let mut steps: Vec<RangeStep> = Vec::with_capacity(older.len() + newer.len());
        let (mut a, mut b) = (older.iter().peekable(), newer.iter().peekable());
        let (mut of_older, mut of_newer) = (0, 0);
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => return steps.into(),
                (Some(_), None) => Order::Less,
                (None, Some(_)) => Order::Greater,
                (Some(a), Some(b)) => self.place(a.bound).cmp(&self.place(b.bound)),
            };
            let mut bound = 0;
            if order.is_le() {
                let step = a.next().expect("peeked");
                (bound, of_older) = (step.bound, step.newest);
            }
            if order.is_ge() {
                let step = b.next().expect("peeked");
                (bound, of_newer) = (step.bound, step.newest);
            }
            let newest = if of_newer > 0 { of_newer } else { of_older };
            if steps.last().map_or(0, |last| last.newest) != newest {
                steps.push(RangeStep { bound, newest });
            }
        }
    }

    /// Looks at the first `count` ranges for those that hold a key, the newest first, until `each` has enough; it is told
    /// the keys around. Returns the number of the one it ended at.
    fn covers(
        &self,
        kvs: KvsId,
        key: &[u8],
        count: usize,
        each: &mut dyn FnMut(Span<'_>) -> bool,
    ) -> Option<usize> {
        let mut left = count / BLOCK;
        for n in (left * BLOCK..count).rev() {
            let holds = self.all[n].kvs == kvs && self.span(n).holds(key);
            if holds && each(self.span(n)) {
                return Some(n);
            }
        }
        while left > 0 {
            let size = left.trailing_zeros();
            let block = &self.sizes[size as usize][(left >> size) - 1];
            left -= 1 << size;
            let above = block.partition_point(|step| self.place(step.bound) <= (kvs, false, key));
            let Some(at) = above.checked_sub(1).filter(|at| block[*at].newest > 0) else {
                continue;
            };
            if each(self.run(block, at)) {
                return Some(block[at].newest as usize - 1);
            }
        }
        None
    }

    /// The keys of the step at `at` of a block, and of those that touch it.
    fn run<'r>(&'r self, block: &[RangeStep], at: usize) -> Span<'r> {
        let kvs = self.place(block[at].bound).0;
        let touches = |n: usize| block[n].newest > 0 && self.place(block[n].bound).0 == kvs;
        let most = at.saturating_sub(RUN);
        let first = (most..at).rev().take_while(|n| touches(*n)).last().unwrap_or(at);
        let mut last = at + 1;
        while last < at + RUN && touches(last) {
            last += 1;
        }
        let upper = bound_of(self.bounds.get(block[last].bound as usize));
        Span { lower: self.bounds.get(block[first].bound as usize), upper }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::{Clock, Rng};

    fn bound(rng: &mut Rng) -> Vec<u8> {
        (0..rng.below(4)).map(|_| u8::try_from(rng.below(4)).unwrap()).collect()
    }

    #[test]
    fn readers_as_of_any_seqno_find_the_newest_range() {
        for seed in 0..20 {
            let (mut rng, ranges) = (Rng::new(seed), DeletedRanges::default());
            let mut all: Vec<(KvsId, SpanBuf, Seqno)> = Vec::new();
            for n in 1..300 {
                let kvs = KvsId(u32::try_from(rng.below(2)).unwrap());
                let (lower, upper) = (bound(&mut rng), bound(&mut rng));
                let upper = (!upper.is_empty()).then_some(upper);
                if upper.as_ref().is_some_and(|upper| *upper <= lower) {
                    continue;
                }
                let (span, seqno) = (SpanBuf { lower, upper }, Seqno(2 * n));
                ranges.add(kvs, span.as_span(), seqno);
                all.push((kvs, span, seqno));
                for _ in 0..8 {
                    let (key, seqno) = (bound(&mut rng), Seqno(rng.below(2 * n + 2)));
                    let seen = || all.iter().filter(|(of, _, at)| *of == kvs && *at <= seqno);
                    let newest = seen().rfind(|(_, span, _)| span.as_span().holds(&key));
                    let found = ranges.newest(kvs, &key, seqno);
                    assert_eq!(found, newest.map(|(.., seqno)| *seqno), "{key:?}");
                    let span = ranges.span(kvs, &key, seqno);
                    assert_eq!(span.is_some(), found.is_some());
                    let Some(span) = span else { continue };
                    let holding = seen().filter(|(_, it, _)| it.as_span().holds(&key));
                    holding.for_each(|(_, it, _)| assert!(span.as_span().covers(it.as_span())));
                    // Nothing in it is in no range.
                    let is_deleted = |key: &[u8]| seen().any(|(_, it, _)| it.as_span().holds(key));
                    assert!(is_deleted(&span.lower));
                    let within = seen().filter_map(|(_, it, _)| it.upper.as_deref());
                    within
                        .filter(|end| span.as_span().holds(end))
                        .for_each(|end| assert!(is_deleted(end), "{end:?} in {span:?}"));
                }
            }
        }
    }

    #[test]
    fn a_hundred_thousand_ranges_take_milliseconds_however_they_lie() {
        let key = |n: u64| n.to_be_bytes();
        let count = 100_000;
        type Lie = fn(u64, u64) -> (u64, u64);
        let clock = Clock::real();
        let kinds: [(&str, Lie); 4] = [
            ("disjoint", |n, _| (10 * n, 10 * n + 5)),
            ("touching", |n, _| (10 * n, 10 * n + 10)),
            ("nested", |n, count| (n, 4 * count - n)),
            ("overlapping", |n, count| (n * 7919 % count, n * 7919 % count + 1000)),
        ];
        for (kind, of) in kinds {
            let (ranges, began) = (DeletedRanges::default(), clock.now());
            for n in 0..count {
                let (lower, upper) = of(n, count);
                let (lower, upper) = (key(lower), key(upper));
                ranges.add(KvsId(1), Span { lower: &lower, upper: Some(&upper) }, Seqno(n + 1));
            }
            let (added, began, mut found) = (clock.now().since(began), clock.now(), 0);
            for n in 0..10_000 {
                let at = key(n * 104_729 % (10 * count));
                found += usize::from(ranges.newest(KvsId(1), &at, Seqno(n * 10)).is_some());
                found += usize::from(ranges.span(KvsId(1), &at, Seqno::MAX).is_some());
            }
            let (asked, bytes) = (clock.now().since(began), ranges.bytes() / count);
            println!(
                "{kind}: added in {added:?}, asked in {asked:?}, {found} found, {bytes} bytes each"
            );
            assert!(found > 0 && bytes < RANGE_DRAM);
            // Debug builds on a busy machine; a quadratic one takes minutes.
            assert!(added.as_secs() < 30 && asked.as_secs() < 10, "{kind}: {added:?}, {asked:?}");
        }
    }
}
