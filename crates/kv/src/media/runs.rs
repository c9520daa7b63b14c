//! Runs of LBAs.

use std::collections::BTreeMap;

/// Runs of LBAs: first LBA to count. No two are adjacent.
#[derive(Default)]
pub(crate) struct Runs {
    runs: BTreeMap<u64, u64>,
    lbas: u64,
}

impl Runs {
    /// LBAs in all runs.
    pub(crate) fn lbas(&self) -> u64 {
        self.lbas
    }

    /// First LBA and count of each run, in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&start, &count)| (start, count))
    }

    /// How many runs there are.
    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    /// Adds LBAs that are in no run.
    pub(crate) fn give(&mut self, lba: u64, count: u64) {
        if count == 0 {
            return;
        }
        let (mut start, mut end) = (lba, lba + count);
        if let Some((&before, &length)) = self.runs.range(..lba).next_back()
            && before + length == lba
        {
            self.runs.remove(&before);
            start = before;
        }
        if let Some(after) = self.runs.remove(&end) {
            end += after;
        }
        self.runs.insert(start, end - start);
        self.lbas += count;
    }

    /// Takes LBAs out that lie in one run; false when they do not.
    pub(crate) fn claim(&mut self, lba: u64, wanted: u64) -> bool {
        match self.runs.range(..=lba).next_back().map(|(&start, &count)| (start, count)) {
            Some((start, count)) if lba + wanted <= start + count => {
                self.cut(start, count, lba, wanted);
                true
            }
            _ => false,
        }
    }

    /// Takes out all LBAs of a range that lie in runs.
    pub(crate) fn remove(&mut self, lba: u64, count: u64) {
        for (lba, count) in self.parts_of(lba, count) {
            self.claim(lba, count);
        }
    }

    /// Takes `wanted` LBAs out of the first run that has so many, or of the smallest one.
    pub(crate) fn take(&mut self, wanted: u64, smallest: bool) -> Option<u64> {
        let (start, count) = {
            let mut fitting = self.iter().filter(|(_, count)| *count >= wanted);
            if smallest { fitting.min_by_key(|(_, count)| *count) } else { fitting.next() }?
        };
        self.cut(start, count, start, wanted);
        Some(start)
    }

    /// Parts of a range that lie in runs.
    pub(crate) fn parts_of(&self, lba: u64, count: u64) -> Vec<(u64, u64)> {
        let end = lba.saturating_add(count);
        let before = self.runs.range(..lba).next_back();
        let all = before.into_iter().chain(self.runs.range(lba..end));
        let parts = all.map(|(&start, &length)| {
            let (from, to) = (start.max(lba), (start + length).min(end));
            (from, to.saturating_sub(from))
        });
        parts.filter(|(_, count)| *count > 0).collect()
    }

    /// Cuts `wanted` LBAs at `lba` out of the run of `count` at `start`.
    fn cut(&mut self, start: u64, count: u64, lba: u64, wanted: u64) {
        self.runs.remove(&start);
        if lba > start {
            self.runs.insert(start, lba - start);
        }
        let (end, cut_end) = (start + count, lba + wanted);
        if end > cut_end {
            self.runs.insert(cut_end, end - cut_end);
        }
        self.lbas -= wanted;
    }
}
