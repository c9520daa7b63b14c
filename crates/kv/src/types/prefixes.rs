//! Prefixes that were deleted: a kvset hides them in all that is older than it.
//!
//! Made by ingest (`tree/memtable.rs`) and compaction, kept in a kvset's meta, asked by every search that
//! passes the kvset and by the merges of cursors and compactions.
//!
//! Invariants
//! 1. Prefixes ascend and none begins with another, so the one that covers a key, if any does, is
//!    the last one that is not above it.

use std::ops::Bound;

use esker_base::codec::Encoder;

use crate::types::key_list::KeyList;
use crate::types::limits::KEY_MAX;

/// A set of prefixes of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes(KeyList);

impl Prefixes {
    /// From the section of a kvset's meta, which was verified.
    pub(crate) fn decode(section: &[u8]) -> Prefixes {
        Prefixes(KeyList::decode(section))
    }

    /// The section of a kvset's meta.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        for prefix in self.iter() {
            e.bytes16(prefix);
        }
        e.0
    }

    /// Adds a prefix that is not below those before. One that a shorter one covers adds nothing.
    pub(crate) fn push(&mut self, prefix: &[u8]) {
        let last = self.len().checked_sub(1).map(|last| self.0.get(last));
        debug_assert!(last.is_none_or(|last| last <= prefix), "prefixes ascend");
        if !last.is_some_and(|last| prefix.starts_with(last)) {
            self.0.push(prefix);
        }
    }

    /// The keys that any of `sets` covers.
    pub(crate) fn union<'a>(sets: impl Iterator<Item = &'a Prefixes>) -> Prefixes {
        let mut all: Vec<&[u8]> = sets.flat_map(Prefixes::iter).collect();
        all.sort_unstable();
        let mut union = Prefixes::default();
        all.into_iter().for_each(|prefix| union.push(prefix));
        union
    }

    /// Those that cover keys from `lower` to below `upper`.
    pub(crate) fn within(&self, lower: &[u8], upper: Option<&[u8]>) -> Prefixes {
        let touches = |prefix: &&[u8]| {
            upper.is_none_or(|upper| *prefix < upper)
                && after(prefix).is_none_or(|end| &end[..] > lower)
        };
        let mut within = Prefixes::default();
        self.iter().filter(touches).for_each(|prefix| within.push(prefix));
        within
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|n| self.0.get(n))
    }

    /// The size in bytes of the prefix that covers `key`.
    pub(crate) fn cover(&self, key: &[u8]) -> Option<usize> {
        let above = self.0.partition_point(0..self.len(), |prefix| prefix <= key);
        let prefix = self.0.get(above.checked_sub(1)?);
        key.starts_with(prefix).then_some(prefix.len())
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        self.0.dram_bytes()
    }
}

/// The first key behind all that begin with `prefix`; `None` when there is none.
pub(crate) fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Where a walk goes on behind all keys that begin with `prefix`.
pub(crate) fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    // No key is above the longest one of the highest bytes.
    after(prefix).map_or_else(|| Bound::Excluded(vec![u8::MAX; KEY_MAX]), Bound::Included)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(prefixes: &[&str]) -> Prefixes {
        let mut set = Prefixes::default();
        prefixes.iter().for_each(|prefix| set.push(prefix.as_bytes()));
        set
    }

    #[test]
    fn the_key_behind_a_prefix_is_the_smallest_there_is() {
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after(b"\xff"), None);
        assert_eq!(after(b""), None);
    }

    #[test]
    fn a_key_is_covered_by_the_shortest_of_its_prefixes() {
        let s = set(&["a", "ab", "b1", "b2", "b20", "d"]);
        assert_eq!(s.iter().collect::<Vec<_>>(), [&b"a"[..], b"b1", b"b2", b"d"]);
        for (key, size) in
            [("a", 1), ("abc", 1), ("b1", 2), ("b1z", 2), ("b2", 2), ("b20", 2), ("dd", 1)]
        {
            assert_eq!(s.cover(key.as_bytes()), Some(size), "{key}");
        }
        for key in ["A", "b", "b0", "b3", "c", "e"] {
            assert_eq!(s.cover(key.as_bytes()), None, "{key}");
        }
        assert_eq!(set(&[]).cover(b"a"), None);
    }

    #[test]
    fn sets_unite_and_are_cut_to_ranges() {
        let all = Prefixes::union([set(&["ab", "c"]), set(&["a", "cd", "e"])].iter());
        assert_eq!(all, set(&["a", "c", "e"]));
        assert_eq!(all.within(b"", None), all);
        assert_eq!(all.within(b"ax", Some(b"c")), set(&["a"]));
        assert_eq!(all.within(b"b", Some(b"c0")), set(&["c"]));
        assert_eq!(all.within(b"b", Some(b"c")), set(&[]));
        assert_eq!(all.within(b"ez", None), set(&["e"]));
        assert_eq!(set(&["\u{7f}"]).within(b"\x80", None), set(&[]));
        assert_eq!(Prefixes::decode(&all.encode()), all);
    }
}
