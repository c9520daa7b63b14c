//! Drives that take their time on a virtual clock, and a load that measures how long a volume takes.

#![allow(dead_code)] // each test file uses a part

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::sync::Mutex;
use esker_base::{AlignedBuf, Clock, Lba, Nanos, Rng};
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, Op,
    OpKind, QueuePair, Tag,
};

#[path = "turns.rs"]
pub(crate) mod turns;
use turns::Turns;

/// Commands that a drive works on at a time.
const SERVERS: usize = 8;

/// A drive whose reads take 80 µs and whose writes 20 µs: one in a hundred twice, one in a thousand four times as long.
pub(crate) struct Paced {
    inner: MemoryDevice,
    clock: Clock,
    /// Everything takes so many times as long.
    factor: AtomicU64,
    /// Bytes a second that it moves at most; 0 for any number.
    bandwidth: AtomicU64,
    /// The next read takes so much longer, in nanoseconds.
    late_ns: AtomicU64,
    is_failed: AtomicBool,
    /// The threads that wait for it.
    turns: Mutex<Option<Arc<Turns>>>,
    state: Mutex<(Rng, [Nanos; SERVERS])>,
}

impl Paced {
    pub(crate) fn new(name: &str, bytes: u64, clock: &Clock, seed: u64) -> Arc<Paced> {
        let inner = MemoryDevice::new(name, bytes, 4096);
        let state = Mutex::new((Rng::new(seed), [Nanos(0); SERVERS]));
        let (factor, late_ns) = (AtomicU64::new(1), AtomicU64::new(0));
        let (clock, is_failed) = (clock.clone(), AtomicBool::new(false));
        let bandwidth = AtomicU64::new(0);
        Arc::new(Paced {
            inner,
            clock,
            factor,
            bandwidth,
            late_ns,
            is_failed,
            turns: Mutex::default(),
            state,
        })
    }

    /// From now on these threads wait for it.
    pub(crate) fn share(&self, turns: &Arc<Turns>) {
        *self.turns.lock() = Some(turns.clone());
    }

    /// From now on it moves so many bytes a second at most.
    pub(crate) fn limit_bandwidth(&self, bandwidth: u64) {
        self.bandwidth.store(bandwidth, Ordering::Relaxed);
    }

    pub(crate) fn slow_down(&self, factor: u64) {
        self.factor.store(factor, Ordering::Relaxed);
    }

