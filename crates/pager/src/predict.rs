//! Which pages will be wanted next: streams of faults, forward, backward or strided, several at a
//! time.
//!
//! Pure: pages in, requests out. A stream is believed after three faults in a row (four if strided), and after more of
//! them while streams have ended early. Its window doubles each time it goes on, up to the limit of its user. That user
//! leaves the first page of each request unmapped, so that the stream is seen to go on.

use crate::types::Page;

/// How many streams are followed at a time.
const STREAMS: usize = 16;
/// How many faults are remembered to find new streams in.
const RECENT: usize = 32;
/// Of these, how many are tried as the one before, when a stride is looked for.
const TRIED: usize = 12;
/// How many more faults in a row are asked for when streams have mostly ended early.
const MOST_DOUBT: i64 = 6;
/// The longest stride in pages.
const LONGEST_STRIDE: i64 = 1024;
/// The first window in pages.
const FIRST_WINDOW: u32 = 8;
/// The largest window of a strided stream: each of its pages is a read of its own.
const STRIDED_WINDOW: u32 = 32;

/// Pages that will probably be wanted: `first`, `first + delta`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) first: i64,
    pub(crate) delta: i64,
    pub(crate) count: u32,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Zero: this entry is free.
    delta: i64,
    /// The last fault.
    last: i64,
    /// The first page of the last request.
    mark: i64,
    /// The first page that was not yet asked for.
    end: i64,
    window: u32,
    used_at: u64,
}

/// The streams of one space.
#[derive(Clone)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// The last faults; the newest is before `at`.
    recent: [i64; RECENT],
    at: usize,
    time: u64,
    most: u32,
    /// Grows with each stream that ended before its request was used.
    doubt: i64,
}

impl Streams {
    /// Streams with windows of at most `most` pages.
    pub(crate) fn new(most: u32) -> Streams {
        let streams = [Stream::default(); STREAMS];
        Streams { streams, recent: [i64::MIN / 4; RECENT], at: 0, time: 0, most, doubt: 0 }
    }

    /// Notes whether pages that were read ahead were wanted.
    pub(crate) fn learn(&mut self, wanted: bool) {
        self.doubt = (self.doubt + if wanted { -1 } else { 1 }).clamp(0, MOST_DOUBT);
    }

    /// Notes a fault, and says which pages to read ahead.
    pub(crate) fn observe(&mut self, page: Page) -> Option<Ahead> {
        let page = i64::from(page);
        self.time += 1;
        let found = self.streams.iter_mut().find(|stream| stream.continues_at(page));
        let ahead = match found {
            Some(stream) => stream.go_on(page, self.most, self.time),
            None => self.begin(page),
        };
        self.recent[self.at] = page;
        self.at = (self.at + 1) % RECENT;
        ahead
    }

    fn begin(&mut self, page: i64) -> Option<Ahead> {
        let delta = self.delta_to(page)?;
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used_at)?;
        let most = if delta.abs() == 1 { self.most } else { self.most.min(STRIDED_WINDOW) };
        let window = FIRST_WINDOW.min(most);
        let (first, end) = (page + delta, page + delta * (1 + i64::from(window)));
        *oldest = Stream { delta, last: page, mark: first, end, window, used_at: self.time };
        (window > 0).then_some(Ahead { first, delta, count: window })
    }

    /// The step by which recent faults lead to `page`.
    fn delta_to(&self, page: i64) -> Option<i64> {
        let seen = |page: i64| self.recent.contains(&page);
        for delta in [1, -1] {
            if (1..=2 + self.doubt).all(|n| seen(page - n * delta)) {
                return Some(delta);
            }
        }
        (1..=TRIED).find_map(|back| {
            let delta = page - self.recent[(self.at + RECENT - back) % RECENT];
            let fits = (2..=LONGEST_STRIDE).contains(&delta.abs());
            (fits && (2..=3 + self.doubt).all(|n| seen(page - n * delta))).then_some(delta)
        })
    }
}

impl Stream {
    /// Whether a fault belongs to the stream: the next page, the first one of the last request, which was left
    /// unmapped for this, or the first one that was not asked for. A fault in between is chance: those are mapped.
    fn continues_at(&self, page: i64) -> bool {
        let is_next = |from: i64| page == from + self.delta || page == from + 2 * self.delta;
        self.delta != 0
            && (is_next(self.last) || page == self.mark || page == self.end || is_next(self.end))
    }

