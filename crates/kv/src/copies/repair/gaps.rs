//! Gaps: keys about which the structures that a manifest names say nothing any more, because pages of keys or values
//! are lost. Whatever else the media hold of these keys is of use.

use std::collections::{BTreeMap, BTreeSet};

use super::report::KeyRange;
use crate::omf::page::Page;
use crate::types::ids::KvsId;

/// Keys of some KVSs.
#[derive(Default)]
pub(super) struct Gaps(BTreeMap<KvsId, OpenKeys>);

/// Keys of a KVS.
pub(super) enum OpenKeys {
    /// Ascending and apart.
    Ranges(Vec<KeyRange>),
    Keys(BTreeSet<Vec<u8>>),
}

impl Gaps {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds ranges, which may overlap, of a KVS that has no keys here.
    pub(super) fn add_ranges(&mut self, kvs: KvsId, more: Vec<KeyRange>) {
        if more.is_empty() {
            return;
        }
        let known = self.0.remove(&kvs);
        let mut all = match known {
            Some(OpenKeys::Ranges(ranges)) => [ranges, more].concat(),
            _ => more,
        };
        all.sort_by(|one, other| one.after.cmp(&other.after));
        all.dedup_by(|next, range| {
            let is_apart = match (&range.before, &next.after) {
                (Some(before), Some(after)) => after >= before,
                _ => false,
            };
            if !is_apart {
                let ends = range.before.take().zip(next.before.take());
                range.before = ends.map(|(one, other)| one.max(other));
            }
            !is_apart
        });
        self.0.insert(kvs, OpenKeys::Ranges(all));
    }

    pub(super) fn add_keys(&mut self, kvs: KvsId, keys: &BTreeSet<Vec<u8>>) {
        if !keys.is_empty() {
            self.0.insert(kvs, OpenKeys::Keys(keys.clone()));
        }
    }

    pub(super) fn of(&self, kvs: KvsId) -> Option<&OpenKeys> {
        self.0.get(&kvs)
    }

    pub(super) fn hold(&self, kvs: KvsId, key: &[u8]) -> bool {
        match self.0.get(&kvs) {
            None => false,
            Some(OpenKeys::Keys(keys)) => keys.contains(key),
            Some(OpenKeys::Ranges(ranges)) => {
                let behind = |range: &KeyRange| range.after.as_deref().is_some_and(|it| it >= key);
                let at = ranges.partition_point(|range| !behind(range));
                at > 0 && ranges[at - 1].contains(key)
            }
        }
    }
}

/// Finds the ranges of keys that lost pages of a kvset leave open, while its pages are read in order.
pub(super) struct PageGaps {
    last: Option<Vec<u8>>,
    is_open: bool,
    upper: Option<Vec<u8>>,
    ranges: Vec<KeyRange>,
}

impl PageGaps {
    /// For a kvset with keys from `lower` to below `upper`.
    pub(super) fn new((lower, upper): (&[u8], Option<&[u8]>)) -> PageGaps {
        let (last, upper) = (below(lower), upper.map(<[u8]>::to_vec));
        PageGaps { last, is_open: false, upper, ranges: Vec::new() }
    }

    /// The next page is lost.
    pub(super) fn lost(&mut self) {
        self.is_open = true;
    }

    /// The next page is sound.
    pub(super) fn sound(&mut self, page: &Page<Vec<u8>>) {
        let Some(slot) = page.count().checked_sub(1) else { return };
        let mut first = Vec::new();
        page.key_to(0, &mut first);
        self.end_gap(Some(first));
        let mut last = Vec::new();
        page.key_to(slot, &mut last);
        self.last = Some(last);
    }

    fn end_gap(&mut self, before: Option<Vec<u8>>) {
        if std::mem::take(&mut self.is_open) {
            self.ranges.push(KeyRange { after: self.last.take(), before });
        }
    }

    /// There are no more pages.
    pub(super) fn end(mut self) -> Vec<KeyRange> {
        let upper = self.upper.take();
        self.end_gap(upper);
        self.ranges
    }
}

/// A key that is a bit below a bound, because the bound may be a key itself; `None` for the lowest bound.
pub(super) fn below(lower: &[u8]) -> Option<Vec<u8>> {
    lower.split_last().map(|(_, below)| below.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_become_one() {
        let key = |byte: u8| (byte > 0).then(|| vec![byte]);
        let range = |(after, before)| KeyRange { after: key(after), before: key(before) };
        let (mut gaps, kvs) = (Gaps::default(), KvsId(1));
        gaps.add_ranges(kvs, [(7, 9), (1, 3)].map(range).to_vec());
        gaps.add_ranges(kvs, [(2, 5), (5, 6), (8, 0), (20, 30)].map(range).to_vec());
        let held: Vec<u8> = (1..40).filter(|byte| gaps.hold(kvs, &[*byte])).collect();
        assert_eq!(held, [2, 3, 4].into_iter().chain(8..40).collect::<Vec<u8>>());
        assert!(!gaps.hold(KvsId(2), &[3]));
        gaps.add_ranges(kvs, vec![range((0, 2))]);
        assert!(gaps.hold(kvs, &[1]) && gaps.hold(kvs, &[3]) && !gaps.hold(kvs, &[5]));
    }
}
