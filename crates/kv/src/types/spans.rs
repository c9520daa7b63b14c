//! Spans of keys, and sets of spans that were deleted: a kvset hides them in all that is older than it.
//!
//! A deleted prefix is the span of all keys that begin so; a deleted range is any other. Sets are made by
//! ingest (`tree/memtable.rs`) and compaction, kept in a kvset's meta, asked by every search that passes the kvset and
//! by the merges of cursors and compactions.
//!
//! Invariants
//! 1. The spans of a set ascend and are apart: the one that holds a key, if any does, is the last one that does not
//!    begin above it.
//! 2. Spans that touch stay two. So a set of prefixes alone stays one, and is written as version 1 of the format has it.

use std::ops::{Bound, RangeBounds};

use esker_base::codec::{Decoder, Encoder};

use crate::types::format::FormatVersion;
use crate::types::key_list::KeyList;
use crate::types::limits::{BOUND_MAX, KEY_MAX};

/// The keys from `lower` to below `upper`; without an upper bound, all from `lower` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span<'k> {
    pub(crate) lower: &'k [u8],
    pub(crate) upper: Option<&'k [u8]>,
}

/// A span that owns its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanBuf {
    pub(crate) lower: Vec<u8>,
    pub(crate) upper: Option<Vec<u8>>,
}

impl<'k> Span<'k> {
    pub(crate) fn holds(self, key: &[u8]) -> bool {
        self.lower <= key && self.upper.is_none_or(|upper| key < upper)
    }

    pub(crate) fn overlaps(self, other: Span<'_>) -> bool {
        self.upper.is_none_or(|upper| other.lower < upper)
            && other.upper.is_none_or(|upper| self.lower < upper)
    }

    /// Whether all keys of `other` are in it.
    pub(crate) fn covers(self, other: Span<'_>) -> bool {
        self.lower <= other.lower && !ends_before(self.upper, other.upper)
    }

    /// The part of it that is in `other`, with which it overlaps.
    pub(crate) fn within(self, other: Span<'k>) -> Span<'k> {
        let upper = if ends_before(self.upper, other.upper) { self.upper } else { other.upper };
        Span { lower: self.lower.max(other.lower), upper }
    }

    /// Whether it is what a prefix of keys stands for.
    pub(crate) fn is_prefix(self) -> bool {
        if !(1..=KEY_MAX).contains(&self.lower.len()) {
            return false;
        }
        match (self.lower.iter().rposition(|byte| *byte < u8::MAX), self.upper) {
            (None, None) => true,
            (Some(last), Some(upper)) => {
                upper.len() == last + 1
                    && upper[..last] == self.lower[..last]
                    && upper[last] == self.lower[last] + 1
            }
            _ => false,
        }
    }

    pub(crate) fn to_buf(self) -> SpanBuf {
        SpanBuf { lower: self.lower.to_vec(), upper: self.upper.map(<[u8]>::to_vec) }
    }
}

/// Whether the first of two upper bounds is the lower one.
fn ends_before(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one < other,
        (one, None) => one.is_some(),
        (None, Some(_)) => false,
    }
}

impl SpanBuf {
    /// All keys that begin with `prefix`.
    pub(crate) fn of_prefix(prefix: &[u8]) -> SpanBuf {
        SpanBuf { lower: prefix.to_vec(), upper: after(prefix) }
    }

    /// The keys of a range of the caller's: perhaps none, and perhaps it ends before it begins.
    pub(crate) fn of_range<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> SpanBuf {
        let behind = |key: &K| [key.as_ref(), &[0]].concat();
        let lower = match range.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let upper = match range.end_bound() {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        SpanBuf { lower, upper }
    }

    pub(crate) fn as_span(&self) -> Span<'_> {
        Span { lower: &self.lower, upper: self.upper.as_deref() }
    }

    /// Where a walk goes on behind it.
    pub(crate) fn behind(&self) -> Bound<&[u8]> {
        // No key is above the longest one of the highest bytes.
        self.upper.as_deref().map_or(Bound::Excluded(&[u8::MAX; KEY_MAX]), Bound::Included)
    }

    /// Makes it hold all keys of `other`, with which it overlaps.
    pub(crate) fn widen(&mut self, other: Span<'_>) {
        if other.lower < &self.lower[..] {
            self.lower = other.lower.to_vec();
        }
        if ends_before(self.upper.as_deref(), other.upper) {
            self.upper = other.upper.map(<[u8]>::to_vec);
        }
    }
}

/// A set of spans of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    lowers: KeyList,
    /// Of no bytes where there is no bound: no span ends before the empty key.
    uppers: KeyList,
}

