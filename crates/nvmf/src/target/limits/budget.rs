//! The memory of a worker for the data of commands: how much of it one connection, host or device may hold, so
//! that the others go on.
//!
//! A host whose data never comes, or that takes nothing, holds its buffers until it is shed
//! ([`pace`](super::pace)); a device that hangs holds those of its commands. So nobody gets all there is: a host
//! may hold as much as is free, which leaves it half when it is alone, a third when there are two, and
//! always something for the next. A device may hold half of the free memory, so that its host has something
//! left for other devices. A reserve is for commands of hosts that hold little.
//!
//! Invariants
//! 1. `held` is the size of all buffers that hold data of connections, and the sum over the hosts.
//! 2. Share 0 is that of connections whose host is not known yet. Another share lives while connections
//!    have it.

use crate::target::config::Limits;

/// The part of a worker's memory that is in reserve.
const RESERVE: usize = 8;
/// A host's most with help of the reserve: less than this part of it, and than so many bytes.
const SMALL: usize = 4;
const SMALL_BYTES: usize = 256 << 10;

/// The share of connections whose host is not known yet.
pub(crate) const STRANGERS: usize = 0;

/// Memory that one host holds.
#[derive(Default)]
struct Share {
    host: String,
    held: usize,
    connections: usize,
}

/// The memory of a worker.
pub(crate) struct Budget {
    held: usize,
    shares: Vec<Share>,
    data_bytes: usize,
    per_connection: usize,
}

/// A request for memory, and the memory already held on that account.
pub(crate) struct Ask {
    pub(crate) len: usize,
    pub(crate) share: usize,
    pub(crate) connection: usize,
    /// The connection's commands that the device has, and everybody's.
    pub(crate) of_device: (usize, usize),
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Budget {
        let (data_bytes, per_connection) = (limits.data_bytes, limits.data_bytes_per_connection);
        Budget { held: 0, shares: vec![Share::default()], data_bytes, per_connection }
    }

    pub(crate) fn allows(&self, ask: &Ask) -> bool {
        let (len, host) = (ask.len, self.shares[ask.share].held);
        let (of_connection, of_all) = ask.of_device;
        let left = self.per_connection.saturating_sub(ask.connection);
        // One command may go above the connection's limit.
        if ask.connection > 0 && of_connection + len > left {
            return false;
        }
        let reserve = self.data_bytes / RESERVE;
        let is_small = host + len <= SMALL_BYTES.min(reserve / SMALL);
        if self.held == 0 || is_small && self.held + len <= self.data_bytes {
            return true;
        }
        let free = (self.data_bytes - reserve).saturating_sub(self.held);
        host + len <= free && 2 * of_all + len <= free
    }

    pub(crate) fn hold(&mut self, share: usize, len: usize) {
        self.held += len;
        self.shares[share].held += len;
    }

    pub(crate) fn let_go(&mut self, share: usize, len: usize) {
        self.held -= len;
        self.shares[share].held -= len;
    }

    /// The share of a host, for one connection more.
    pub(crate) fn enter(&mut self, host: &str) -> usize {
        let known = self.shares[1..].iter().position(|one| one.connections > 0 && one.host == host);
        let index = known.map(|at| at + 1).unwrap_or_else(|| {
            let share = Share { host: host.to_owned(), ..Share::default() };
            match self.shares[1..].iter().position(|one| one.connections == 0) {
                Some(at) => {
                    self.shares[at + 1] = share;
                    at + 1
                }
                None => {
                    self.shares.push(share);
                    self.shares.len() - 1
                }
            }
        });
        self.shares[index].connections += 1;
        index
    }

    /// A connection leaves the share of its host.
    pub(crate) fn leave(&mut self, share: usize) {
        if share != STRANGERS {
            self.shares[share].connections -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// How much a host gets in pieces of a MiB until it has to wait.
    fn gets(budget: &mut Budget, share: usize) -> usize {
        let mut got = 0;
        let ask = |got| Ask { len: MIB, share, connection: 0, of_device: (0, got) };
        while budget.allows(&ask(0)) {
            budget.hold(share, MIB);
            got += MIB;
        }
        got
    }

    #[test]
    fn host_leaves_as_much_as_it_takes_and_a_reserve() {
        let mut budget = Budget::new(&Limits::default());
        let shares: Vec<usize> = (0..8).map(|n| budget.enter(&format!("host {n}"))).collect();
        let got: Vec<usize> = shares.iter().map(|&share| gets(&mut budget, share) / MIB).collect();
        assert_eq!(got, [112, 56, 28, 14, 7, 4, 2, 1]);
        // And when nothing is left in general, small commands of a host without any have the reserve.
        let last = budget.enter("the last");
        let ask = |len| Ask { len, share: last, connection: 0, of_device: (0, 0) };
        budget.hold(shares[0], 8 * MIB);
        assert!(!budget.allows(&ask(MIB)) && budget.allows(&ask(200 << 10)));
    }

    #[test]
    fn device_that_hangs_leaves_its_host_memory_for_others() {
        let mut budget = Budget::new(&Limits::default());
        let share = budget.enter("host");
        let mut hung = 0;
        let ask = |of_device| Ask { len: MIB, share, connection: 0, of_device };
        while budget.allows(&ask((0, hung))) {
            budget.hold(share, MIB);
            hung += MIB;
        }
        assert!(hung > 32 * MIB, "{hung}");
        for _ in 0..16 {
            assert!(budget.allows(&ask((0, 0))), "another device");
            budget.hold(share, MIB);
        }
    }

    #[test]
    fn share_ends_with_the_last_connection_of_its_host() {
        let mut budget = Budget::new(&Limits::default());
        let (a, b, again) = (budget.enter("a"), budget.enter("b"), budget.enter("a"));
        assert_eq!((a, b, again), (1, 2, 1));
        budget.shares[1].connections -= 2;
        assert_eq!((budget.enter("c"), budget.enter("a")), (1, 3));
    }
}
