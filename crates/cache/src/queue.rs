//! A queue pair of the cache: host commands, cut into commands to the flash device and the origin.
//!
//! | module | contents |
//! | --- | --- |
//! | `work` | a command of the host: its blocks, its commands to the devices, its end |
//! | `plan` | state that a write or a range keeps |
//! | `read` | hits, misses, filling in |
//! | `write` | the three modes, and changes between them |
//! | `range` | discards and zeroes |
//!
//! Called by the cache's user. A command is begun when it is submitted and goes on whenever the
//! queue pair is polled. Names that have to change before it may go on are changed at once, which
//! blocks for one write to the flash device; so does a flush.
//!
//! Invariants
//! 1. A command that waits for another one, which writes the same block, holds nothing.
//! 2. A queue pair with nothing of its own in flight helps those that its commands wait for, so
//!    that no command waits for someone to poll.
//! 3. A command's pins and intents are gone before its completion is handed out.

mod plan;
mod range;
mod read;
mod slab;
mod work;
mod write;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_base::policy::Access;
use esker_base::sync::Mutex;
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{
    Cause, Command, Completion, DeviceError, Geometry, Op, OpKind, PlacementId, QueuePair, Tag,
};

use crate::CacheError;
use crate::admit::{Flow, Streams};
use crate::counts::{Counts, add};
use crate::shared::Shared;
use plan::{Plan, Range};
use slab::Slab;

/// How long to wait on one of two devices before looking at the other.
const GLANCE: Duration = Duration::from_micros(50);

/// A queue pair's state, which others may help along.
pub(crate) type PumpCell = Mutex<Pump>;

/// All queue pairs of a cache.
#[derive(Default)]
pub(crate) struct Queues(Mutex<Vec<Weak<PumpCell>>>);

impl Queues {
    fn enter(&self, pump: &Arc<PumpCell>) {
        let mut queues = self.0.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(pump));
    }

    /// Those that are there.
    pub(crate) fn all(&self) -> Vec<Arc<PumpCell>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// A queue pair.
pub(crate) struct Queue {
    pump: Arc<PumpCell>,
    queues: Arc<Queues>,
}

/// Everything a queue pair has under way.
pub(crate) struct Pump {
    shared: Arc<Shared>,
    geometry: Geometry,
    depth: usize,
    origin: Box<dyn QueuePair>,
    flash: Box<dyn QueuePair>,
    to_origin: VecDeque<Command>,
    to_flash: VecDeque<Command>,
    scratch: Vec<Completion>,
    works: Slab<Work>,
    ios: Slab<Io>,
    parked: VecDeque<usize>,
    done: Vec<Completion>,
    /// Commands of the host that were taken and not handed back.
    in_flight: usize,
    /// Fills whose content is being written.
    fills: usize,
    /// Blocks that are read ahead, until they are filled in: reads of them wait for that.
    ahead: BTreeSet<u64>,
    streams: Streams,
    counts: Arc<Counts>,
    /// Failed flushes of the origin that the user of this queue pair was told of.
    known_losses: u64,
    /// Whether a thread works here now; one that panicked has left it so.
    is_entered: bool,
}

/// A command of the host.
struct Work {
    tag: Tag,
    kind: OpKind,
    lba: Lba,
    /// Where it begins, and how long it is, in bytes.
    offset: u64,
    size: u64,
    buf: Option<AlignedBuf>,
    placement: Option<PlacementId>,
    fua: bool,
    flow: Flow,
    /// Commands to devices that have not finished.
    outstanding: usize,
    error: Option<DeviceError>,
    write: Option<Box<Plan>>,
    range: Option<Range>,
}

impl Work {
    fn end(&self) -> u64 {
        self.offset + self.size
    }
}

/// A command to a device.
struct Io {
    /// The host's command it belongs to; a fill belongs to none.
    work: usize,
    /// The part of the host's command it covers, in bytes from its start.
    at: u64,
    size: u64,
    /// Whether its buffer is the host's.
    is_direct: bool,
    what: What,
}

enum What {
    /// Blocks from neighbouring slots.
    Hit { block: u64, slot: u32, count: u32, skip: usize, is_clean: bool },
    /// Blocks from the origin, and perhaps some that are read ahead; bit n of `fill` says that
    /// block n is to be filled in.
    Miss { block: u64, skip: usize, fill: Vec<bool> },
    /// Part of a hit that failed on the flash device.
    Retry,
    /// Blocks that were read from the origin, on their way to neighbouring slots.
    Fill { block: u64, slot: u32, count: u32 },
    /// Part of a write.
    ToFlash { first: usize, count: usize },
    /// Part of a write.
    ToOrigin,
    /// The second part of a write through the cache.
    Through { first: usize, count: usize },
    /// A discard or a write of zeroes.
    Range,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Origin,
    Flash,
}

