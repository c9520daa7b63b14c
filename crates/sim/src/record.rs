//! The recorder: devices that pass every command on to the device they wrap, so that the program
//! runs on. They write down everything that a crash would need to know.
//!
//! All devices of a recorder share one order of events. An operation is written down when it is
//! submitted (from then on it may reach the medium) and again when its completion is handed out
//! (from then on a flush can make it durable).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{
    Command, Completion, Device, DeviceError, Geometry, Op, Port, QueuePair, forward,
};
use parking_lot::Mutex;

use crate::contents::Contents;
use crate::flight::InFlight;
use crate::history::{Attached, Event, History, Operation, Payload};

/// Writes down the operations of its devices. Clones write to the same record.
#[derive(Clone, Default)]
pub struct CrashRecorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    devices: Vec<Recorded>,
    operations: Vec<Operation>,
    events: Vec<Event>,
    skipped: BTreeSet<(usize, u64)>,
}

/// A device of the recorder.
struct Recorded {
    device: Arc<dyn Device>,
    contents: Contents,
    discards_zero: bool,
}

impl CrashRecorder {
    /// An empty record.
    #[must_use]
    pub fn new() -> CrashRecorder {
        CrashRecorder::default()
    }

    /// A crash device over `device`, which is taken to hold nothing yet. Images number devices in
    /// the order of attachment, from 0. It promises nothing of discarded LBAs, whatever `device`
    /// does: in images they hold zeroes or older content.
    #[must_use]
    pub fn attach(&self, device: Arc<dyn Device>) -> Arc<CrashDevice> {
        self.attach_with(device, Contents::default(), false)
    }

    /// Like [`CrashRecorder::attach`], but discards leave zeroes if those of `device` do, in images
    /// too.
    #[must_use]
    pub fn attach_zeroing(&self, device: Arc<dyn Device>) -> Arc<CrashDevice> {
        let discards_zero = device.discards_zero();
        self.attach_with(device, Contents::default(), discards_zero)
    }

    /// Like [`CrashRecorder::attach`] for a device whose first `extent` LBAs hold content, which
    /// is read first: an image to crash again during recovery, say.
    ///
    /// # Errors
    /// The device's, when it cannot be read.
    pub fn attach_holding(
        &self,
        device: Arc<dyn Device>,
        extent: LbaCount,
    ) -> Result<Arc<CrashDevice>, DeviceError> {
        let lba_size = device.geometry().lba_size;
        let mut contents = Contents::default();
        let mut port = Port::open(&*device, 1)?;
        let mut buf = AlignedBuf::zeroed(esker_base::units::to_usize(u64::from(lba_size)));
        for lba in (0..extent.0).map(Lba) {
            buf = port.read(lba, buf)?;
            if buf.iter().any(|&byte| byte != 0) {
                contents.write(lba.offset(lba_size), &buf);
            }
        }
        drop(port);
        let discards_zero = false;
        Ok(self.attach_with(device, contents, discards_zero))
    }

    fn attach_with(
        &self,
        device: Arc<dyn Device>,
        contents: Contents,
        discards_zero: bool,
    ) -> Arc<CrashDevice> {
        let mut record = self.0.lock();
        let index = record.devices.len();
        record.devices.push(Recorded { device: device.clone(), contents, discards_zero });
        Arc::new(CrashDevice { index, device, discards_zero, recorder: self.clone() })
    }

    /// Writes down that the change that `id` stands for was acknowledged here: it must survive
    /// every crash from now on.
    pub fn mark(&self, id: u64) {
        self.0.lock().events.push(Event::Mark(id));
    }

    /// Breaks flush number `n` (from 0) of those that complete on device `device`: it is reported
    /// as done, and the history is as if it had not happened. May be called before or after that
    /// flush. A test whose check still passes does not check durability.
    pub fn skip_flush(&self, device: usize, n: u64) {
        self.0.lock().skipped.insert((device, n));
    }

    /// Returns the history so far. The record goes on.
    #[must_use]
    pub fn history(&self) -> History {
        let record = self.0.lock();
        let devices = record.devices.iter().map(|recorded| Attached {
            name: recorded.device.name().to_owned(),
            geometry: crash_geometry(&*recorded.device),
            discards_zero: recorded.discards_zero,
            identity: recorded.device.identity(),
            contents: recorded.contents.clone(),
        });
        History::new(
            devices.collect(),
            record.operations.clone(),
            record.events.clone(),
            &record.skipped,
        )
    }
}