    /// The next read takes so much longer.
    pub(crate) fn delay_next_read(&self, span: Duration) {
        self.late_ns.store(u64::try_from(span.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    /// Whether a read has come that was to be delayed.
    pub(crate) fn has_delayed(&self) -> bool {
        self.late_ns.load(Ordering::Relaxed) == 0
    }

    /// Every command fails from now on.
    pub(crate) fn fail(&self) {
        self.is_failed.store(true, Ordering::Relaxed);
    }

    /// When a command ends that begins now.
    fn end_of(&self, op: &Op) -> Nanos {
        let (rng, servers) = &mut *self.state.lock();
        let base = if matches!(op, Op::Read { .. }) { 80_000 } else { 20_000 };
        let tail = match rng.below(1000) {
            0 => 4,
            1..10 => 2,
            _ => 1,
        };
        let moved = match self.bandwidth.load(Ordering::Relaxed) {
            0 => 0,
            // All of its servers move bytes at the same time.
            bandwidth => (op.buf_len() * SERVERS) as u64 * 1_000_000_000 / bandwidth,
        };
        let factor = self.factor.load(Ordering::Relaxed);
        let span = ((base + rng.below(base / 4)) * tail + moved) * factor;
        let late = match op {
            Op::Read { .. } => self.late_ns.swap(0, Ordering::Relaxed),
            _ => 0,
        };
        if late > 0 {
            return self.clock.now() + Duration::from_nanos(span + late); // and hinders no other one
        }
        let server = servers.iter_mut().min().expect("there are some");
        *server = (*server).max(self.clock.now()) + Duration::from_nanos(span);
        *server
    }
}

/// The device of a test: what is behind it can be slowed down.
pub(crate) struct Handle(pub(crate) Arc<Paced>);

impl Device for Handle {
    fn name(&self) -> &str {
        self.0.inner.name()
    }
    fn geometry(&self) -> Geometry {
        self.0.inner.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let inner = self.0.inner.queue_pair(depth)?;
        Ok(Box::new(Queue { inner, paced: self.0.clone(), due: Vec::new(), depth }))
    }
    fn stats(&self) -> DeviceStats {
        self.0.inner.stats()
    }
}

struct Queue {
    inner: Box<dyn QueuePair>,
    paced: Arc<Paced>,
    due: Vec<(Nanos, Completion)>,
    depth: usize,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.due.len());
        for command in commands.drain(..taken) {
            let end = self.paced.end_of(&command.op);
            let mut done = Vec::new();
            self.inner.submit(&mut VecDeque::from([command]))?;
            self.inner.poll(&mut done)?;
            let failed = self.paced.is_failed.load(Ordering::Relaxed);
            self.due.extend(done.pop().map(|mut done| {
                if failed {
                    let (name, cause) =
                        (self.paced.inner.name(), Cause::Media("it fails".to_owned()));
                    done.result = Err(DeviceError::new(name, OpKind::Read, Lba(0), 0, cause));
                }
                (end, done)
            }));
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let now = self.paced.clock.now();
        let before = done.len();
        while let Some(at) = self.due.iter().position(|(due, _)| *due <= now) {
            done.push(self.due.swap_remove(at).1);
        }
        Ok(done.len() - before)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let clock = &self.paced.clock;
        if let Some(next) = self.due.iter().map(|(due, _)| *due).min() {
            let left = next.since(clock.now());
            let left = timeout.map_or(left, |timeout| timeout.min(left));
            let turns = self.paced.turns.lock().clone();
            match turns {
                Some(turns) => turns.wait_until(clock.now() + left),
                None => clock.sleep(left),
            }
        }
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.due.len()
    }
}

/// How long the operations of a load took, in nanoseconds, sorted.
#[derive(Debug, Default)]
pub(crate) struct Took {
    pub(crate) reads: Vec<u64>,
    pub(crate) writes: Vec<u64>,
}

/// The value below which so many thousandths are.
pub(crate) fn per_mille(sorted: &[u64], wanted: usize) -> u64 {
    sorted[(sorted.len() * wanted / 1000).min(sorted.len() - 1)]
}

/// Four random reads and a write of 4 KiB at a time, then a pause, for so long on the clock. After each round `then` is
/// called; the load ends when it says so.
pub(crate) fn load(
    queue: &mut dyn QueuePair,
    clock: &Clock,
    blocks: u64,
    span: Duration,
    rng: &mut Rng,
    mut then: impl FnMut() -> bool,
) -> Took {
    let end = clock.now() + span;
    let mut took = Took::default();
    let mut done = Vec::new();
    while clock.now() < end {
        let began = clock.now();
        let mut batch: VecDeque<Command> = (0..5)
            .map(|tag| {
                let (lba, buf) = (Lba(rng.below(blocks)), AlignedBuf::zeroed(4096));
                let op = match tag {
                    0 => Op::Write { lba, buf, placement: None, fua: false },
                    _ => Op::Read { lba, buf },
                };
                Command { tag: Tag(tag), op }
            })
            .collect();
        queue.submit(&mut batch).unwrap();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
            for Completion { tag, result, .. } in done.drain(..) {
                result.unwrap();
                let ns = u64::try_from(clock.now().since(began).as_nanos()).unwrap();
                if tag.0 == 0 { took.writes.push(ns) } else { took.reads.push(ns) }
            }
        }
        clock.advance(Duration::from_micros(400));
        if then() {
            break;
        }
    }
    took.reads.sort_unstable();
    took.writes.sort_unstable();
    took
}
