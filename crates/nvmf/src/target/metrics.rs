//! Work that a target has carried, per host and namespace: counters with one writer each, read by
//! anyone at any time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::latency::{Histogram, Latency};
use esker_base::sync::Mutex;

use super::refusals::Refusals;

/// Hosts and namespaces that are told of by name.
const MOST_SUMS: usize = 64;
/// The name of all others.
const OTHERS: &str = "(others)";
/// How many reasons of closed connections are kept.
const MOST_CLOSED: usize = 16;

/// Kind of work of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    Other,
}

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one connection on one namespace.
#[derive(Debug)]
pub(crate) struct Flow {
    reads: Counter,
    writes: Counter,
    others: Counter,
    read_bytes: Counter,
    written_bytes: Counter,
    errors: Counter,
    started: Counter,
    latency: Histogram,
}

impl Flow {
    pub(crate) fn start(&self) {
        self.started.add(1);
    }

    pub(crate) fn finish(&self, work: Work, bytes: u64, is_good: bool, latency: Duration) {
        match work {
            Work::Read => {
                self.reads.add(1);
                self.read_bytes.add(bytes);
            }
            Work::Write => {
                self.writes.add(1);
                self.written_bytes.add(bytes);
            }
            Work::Other => self.others.add(1),
        }
        if !is_good {
            self.errors.add(1);
        }
        self.latency.add_alone(latency);
    }

    fn add_to(&self, sum: &mut FlowMetrics) {
        let done = [&self.reads, &self.writes, &self.others].map(Counter::get);
        sum.reads += done[0];
        sum.writes += done[1];
        sum.others += done[2];
        sum.read_bytes += self.read_bytes.get();
        sum.written_bytes += self.written_bytes.get();
        sum.errors += self.errors.get();
        sum.in_flight += self.started.get().saturating_sub(done.iter().sum());
        sum.latency.add(&self.latency.snapshot());
    }
}

/// Work of one host on one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMetrics {
    /// NQN of the host.
    pub host: String,
    /// NQN of the subsystem.
    pub subsystem: String,
    /// Namespace.
    pub nsid: u32,
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Other completed commands.
    pub others: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands that the target has and has not answered.
    pub in_flight: u64,
    /// How long commands took, from capsule to response.
    pub latency: Latency,
}

impl FlowMetrics {
    fn new(host: &str, subsystem: &str, nsid: u32) -> FlowMetrics {
        FlowMetrics {
            host: host.to_owned(),
            subsystem: subsystem.to_owned(),
            nsid,
            reads: 0,
            writes: 0,
            others: 0,
            read_bytes: 0,
            written_bytes: 0,
            errors: 0,
            in_flight: 0,
            latency: Latency::default(),
        }
    }

    fn add(&mut self, other: &FlowMetrics) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.others += other.others;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.errors += other.errors;
        self.latency.add(&other.latency);
    }
}

/// Work that a target has carried and refused since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetMetrics {
    /// Connections now.
    pub connections: usize,
    /// Controllers now, without those of the discovery service.
    pub controllers: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused: too many, or hosts that may not.
    pub refused: u64,
    /// Connections of hosts of which nothing was known that others took the place of.
    pub displaced: u64,
    /// Connections closed because the host broke the protocol.
    pub violations: u64,
    /// Connections closed because the host was silent.
    pub timeouts: u64,
    /// Connections closed because the host was too slow: it did not send the data asked for, or
    /// take the bytes sent to it, in time.
    pub slow: u64,
    /// Commands that a device did not end in time.
    pub late: u64,
    /// Hosts that failed to prove their identity.
    pub unauthenticated: u64,
    /// Panics of workers, and of devices that took their worker with them.
    pub panics: u64,
    /// Why connections were closed last, the newest last.
    pub closed: Vec<String>,
    /// Work of each host on each namespace; those of many hosts that are on no list, or are gone,
    /// are together in one that is called `(others)`.
    pub flows: Vec<FlowMetrics>,
}

/// The counters of a target.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) displaced: AtomicU64,
    pub(crate) violations: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) slow: AtomicU64,
    pub(crate) late: AtomicU64,
    /// Why connections were closed last.
    closed: Mutex<VecDeque<String>>,
    pub(crate) unauthenticated: AtomicU64,
    pub(crate) refusals: Refusals,
    pub(crate) panics: AtomicU64,
    sums: Mutex<Sums>,
}

/// The sums that have a name, and that of all others. Names are invented as easily as connections are made,
/// so the number reported is bounded: [`MOST_SUMS`] hosts and namespaces, of which half at most are of hosts
/// on no list. Those that are gone make room for new ones.
#[derive(Debug)]
struct Sums {
    /// The oldest first.
    named: Vec<Sum>,
    others: Sum,
}

/// Sum of the work of one host on one namespace.
#[derive(Debug)]
struct Sum {
    is_listed: bool,
    /// Work of connections that have ended.
    ended: FlowMetrics,
    /// Those that have not.
    flows: Vec<Arc<Flow>>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { named: Vec::new(), others: Sum::new(OTHERS, OTHERS, 0, false) }
    }
}

impl Sum {
    fn new(host: &str, subsystem: &str, nsid: u32, is_listed: bool) -> Sum {
        Sum { is_listed, ended: FlowMetrics::new(host, subsystem, nsid), flows: Vec::new() }
    }

    fn total(&self) -> FlowMetrics {
        let mut total = self.ended.clone();
        self.flows.iter().for_each(|flow| flow.add_to(&mut total));
        total
    }
}

