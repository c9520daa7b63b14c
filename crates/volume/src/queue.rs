//! A volume as a device. Commands are started when they are submitted and moved on whenever the queue pair is polled:
//! its reads on queue pairs of the drives of its own, its writes in frames of the write buffer that all queue pairs share.
//! Sees `read`, `admission`, `append` and what is below.
//!
//! An acknowledged write is durable: a volume has no volatile write cache, and a flush has nothing to do.

mod placement;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::pace::Rate;
use esker_base::units::{to_u64, to_usize};
use esker_base::{Clock, ErrorKind, Lba, LbaCount, Nanos};
use esker_device::{
    Cause, Command, Completion, Counters, DataPlacement, Device, DeviceError, DeviceStats, Fact,
    Geometry, Identity, Op, OpKind, QueuePair, Tag,
};

use crate::buffer::ring::frame_bytes;
use crate::commit::{self, State};
use crate::drive::{Io, Lanes};
use crate::engine::{Batch, Begun, Core, Found, Front, Outbox, Seen, Shared};
use crate::keep;
use crate::omf::frame::Record;
use crate::omf::label::Role;
use crate::read::{ReadDone, Reads};
use crate::space::HANDLES;
use crate::stats::{Stage, Tally};
use crate::types::error::VolumeError;
use crate::types::id::{Block, LineageId, Seqno, SnapshotId, VolumeId};
use crate::types::options::{Maintenance, VolumeOptions};
use crate::types::{BLOCK, LEAF_BLOCKS, NODE_LEAVES};
use crate::{admission, append};

/// How long drives, or the log, are waited for while others are.
const GLANCE: Duration = Duration::from_micros(20);
/// The same where nothing else is waited for.
const LONG_GLANCE: Duration = Duration::from_millis(1);
/// The longest that a queue pair sleeps before it looks at everything.
const LOOK: Duration = Duration::from_millis(10);

/// Blocks of a node of the map.
const NODE_BLOCKS: u64 = LEAF_BLOCKS * NODE_LEAVES;

/// A volume of an open pool.
pub(crate) struct Volume {
    shared: Arc<Shared>,
    name: String,
    view: View,
    counters: Arc<Counters>,
    tally: Arc<Tally>,
}

/// The view that a device shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    /// A volume, as it is.
    Volume(VolumeId),
    /// A snapshot, read-only.
    Snapshot(SnapshotId),
}

impl Volume {
    /// A volume, or one of its snapshots.
    pub(crate) fn new(shared: Arc<Shared>, view: View, volume: VolumeId, name: &str) -> Volume {
        let name = format!("{}/{name}", shared.name);
        let tally = shared.tallies.of(volume);
        Volume { shared, name, view, counters: Arc::default(), tally }
    }
}

impl Device for Volume {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> Geometry {
        let core = self.shared.core.lock();
        let (blocks, placement_handles) = match self.view {
            View::Volume(id) => {
                (core.catalog.volumes.get(&id).map(|row| row.blocks), HANDLES.into())
            }
            View::Snapshot(id) => (core.catalog.snapshots.get(&id).map(|row| row.blocks), 0),
        };
        let capacity = LbaCount(blocks.unwrap_or(0));
        Geometry { capacity, placement_handles, ..self.shared.geometry }
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.name, depth)?;
        let mut queue = Queue::new(self, depth);
        queue.lanes.open()?;
        Ok(Box::new(queue))
    }

    fn discards_zero(&self) -> bool {
        true
    }

    /// The pool's id and the volume's, both for ever.
    fn identity(&self) -> Option<Identity> {
        let pool = self.shared.fleet.pool;
        let id = match self.view {
            View::Volume(id) => format!("{pool}-v{}", id.0),
            View::Snapshot(id) => format!("{pool}-s{}", id.0),
        };
        Some(Identity::default().with(Fact::Uuid, &id))
    }

    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        match self.view {
            View::Volume(_) => Some(self),
            View::Snapshot(_) => None,
        }
    }

    fn stats(&self) -> DeviceStats {
        let mut stats = self.counters.snapshot(&self.name);
        for role in [Role::Buffer, Role::Drive] {
            let drives = self.shared.fleet.serving(role);
            stats.below.extend(drives.iter().map(|drive| drive.device.stats()));
        }
        stats
    }
}

