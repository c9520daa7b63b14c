//! Commands before the disk: those that it sees, the next one, and those acknowledged early.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use esker_base::units::to_u64;
use esker_base::{LbaCount, Nanos};
use esker_device::{Device, DeviceError, DeviceStats, Geometry, Identity, MemoryDevice, Op};

use super::DiskParameters;
use super::mechanism::{Mechanism, Way};
use crate::FlashError;
use crate::emulate::{Content, Emulated, Emulation, Model, Pace, Start, Ticket};

/// How many writes in the cache are looked at to find the one to be done first.
const WINDOW: usize = 128;
const MAX_TRANSFER_SIZE: u32 = 32 << 20;

/// A disk, to be emulated.
pub struct Disk {
    parameters: DiskParameters,
    content: Content,
    mechanism: Mechanism,
    /// Commands on the way through the controller, which takes equally long for all.
    starting: VecDeque<(u64, Request)>,
    /// Commands the disk does not see yet.
    beyond: VecDeque<Request>,
    seen: u32,
    /// Commands that wait for the mechanism.
    waiting: Vec<Request>,
    /// The end of the mechanism's present work, the request, and its way.
    busy: Option<(u64, Request, Way)>,
    cache: WriteCache,
    ends: BinaryHeap<Reverse<(u64, u64, Ticket)>>,
    numbered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    lba: u64,
    count: u64,
    /// In the order of arrival.
    number: u64,
    /// How many younger ones went before it.
    passed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read(Ticket),
    Write(Ticket),
    /// A write that is finished when it is in the cache.
    Cached(Ticket),
    /// A write in the cache on its way to the platters.
    Destage,
    Flush(Ticket),
    /// A command that moves neither head nor data.
    Control(Ticket),
}

/// Writes that are acknowledged and not on the platters.
#[derive(Default)]
struct WriteCache {
    used_bytes: u64,
    dirty: VecDeque<Request>,
    /// Writes that wait for room.
    waiting: VecDeque<Request>,
    flushes: Vec<Request>,
}

impl Disk {
    /// A disk with these parameters whose content lies on `content`, from its first LBA on; in
    /// memory when there is none.
    ///
    /// # Errors
    /// When there can be no such disk, or `content` is too small, or has other LBAs.
    pub fn new(
        parameters: &DiskParameters,
        content: Option<Arc<dyn Device>>,
    ) -> Result<Disk, FlashError> {
        let mechanism = Mechanism::new(parameters)?;
        let (capacity, lba_size) = (mechanism.layout().capacity(), parameters.lba_size);
        let content = content.unwrap_or_else(|| {
            Arc::new(MemoryDevice::new("content", capacity.bytes(lba_size), lba_size))
        });
        let geometry = content.geometry();
        if geometry.lba_size != lba_size || geometry.capacity < capacity {
            return Err(FlashError::Invalid(format!(
                "{} has {} LBAs of {} bytes; the content of this disk needs {capacity} of {lba_size}",
                content.name(),
                geometry.capacity,
                geometry.lba_size
            )));
        }
        Ok(Disk {
            parameters: parameters.clone(),
            content: Content::new(content)?,
            mechanism,
            starting: VecDeque::new(),
            beyond: VecDeque::new(),
            seen: 0,
            waiting: Vec::new(),
            busy: None,
            cache: WriteCache::default(),
            ends: BinaryHeap::new(),
            numbered: 0,
        })
    }

    /// The disk as a device.
    #[must_use]
    pub fn emulate(self, name: &str, pace: Pace) -> Emulated<Disk> {
        let geometry = self.geometry();
        Emulated::new(Emulation::new(self, pace), name, geometry, ())
    }

