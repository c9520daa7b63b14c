//! A thread that keeps a queue pair full, and times the completions.
//!
//! Invariants
//! 1. A request's latency counts from when it was due, if it was; else from when it was sent.
//! 2. Every command that was taken has come back before a client ends, also after an error.
//! 3. Requests of the warm-up are in no figure, and count towards no limit of bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_base::units::{to_nanos, to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount, Nanos, Rng};
use esker_bench::Latencies;
use esker_device::{Command, Completion, Device, Op as DeviceOp, QueuePair, Tag};
use esker_trace::Op;

use super::job::{Job, Pattern, Size};
use super::requests::{Generated, Next, Requests};
use super::target::Target;
use crate::LabError;

/// How often a client that waits looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(100);
/// Bytes that are written at once to fill a device, and how many such writes are in flight.
const FILL_BYTES: u64 = 256 << 10;
const FILL_DEPTH: usize = 32;
/// The length of an interval of the course.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// Measurements of one client, or of all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) kinds: BTreeMap<Op, Kind>,
    /// Requests and bytes that came back, for each [`INTERVAL`].
    pub(super) course: Vec<(u64, u64)>,
}

/// One kind of request.
#[derive(Clone, Debug, Default)]
pub(super) struct Kind {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) latencies: Latencies,
}

impl Outcome {
    pub(super) fn merge(&mut self, other: &Outcome) {
        for (op, theirs) in &other.kinds {
            let ours = self.kinds.entry(*op).or_default();
            ours.requests += theirs.requests;
            ours.bytes += theirs.bytes;
            ours.latencies.merge(&theirs.latencies);
        }
        if self.course.len() < other.course.len() {
            self.course.resize(other.course.len(), (0, 0));
        }
        for (ours, theirs) in self.course.iter_mut().zip(&other.course) {
            ours.0 += theirs.0;
            ours.1 += theirs.1;
        }
    }
}

/// A thread of the load.
pub(super) struct Client<'a> {
    pub(super) job: &'a Job,
    pub(super) target: &'a Target,
    pub(super) requests: Requests,
    pub(super) began: Nanos,
    pub(super) stop: &'a AtomicBool,
}

/// A request that the device has.
#[derive(Clone, Copy)]
struct Sent {
    op: Op,
    bytes: u64,
    from: Nanos,
}

struct Running<'a> {
    job: &'a Job,
    target: &'a Target,
    began: Nanos,
    queue: Box<dyn QueuePair>,
    lba_size: u64,
    sent: Vec<Option<Sent>>,
    free: Vec<usize>,
    bufs: BTreeMap<u64, Vec<AlignedBuf>>,
    rng: Rng,
    outcome: Outcome,
    moved_bytes: u64,
    /// Requests of the warm-up that have not come back yet.
    warm_up: u64,
    /// When the warm-up ended, and when the last request came back.
    measured: (Nanos, Nanos),
}

impl<'a> Client<'a> {
    pub(super) fn run(self) -> Result<Outcome, LabError> {
        self.drive(0).map(|running| running.outcome)
    }

    /// The same after a warm-up of so many requests; and how long the requests after it took together.
    pub(super) fn run_warm(self, warm_up: u64) -> Result<(Outcome, Duration), LabError> {
        let running = self.drive(warm_up)?;
        let (from, to) = running.measured;
        Ok((running.outcome, to.since(from)))
    }

    fn drive(mut self, warm_up: u64) -> Result<Running<'a>, LabError> {
        let depth = self.job.depth;
        let geometry = self.target.device.geometry();
        let mut running = Running {
            job: self.job,
            target: self.target,
            began: self.began,
            queue: self.target.device.queue_pair(depth)?,
            lba_size: u64::from(geometry.lba_size),
            sent: vec![None; depth],
            free: (0..depth).collect(),
            bufs: BTreeMap::new(),
            rng: Rng::new(self.job.seed),
            outcome: Outcome::default(),
            moved_bytes: 0,
            warm_up,
            measured: (self.began, self.began),
        };
        let mut next = self.requests.next();
        while let Some(request) = next {
            if self.stop.load(Ordering::Relaxed) || running.is_over() {
                break;
            }
            let early = running.early(&request);
            if early.is_zero() && !running.free.is_empty() {
                running.submit(&request)?;
                next = self.requests.next();
            } else if running.queue.in_flight() > 0 {
                running.collect(if early.is_zero() { GLANCE } else { early.min(GLANCE) })?;
            } else {
                running.target.clock.sleep(early.min(GLANCE));
            }
        }
        while running.queue.in_flight() > 0 {
            running.collect(GLANCE)?;
        }
        Ok(running)
    }
}