/// A device whose unflushed writes a crash may lose has a volatile cache, whatever it wraps.
fn crash_geometry(device: &dyn Device) -> Geometry {
    Geometry { volatile_write_cache: true, ..device.geometry() }
}

/// A device that is written down. Statistics and remarks are those of the wrapped device.
pub struct CrashDevice {
    index: usize,
    device: Arc<dyn Device>,
    discards_zero: bool,
    recorder: CrashRecorder,
}

impl CrashDevice {
    /// Its number in the images of its recorder.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Device for CrashDevice {
    fn geometry(&self) -> Geometry {
        crash_geometry(&*self.device)
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue {
            index: self.index,
            device: self.device.clone(),
            recorder: self.recorder.clone(),
            inner: self.device.queue_pair(depth)?,
            depth,
            backlog: VecDeque::new(),
            flight: InFlight::new(),
        }))
    }

    fn discards_zero(&self) -> bool {
        self.discards_zero
    }

    forward!(device: name, identity, stats, remarks);
}

/// Note to write down when a command completes.
enum Note {
    Nothing,
    /// The index of the operation.
    Operation(usize),
    /// How many events there were when the flush was submitted.
    Flush(usize),
}

struct Queue {
    index: usize,
    device: Arc<dyn Device>,
    recorder: CrashRecorder,
    inner: Box<dyn QueuePair>,
    depth: usize,
    /// Written down as submitted, not yet taken by the wrapped device.
    backlog: VecDeque<Command>,
    flight: InFlight<Note>,
}

impl Queue {
    fn note(&self, op: &Op) -> Note {
        let geometry = self.device.geometry(); // anew: a capacity may grow
        if op.check(self.device.name(), &geometry).is_err() {
            return Note::Nothing; // refused before it touches anything
        }
        let (payload, fua) = match op {
            Op::Read { .. } => return Note::Nothing,
            Op::Flush => return Note::Flush(self.recorder.0.lock().events.len()),
            Op::Write { buf, fua, .. } => (Payload::Bytes(Arc::from(&buf[..])), *fua),
            Op::Discard { .. } => (Payload::Discard, false),
            Op::WriteZeroes { .. } => (Payload::Zeroes, false),
        };
        let (lba, bytes) = op.range(geometry.lba_size);
        let mut record = self.recorder.0.lock();
        let submitted = record.events.len();
        record.operations.push(Operation {
            device: self.index,
            lba,
            count: LbaCount(bytes / u64::from(geometry.lba_size)),
            payload,
            fua,
            submitted,
        });
        Note::Operation(record.operations.len() - 1)
    }

    /// Writes completions down and gives them their submitter's tags.
    fn record(&mut self, done: &mut [Completion]) {
        let mut record = self.recorder.0.lock();
        for completion in done {
            let (tag, note) = self.flight.finish(completion.tag);
            completion.tag = tag;
            match (note, &completion.result) {
                (Note::Operation(operation), result) => {
                    record.events.push(Event::Completed { operation, failed: result.is_err() })
                }
                (Note::Flush(covers), Ok(())) => {
                    record.events.push(Event::Flushed { device: self.index, covers })
                }
                (Note::Nothing, _) | (Note::Flush(_), Err(_)) => {}
            }
        }
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut taken = 0;
        while self.flight.len() < self.depth
            && let Some(Command { tag, op }) = commands.pop_front()
        {
            let note = self.note(&op);
            let tag = self.flight.start(tag, note);
            self.backlog.push_back(Command { tag, op });
            taken += 1;
        }
        self.inner.submit(&mut self.backlog)?;
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        if !self.backlog.is_empty() {
            self.inner.submit(&mut self.backlog)?;
        }
        let count = self.inner.poll(done)?;
        let first = done.len() - count;
        self.record(&mut done[first..]);
        Ok(count)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        if !self.backlog.is_empty() {
            self.inner.submit(&mut self.backlog)?;
        }
        let count = self.inner.wait(done, timeout)?;
        let first = done.len() - count;
        self.record(&mut done[first..]);
        Ok(count)
    }

    fn in_flight(&self) -> usize {
        self.flight.len()
    }
}