    /// The parameters of the disk.
    #[must_use]
    pub fn parameters(&self) -> &DiskParameters {
        &self.parameters
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            lba_size: self.parameters.lba_size,
            capacity: self.mechanism.layout().capacity(),
            preferred_write_size: 1 << 20,
            max_transfer_size: MAX_TRANSFER_SIZE,
            discard_granularity: 0,
            placement_handles: 0,
            volatile_write_cache: self.parameters.write_cache_bytes > 0
                || self.content.device().geometry().volatile_write_cache,
        }
    }

    fn request(&mut self, kind: Kind, lba: u64, count: u64) -> Request {
        self.numbered += 1;
        Request { kind, lba, count, number: self.numbered, passed: 0 }
    }

    /// The controller takes a command, if the disk sees it already.
    fn arrive(&mut self, now_ns: u64, request: Request) {
        if self.seen == self.parameters.queue_depth {
            return self.beyond.push_back(request);
        }
        self.seen += 1;
        self.starting.push_back((now_ns + self.parameters.overhead_ns, request));
    }

    /// The controller has done its part of a command.
    fn begin(&mut self, now_ns: u64, request: Request) {
        match request.kind {
            Kind::Control(ticket) => self.end(now_ns, ticket),
            Kind::Flush(ticket) if self.cache.is_clean(&request, self.busy.as_ref()) => {
                self.end(now_ns, ticket);
            }
            Kind::Flush(_) => self.cache.flushes.push(request),
            Kind::Cached(_) => {
                self.cache.waiting.push_back(request);
                self.fill_cache(now_ns);
            }
            Kind::Read(ticket) if self.cache.holds(&request, self.busy.as_ref()) => {
                self.end(now_ns + self.carry_ns(request.count), ticket);
            }
            Kind::Read(_) | Kind::Write(_) | Kind::Destage => self.waiting.push(request),
        }
        self.move_on(now_ns);
    }

    /// Takes writes into the cache, in the order in which they came, while there is room.
    fn fill_cache(&mut self, now_ns: u64) {
        while let Some(&request) = self.cache.waiting.front() {
            let bytes = request.count * u64::from(self.parameters.lba_size);
            let size = u64::from(self.parameters.write_cache_bytes);
            // A write larger than the cache has it to itself.
            if self.cache.used_bytes > 0 && self.cache.used_bytes + bytes > size {
                return;
            }
            self.cache.waiting.pop_front();
            self.cache.used_bytes += bytes;
            let Kind::Cached(ticket) = request.kind else { unreachable!("only these wait here") };
            self.cache.dirty.push_back(Request { kind: Kind::Destage, ..request });
            self.end(now_ns + self.carry_ns(request.count), ticket);
        }
    }

    /// An idle mechanism starts the request that it would finish first. Reads and writes go before
    /// destaging the cache, unless a command waits for that.
    fn move_on(&mut self, now_ns: u64) {
        while self.busy.is_none() {
            let is_awaited = !self.cache.waiting.is_empty() || !self.cache.flushes.is_empty();
            let dirty = if is_awaited || self.waiting.is_empty() { WINDOW } else { 0 };
            let candidates = self.waiting.iter().chain(self.cache.dirty.iter().take(dirty));
            let ways = candidates.map(|request| {
                let is_read = matches!(request.kind, Kind::Read(_));
                let way = self.mechanism.way(now_ns, request.lba, request.count, is_read);
                let done_ns = match way {
                    Way::Buffered => now_ns,
                    Way::Ahead(at_ns) | Way::Moved(at_ns) => at_ns,
                };
                let is_overdue = request.passed >= self.parameters.patience;
                ((!is_overdue, if is_overdue { 0 } else { done_ns }, request.number), way)
            });
            let first = ways.enumerate().min_by_key(|(_, (order, _))| *order);
            let Some((index, (_, way))) = first else { return };
            let request = if index < self.waiting.len() {
                self.waiting.swap_remove(index)
            } else {
                let dirty = self.cache.dirty.remove(index - self.waiting.len());
                dirty.expect("chosen from these")
            };
            for other in self.waiting.iter_mut().chain(self.cache.dirty.iter_mut().take(dirty)) {
                other.passed += u32::from(other.number < request.number);
            }
            match way {
                Way::Buffered => {
                    let Kind::Read(ticket) = request.kind else { unreachable!("reads only") };
                    self.end(now_ns + self.carry_ns(request.count), ticket);
                    let more = self.read_ahead();
                    self.mechanism.consume(now_ns, request.lba, request.count, more);
                }
                Way::Ahead(at_ns) => self.busy = Some((at_ns, request, way)),
                Way::Moved(at_ns) => {
                    self.mechanism.leave(now_ns);
                    self.busy = Some((at_ns, request, way));
                }
            }
        }
    }

    /// The mechanism has done a command.
    fn arrive_at_end(&mut self, now_ns: u64) {
        let Some((_, request, way)) = self.busy.take() else { return };
        let Request { kind, lba, count, .. } = request;
        let more = self.read_ahead();
        match (kind, way) {
            (Kind::Read(ticket), Way::Ahead(_)) => {
                self.mechanism.consume(now_ns, lba, count, more);
                self.end(now_ns, ticket);
            }
            (Kind::Read(ticket), _) => {
                self.mechanism.stay(now_ns, lba, count, (more > 0).then_some(more));
                self.end(now_ns, ticket);
            }
            (Kind::Write(ticket), _) => {
                self.mechanism.stay(now_ns, lba, count, None);
                self.end(now_ns, ticket);
            }
            _ => {
                self.mechanism.stay(now_ns, lba, count, None);
                self.cache.used_bytes -= count * u64::from(self.parameters.lba_size);
                self.fill_cache(now_ns);
                self.end_flushes(now_ns);
            }
        }
        self.move_on(now_ns);
    }

    fn end_flushes(&mut self, now_ns: u64) {
        let mut index = 0;
        while index < self.cache.flushes.len() {
            let flush = self.cache.flushes[index];
            if self.cache.is_clean(&flush, None) {
                self.cache.flushes.remove(index);
                if let Kind::Flush(ticket) = flush.kind {
                    self.end(now_ns, ticket);
                }
            } else {
                index += 1;
            }
        }
    }

    fn end(&mut self, at_ns: u64, ticket: Ticket) {
        self.numbered += 1;
        self.ends.push(Reverse((at_ns, self.numbered, ticket)));
    }

    /// The time that the interface takes for so many LBAs.
    fn carry_ns(&self, count: u64) -> u64 {
        let bytes = u128::from(count) * u128::from(self.parameters.lba_size);
        let ns = bytes * 1_000_000_000 / u128::from(self.parameters.interface_bytes_per_s);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn read_ahead(&self) -> u64 {
        u64::from(self.parameters.read_ahead_bytes / self.parameters.lba_size)
    }

    /// The time of the next event: of the mechanism, of a command's end, of the controller.
    fn nexts_ns(&self) -> [Option<u64>; 3] {
        [
            self.busy.as_ref().map(|(at_ns, ..)| *at_ns),
            self.ends.peek().map(|Reverse((at_ns, ..))| *at_ns),
            self.starting.front().map(|(at_ns, _)| *at_ns),
        ]
    }
}