impl Running<'_> {
    fn since(&self) -> Duration {
        self.target.clock.now().since(self.began)
    }

    fn is_over(&self) -> bool {
        let threads = to_u64(self.job.threads);
        self.job.time_limit.is_some_and(|limit| self.since() >= limit)
            || self.job.bytes_limit.is_some_and(|limit| self.moved_bytes >= limit / threads)
    }

    /// How long it is until a request is due.
    fn early(&self, request: &Next) -> Duration {
        request.due.map_or(Duration::ZERO, |due| due.saturating_sub(self.since()))
    }

    fn submit(&mut self, request: &Next) -> Result<(), LabError> {
        let slot = self.free.pop().expect("there is room");
        let lba = Lba(request.offset / self.lba_size);
        let count = LbaCount(request.bytes / self.lba_size);
        let op = match request.op {
            Op::Read => DeviceOp::Read { lba, buf: self.buf(request.bytes) },
            Op::Write => {
                let mut buf = self.buf(request.bytes);
                // Contents are all different, so that nothing below could keep them once only.
                buf[..8].copy_from_slice(&self.rng.u64().to_le_bytes());
                DeviceOp::Write { lba, buf, placement: request.placement, fua: false }
            }
            Op::Discard => DeviceOp::Discard { lba, count },
            Op::Flush => DeviceOp::Flush,
        };
        let from = match request.due {
            Some(due) => self.began + due,
            None => self.target.clock.now(),
        };
        self.sent[slot] = Some(Sent { op: request.op, bytes: request.bytes, from });
        let mut commands = VecDeque::from([Command { tag: Tag(to_u64(slot)), op }]);
        // The device has room for the depth, but may take its time.
        while self.queue.submit(&mut commands)? == 0 {
            self.collect(GLANCE)?;
        }
        let mut done = Vec::new();
        self.queue.poll(&mut done)?;
        self.count(done)
    }

    fn buf(&mut self, bytes: u64) -> AlignedBuf {
        let kept = self.bufs.get_mut(&bytes).and_then(Vec::pop);
        kept.unwrap_or_else(|| {
            let mut buf = AlignedBuf::zeroed(to_usize(bytes));
            self.rng.fill(&mut buf);
            buf
        })
    }

    fn collect(&mut self, patience: Duration) -> Result<(), LabError> {
        let mut done = Vec::new();
        self.queue.wait(&mut done, Some(patience))?;
        self.count(done)
    }

    fn count(&mut self, done: Vec<Completion>) -> Result<(), LabError> {
        if done.is_empty() {
            return Ok(());
        }
        let now = self.target.clock.now();
        let since = now.since(self.began).as_nanos() / INTERVAL.as_nanos();
        let interval = usize::try_from(since).unwrap_or(usize::MAX);
        if self.outcome.course.len() <= interval {
            self.outcome.course.resize(interval + 1, (0, 0));
        }
        let mut refused = None;
        for one in done {
            let slot = to_usize(one.tag.0);
            let sent = self.sent[slot].take().expect("a command that was sent");
            self.free.push(slot);
            if let Some(buf) = one.buf {
                self.bufs.entry(sent.bytes).or_default().push(buf);
            }
            if let Err(error) = one.result {
                refused = Some(error);
                continue;
            }
            self.measured.1 = now;
            if self.warm_up > 0 {
                self.warm_up -= 1;
                self.measured.0 = now;
                continue;
            }
            let kind = self.outcome.kinds.entry(sent.op).or_default();
            kind.requests += 1;
            kind.bytes += sent.bytes;
            let latency = to_nanos(now.since(sent.from));
            kind.latencies.record(latency);
            let moved = if sent.op.is_data() { sent.bytes } else { 0 };
            self.moved_bytes += moved;
            self.outcome.course[interval].0 += 1;
            self.outcome.course[interval].1 += moved;
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Writes the whole span once, in order, each stream's part with its identifier.
pub(super) fn fill(job: &Job, device: &dyn Device) -> Result<(), LabError> {
    let job = Job {
        read_percent: 0,
        discard_percent: 0,
        sizes: vec![Size { bytes: step(job), weight: 1 }],
        pattern: Pattern::Sequential,
        threads: 1,
        ..job.clone()
    };
    let mut generated = Generated::new(&job, 0);
    let lba_size = u64::from(device.geometry().lba_size);
    let mut queue = device.queue_pair(FILL_DEPTH)?;
    let (mut commands, mut done) = (VecDeque::new(), Vec::new());
    let mut rng = Rng::new(job.seed);
    let mut left = job.span() / step(&job);
    while left > 0 || queue.in_flight() > 0 || !commands.is_empty() {
        while left > 0 && commands.len() + queue.in_flight() < FILL_DEPTH {
            let next = generated.fill_next();
            let mut buf = AlignedBuf::zeroed(to_usize(next.bytes));
            rng.fill(&mut buf);
            let lba = Lba(next.offset / lba_size);
            let op = DeviceOp::Write { lba, buf, placement: next.placement, fua: false };
            commands.push_back(Command { tag: Tag(left), op });
            left -= 1;
        }
        queue.submit(&mut commands)?;
        queue.wait(&mut done, Some(GLANCE))?;
        for one in done.drain(..) {
            one.result?;
        }
    }
    Ok(())
}

/// The largest step that fills every part of the span.
fn step(job: &Job) -> u64 {
    let mut bytes = FILL_BYTES.max(job.largest());
    while bytes > job.largest() && !job.span().is_multiple_of(bytes) {
        bytes /= 2;
    }
    bytes.max(job.largest())
}
