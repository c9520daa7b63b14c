//! A stripe: several devices as one, chunk by chunk in turn, with no redundancy and no label of its own.
//!
//! A command that lies within a chunk goes to its drive with the buffer that it has. A longer one has one part on
//! each drive that it touches, because consecutive chunks of a drive are neighbours there.
//!
//! Invariants
//! 1. LBA `n` lies on drive `n / chunk % drives` (`Shared::before`).
//! 2. A command holds its place until all its parts are handed back, and its number is their tag on every drive. A
//!    drive gets one part of it at most, so no queue pair below is ever full.
//! 3. A flush goes to every drive: no other order between them is kept, as the seam asks for none.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};

use crate::{
    Command, Completion, Counters, Device, DeviceError, DeviceStats, Geometry, Identity, Op,
    OpKind, QueuePair, Tag,
};

/// The most drives of a stripe.
const DRIVES_MAX: usize = 256;
/// How long a wait sleeps on one drive while others are busy, too.
const GLANCE: Duration = Duration::from_micros(50);

/// Several devices as one.
pub struct Stripe {
    shared: Arc<Shared>,
    clock: Clock,
}

struct Shared {
    name: String,
    drives: Vec<Arc<dyn Device>>,
    /// LBAs of a chunk.
    chunk: u64,
    counters: Counters,
}

impl Stripe {
    /// A stripe over these drives in this order, which has to be the same whenever it is opened. A drive that is
    /// larger than the smallest one is used as far as that goes.
    ///
    /// # Errors
    /// No drives or too many, LBAs of different sizes, a chunk that is no multiple of an LBA or larger than a drive.
    pub fn new(
        name: &str,
        drives: Vec<Arc<dyn Device>>,
        chunk_bytes: u64,
    ) -> Result<Stripe, DeviceError> {
        let invalid = |why: String| Err(DeviceError::invalid(name, OpKind::Open, Lba(0), 0, why));
        let Some(first) = drives.first().filter(|_| drives.len() <= DRIVES_MAX) else {
            return invalid(format!("a stripe has 1 to {DRIVES_MAX} drives, not {}", drives.len()));
        };
        let lba_size = first.geometry().lba_size;
        if let Some(other) = drives.iter().find(|drive| drive.geometry().lba_size != lba_size) {
            let has = other.geometry().lba_size;
            return invalid(format!(
                "the drives of a stripe have LBAs of one size: {} has {lba_size} bytes, {} has {has}",
                first.name(),
                other.name()
            ));
        }
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(u64::from(lba_size)) {
            return invalid(format!(
                "a chunk has a multiple of {lba_size} bytes, the drives' LBA, not {chunk_bytes}"
            ));
        }
        let chunk = chunk_bytes / u64::from(lba_size);
        if let Some(small) = drives.iter().find(|drive| drive.geometry().capacity.0 < chunk) {
            let has = small.geometry().capacity.bytes(lba_size);
            return invalid(format!(
                "{} of {has} bytes has no room for a chunk of {chunk_bytes}; make chunks smaller",
                small.name()
            ));
        }
        let counters = Counters::default();
        let shared = Arc::new(Shared { name: name.to_owned(), drives, chunk, counters });
        Ok(Stripe { shared, clock: Clock::real() })
    }

    /// The same stripe, whose waits end by this clock: that of its drives, where it is virtual.
    #[must_use]
    pub fn timed_by(self, clock: &Clock) -> Stripe {
        Stripe { clock: clock.clone(), ..self }
    }
}

impl Shared {
    fn geometry(&self) -> Geometry {
        let all = || self.drives.iter().map(|drive| drive.geometry());
        let most = |of: fn(&Geometry) -> u32| all().map(|one| of(&one)).max().unwrap_or(0);
        let smallest = all().map(|one| one.capacity.0).min().unwrap_or(0);
        Geometry {
            lba_size: self.drives[0].geometry().lba_size,
            capacity: LbaCount(smallest / self.chunk * self.chunk * to_u64(self.drives.len())),
            preferred_write_size: most(|one| one.preferred_write_size),
            max_transfer_size: all().map(|one| one.max_transfer_size).min().unwrap_or(0),
            discard_granularity: most(|one| one.discard_granularity),
            placement_handles: all().map(|one| one.placement_handles).min().unwrap_or(0),
            volatile_write_cache: all().any(|one| one.volatile_write_cache),
        }
    }

