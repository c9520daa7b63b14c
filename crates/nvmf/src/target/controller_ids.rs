//! The ids that controllers of a target have.
//!
//! A host refuses a controller of a subsystem if it has one with the same id already, whichever target that is of. So
//! targets that serve one subsystem take ids from different places: a range that is configured, or one that begins
//! where a digest of the machine and of the addresses listened on says.
//!
//! An id comes again when some others were given meanwhile: a connection of the controller that had it may be about
//! to end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use sha2::{Digest, Sha256};

use super::config::CONTROLLER_ID_MAX;

/// Ids that are given before the first comes again, where the range has so many.
const TURN: usize = 64;
/// Ids of a derived range at least: more than a target has connections.
const LEAST: u16 = 4096;
/// Tells machines apart (machine-id(5)).
const MACHINE: &str = "/etc/machine-id";

/// The range of ids, and the place of the next one.
pub(crate) struct ControllerIds {
    range: RangeInclusive<u16>,
    next: usize,
}

impl ControllerIds {
    pub(crate) fn new(
        range: Option<RangeInclusive<u16>>,
        portals: impl Iterator<Item = SocketAddr>,
    ) -> ControllerIds {
        let range = range.unwrap_or_else(|| derived(&machine(), portals));
        ControllerIds { range, next: 0 }
    }

    /// An id that none of these controllers has; `None` when they have all.
    pub(crate) fn next<T>(&mut self, taken: &BTreeMap<u16, T>) -> Option<u16> {
        let count = self.range.len();
        let turn = count.min(TURN.max(taken.len() + 1));
        for _ in 0..turn {
            let step = self.next % turn;
            self.next = step + 1;
            let id = self.range.start() + u16::try_from(step).expect("within a range of u16");
            if !taken.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
}

/// The identity of this machine; the same everywhere if it has none.
fn machine() -> Vec<u8> {
    std::fs::read(MACHINE).unwrap_or_default()
}

fn derived(machine: &[u8], portals: impl Iterator<Item = SocketAddr>) -> RangeInclusive<u16> {
    let digest = portals.fold(Sha256::new().chain_update(machine), |digest, at| {
        digest.chain_update(b"\0").chain_update(at.to_string())
    });
    let digest: [u8; 32] = digest.finalize().into();
    let place = u16::from_le_bytes([digest[0], digest[1]]);
    1 + place % (CONTROLLER_ID_MAX - LEAST)..=CONTROLLER_ID_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(address.parse().unwrap())
    }

    #[test]
    fn ids_of_targets_differ_by_machine_and_address_and_stay() {
        let first = *derived(b"one", at("0.0.0.0:4420")).start();
        assert_eq!(*derived(b"one", at("0.0.0.0:4420")).start(), first);
        for (machine, address) in
            [("other", "0.0.0.0:4420"), ("one", "0.0.0.0:4421"), ("one", "10.0.0.1:4420")]
        {
            let range = derived(machine.as_bytes(), at(address));
            let apart = range.start().abs_diff(first);
            assert!(usize::from(apart) > TURN, "{machine} {address}: {apart}");
            assert!(range.len() >= usize::from(LEAST));
        }
    }

    #[test]
    fn id_comes_again_late_and_every_one_of_a_range_is_given() {
        let mut ids = ControllerIds::new(Some(10..=12), at("[::1]:1"));
        let mut taken = BTreeMap::new();
        for expected in [Some(10), Some(11), Some(12), None] {
            let id = ids.next(&taken);
            assert_eq!(id, expected);
            taken.extend(id.map(|id| (id, ())));
        }
        taken.remove(&11);
        assert_eq!(ids.next(&taken), Some(11));
        let mut ids = ControllerIds::new(Some(1..=1000), at("[::1]:1"));
        let given: Vec<_> = (0..TURN).map(|_| ids.next::<()>(&BTreeMap::new()).unwrap()).collect();
        assert_eq!(given, (1..=64).collect::<Vec<u16>>());
        assert_eq!(ids.next::<()>(&BTreeMap::new()), Some(1));
        let mut taken: BTreeMap<u16, ()> = BTreeMap::new();
        for _ in 0..1000 {
            let id = ids.next(&taken).expect("one is left");
            assert_eq!(taken.insert(id, ()), None);
        }
        assert_eq!(ids.next(&taken), None);
    }
}
