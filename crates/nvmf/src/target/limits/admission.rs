//! The connections of a target, by the standing of their hosts. All together are limited; strangers may have a
//! part of them, by address and together, so hosts that are known find room.
//!
//! | a connection is of | when | may have |
//! | --- | --- | --- |
//! | a stranger | it has not named a host, or one of which nothing is known | a quarter; an address half of that |
//! | a guest | its host is on no list, and has had an I/O queue | seven eighths; an address half of all |
//! | a listed host | a subsystem names its host, which has proved itself if it has to | all |
//!
//! A stranger too many is not refused, for a known host is a stranger until it has said Connect: the stranger
//! that has been there longest goes. A guest too many is refused.
//!
//! Invariants
//! 1. An entry is there from the moment a connection is accepted until it is retired, or chosen to go.
//! 2. The connections of one host that is a guest are all a guest's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use esker_base::sync::Mutex;

use crate::target::ids::{Address, Visitor};

/// Standing of a connection's host, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    #[default]
    Stranger,
    Guest,
    Listed,
}

struct Entry {
    from: IpAddr,
    standing: Standing,
    host: Option<String>,
    /// Where it is, once a worker has it.
    at: Option<Address>,
}

/// The connections of a target.
pub(crate) struct Admission {
    connections: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    /// The oldest first.
    list: BTreeMap<Visitor, Entry>,
}

/// Fate of a new connection.
pub(crate) enum Verdict {
    /// It is refused.
    Refused,
    /// It is taken.
    Taken(Visitor),
    /// It is taken, and another one goes.
    Instead(Visitor, Address),
}

impl Admission {
    pub(crate) fn new(connections: usize) -> Admission {
        Admission { connections, entries: Mutex::default() }
    }

    fn strangers(&self) -> usize {
        (self.connections / 4).max(8)
    }

    /// Enters a connection from an address.
    pub(crate) fn enter(&self, from: IpAddr) -> Verdict {
        let mut entries = self.entries.lock();
        let is_stranger = |entry: &Entry| entry.standing == Standing::Stranger;
        let strangers = entries.list.values().filter(|one| is_stranger(one)).count();
        let its = entries.list.values().filter(|one| is_stranger(one) && one.from == from).count();
        let is_full = entries.list.len() >= self.connections;
        let goes = if its >= self.strangers() / 2 {
            entries.oldest(|one| one.from == from)
        } else if strangers >= self.strangers() || is_full {
            let most = entries.busiest();
            entries.oldest(|one| Some(one.from) == most)
        } else {
            None
        };
        if is_full && goes.is_none() {
            return Verdict::Refused;
        }
        if let Some(at) = goes {
            entries.list.remove(&at.visitor);
        }
        entries.next += 1;
        let visitor = Visitor(entries.next);
        let entry = Entry { from, standing: Standing::Stranger, host: None, at: None };
        entries.list.insert(visitor, entry);
        match goes {
            Some(at) => Verdict::Instead(visitor, at),
            None => Verdict::Taken(visitor),
        }
    }

    /// The hosts that have connections now.
    pub(crate) fn hosts(&self) -> BTreeSet<String> {
        self.entries.lock().list.values().filter_map(|one| one.host.clone()).collect()
    }

    /// A worker has the connection.
    pub(crate) fn placed(&self, at: Address) {
        if let Some(entry) = self.entries.lock().list.get_mut(&at.visitor) {
            entry.at = Some(at);
        }
    }

    /// The connection has named its host.
    pub(crate) fn named(&self, visitor: Visitor, host: &str, is_listed: bool) {
        let mut entries = self.entries.lock();
        let is_known =
            |one: &Entry| one.standing == Standing::Guest && one.host.as_deref() == Some(host);
        let is_guest = entries.list.values().any(is_known);
        if let Some(entry) = entries.list.get_mut(&visitor) {
            entry.host = Some(host.to_owned());
            entry.standing = match (is_listed, is_guest) {
                (true, _) => Standing::Listed,
                (false, true) => Standing::Guest,
                (false, false) => Standing::Stranger,
            };
        }
    }