/// A queue pair. Reads and writes are started when they are submitted, and moved on when it is polled; none waits for
/// another one. Long ranges of zeroes are executed at once: they change the map leaf by leaf.
struct Queue {
    shared: Arc<Shared>,
    name: String,
    view: View,
    counters: Arc<Counters>,
    tally: Arc<Tally>,
    /// When each command was submitted that was not handed back.
    begun: BTreeMap<Tag, Nanos>,
    depth: usize,
    /// Commands that were taken and not handed back.
    count: usize,
    done: Vec<Completion>,
    lanes: Lanes,
    reads: Reads,
    /// Commands that change blocks, and wait for a frame or for its end.
    changing: usize,
    outbox: Arc<Outbox>,
    /// Commands that the volume's limits hold back, and until when, on the pool's clock.
    held: VecDeque<(Nanos, Command)>,
    /// Counts the timeouts of waits.
    time: Clock,
    /// A command whose latency is measured: one at a time tells enough.
    sample: Option<(Tag, Begun)>,
}

impl Queue {
    fn new(volume: &Volume, depth: usize) -> Queue {
        Queue {
            shared: volume.shared.clone(),
            name: volume.name.clone(),
            view: volume.view,
            counters: volume.counters.clone(),
            tally: volume.tally.clone(),
            begun: BTreeMap::new(),
            depth,
            count: 0,
            done: Vec::with_capacity(depth),
            lanes: Lanes::new(volume.shared.fleet.clone()),
            reads: Reads::new(volume.tally.clone()),
            changing: 0,
            outbox: Arc::default(),
            held: VecDeque::new(),
            time: Clock::real(),
            sample: None,
        }
    }

    /// The view that the device shows now, how many blocks it has, and its limits.
    fn seen(&self, core: &Core) -> Result<(Seen, u64, VolumeOptions), VolumeError> {
        self.shared.check_sound(core)?;
        let seen = match self.view {
            View::Volume(id) => {
                let row = core.catalog.volumes.get(&id).filter(|row| row.trashed.is_none());
                row.map(|row| {
                    (Seen { lineage: row.lineage, at: Seqno::HEAD }, row.blocks, row.options)
                })
            }
            View::Snapshot(id) => core.catalog.snapshots.get(&id).map(|row| {
                let seen = Seen { lineage: row.lineage, at: row.at };
                (seen, row.blocks, VolumeOptions::default())
            }),
        };
        seen.ok_or_else(|| VolumeError::NotFound {
            what: "volume",
            name: self.name.clone(),
            hint: "",
        })
    }

    /// Starts commands, as far as the volume's limits let them through, or all that have waited for that.
    fn take(&mut self, commands: impl Iterator<Item = Command>, have_waited: bool) {
        let shared = self.shared.clone();
        let mut core = shared.core.lock();
        let (seen, blocks, options) = match self.seen(&core) {
            Ok(seen) => seen,
            Err(error) => {
                drop(core);
                for Command { tag, op } in commands {
                    let result = match op {
                        Op::Flush => Ok(()),
                        _ => Err(self.as_device_error(&error, &op)),
                    };
                    self.complete(tag, op, result);
                }
                return;
            }
        };
        let geometry = Geometry { capacity: LbaCount(blocks), ..shared.geometry };
        let has_limits = !have_waited && (options.iops_limit > 0 || options.bytes_limit > 0);
        let (mut changes, mut ranges) = (Vec::new(), Vec::new());
        for command in commands {
            if let Err(error) = command.op.check(&self.name, &geometry) {
                self.complete(command.tag, command.op, Err(error));
                continue;
            }
            if has_limits && let Some(until) = self.held_until(&options, &command.op) {
                self.held.push_back((until, command));
                continue;
            }
            let Command { tag, op } = command;
            match op {
                Op::Read { lba, buf } => {
                    self.reads.begin(&shared, &mut core, seen, tag, lba, buf);
                }
                Op::Flush => self.complete(tag, op, Ok(())),
                Op::Discard { count, .. } | Op::WriteZeroes { count, .. }
                    if count.0 >= 2 * LEAF_BLOCKS =>
                {
                    ranges.push((tag, op));
                }
                op => changes.push((tag, op)),
            }
        }
        drop(core);
        if !changes.is_empty() {
            self.change(changes);
        }
        if !ranges.is_empty() {
            let mut io = shared.ios.take();
            for (tag, op) in ranges {
                let result = self.zero_range(&mut io, &op);
                let result = result.map_err(|error| self.as_device_error(&error, &op));
                self.complete(tag, op, result);
            }
        }
    }