impl Sums {
    /// The sum of a host and a namespace, or that of all others.
    fn of(&mut self, host: &str, subsystem: &str, nsid: u32, is_listed: bool) -> &mut Sum {
        let is_it = |one: &Sum| {
            one.ended.host == host && one.ended.subsystem == subsystem && one.ended.nsid == nsid
        };
        let index = match self.named.iter().position(is_it) {
            Some(index) => index,
            None if self.has_room(is_listed) => {
                self.named.push(Sum::new(host, subsystem, nsid, is_listed));
                self.named.len() - 1
            }
            None => return &mut self.others,
        };
        &mut self.named[index]
    }

    /// Whether one more may have a name; makes room if one is gone.
    fn has_room(&mut self, is_listed: bool) -> bool {
        let unlisted = self.named.iter().filter(|one| !one.is_listed).count();
        if self.named.len() < MOST_SUMS && (is_listed || unlisted < MOST_SUMS / 2) {
            return true;
        }
        let is_gone = |one: &Sum| one.flows.is_empty();
        let stranger = self.named.iter().position(|one| is_gone(one) && !one.is_listed);
        let listed = || self.named.iter().position(is_gone).filter(|_| is_listed);
        let Some(index) = stranger.or_else(listed) else { return false };
        let gone = self.named.remove(index);
        self.others.ended.add(&gone.ended);
        true
    }
}

impl Registry {
    pub(crate) fn flow(
        &self,
        host: &str,
        subsystem: &str,
        nsid: u32,
        is_listed: bool,
    ) -> Arc<Flow> {
        let flow = Arc::new(Flow {
            reads: Counter::default(),
            writes: Counter::default(),
            others: Counter::default(),
            read_bytes: Counter::default(),
            written_bytes: Counter::default(),
            errors: Counter::default(),
            started: Counter::default(),
            latency: Histogram::default(),
        });
        self.sums.lock().of(host, subsystem, nsid, is_listed).flows.push(flow.clone());
        flow
    }

    /// The connection of a flow has ended: its counters go to the sums.
    pub(crate) fn end(&self, flow: &Arc<Flow>) {
        let mut sums = self.sums.lock();
        let Sums { named, others } = &mut *sums;
        for sum in named.iter_mut().chain([others]) {
            let before = sum.flows.len();
            sum.flows.retain(|other| !Arc::ptr_eq(other, flow));
            if sum.flows.len() < before {
                flow.add_to(&mut sum.ended);
                sum.ended.in_flight = 0;
                return;
            }
        }
    }

    /// Takes note of why a connection was closed.
    pub(crate) fn closed(&self, why: String) {
        let mut closed = self.closed.lock();
        if closed.len() == MOST_CLOSED {
            closed.pop_front();
        }
        closed.push_back(why);
    }

    /// Why connections were closed last.
    pub(crate) fn last_closed(&self) -> Vec<String> {
        self.closed.lock().iter().cloned().collect()
    }

    /// All sums; that of all others last, if it has anything.
    pub(crate) fn sums(&self) -> Vec<FlowMetrics> {
        let sums = self.sums.lock();
        let others = sums.others.total();
        let has_others = others != FlowMetrics::new(OTHERS, OTHERS, 0);
        let named = sums.named.iter().map(Sum::total);
        named.chain(has_others.then_some(others)).collect()
    }
}

/// Counts an event of a target.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_outlive_their_connections() {
        let registry = Registry::default();
        let flow = registry.flow("h", "s", 1, false);
        flow.start();
        flow.start();
        flow.finish(Work::Read, 4096, true, Duration::from_micros(10));
        assert_eq!(registry.sums()[0].in_flight, 1);
        registry.end(&flow);
        let sums = registry.sums();
        assert_eq!(
            (sums.len(), sums[0].reads, sums[0].read_bytes, sums[0].in_flight),
            (1, 1, 4096, 0)
        );
        assert!(sums[0].latency.percentile(0.5) >= Duration::from_micros(10));
    }

    #[test]
    fn invented_names_have_a_bounded_number_of_sums_and_listed_hosts_have_theirs() {
        let registry = Registry::default();
        let visit = |host: &str, is_listed: bool| {
            let flow = registry.flow(host, "s", 1, is_listed);
            flow.start();
            flow.finish(Work::Read, 4096, true, Duration::from_micros(10));
            flow
        };
        let live: Vec<_> = (0..1000).map(|n| visit(&format!("stranger {n}"), false)).collect();
        let listed: Vec<_> = (0..8).map(|n| visit(&format!("listed {n}"), true)).collect();
        let sums = registry.sums();
        assert_eq!(sums.len(), MOST_SUMS / 2 + 8 + 1);
        assert!(sums.iter().filter(|one| one.host.starts_with("listed")).count() == 8);
        assert_eq!(sums.last().map(|one| one.host.as_str()), Some(OTHERS));
        for flow in live.iter().chain(&listed) {
            registry.end(flow);
        }
        for n in 0..1000 {
            registry.end(&visit(&format!("later {n}"), false));
        }
        let sums = registry.sums();
        assert_eq!(sums.iter().map(|one| one.reads).sum::<u64>(), 2008, "nothing is lost");
        assert!(sums.len() <= MOST_SUMS + 1);
        assert!(sums.iter().any(|one| one.host == "later 999"), "a host that is gone makes room");
        assert!(sums.iter().all(|one| one.in_flight == 0));
    }
}