impl Queue {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        queues: &Arc<Queues>,
        depth: usize,
    ) -> Result<Queue, DeviceError> {
        DeviceError::check_depth(&shared.name, depth)?;
        let below = (depth * 4).min(esker_device::MAX_DEPTH).max(depth);
        let pump = Pump {
            shared: shared.clone(),
            geometry: shared.geometry(),
            depth,
            origin: shared.origin.queue_pair(below.min(1024).max(depth))?,
            flash: shared.flash.queue_pair(below.min(1024).max(depth))?,
            to_origin: VecDeque::new(),
            to_flash: VecDeque::new(),
            scratch: Vec::new(),
            works: Slab::new(),
            ios: Slab::new(),
            parked: VecDeque::new(),
            done: Vec::with_capacity(depth),
            in_flight: 0,
            fills: 0,
            ahead: BTreeSet::new(),
            streams: Streams::new(shared.options.sequential_bytes, shared.options.read_ahead_bytes),
            counts: shared.counted.open(),
            known_losses: shared.host_losses(),
            is_entered: false,
        };
        let pump = Arc::new(Mutex::new(pump));
        queues.enter(&pump);
        Ok(Queue { pump, queues: queues.clone() })
    }

    /// Advances commands that other queue pairs have under way, if nobody else does.
    fn help_others(&self) {
        for other in self.queues.all() {
            if !Arc::ptr_eq(&other, &self.pump)
                && let Some(mut pump) = other.try_lock()
            {
                let _ = pump.enter(Pump::pump); // one that is broken has stopped the cache
            }
        }
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        self.pump.lock().enter(|pump| {
            let taken = commands.len().min(pump.depth - pump.in_flight);
            for command in commands.drain(..taken) {
                pump.begin(command);
            }
            pump.pump();
            taken
        })
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.pump.lock().enter(|pump| {
            pump.pump();
            pump.hand_out(done)
        })
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let clock = self.pump.lock().shared.options.clock.clone();
        let start = clock.now();
        loop {
            let mut pump = self.pump.lock();
            let is_over = pump.enter(|pump| {
                pump.pump();
                !pump.done.is_empty() || pump.in_flight == 0
            })?;
            if is_over {
                return Ok(pump.hand_out(done));
            }
            let passed = clock.now() - start;
            if timeout.is_some_and(|timeout| passed >= timeout) {
                return Ok(0);
            }
            let left = timeout.map(|timeout| timeout - passed);
            if !pump.enter(|pump| pump.wait_below(left))? {
                drop(pump);
                self.help_others();
                esker_base::Clock::real().sleep(GLANCE);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.pump.lock().in_flight
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        loop {
            let mut pump = self.pump.lock();
            // A panic has left it as it is: nothing more is to be waited for here.
            let is_over = pump.enter(|pump| {
                pump.pump();
                pump.is_idle()
            });
            if is_over.unwrap_or(true) {
                break;
            }
            if !pump.enter(|pump| pump.wait_below(Some(Duration::from_millis(10)))).unwrap_or(true)
            {
                drop(pump);
                self.help_others();
                esker_base::Clock::real().sleep(GLANCE);
            }
        }
        let pump = self.pump.lock();
        pump.shared.counted.close(&pump.counts);
    }
}

impl Pump {
    /// Works here, unless a thread has panicked at that before.
    pub(crate) fn enter<T>(&mut self, work: impl FnOnce(&mut Pump) -> T) -> Result<T, DeviceError> {
        if self.check_whole().is_err() {
            return Err(self.shared.stopped_queue());
        }
        self.is_entered = true;
        let done = work(self);
        self.is_entered = false;
        Ok(done)
    }

    /// Fails, and stops the cache, if a thread has panicked here: what it held is never let go of.
    pub(crate) fn check_whole(&self) -> Result<(), CacheError> {
        if self.is_entered {
            let why = "a thread has panicked in the middle of a command".to_owned();
            self.shared.stop_for(why, false);
            return self.shared.check_running();
        }
        Ok(())
    }

    fn begin(&mut self, command: Command) {
        self.in_flight += 1;
        let Command { tag, op } = command;
        let geometry = Geometry { capacity: self.origin_capacity(&op), ..self.geometry };
        let checked = op.check(&self.shared.name, &geometry);
        let (kind, (lba, size)) = (op.kind(), op.range(geometry.lba_size));
        let mut work = Work {
            tag,
            kind,
            lba,
            offset: 0,
            size,
            buf: None,
            placement: None,
            fua: false,
            flow: Flow::default(),
            outstanding: 0,
            error: None,
            write: None,
            range: None,
        };
        if let Err(error) = checked {
            work.error = Some(error);
            work.buf = op.into_buf();
            let work = self.works.insert(work);
            return self.complete(work);
        }
        work.offset = lba.offset(geometry.lba_size);
        work.flow = match kind {
            OpKind::Read => self.streams.follow(Access::Read, work.offset, size),
            OpKind::Write => self.streams.follow(Access::Write, work.offset, size),
            _ => Flow::default(),
        };
        match op {
            Op::Read { buf, .. } => work.buf = Some(buf),
            Op::Write { buf, placement, fua, .. } => {
                work.buf = Some(buf);
                work.placement = placement;
                work.fua = fua;
            }
            Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. } => {}
        }
        let work = self.works.insert(work);
        self.start(work);
    }

    /// The origin may have grown; it is asked only when a command lies beyond the known capacity.
    fn origin_capacity(&mut self, op: &Op) -> LbaCount {
        let (lba, bytes) = op.range(self.geometry.lba_size);
        let end = lba.0.saturating_add(bytes / u64::from(self.geometry.lba_size));
        if end > self.geometry.capacity.0 {
            self.geometry.capacity = self.shared.origin.geometry().capacity;
        }
        self.geometry.capacity
    }

    fn start(&mut self, work: usize) {
        if let Err(error) = self.shared.check_running() {
            let Work { kind, lba, size, .. } = self.works[work];
            self.works[work].error = Some(self.shared.as_device_error(error, kind, lba, size));
            return self.complete(work);
        }
        match self.works[work].kind {
            OpKind::Read => self.start_read(work),
            OpKind::Write => self.start_write(work, false),
            OpKind::Discard | OpKind::WriteZeroes => self.start_range(work),
            OpKind::Flush | OpKind::Open => self.flush(work),
        }
    }

    fn flush(&mut self, work: usize) {
        let synced = self.sync();
        let result = self.tell_losses(synced);
        let Work { kind, lba, .. } = self.works[work];
        self.works[work].error =
            result.err().map(|error| self.shared.as_device_error(error, kind, lba, 0));
        self.complete(work);
    }

    /// A flush of the origin that failed for another queue pair fails here, too, once. The host's writes to the origin
    /// may be gone, through whichever queue pair they went.
    fn tell_losses(&mut self, synced: Result<(), CacheError>) -> Result<(), CacheError> {
        let losses = self.shared.host_losses();
        let is_known = std::mem::replace(&mut self.known_losses, losses) == losses;
        if synced.is_ok() && !is_known {
            let why =
                "a flush has failed since the last one here; what was written before may be gone";
            return Err(crate::clean::origin_lost(&self.shared, why).into());
        }
        synced
    }

    /// Everything that was acknowledged is durable when it returns.
    fn sync(&self) -> Result<(), CacheError> {
        let shared = &self.shared;
        if shared.is_lost() {
            shared.catch_up();
            // The origin has all there is, unless something dirty was left on the flash device.
            if shared.owes_dirty() {
                let device = shared.flash.name().to_owned();
                return Err(CacheError::FlashLost { device });
            }
        } else {
            let synced = shared.sync_flash();
            if synced.is_err() && shared.owes_dirty() {
                return synced;
            }
        }
        Ok(shared.flush_origin()?)
    }

    /// Whether nothing is under way: any completions only wait to be handed out.
    pub(crate) fn is_idle(&self) -> bool {
        self.works.is_empty() && self.ios.is_empty()
    }

    /// Works with `shared` from now on; nothing may be under way.
    pub(crate) fn go_on_with(&mut self, shared: &Arc<Shared>) {
        assert!(self.is_idle(), "a command is under way");
        self.shared = shared.clone();
    }

    /// Moves everything on that can be moved on without waiting.
    pub(crate) fn pump(&mut self) {
        loop {
            let mut progress = self.exchange(Side::Flash);
            progress |= self.exchange(Side::Origin);
            for _ in 0..self.parked.len() {
                let work = self.parked.pop_front().expect("counted");
                self.start(work);
                progress |= self.parked.back() != Some(&work);
            }
            if !progress {
                return;
            }
        }
    }

    fn exchange(&mut self, side: Side) -> bool {
        let (queue, commands) = match side {
            Side::Origin => (&mut self.origin, &mut self.to_origin),
            Side::Flash => (&mut self.flash, &mut self.to_flash),
        };
        let mut done = std::mem::take(&mut self.scratch);
        let mut progress = false;
        if !commands.is_empty() {
            match queue.submit(commands) {
                Ok(taken) => progress = taken > 0,
                Err(error) => {
                    // The queue pair is broken: commands that wait for it fail.
                    for Command { tag, op } in commands.drain(..) {
                        let result = Err(error.clone());
                        done.push(Completion { tag, result, buf: op.into_buf() });
                    }
                }
            }
        }
        if queue.in_flight() > 0 {
            // Of a broken queue pair nothing more is to be had.
            let _ = queue.poll(&mut done);
        }
        progress |= !done.is_empty();
        for completion in done.drain(..) {
            self.finish_io(completion, side);
        }
        self.scratch = done;
        progress
    }

    /// Waits below until something may have finished; false when nothing is under way there.
    pub(crate) fn wait_below(&mut self, left: Option<Duration>) -> bool {
        let (flash, origin) = (self.flash.in_flight(), self.origin.in_flight());
        let (side, limit) = match (flash > 0, origin > 0) {
            (false, false) => return false,
            (true, true) => (Side::Flash, Some(left.map_or(GLANCE, |left| left.min(GLANCE)))),
            // Others may wait for slots that this queue pair holds only while someone can help: so it does not sleep
            // forever.
            (true, false) => (Side::Flash, left),
            (false, true) => (Side::Origin, left),
        };
        let limit = if self.parked.is_empty() { limit } else { Some(GLANCE) };
        let mut done = std::mem::take(&mut self.scratch);
        let queue = match side {
            Side::Origin => &mut self.origin,
            Side::Flash => &mut self.flash,
        };
        let _ = queue.wait(&mut done, limit);
        for completion in done.drain(..) {
            self.finish_io(completion, side);
        }
        self.scratch = done;
        true
    }

    fn finish_io(&mut self, completion: Completion, side: Side) {
        let Completion { tag, result, buf } = completion;
        let io = self.ios.remove(to_usize(tag.0));
        if result.is_err() {
            let counter = match side {
                Side::Origin => &self.counts.origin_errors,
                Side::Flash => &self.counts.flash_errors,
            };
            add(counter, 1);
        }
        match &io.what {
            What::Hit { .. } | What::Miss { .. } | What::Retry => self.finish_read(io, result, buf),
            What::Fill { .. } => self.finish_fill(&io, result),
            What::ToFlash { .. } | What::ToOrigin | What::Through { .. } => {
                self.finish_write_io(io, result, buf);
            }
            What::Range => {
                self.works[io.work].error = result.err();
                self.finish_range(io.work);
            }
        }
    }

    fn hand_out(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.done.len();
        self.in_flight -= count;
        done.append(&mut self.done);
        count
    }
}