impl Spans {
    /// From the section of a kvset's meta of this version, which was verified.
    pub(crate) fn decode(version: FormatVersion, section: &[u8]) -> Spans {
        let mut d = Decoder::new(section);
        let mut spans = Spans::default();
        while d.left() > 0 {
            let lower = d.bytes16("lower").expect("verified with the meta");
            match version {
                FormatVersion::V1 => spans.push(SpanBuf::of_prefix(lower).as_span()),
                FormatVersion::V2 => {
                    let upper = d.bytes16("upper").expect("verified with the meta");
                    spans.push(Span { lower, upper: bound_of(upper) });
                }
            }
        }
        spans.lowers.shrink_to_fit();
        spans.uppers.shrink_to_fit();
        spans
    }

    /// The section of a kvset's meta, and the version of that: at least `least`, and one that can say it.
    pub(crate) fn encode(&self, least: FormatVersion) -> (FormatVersion, Vec<u8>) {
        let prefixes_only = least == FormatVersion::V1 && self.iter().all(Span::is_prefix);
        let mut e = Encoder::default();
        for Span { lower, upper } in self.iter() {
            e.bytes16(lower);
            if !prefixes_only {
                e.bytes16(upper.unwrap_or_default());
            }
        }
        (if prefixes_only { FormatVersion::V1 } else { FormatVersion::V2 }, e.0)
    }

    /// Adds a span that does not begin below those before. Those that overlap become one.
    pub(crate) fn push(&mut self, span: Span<'_>) {
        let last = self.len().checked_sub(1).map(|last| self.get(last));
        debug_assert!(last.is_none_or(|last| last.lower <= span.lower), "spans ascend");
        match last {
            Some(last) if last.overlaps(span) => {
                if ends_before(last.upper, span.upper) {
                    self.uppers.replace_last(span.upper.unwrap_or_default());
                }
            }
            _ => {
                self.lowers.push(span.lower);
                self.uppers.push(span.upper.unwrap_or_default());
            }
        }
    }

    /// The keys that any of `spans` holds.
    pub(crate) fn union<'a>(spans: impl Iterator<Item = Span<'a>>) -> Spans {
        let mut all: Vec<Span<'_>> = spans.collect();
        all.sort_unstable_by_key(|span| span.lower);
        let mut union = Spans::default();
        all.into_iter().for_each(|span| union.push(span));
        union
    }

    /// Those that hold keys from `lower` to below `upper`.
    pub(crate) fn within(&self, lower: &[u8], upper: Option<&[u8]>) -> Spans {
        let first = self
            .uppers
            .partition_point(0..self.len(), |end| bound_of(end).is_some_and(|end| end <= lower));
        let mut within = Spans::default();
        (first..self.len())
            .map(|n| self.get(n))
            .take_while(|span| upper.is_none_or(|upper| span.lower < upper))
            .for_each(|span| within.push(span));
        within
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.lowers.len()
    }

    fn get(&self, n: usize) -> Span<'_> {
        Span { lower: self.lowers.get(n), upper: bound_of(self.uppers.get(n)) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Span<'_>> {
        (0..self.len()).map(|n| self.get(n))
    }

    /// The span that holds `key`.
    pub(crate) fn cover(&self, key: &[u8]) -> Option<Span<'_>> {
        let above = self.lowers.partition_point(0..self.len(), |lower| lower <= key);
        let span = self.get(above.checked_sub(1)?);
        span.holds(key).then_some(span)
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        self.lowers.dram_bytes() + self.uppers.dram_bytes()
    }
}

/// An upper bound, as it is stored.
pub(crate) fn bound_of(stored: &[u8]) -> Option<&[u8]> {
    (!stored.is_empty()).then_some(stored)
}

/// Whether a span may have bounds of these sizes, in bytes, and holds something.
pub(crate) fn is_span(lower: &[u8], upper: Option<&[u8]>) -> bool {
    lower.len() <= BOUND_MAX && upper.is_none_or(|upper| upper.len() <= BOUND_MAX && lower < upper)
}