    /// Until when the volume's limits hold a command back.
    fn held_until(&self, options: &VolumeOptions, op: &Op) -> Option<Nanos> {
        let View::Volume(id) = self.view else { return None };
        let bytes = match op {
            Op::Read { buf, .. } | Op::Write { buf, .. } => to_u64(buf.len()),
            _ => 0,
        };
        let now = self.shared.options.clock.now();
        let rate = Rate { operations: options.iops_limit, bytes: options.bytes_limit };
        let wait = self.shared.paces.lock().entry(id).or_default().pass(rate, now, 1, bytes);
        (wait > Duration::ZERO).then(|| now + wait)
    }

    /// Starts what was held back long enough.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = self.shared.options.clock.now();
        let over = self.held.partition_point(|(until, _)| *until <= now);
        if over == 0 {
            return;
        }
        let commands: Vec<Command> = self.held.drain(..over).map(|(_, command)| command).collect();
        for since in commands.iter().filter_map(|command| self.begun.get(&command.tag)) {
            self.tally.spend(Stage::Limit, now.since(*since));
        }
        self.take(commands.into_iter(), true);
    }

    /// Writes and short ranges of zeroes: into the inbox, as many in a batch as a frame holds.
    fn change(&mut self, changes: Vec<(Tag, Op)>) {
        let shared = self.shared.clone();
        let View::Volume(volume) = self.view else {
            let error = VolumeError::Invalid("a snapshot is read-only; clone it".to_owned());
            for (tag, op) in changes {
                let result = Err(self.as_device_error(&error, &op));
                self.complete(tag, op, result);
            }
            return;
        };
        let bytes: usize = changes.iter().map(|(_, op)| op.buf_len()).sum();
        if bytes > 0
            && let Err(error) = self.admit(&changes, to_u64(bytes))
        {
            for (tag, op) in changes {
                let result = Err(self.as_device_error(&error, &op));
                self.complete(tag, op, result);
            }
            return;
        }
        self.changing += changes.len();
        let largest = to_usize(shared.geometry.max_transfer_size.into());
        let batch = |changes: Vec<(Tag, Op)>| {
            let bytes = to_u64(changes.iter().map(|(_, op)| op.buf_len()).sum());
            let (outbox, tally) = (self.outbox.clone(), self.tally.clone());
            Batch { volume, changes, bytes, outbox, tally }
        };
        if bytes <= largest && frame_bytes(bytes, changes.len()) <= frame_bytes(largest, 1) {
            shared.inbox.lock().push_back(batch(changes));
            return;
        }
        let one = |change| batch(vec![change]);
        shared.inbox.lock().extend(changes.into_iter().map(one));
    }

    /// Refuses writes for which there is no room.
    fn admit(&self, changes: &[(Tag, Op)], bytes: u64) -> Result<(), VolumeError> {
        let shared = &self.shared;
        let fits = admission::fits(shared, bytes);
        if !fits {
            let clock = &shared.options.clock;
            let start = clock.now();
            let mut io = shared.ios.take();
            let admitted = admission::admit(shared, &mut io, bytes, |io| {
                changes.iter().all(|(_, op)| match op {
                    Op::Write { lba, buf, .. } => {
                        self.is_mapped(io, lba.0, to_u64(buf.len()) / BLOCK)
                    }
                    _ => true,
                })
            });
            self.tally.spend(Stage::Buffer, clock.now().since(start));
            admitted?;
        }
        shared.admitted.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The lineage that the volume writes to.
    fn lineage(&self) -> Result<LineageId, VolumeError> {
        match self.view {
            View::Volume(_) => Ok(self.seen(&self.shared.core.lock())?.0.lineage),
            View::Snapshot(_) => {
                Err(VolumeError::Invalid("a snapshot is read-only; clone it".to_owned()))
            }
        }
    }

    /// Whether all of these blocks have content, which writing would replace.
    fn is_mapped(&self, io: &mut Io, first: u64, blocks: u64) -> bool {
        let Ok(lineage) = self.lineage() else { return false };
        let mut core = self.shared.core.lock();
        (first..first + blocks).all(|block| {
            let found = core.find(io, Seen { lineage, at: Seqno::HEAD }, Block(block));
            !matches!(found, Ok(Found::Zero) | Err(_))
        })
    }

    /// Zeroes a long range: its leaves are changed at once, some of them at a time.
    fn zero_range(&self, io: &mut Io, op: &Op) -> Result<(), VolumeError> {
        let (lba, bytes) = op.range(4096);
        let end = lba.0 + bytes / BLOCK;
        let mut start = lba.0;
        while start < end {
            let lineage = self.lineage()?;
            let used = self.shared.core.lock().next_used(lineage, start / LEAF_BLOCKS);
            let piece = used.map_or(end, |leaf| end.min((leaf / NODE_LEAVES + 1) * NODE_BLOCKS));
            zero(&self.shared, io, lineage, start..piece)?;
            start = piece;
        }
        Ok(())
    }

    /// Moves everything on, as far as it goes without waiting.
    fn turn(&mut self) {
        let shared = self.shared.clone();
        self.release();
        if self.reads.count() > 0 || self.lanes.in_flight() > 0 {
            self.reads.turn(&shared, &mut self.lanes);
        }
        for ReadDone { tag, lba, buf, result } in std::mem::take(&mut self.reads.done) {
            let op = Op::Read { lba, buf };
            let result = result.map_err(|error| self.as_device_error(&error, &op));
            self.complete(tag, op, result);
        }
        if self.changing > 0 {
            self.write_on();
        }
    }

    /// Moves the end of the log on, unless somebody else does, and takes what has become of this one's changes.
    fn write_on(&mut self) {
        let shared = self.shared.clone();
        let state = shared.front.try_lock().map(|mut front| commit::advance(&shared, &mut front));
        if state == Some(State::Full) {
            let start = shared.options.clock.now();
            make_room(&shared);
            self.tally.spend(Stage::Buffer, shared.options.clock.now().since(start));
        }
        let told = std::mem::take(&mut *self.outbox.lock());
        for (changes, result) in told {
            self.changing -= changes.len();
            for (tag, op) in changes {
                let result = match &result {
                    Ok(()) => Ok(()),
                    Err(error) => Err(self.as_device_error(error, &op)),
                };
                self.complete(tag, op, result);
            }
        }
    }

    /// Waits for something to happen, up to so long.
    fn sleep(&mut self, left: Duration) {
        let shared = self.shared.clone();
        let clock = &shared.fleet.clock;
        let held = self.held.front().map(|(until, _)| until.since(clock.now()));
        let left = held.map_or(left, |held| held.min(left));
        let (is_reading, is_changing) = (self.lanes.in_flight() > 0, self.changing > 0);
        if is_reading {
            let limit = if is_changing { left.min(GLANCE) } else { left };
            self.reads.wait(&shared, &mut self.lanes, limit);
        }
        if !is_changing {
            if !is_reading {
                clock.sleep(left);
            }
            return;
        }
        let glance = left.min(GLANCE);
        match shared.front.try_lock_for(glance) {
            Some(mut front) if !front.flights.is_empty() => {
                let Front { lanes, arrived, .. } = &mut *front;
                lanes.wait(arrived, if is_reading { glance } else { left.min(LONG_GLANCE) });
            }
            // Somebody makes room.
            Some(front) => {
                drop(front);
                shared.fleet.watch.sleep(glance);
            }
            None => {}
        }
    }

    fn complete(&mut self, tag: Tag, op: Op, result: Result<(), DeviceError>) {
        if let Some((_, begun)) = self.sample.take_if(|(sampled, _)| *sampled == tag) {
            self.shared.load.end(&self.shared.options.clock, begun);
        }
        if let Some(since) = self.begun.remove(&tag) {
            self.tally.end(op.kind(), self.shared.options.clock.now().since(since));
        }
        self.tally.count(&op, &result);
        let (_, bytes) = op.range(4096);
        self.counters.count_kind(op.kind(), bytes, result.is_ok());
        self.done.push(Completion { tag, result, buf: op.into_buf() });
    }

    fn as_device_error(&self, error: &VolumeError, op: &Op) -> DeviceError {
        let (lba, bytes) = op.range(4096);
        as_device_error(&self.name, error, op.kind(), lba, bytes)
    }

    fn hand_back(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.done.len();
        done.append(&mut self.done);
        self.count -= count;
        count
    }
}

