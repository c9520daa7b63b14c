//! The free space of a device: which LBAs are free, and for which purposes they may be taken.

use std::collections::BTreeMap;

/// Log segments of the smallest size for which space is kept. A KVDB that is killed again before there
/// is room for the replayed records has taken one in vain.
const OPENINGS: u64 = 8;

/// The space of a device.
pub(crate) struct Space {
    /// Free runs: first LBA to count. No two are adjacent.
    pub(crate) free: BTreeMap<u64, u64>,
    pub(crate) free_lbas: u64,
    pub(crate) capacity_lbas: u64,
    /// How many of them the device can hold; the others are free, and of no use.
    pub(crate) usable_lbas: u64,
    /// Of a block of values.
    block_lbas: u64,
    /// Kept for maintenance, and a quarter of it for deletes, so that they can make room.
    pub(crate) reserve_lbas: u64,
    /// Smaller extents take any gaps there are.
    unit_lbas: u64,
}

impl Space {
    /// LBAs from `first` on, all of them free, of a device that has so many.
    pub(crate) fn new(first: u64, capacity_lbas: u64, block_lbas: u64, unit_lbas: u64) -> Space {
        let free_lbas = capacity_lbas.saturating_sub(first);
        let free = BTreeMap::from([(first, free_lbas)]);
        let (usable_lbas, reserve_lbas) = (0, 0);
        Space { free, free_lbas, capacity_lbas, usable_lbas, block_lbas, reserve_lbas, unit_lbas }
    }

    /// Says how much the device can hold now.
    pub(crate) fn bound(&mut self, usable_lbas: u64) {
        self.usable_lbas = self.capacity_lbas.min(usable_lbas);
        self.reserve_lbas =
            (8 * self.block_lbas).max(self.usable_lbas / 64).min(self.usable_lbas / 8);
    }

    /// Free LBAs that can be used.
    pub(crate) fn available(&self) -> u64 {
        self.free_lbas.saturating_sub(self.capacity_lbas - self.usable_lbas)
    }

    /// A run of `wanted` LBAs. Where new records are to lie in it, `again` are left for the kvset that they become.
    pub(crate) fn take(&mut self, wanted: u64, again: u64, purpose: Purpose) -> Option<u64> {
        let kept = match purpose {
            Purpose::User => self.reserve_lbas + again,
            Purpose::Delete => self.reserve_lbas / 4 * 3 + again,
            // Not even that may take the space that a full KVDB needs to be opened: a log segment.
            Purpose::Maintenance => (OPENINGS * self.unit_lbas).min(self.reserve_lbas / 4),
            Purpose::Opening => 0,
        };
        if self.available() < wanted + kept {
            return None;
        }
        let mut fitting = self.free.iter().filter(|(_, count)| **count >= wanted);
        // The small ones fill the gaps that others have left, so that large gaps stay large.
        let (&start, &count) = match wanted < self.unit_lbas {
            true => fitting.min_by_key(|(_, count)| **count),
            false => fitting.next(),
        }?;
        self.cut(start, count, start, wanted);
        Some(start)
    }

    pub(crate) fn claim(&mut self, lba: u64, wanted: u64) -> bool {
        let run = self.free.range(..=lba).next_back().map(|(&start, &count)| (start, count));
        match run {
            Some((start, count)) if lba + wanted <= start + count => {
                self.cut(start, count, lba, wanted);
                true
            }
            _ => false,
        }
    }

    /// Cuts `wanted` LBAs at `lba` out of the free run of `count` at `start`.
    fn cut(&mut self, start: u64, count: u64, lba: u64, wanted: u64) {
        self.free.remove(&start);
        if lba > start {
            self.free.insert(start, lba - start);
        }
        let (end, cut_end) = (start + count, lba + wanted);
        if end > cut_end {
            self.free.insert(cut_end, end - cut_end);
        }
        self.free_lbas -= wanted;
    }

    /// Gives back less than a unit, which was not discarded. Takes the units that are all free with it, and returns
    /// where they begin: they are to be discarded, and given back.
    pub(crate) fn give_piece(&mut self, lba: u64, count: u64) -> Vec<u64> {
        self.give(lba, count);
        let unit = self.unit_lbas;
        let units = (lba / unit..=(lba + count - 1) / unit).map(|unit_index| unit_index * unit);
        units.filter(|&start| self.claim(start, unit)).collect()
    }

    pub(crate) fn give(&mut self, lba: u64, count: u64) {
        let (mut start, mut end) = (lba, lba + count);
        if let Some((&before, &length)) = self.free.range(..lba).next_back()
            && before + length == lba
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        self.free.insert(start, end - start);
        self.free_lbas += count;
    }
}

/// Purpose of a request for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// New data: refused when only the reserve is left.
    User,
    /// Deletes: refused when only three quarters of the reserve are left.
    Delete,
    /// Maintenance, which ends with more space than it began.
    Maintenance,
    /// Opening, which must not fail for lack of space.
    Opening,
}