    /// How many LBAs of a drive lie before an LBA of the stripe.
    fn before(&self, drive: usize, lba: u64) -> u64 {
        let row = self.chunk * to_u64(self.drives.len());
        let own = to_u64(drive) * self.chunk;
        lba / row * self.chunk + (lba % row).saturating_sub(own).min(self.chunk)
    }

    /// Which LBAs of a drive lie in a range of the stripe.
    fn part(&self, drive: usize, range: &Range<u64>) -> Range<u64> {
        self.before(drive, range.start)..self.before(drive, range.end)
    }

    /// Where in the buffer of a range the pieces of a drive lie, in the order in which they lie on the drive.
    fn pieces(&self, drive: usize, range: &Range<u64>) -> impl Iterator<Item = Range<usize>> {
        let row = self.chunk * to_u64(self.drives.len());
        let lba_size = u64::from(self.drives[0].geometry().lba_size);
        let own = to_u64(drive) * self.chunk;
        let (chunk, range) = (self.chunk, range.clone());
        (range.start / row..=(range.end - 1) / row).filter_map(move |number| {
            let start = (number * row + own).max(range.start);
            let end = (number * row + own + chunk).min(range.end);
            let at = |lba: u64| to_usize((lba - range.start) * lba_size);
            (start < end).then(|| at(start)..at(end))
        })
    }
}

impl Shared {
    /// Copies the pieces of a drive out of the buffer of a range.
    fn gather(&self, drive: usize, range: &Range<u64>, whole: &[u8], part: &mut [u8]) {
        let mut at = 0;
        for piece in self.pieces(drive, range) {
            let end = at + piece.len();
            part[at..end].copy_from_slice(&whole[piece]);
            at = end;
        }
    }

    /// Copies the pieces of a drive into the buffer of a range.
    fn scatter(&self, drive: usize, range: &Range<u64>, part: &[u8], whole: &mut [u8]) {
        let mut at = 0;
        for piece in self.pieces(drive, range) {
            let end = at + piece.len();
            whole[piece].copy_from_slice(&part[at..end]);
            at = end;
        }
    }
}

impl Device for Stripe {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.shared.name, depth)?;
        let below = self.shared.drives.iter().map(|drive| {
            let queue = drive.queue_pair(depth)?;
            Ok(Below { queue, batch: VecDeque::with_capacity(depth) })
        });
        Ok(Box::new(Queue {
            below: below.collect::<Result<_, DeviceError>>()?,
            shared: self.shared.clone(),
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            done: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            turn: 0,
            clock: self.clock.clone(),
        }))
    }

    fn discards_zero(&self) -> bool {
        self.shared.drives.iter().all(|drive| drive.discards_zero())
    }

    fn usable_bytes(&self) -> Option<u64> {
        let least = self.shared.drives.iter().filter_map(|drive| drive.usable_bytes()).min()?;
        Some(least.saturating_mul(to_u64(self.shared.drives.len())))
    }

    /// That of the first drive, as the beginning of such a stripe.
    fn identity(&self) -> Option<Identity> {
        let (count, chunk) = (self.shared.drives.len(), self.shared.chunk);
        Some(self.shared.drives[0].identity()?.part(&format!("stripe-{count}-{chunk}")))
    }

    fn stats(&self) -> DeviceStats {
        let below: Vec<DeviceStats> =
            self.shared.drives.iter().map(|drive| drive.stats()).collect();
        let media_written_bytes = below.iter().map(|one| one.media_written_bytes).sum();
        DeviceStats {
            media_written_bytes,
            below,
            ..self.shared.counters.snapshot(&self.shared.name)
        }
    }

    fn remarks(&self) -> Vec<String> {
        self.shared.drives.iter().flat_map(|drive| drive.remarks()).collect()
    }
}

