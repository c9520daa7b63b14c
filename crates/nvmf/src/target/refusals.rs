//! Hosts that were not let in: a bounded table, and which of its rows are to be told of.
//!
//! Invariants
//! 1. Names are invented as easily as connections are made. So the table has [`MOST`] rows, and one that is full
//!    forgets the row with the fewest refusals, the oldest first: invented names drive out each other.
//! 2. A row is given out to be told once a minute at most, and all rows together `MOST_TOLD` times.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use esker_base::Nanos;
use esker_base::sync::Mutex;

/// Rows of the table.
pub const MOST: usize = 256;
/// Rows that are told of in a minute.
const MOST_TOLD: usize = 16;
const MINUTE: Duration = Duration::from_secs(60);

/// Why a host was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// There is no subsystem with the NQN that it named.
    UnknownSubsystem,
    /// The subsystem does not allow the host.
    NotAllowed,
    /// The subsystem is reached through other portals.
    OtherPortal,
    /// The host has a key for TLS and came without TLS, or the reverse.
    Tls,
    /// The handshake of TLS failed.
    TlsHandshake,
    /// DH-HMAC-CHAP failed.
    Authentication,
    /// The target, or the host, has as many connections or controllers as it may have.
    Busy,
    /// Connect had another wrong parameter.
    Connect,
}

impl RefusalReason {
    /// Its name in answers, for ever the same.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RefusalReason::UnknownSubsystem => "unknown_subsystem",
            RefusalReason::NotAllowed => "not_allowed",
            RefusalReason::OtherPortal => "other_portal",
            RefusalReason::Tls => "tls_mismatch",
            RefusalReason::TlsHandshake => "tls_handshake",
            RefusalReason::Authentication => "authentication",
            RefusalReason::Busy => "busy",
            RefusalReason::Connect => "connect",
        }
    }

    /// A sentence about it, without its subject.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            RefusalReason::UnknownSubsystem => "named a subsystem that is not served",
            RefusalReason::NotAllowed => "is not allowed to use the subsystem that it named",
            RefusalReason::OtherPortal => {
                "came through a portal that is not one of the subsystem's"
            }
            RefusalReason::Tls => "has a key for TLS and came without TLS, or the reverse",
            RefusalReason::TlsHandshake => "failed the handshake of TLS",
            RefusalReason::Authentication => "failed authentication (DH-HMAC-CHAP)",
            RefusalReason::Busy => "has too many connections, or the target has",
            RefusalReason::Connect => "sent a Connect with a wrong parameter",
        }
    }
}

/// Refusals of one host at one address for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// NQN of the host, as it said; empty where it said none.
    pub host: String,
    /// Its address; none of a host that was gone already.
    pub address: Option<IpAddr>,
    /// Why.
    pub reason: RefusalReason,
    /// How often.
    pub count: u64,
    /// When last, since 1970.
    pub last: Duration,
}

/// One host, address and reason.
type Key = (String, Option<IpAddr>, RefusalReason);

#[derive(Debug)]
struct Row {
    count: u64,
    last: Duration,
    /// When it was told of last.
    told: Option<Nanos>,
    /// It has happened since then.
    is_new: bool,
}

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<Key, Row>,
    /// When a minute began, and how many rows were told of in it.
    minute: (Nanos, usize),
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Table>);

impl Refusals {
    /// A host was refused at `unix`, the time since 1970.
    pub(crate) fn enter(
        &self,
        host: &str,
        address: Option<IpAddr>,
        reason: RefusalReason,
        unix: Duration,
    ) {
        let mut table = self.0.lock();
        let key = (host.to_owned(), address, reason);
        if !table.rows.contains_key(&key) && table.rows.len() >= MOST {
            let least = table.rows.iter().min_by_key(|(_, row)| (row.count, row.last));
            if let Some(least) = least.map(|(key, _)| key.clone()) {
                table.rows.remove(&least);
            }
        }
        let new = || Row { count: 0, last: unix, told: None, is_new: true };
        let row = table.rows.entry(key).or_insert_with(new);
        row.count += 1;
        row.last = unix;
        row.is_new = true;
    }

    /// All rows, the latest first.
    pub(crate) fn list(&self) -> Vec<Refusal> {
        let table = self.0.lock();
        let mut all: Vec<_> = table.rows.iter().map(refusal).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.last));
        all
    }

    /// The rows that are to be told of now.
    pub(crate) fn take(&self, now: Nanos) -> Vec<Refusal> {
        let mut table = self.0.lock();
        let Table { rows, minute } = &mut *table;
        if now.since(minute.0) >= MINUTE {
            *minute = (now, 0);
        }
        let mut due = Vec::new();
        for (key, row) in rows.iter_mut().filter(|(_, row)| row.is_new) {
            let is_quiet = row.told.is_none_or(|told| now.since(told) >= MINUTE);
            if is_quiet && minute.1 < MOST_TOLD {
                minute.1 += 1;
                (row.told, row.is_new) = (Some(now), false);
                due.push(refusal((key, row)));
            }
        }
        due
    }
}

fn refusal((key, row): (&Key, &Row)) -> Refusal {
    let (host, address, reason) = key.clone();
    Refusal { host, address, reason, count: row.count, last: row.last }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn seconds(n: usize) -> Duration {
        Duration::from_secs(u64::try_from(n).unwrap())
    }

    #[test]
    fn invented_names_drive_out_each_other_and_not_a_host_that_came_again() {
        let refusals = Refusals::default();
        for n in [0, 1] {
            refusals.enter("again", AT, RefusalReason::NotAllowed, seconds(n));
        }
        for n in 0..10 * MOST {
            refusals.enter(&format!("host {n}"), AT, RefusalReason::NotAllowed, seconds(2 + n));
        }
        let all = refusals.list();
        assert_eq!(all.len(), MOST);
        assert_eq!(all[0].host, format!("host {}", 10 * MOST - 1), "the latest first");
        let again = all.last().unwrap();
        assert_eq!((&*again.host, again.count, again.last), ("again", 2, seconds(1)));
    }

    #[test]
    fn each_is_told_once_a_minute_and_all_together_not_too_often() {
        let (refusals, begin) = (Refusals::default(), Nanos(1));
        let told = |at: Nanos| refusals.take(at).len();
        refusals.enter("a", AT, RefusalReason::NotAllowed, seconds(1));
        refusals.enter("a", AT, RefusalReason::Authentication, seconds(1));
        assert_eq!((told(begin), told(begin)), (2, 0));
        refusals.enter("a", AT, RefusalReason::NotAllowed, seconds(2));
        assert_eq!(told(begin + seconds(59)), 0);
        assert_eq!(told(begin + seconds(60)), 1, "with the count of both");
        for n in 0..100 {
            refusals.enter(&format!("host {n}"), AT, RefusalReason::NotAllowed, seconds(3));
        }
        assert_eq!(told(begin + seconds(61)), MOST_TOLD - 1);
        assert_eq!(told(begin + seconds(62)), 0);
        assert!(told(begin + seconds(121)) > 0);
    }
}