    /// The host of a connection asks for an I/O queue; says whether it may have one more connection.
    pub(crate) fn may_be_guest(&self, visitor: Visitor) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.list.get(&visitor) else { return false };
        if entry.standing == Standing::Listed {
            return true;
        }
        let (from, host) = (entry.from, entry.host.clone());
        let is_guest = |one: &&Entry| one.standing == Standing::Guest;
        let guests = entries.list.values().filter(is_guest).count();
        let its = entries.list.values().filter(is_guest).filter(|one| one.from == from).count();
        if entry.standing == Standing::Stranger
            && (guests >= self.connections - self.connections / 8
                || its >= self.connections.div_ceil(2))
        {
            return false;
        }
        for one in entries.list.values_mut() {
            if one.host == host && one.standing == Standing::Stranger {
                one.standing = Standing::Guest;
            }
        }
        true
    }

    /// The connection has ended.
    pub(crate) fn leave(&self, visitor: Visitor) {
        self.entries.lock().list.remove(&visitor);
    }
}

impl Entries {
    /// The stranger that has been there longest, of those that `is_it` says yes to.
    fn oldest(&self, is_it: impl Fn(&Entry) -> bool) -> Option<Address> {
        let is_stranger = |one: &Entry| one.standing == Standing::Stranger && is_it(one);
        let mut chosen = self.list.values().filter(|one| is_stranger(one));
        chosen.find_map(|one| one.at)
    }

    /// The address that has most strangers.
    fn busiest(&self) -> Option<IpAddr> {
        let mut counts = BTreeMap::new();
        for one in self.list.values().filter(|one| one.standing == Standing::Stranger) {
            *counts.entry(one.from).or_insert(0) += 1;
        }
        counts.into_iter().max_by_key(|&(_, count)| count).map(|(from, _)| from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    /// Enters a connection, which a worker has at once.
    fn enter(admission: &Admission, n: u8) -> Option<(Visitor, Option<Visitor>)> {
        let (visitor, other) = match admission.enter(from(n)) {
            Verdict::Refused => return None,
            Verdict::Taken(visitor) => (visitor, None),
            Verdict::Instead(visitor, other) => (visitor, Some(other.visitor)),
        };
        admission.placed(Address { worker: 0, connection: 0, visitor });
        Some((visitor, other))
    }

    #[test]
    fn stranger_too_many_takes_the_place_of_the_oldest_of_its_address() {
        let admission = Admission::new(64);
        let other = enter(&admission, 2).unwrap().0;
        let first: Vec<_> = (0..8).map(|_| enter(&admission, 1).unwrap()).collect();
        assert!(first.iter().all(|(_, goes)| goes.is_none()));
        for (oldest, _) in first {
            assert_eq!(enter(&admission, 1).unwrap().1, Some(oldest), "not {other:?}");
        }
        // From many addresses together: one of the address that has most of them.
        for n in 3..10 {
            assert_eq!(enter(&admission, n).unwrap().1, None);
        }
        assert!(enter(&admission, 10).unwrap().1.is_some_and(|goes| goes > other));
    }

    #[test]
    fn known_hosts_are_never_sent_away_and_listed_ones_find_room() {
        let admission = Admission::new(64);
        for n in 0..56 {
            let visitor = enter(&admission, n % 2).unwrap().0;
            admission.named(visitor, &format!("host {n}"), false);
            assert!(admission.may_be_guest(visitor), "{n}");
        }
        let guest = enter(&admission, 3).unwrap().0;
        admission.named(guest, "another", false);
        assert!(!admission.may_be_guest(guest), "seven eighths are guests");
        for _ in 0..8 {
            let listed = enter(&admission, 4).unwrap().0;
            admission.named(listed, "listed", true);
            assert!(admission.may_be_guest(listed));
        }
        assert!(enter(&admission, 5).is_none(), "all are known");
    }

    #[test]
    fn one_address_has_no_more_than_half_for_guests() {
        let admission = Admission::new(64);
        let may = (0..40).filter(|n| {
            let visitor = enter(&admission, 1).unwrap().0;
            admission.named(visitor, &format!("host {n}"), false);
            admission.may_be_guest(visitor)
        });
        assert_eq!(may.count(), 32);
    }

    #[test]
    fn host_with_an_io_queue_is_a_guest_with_all_its_connections() {
        let admission = Admission::new(64);
        let admin = enter(&admission, 1).unwrap().0;
        admission.named(admin, "host", false);
        let io = enter(&admission, 1).unwrap().0;
        admission.named(io, "host", false);
        assert!(admission.may_be_guest(io));
        for _ in 0..20 {
            let goes = enter(&admission, 1).unwrap().1;
            assert!(goes != Some(admin) && goes != Some(io));
        }
        admission.leave(io);
        admission.leave(admin);
    }
}