/// A drive, as a queue pair sees it.
struct Below {
    queue: Box<dyn QueuePair>,
    /// Commands that the drive has no room for yet.
    batch: VecDeque<Command>,
}

/// A command that was taken.
struct Place {
    tag: Tag,
    kind: OpKind,
    /// The LBAs that it covers.
    range: Range<u64>,
    /// Its buffer; with the drive while there is one part only.
    whole: Option<AlignedBuf>,
    /// Parts that are not handed back yet.
    left: usize,
    result: Result<(), DeviceError>,
}

struct Queue {
    shared: Arc<Shared>,
    below: Vec<Below>,
    places: Vec<Option<Place>>,
    free: Vec<usize>,
    /// Commands that are finished, and not handed back.
    done: Vec<Completion>,
    arrived: Vec<Completion>,
    /// The drive whose turn it is to be waited for.
    turn: usize,
    clock: Clock,
}

impl Queue {
    fn take(&mut self, tag: Tag, op: Op, geometry: &Geometry) {
        if let Err(error) = op.check(&self.shared.name, geometry) {
            self.shared.counters.count(&op, geometry, &Err(error.clone()));
            self.done.push(Completion { tag, result: Err(error), buf: op.into_buf() });
            return;
        }
        let (lba, bytes) = op.range(geometry.lba_size);
        let range = lba.0..lba.0 + bytes / u64::from(geometry.lba_size);
        let kind = op.kind();
        let shared = self.shared.clone();
        let parts = (0..shared.drives.len()).map(|drive| (drive, shared.part(drive, &range)));
        let parts = parts.filter(|(_, part)| kind == OpKind::Flush || !part.is_empty());
        let left = parts.clone().count();
        let (placement, fua) = match &op {
            Op::Write { placement, fua, .. } => (*placement, *fua),
            _ => (None, false),
        };
        let mut whole = op.into_buf();
        let is_split = left > 1;
        let index = self.free.pop().expect("no more are taken than places are free");
        for (drive, part) in parts {
            let (lba, count) = (Lba(part.start), LbaCount(part.end - part.start));
            let mut buf = || match &whole {
                Some(whole) if is_split => {
                    let mut buf = AlignedBuf::zeroed(to_usize(count.bytes(geometry.lba_size)));
                    if kind == OpKind::Write {
                        shared.gather(drive, &range, whole, &mut buf);
                    }
                    buf
                }
                _ => whole.take().expect("a read or a write has a buffer"),
            };
            let op = match kind {
                OpKind::Read => Op::Read { lba, buf: buf() },
                OpKind::Write => Op::Write { lba, buf: buf(), placement, fua },
                OpKind::Discard => Op::Discard { lba, count },
                OpKind::WriteZeroes => Op::WriteZeroes { lba, count },
                OpKind::Flush | OpKind::Open => Op::Flush,
            };
            self.below[drive].batch.push_back(Command { tag: Tag(to_u64(index)), op });
        }
        let result = Ok(());
        self.places[index] = Some(Place { tag, kind, range, whole, left, result });
    }

    /// Hands the drives the commands that they have room for.
    fn push(&mut self, geometry: &Geometry) {
        for drive in 0..self.below.len() {
            let Below { queue, batch } = &mut self.below[drive];
            if batch.is_empty() {
                continue;
            }
            if let Err(error) = queue.submit(batch) {
                // It takes nothing any more, and commands that were taken here have to end.
                for Command { tag, op } in std::mem::take(batch) {
                    let buf = op.into_buf();
                    self.arrive(
                        drive,
                        Completion { tag, result: Err(error.clone()), buf },
                        geometry,
                    );
                }
            }
        }
    }

