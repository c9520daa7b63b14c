//! Which ranges are being changed. A change that covers parts of LBAs reads them, changes them and
//! writes them back; meanwhile nothing else may change those LBAs.
//!
//! Invariants
//! 1. Of two holds that overlap, neither is exclusive.
//! 2. A waiter tries again; nobody waits while holding.

use parking_lot::Mutex;

/// A range that is held; it is given back with [`RangeLocks::release`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hold(u64);

#[derive(Debug)]
struct Held {
    name: u64,
    first: u64,
    end: u64,
    is_exclusive: bool,
}

/// The ranges of LBAs that are being changed.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks(Mutex<(u64, Vec<Held>)>);

impl RangeLocks {
    /// Holds the LBAs from `first` to before `end`, unless that has to wait.
    pub(crate) fn hold(&self, first: u64, end: u64, is_exclusive: bool) -> Option<Hold> {
        let (names, held) = &mut *self.0.lock();
        let overlaps = |other: &Held| {
            (is_exclusive || other.is_exclusive) && other.first < end && first < other.end
        };
        if held.iter().any(overlaps) {
            return None;
        }
        *names += 1;
        held.push(Held { name: *names, first, end, is_exclusive });
        Some(Hold(*names))
    }

    /// Gives a range back.
    pub(crate) fn release(&self, hold: &Hold) {
        let held = &mut self.0.lock().1;
        if let Some(index) = held.iter().position(|one| one.name == hold.0) {
            held.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lbas_may_be_written_together_and_parts_of_one_not() {
        let locks = RangeLocks::default();
        let (a, b) = (locks.hold(0, 4, false).unwrap(), locks.hold(2, 6, false).unwrap());
        assert_eq!(locks.hold(3, 4, true), None);
        locks.release(&a);
        assert_eq!(locks.hold(3, 4, true), None);
        locks.release(&b);
        let c = locks.hold(3, 4, true).unwrap();
        assert_eq!(locks.hold(0, 9, false), None);
        assert!(locks.hold(4, 9, false).is_some() && locks.hold(0, 3, true).is_some());
        locks.release(&c);
        assert!(locks.hold(3, 4, false).is_some());
    }
}