/// The first key behind all that begin with `prefix`; `None` when there is none.
pub(crate) fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    fn span<'k>(lower: &'k str, upper: &'k str) -> Span<'k> {
        Span { lower: lower.as_bytes(), upper: bound_of(upper.as_bytes()) }
    }

    fn set(spans: &[(&str, &str)]) -> Spans {
        let mut set = Spans::default();
        spans.iter().for_each(|(lower, upper)| set.push(span(lower, upper)));
        set
    }

    fn prefixes(prefixes: &[&str]) -> Spans {
        let spans: Vec<SpanBuf> =
            prefixes.iter().map(|prefix| SpanBuf::of_prefix(prefix.as_bytes())).collect();
        Spans::union(spans.iter().map(SpanBuf::as_span))
    }

    #[test]
    fn the_key_behind_a_prefix_is_the_smallest_there_is() {
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after(b"\xff"), None);
        assert_eq!(after(b""), None);
    }

    #[test]
    fn a_span_knows_whether_it_is_a_prefix() {
        for prefix in [&b"a"[..], b"a\xff", b"\xff", b"\xff\xff", b"a\0"] {
            assert!(SpanBuf::of_prefix(prefix).as_span().is_prefix(), "{prefix:?}");
        }
        assert!(!SpanBuf::of_prefix(&[b'a'; KEY_MAX + 1]).as_span().is_prefix());
        for (lower, upper) in
            [("a", "c"), ("a", "b\0"), ("ab", "b"), ("", ""), ("", "a"), ("a", "")]
        {
            assert!(!span(lower, upper).is_prefix(), "{lower} to {upper}");
        }
        assert!(!Span { lower: b"\xff", upper: Some(b"\xff\x01") }.is_prefix());
    }

    #[test]
    fn a_prefix_within_another_adds_nothing() {
        let s = prefixes(&["a", "ab", "b1", "b2", "b20", "d"]);
        let lowers: Vec<&[u8]> = s.iter().map(|span| span.lower).collect();
        assert_eq!(lowers, [&b"a"[..], b"b1", b"b2", b"d"]);
        for (key, prefix) in
            [("a", "a"), ("abc", "a"), ("b1", "b1"), ("b1z", "b1"), ("b20", "b2"), ("dd", "d")]
        {
            let found = s.cover(key.as_bytes()).map(|span| span.lower);
            assert_eq!(found, Some(prefix.as_bytes()), "{key}");
        }
        for key in ["A", "b", "b0", "b3", "c", "e"] {
            assert_eq!(s.cover(key.as_bytes()), None, "{key}");
        }
        assert_eq!(prefixes(&[]).cover(b"a"), None);
        assert_eq!(s.encode(FormatVersion::V1).0, FormatVersion::V1);
        assert_eq!(Spans::decode(FormatVersion::V1, &s.encode(FormatVersion::V1).1), s);
    }

    #[test]
    fn sets_unite_and_are_cut_to_ranges() {
        let sets = [set(&[("ab", "ac"), ("c", "d")]), set(&[("a", "b"), ("cd", "f"), ("f", "g")])];
        let all = Spans::union(sets.iter().flat_map(Spans::iter));
        assert_eq!(all, set(&[("a", "b"), ("c", "f"), ("f", "g")]), "spans that touch stay two");
        assert_eq!(all.within(b"", None), all);
        assert_eq!(all.within(b"ax", Some(b"c")), set(&[("a", "b")]));
        assert_eq!(all.within(b"b", Some(b"c0")), set(&[("c", "f")]));
        assert_eq!(all.within(b"b", Some(b"c")), set(&[]));
        assert_eq!(all.within(b"fz", None), set(&[("f", "g")]));
        assert_eq!(set(&[("x", "")]).within(b"y", None), set(&[("x", "")]));
        assert_eq!(all.encode(FormatVersion::V1).0, FormatVersion::V2);
        assert_eq!(Spans::decode(FormatVersion::V2, &all.encode(FormatVersion::V1).1), all);
        let clear = set(&[("", "")]);
        assert_eq!(Spans::decode(FormatVersion::V2, &clear.encode(FormatVersion::V1).1), clear);
        assert!(clear.cover(b"").is_some() && clear.cover(&[u8::MAX; KEY_MAX]).is_some());
    }

    #[test]
    fn a_set_holds_what_its_spans_hold() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let bound = |rng: &mut Rng| {
                let size = rng.below(3);
                (0..size).map(|_| [0, 1, u8::MAX][usize::try_from(rng.below(3)).unwrap()]).collect()
            };
            let spans: Vec<SpanBuf> = (0..rng.below(6))
                .map(|_| (bound(&mut rng), bound(&mut rng)))
                .filter(|(lower, upper): &(Vec<u8>, Vec<u8>)| is_span(lower, bound_of(upper)))
                .map(|(lower, upper)| SpanBuf { lower, upper: bound_of(&upper).map(Into::into) })
                .collect();
            let set = Spans::union(spans.iter().map(SpanBuf::as_span));
            let (version, bytes) = set.encode(FormatVersion::V1);
            assert_eq!(Spans::decode(version, &bytes), set);
            for _ in 0..20 {
                let key: Vec<u8> = bound(&mut rng);
                let holds = spans.iter().any(|span| span.as_span().holds(&key));
                assert_eq!(set.cover(&key).is_some(), holds, "{key:?} in {spans:?}");
            }
        }
    }
}