    /// Looks at all drives.
    fn look(&mut self, geometry: &Geometry) -> Result<(), DeviceError> {
        self.push(geometry);
        for drive in 0..self.below.len() {
            if self.below[drive].queue.in_flight() > 0 {
                let mut arrived = std::mem::take(&mut self.arrived);
                let result = self.below[drive].queue.poll(&mut arrived);
                self.arrive_all(drive, arrived, geometry);
                result?;
            }
        }
        Ok(())
    }

    /// Sleeps until a drive whose turn it is hands something back, but not for long while others are busy.
    fn sleep(&mut self, left: Option<Duration>, geometry: &Geometry) -> Result<(), DeviceError> {
        let count = self.below.len();
        let is_busy = |queue: &Queue, drive: usize| queue.below[drive].queue.in_flight() > 0;
        let busy = (0..count).filter(|drive| is_busy(self, *drive)).count();
        let mut turns = (1..=count).map(|step| (self.turn + step) % count);
        let Some(drive) = turns.find(|drive| is_busy(self, *drive)) else { return Ok(()) };
        self.turn = drive;
        let limit =
            if busy > 1 { Some(left.map_or(GLANCE, |left| left.min(GLANCE))) } else { left };
        let mut arrived = std::mem::take(&mut self.arrived);
        let result = self.below[drive].queue.wait(&mut arrived, limit);
        self.arrive_all(drive, arrived, geometry);
        result.map(|_| ())
    }

    fn arrive_all(&mut self, drive: usize, mut arrived: Vec<Completion>, geometry: &Geometry) {
        for completion in arrived.drain(..) {
            self.arrive(drive, completion, geometry);
        }
        self.arrived = arrived;
    }

    /// A part of a command is finished.
    fn arrive(&mut self, drive: usize, completion: Completion, geometry: &Geometry) {
        let Completion { tag, result, buf } = completion;
        let index = to_usize(tag.0);
        let place = self.places[index].as_mut().expect("a drive hands back what it was given");
        if place.result.is_ok() {
            place.result = result;
        }
        match (&mut place.whole, buf) {
            (Some(whole), Some(part)) if place.kind == OpKind::Read => {
                self.shared.scatter(drive, &place.range, &part, whole);
            }
            (whole @ None, part) => *whole = part,
            _ => {}
        }
        place.left -= 1;
        if place.left == 0
            && let Some(place) = self.places[index].take()
        {
            self.free.push(index);
            self.finish(place, geometry);
        }
    }

    fn finish(&mut self, place: Place, geometry: &Geometry) {
        let Place { tag, kind, range, whole, result, .. } = place;
        let bytes = LbaCount(range.end - range.start).bytes(geometry.lba_size);
        self.shared.counters.count_kind(kind, bytes, result.is_ok());
        self.done.push(Completion { tag, result, buf: whole });
    }

    fn hand_back(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let geometry = self.shared.geometry();
        let taken = commands.len().min(self.places.len() - self.in_flight());
        for Command { tag, op } in commands.drain(..taken) {
            self.take(tag, op, &geometry);
        }
        self.push(&geometry);
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let geometry = self.shared.geometry();
        self.look(&geometry)?;
        Ok(self.hand_back(done))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let geometry = self.shared.geometry();
        let end = timeout.map(|timeout| self.clock.now() + timeout);
        loop {
            self.look(&geometry)?;
            let left = end.map(|end| end.since(self.clock.now()));
            let is_over = left.is_some_and(|left| left.is_zero());
            if !self.done.is_empty() || is_over || self.in_flight() == 0 {
                return Ok(self.hand_back(done));
            }
            self.sleep(left, &geometry)?;
        }
    }

    fn in_flight(&self) -> usize {
        self.places.len() - self.free.len() + self.done.len()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A command for which the drives have no room was taken all the same: it is executed.
        let mut done = Vec::new();
        while self.free.len() < self.places.len() && self.wait(&mut done, None).is_ok() {
            done.clear();
        }
    }
}
