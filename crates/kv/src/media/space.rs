//! The free space of a device: which LBAs are free, and for which purposes they may be taken.

use crate::media::runs::Runs;

/// Log segments of the smallest size for which space is kept. A KVDB that is killed again before there
/// is room for the replayed records has taken one in vain.
const OPENINGS: u64 = 8;

/// Units of an extent that is small for the reserve.
const SMALL_RUN: u64 = 4;
/// With so many runs the reserve takes no small ones: its list names only so many.
const MOST_RUNS: usize = 110;

/// The space of a device.
pub(crate) struct Space {
    /// Free LBAs that are not in the reserve.
    pub(crate) free: Runs,
    /// Free LBAs for which the file system has given blocks already.
    pub(crate) reserve: Runs,
    /// How many LBAs the reserve is to have.
    pub(crate) reserve_goal: u64,
    /// The most of them that it has had.
    reserve_peak: u64,
    /// Where they begin, behind the header.
    first: u64,
    pub(crate) capacity_lbas: u64,
    /// How many of them the device can hold; the others are free, and of no use.
    pub(crate) usable_lbas: u64,
    /// How many more the file system has, where the device is a file.
    pub(crate) left_lbas: u64,
    /// Of a block of values.
    block_lbas: u64,
    /// Kept for maintenance, and a quarter of it for deletes, so that they can make room.
    pub(crate) kept_lbas: u64,
    /// Smaller extents take any gaps there are.
    unit_lbas: u64,
}

/// A run that was taken.
pub(crate) struct Taken {
    pub(crate) lba: u64,
    /// Whether the file system has given its blocks already.
    pub(crate) of_reserve: bool,
}

impl Space {
    /// LBAs from `first` on, all of them free, of a device that has so many.
    pub(crate) fn new(first: u64, capacity_lbas: u64, block_lbas: u64, unit_lbas: u64) -> Space {
        let mut free = Runs::default();
        free.give(first, capacity_lbas.saturating_sub(first));
        Space {
            free,
            reserve: Runs::default(),
            reserve_goal: 0,
            reserve_peak: 0,
            first,
            capacity_lbas,
            usable_lbas: 0,
            left_lbas: u64::MAX,
            block_lbas,
            kept_lbas: 0,
            unit_lbas,
        }
    }

    /// Says how much the device can hold now.
    pub(crate) fn bound(&mut self, usable_lbas: u64) {
        self.usable_lbas = self.capacity_lbas.min(usable_lbas);
        self.kept_lbas = (8 * self.block_lbas).max(self.usable_lbas / 64).min(self.usable_lbas / 8);
    }

    /// All LBAs behind the header.
    pub(crate) fn all(&self) -> Runs {
        let mut all = Runs::default();
        all.give(self.first, self.capacity_lbas.saturating_sub(self.first));
        all
    }

    /// LBAs that are not free.
    pub(crate) fn taken(&self) -> Runs {
        let mut taken = self.all();
        for (lba, count) in self.free.iter().chain(self.reserve.iter()) {
            taken.remove(lba, count);
        }
        taken
    }

    /// LBAs that nobody has taken.
    pub(crate) fn free_lbas(&self) -> u64 {
        self.free.lbas() + self.reserve.lbas()
    }

    /// Free LBAs that can be used: the reserve at least. Taken LBAs may have no blocks yet, or never get any, at the ends of
    /// extents.
    pub(crate) fn available(&self) -> u64 {
        self.unreserved() + self.reserve.lbas()
    }

    /// Those of them that are not in the reserve: others may take them first.
    pub(crate) fn unreserved(&self) -> u64 {
        let usable = self.free_lbas().saturating_sub(self.capacity_lbas - self.usable_lbas);
        usable.saturating_sub(self.reserve.lbas()).min(self.left_lbas)
    }

    /// Whether little is left but the reserve.
    pub(crate) fn is_on_reserve(&self) -> bool {
        self.reserve_goal > 0 && self.unreserved() < self.kept_lbas
    }