impl WriteCache {
    /// Whether none of the writes before `flush` is left.
    fn is_clean(&self, flush: &Request, busy: Option<&(u64, Request, Way)>) -> bool {
        let is_older = |other: &Request| other.number < flush.number;
        let busy = busy.filter(|(_, other, _)| other.kind == Kind::Destage && is_older(other));
        busy.is_none() && !self.dirty.iter().any(is_older)
    }

    /// Whether one write in the cache has all that a read wants.
    fn holds(&self, read: &Request, busy: Option<&(u64, Request, Way)>) -> bool {
        let has = |other: &Request| {
            other.kind == Kind::Destage
                && other.lba <= read.lba
                && read.lba + read.count <= other.lba + other.count
        };
        busy.is_some_and(|(_, other, _)| has(other)) || self.dirty.iter().any(has)
    }
}

impl Model for Disk {
    type Part = ();

    fn start(&mut self, (): &(), op: &mut Op, start: Option<Start>) -> Result<(), DeviceError> {
        self.content.run(op, LbaCount(0))?;
        let Some(Start { now, ticket }) = start else { return Ok(()) };
        let has_cache = self.parameters.write_cache_bytes > 0;
        let (kind, lba, count) = match op {
            Op::Read { lba, buf } => (Kind::Read(ticket), lba.0, self.lbas(buf.len())),
            Op::Write { lba, buf, fua: false, .. } if has_cache => {
                (Kind::Cached(ticket), lba.0, self.lbas(buf.len()))
            }
            Op::Write { lba, buf, .. } => (Kind::Write(ticket), lba.0, self.lbas(buf.len())),
            Op::WriteZeroes { lba, count } => (Kind::Write(ticket), lba.0, count.0),
            Op::Flush => (Kind::Flush(ticket), 0, 0),
            Op::Discard { .. } => (Kind::Control(ticket), 0, 0),
        };
        let request = self.request(kind, lba, count);
        self.arrive(now.0, request);
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        self.nexts_ns().into_iter().flatten().min().map(Nanos)
    }

    fn advance(&mut self, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
        while let Some(Nanos(now_ns)) = self.next_event()
            && now_ns <= to.0
        {
            let [mechanism, end, _] = self.nexts_ns();
            if mechanism == Some(now_ns) {
                self.arrive_at_end(now_ns);
            } else if end == Some(now_ns) {
                let Reverse((_, _, ticket)) = self.ends.pop().expect("its time is known");
                finished.push((ticket, Nanos(now_ns)));
                self.seen -= 1;
                if let Some(request) = self.beyond.pop_front() {
                    self.arrive(now_ns, request);
                }
            } else if let Some((_, request)) = self.starting.pop_front() {
                self.begin(now_ns, request);
            }
        }
    }

    fn identity(&self, (): &()) -> Option<Identity> {
        self.content.device().identity()
    }

    fn account(&self, (): &(), stats: &mut DeviceStats) {
        stats.below.push(self.content.stats());
    }

    fn remarks(&self) -> Vec<String> {
        self.parameters.assumptions.iter().map(|one| format!("assumed: {one}")).collect()
    }
}

impl Disk {
    fn lbas(&self, bytes: usize) -> u64 {
        to_u64(bytes) / u64::from(self.parameters.lba_size)
    }
}