    fn go_on(&mut self, page: i64, most: u32, time: u64) -> Option<Ahead> {
        self.last = page;
        self.used_at = time;
        // Pages that were asked for, and are not reached yet.
        let left = (self.end - page) / self.delta - 1;
        if left > i64::from(self.window) {
            return None;
        }
        let most = if self.delta.abs() == 1 { most } else { most.min(STRIDED_WINDOW) };
        self.window = (self.window * 2).min(most);
        let first = if left > 0 { self.end } else { page + self.delta };
        (self.mark, self.end) = (first, first + self.delta * i64::from(self.window));
        (self.window > 0).then_some(Ahead { first, delta: self.delta, count: self.window })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use std::collections::BTreeSet;

    /// Faults, unneeded reads and needed pages of a trace: a page faults unless it was read ahead; the first
    /// page of a request faults all the same.
    fn run(trace: impl IntoIterator<Item = i64>, most: u32) -> (usize, usize, usize) {
        let mut streams = Streams::new(most);
        let (mut ahead, mut marks) = (BTreeSet::new(), BTreeSet::new());
        let mut touched = BTreeSet::new();
        let mut faults = 0;
        for page in trace {
            if !touched.insert(page) || ahead.contains(&page) && !marks.contains(&page) {
                continue;
            }
            faults += usize::from(!ahead.contains(&page));
            if let Some(wanted) = streams.observe(Page::try_from(page).unwrap()) {
                marks.insert(wanted.first);
                ahead.extend((0..i64::from(wanted.count)).map(|n| wanted.first + n * wanted.delta));
            }
        }
        let wasted = ahead.iter().filter(|page| !touched.contains(page)).count();
        (faults, wasted, touched.len())
    }

    #[test]
    fn sequential_reverse_and_strided_faults_are_read_ahead() {
        assert_eq!(run(1000..5000, 64).0, 3);
        assert_eq!(run((1000..5000).rev(), 64).0, 3);
        let (faults, wasted, _) = run((0..500).map(|n| 1000 + n * 7), 64);
        assert!(faults <= 4 && wasted <= 64, "{faults} {wasted}");
        let (faults, _, _) = run((0..500).rev().map(|n| 1000 + n * 300), 64);
        assert!(faults <= 4, "{faults}");
    }

    #[test]
    fn interleaved_streams_are_told_apart() {
        let trace = (0..1000).flat_map(|n| (0..6).map(move |stream| stream * 100_000 + n));
        let (faults, wasted, _) = run(trace, 64);
        assert!(faults <= 18 && wasted <= 6 * 128, "{faults} {wasted}");
        let mixed = (0..1000).flat_map(|n| [n, 90_000 - n, 200_000 + 5 * n]);
        assert!(run(mixed, 64).0 <= 12);
    }

    #[test]
    fn random_faults_are_left_alone() {
        let mut rng = Rng::new(1);
        let trace: Vec<i64> = (0..50_000).map(|_| rng.below(1 << 20).cast_signed()).collect();
        let (_, wasted, touched) = run(trace, 64);
        assert!(wasted * 1000 < touched, "{wasted} of {touched}");
        // Objects that lie on two pages are no streams.
        let trace: Vec<i64> = (0..20_000)
            .flat_map(|_| {
                let page = rng.below(1 << 20).cast_signed();
                [page, page + 1]
            })
            .collect();
        let (_, wasted, touched) = run(trace, 64);
        assert!(wasted * 1000 < touched, "{wasted} of {touched}");
    }

    #[test]
    fn streams_that_end_early_make_the_next_ones_prove_themselves() {
        let begins = |streams: &mut Streams, first: Page| {
            (first..first + 20).position(|page| streams.observe(page).is_some()).unwrap()
        };
        let mut streams = Streams::new(64);
        assert_eq!(begins(&mut streams, 1000), 2);
        (0..20).for_each(|_| streams.learn(false));
        assert_eq!(begins(&mut streams, 5000), 8);
        (0..20).for_each(|_| streams.learn(true));
        assert_eq!(begins(&mut streams, 9000), 2);
    }

    #[test]
    fn windows_grow_to_what_is_allowed() {
        let mut streams = Streams::new(100);
        let mut largest = 0;
        for page in 0..2000 {
            if let Some(ahead) = streams.observe(page) {
                assert!(ahead.count >= largest);
                largest = ahead.count;
            }
        }
        assert_eq!(largest, 100);
        assert!((0..100).all(|page| Streams::new(0).observe(page).is_none()));
    }
}