    /// LBAs kept for maintenance: once little but the reserve is left, that is as much as it has had.
    pub(crate) fn kept(&self) -> u64 {
        if self.is_on_reserve() { self.reserve_peak } else { self.kept_lbas }
    }

    /// The most that the reserve may have: what puts leave, and more on a very small device. It does not become less when
    /// others take the file system.
    pub(crate) fn reserve_limit(&self) -> u64 {
        let small = (self.usable_lbas / 4).min(8 * self.block_lbas);
        self.kept_lbas.max(small).max(self.reserve.lbas())
    }

    /// Says how much the reserve is to have.
    pub(crate) fn aim(&mut self, goal: u64) {
        self.reserve_goal = goal;
        self.reserve_peak = self.reserve_peak.max(self.reserve.lbas()).min(goal);
    }

    /// How many LBAs the reserve lacks.
    pub(crate) fn reserve_lacks(&self) -> u64 {
        self.reserve_goal.saturating_sub(self.reserve.lbas())
    }

    /// How many LBAs of a freed extent the reserve is to take: what it lacks, and as much as smaller runs have that it may
    /// let go of then. Small extents are taken only while the file system has nothing better.
    pub(crate) fn fits_reserve(&self, count: u64) -> u64 {
        let is_small = count < SMALL_RUN * self.unit_lbas;
        if is_small && (self.unreserved() >= self.reserve_goal || self.reserve.count() >= MOST_RUNS)
        {
            return 0;
        }
        let lacks = self.reserve_lacks().next_multiple_of(self.unit_lbas);
        let smaller = self.reserve.iter().map(|(_, run)| run).filter(|run| 4 * run <= count);
        let replaced = if is_small { 0 } else { smaller.sum() };
        count.min(lacks + replaced)
    }

    /// LBAs that are left to others by a request for this purpose; of new records, `again` for the kvset that they become.
    fn left_by(&self, again: u64, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::User => self.kept_lbas.max(self.reserve_goal) + again,
            // Nothing but what deletes free fills the reserve again.
            Purpose::Delete if self.is_on_reserve() => self.kept() / 2 + again,
            Purpose::Delete => self.kept() / 4 * 3 + again,
            // Not even that may take the space that a full KVDB needs to be opened: a log segment.
            Purpose::Maintenance => (OPENINGS * self.unit_lbas).min(self.kept() / 4),
            Purpose::Opening => 0,
        }
    }

    /// A run of `wanted` LBAs. Where new records are to lie in it, `again` are left for the kvset that they become.
    pub(crate) fn take(&mut self, wanted: u64, again: u64, purpose: Purpose) -> Option<Taken> {
        if self.available() < wanted + self.left_by(again, purpose) {
            return None;
        }
        if wanted > self.unreserved() {
            return self.take_reserved(wanted, again, purpose);
        }
        // The small ones fill the gaps that others have left, so that large gaps stay large.
        let is_small = wanted < self.unit_lbas;
        self.free.take(wanted, is_small).map(|lba| Taken { lba, of_reserve: false })
    }

    /// The same, of the reserve.
    pub(crate) fn take_reserved(
        &mut self,
        wanted: u64,
        again: u64,
        purpose: Purpose,
    ) -> Option<Taken> {
        let is_refused = self.reserve.lbas() < wanted + self.left_by(again, purpose);
        if purpose == Purpose::User || is_refused {
            return None;
        }
        self.reserve.take(wanted, true).map(|lba| Taken { lba, of_reserve: true })
    }

    /// Takes LBAs that are free.
    pub(crate) fn claim(&mut self, lba: u64, wanted: u64) -> bool {
        self.free.claim(lba, wanted) || self.claim_parts(lba, wanted)
    }

    /// The same where some of them are in the reserve.
    fn claim_parts(&mut self, lba: u64, wanted: u64) -> bool {
        let (free, reserve) = (self.free.parts_of(lba, wanted), self.reserve.parts_of(lba, wanted));
        let found: u64 = free.iter().chain(&reserve).map(|(_, count)| count).sum();
        if found < wanted {
            return false;
        }
        self.free.remove(lba, wanted);
        self.reserve.remove(lba, wanted);
        true
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
        self.free.give(lba, count);
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