/// There is no room for the next frame: makes some, unless the maintenance thread is about it.
fn make_room(shared: &Shared) {
    let made = match shared.options.maintenance {
        Maintenance::Manual => keep::make_room(shared, None, &mut shared.ios.take()),
        Maintenance::Thread => {
            shared.ring();
            let Some(mut keeper) = shared.try_keep() else { return };
            keep::make_room(shared, Some(&mut keeper), &mut shared.ios.take())
        }
    };
    commit::refuse(shared, made.err());
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.count);
        if taken > 0 {
            self.count += taken;
            if self.sample.is_none() {
                let begun = self.shared.load.begin(&self.shared.options.clock);
                self.sample = commands.front().map(|command| (command.tag, begun));
            }
            let now = self.shared.options.clock.now();
            self.begun.extend(commands.iter().take(taken).map(|command| (command.tag, now)));
            self.take(commands.drain(..taken), false);
            self.turn();
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        if self.done.len() < self.count {
            self.turn();
        }
        Ok(self.hand_back(done))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let clock = self.shared.fleet.clock.clone();
        let (began, began_at) = (self.time.now(), clock.now());
        while self.done.is_empty() && self.count > 0 {
            self.turn();
            // Time passes on either clock: a virtual one moves only when somebody waits.
            let passed = self.time.now().since(began);
            let passed = match clock.is_virtual() {
                true => passed.max(clock.now().since(began_at)),
                false => passed,
            };
            let left = timeout.map_or(LOOK, |timeout| timeout.saturating_sub(passed).min(LOOK));
            if !self.done.is_empty() || left.is_zero() {
                break;
            }
            self.sleep(left);
        }
        Ok(self.hand_back(done))
    }

    fn in_flight(&self) -> usize {
        self.count
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Commands that wait for a frame hold buffers that were lent, and have to be handed back. After a panic they may never
        // end.
        let mut done = Vec::new();
        while self.count > 0 && !std::thread::panicking() {
            let _ = self.wait(&mut done, None);
            done.clear();
        }
    }
}