impl Shared {
    /// While the flash device is away, the origin may be written although the medium still calls
    /// something clean. As soon as it can, the medium is told that no clean name counts.
    pub(crate) fn catch_up(&self) {
        if self.has_missed_writes() {
            let mut store = self.store.lock();
            let missed = self.watch.missed();
            let updated = store.update(|superblock| {
                superblock.clean_epoch += 1;
                superblock.origin.armed &= !missed;
            });
            match updated {
                // Nothing counts of a detached cache.
                Ok(()) | Err(CacheError::Detached { .. }) => {
                    self.watch.disarm(missed);
                    self.caught_up();
                }
                Err(_) => {}
            }
        }
    }

    /// Whether a write may go to the origin although the flash device, which has just failed, names the old content
    /// there. It may when nothing dirty is there, and nothing is cached from then on.
    pub(crate) fn may_miss_writes(&self) -> bool {
        if self.owes_dirty() {
            return false;
        }
        self.store.lock().abandon();
        self.lose();
        self.miss_write();
        self.catch_up();
        true
    }

    /// Whether a write may pass over a set that cannot be read: nothing dirty is in it, and no name that
    /// counts, once that is said.
    pub(crate) fn may_pass_over_unread(&self) -> bool {
        self.unread_dirty() == 0 && self.may_miss_writes()
    }
}

/// The flash device fails for as long as it is asked: nothing is cached then.
pub(crate) fn lost(shared: &Shared, lba: Lba, bytes: u64, op: OpKind) -> DeviceError {
    let why = "this block is dirty, and the flash device that has it has failed".to_owned();
    DeviceError::new(&shared.name, op, lba, bytes, Cause::Media(why))
}