/// Zeroes blocks in the map and in what is pending, durably.
pub(crate) fn zero(
    shared: &Shared,
    io: &mut Io,
    lineage: LineageId,
    blocks: std::ops::Range<u64>,
) -> Result<(), VolumeError> {
    let mut keeper = shared.keep()?;
    let keeper = &mut *keeper;
    let (block, count) = (Block(blocks.start), blocks.end - blocks.start);
    let record = Record::Zero { lineage, block, blocks: count, at_once: true };
    let seqno = append::run(shared, Some(keeper), io, |_| Ok(vec![record.clone()]))?;
    clear(shared, keeper, io, lineage, blocks, seqno)
}

/// Zeroes blocks in the map, some leaves at a time, so that changed leaves never take more memory than there is.
fn clear(
    shared: &Shared,
    keeper: &mut crate::engine::Keeper,
    io: &mut Io,
    lineage: LineageId,
    blocks: std::ops::Range<u64>,
    seqno: Seqno,
) -> Result<(), VolumeError> {
    let mut start = blocks.start;
    while start < blocks.end {
        let has_to_spill = {
            let mut core = shared.core.lock();
            start = core
                .clear(io, lineage, start..blocks.end, seqno)
                .map_err(|broken| shared.damaged(&broken))?;
            core.map.has_to_spill()
        };
        if has_to_spill {
            crate::keep::checkpoint::spill_leaves(shared, keeper, io)?;
        }
    }
    Ok(())
}

/// The pool's error as one of a device.
pub(crate) fn as_device_error(
    name: &str,
    error: &VolumeError,
    op: OpKind,
    lba: Lba,
    bytes: u64,
) -> DeviceError {
    let message = error.to_string();
    let cause = match error.kind() {
        ErrorKind::Invalid => Cause::Invalid(message),
        ErrorKind::Closed | ErrorKind::NotFound => Cause::Gone(message),
        ErrorKind::NoSpace => Cause::Os { kind: ErrorKind::NoSpace, message },
        _ => Cause::Media(message),
    };
    DeviceError::new(name, op, lba, bytes, cause)
}
