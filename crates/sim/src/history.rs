//! The record of a recorder, and the walk through it that knows, after every event, which
//! operations are durable and which are not.
//!
//! Invariants of the walk (`Replay`)
//! 1. `contents` of a device holds exactly the data that no crash can take away any more.
//! 2. `pending` lists completed operations that are not durable in the order of completion;
//!    `started` those in flight in the order of submission.
//! 3. The `live` LBAs of a pending operation are those that no later durable operation covers:
//!    an older write does not hide a newer one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount, Rng};
use esker_device::{Geometry, Identity};

use crate::contents::Contents;
use crate::lba_set::LbaSet;

/// The operations of a program on its devices, in one order. Cheap to clone.
///
/// It can crash at points `0..=len()`: at point `k` the first `k` events have happened. Events
/// are completed writes and discards, completed flushes, and marks.
#[derive(Clone)]
pub struct History(pub(crate) Arc<Record>);

pub(crate) struct Record {
    pub(crate) devices: Vec<Attached>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) events: Vec<Event>,
    /// Every mark with the number of events up to and including it.
    marks: (Vec<usize>, Vec<u64>),
}

/// A device as it was when it was attached.
pub(crate) struct Attached {
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
    pub(crate) discards_zero: bool,
    pub(crate) identity: Option<Identity>,
    pub(crate) contents: Contents,
}

/// A write, discard or write-zeroes command.
#[derive(Clone)]
pub(crate) struct Operation {
    pub(crate) device: usize,
    pub(crate) lba: Lba,
    pub(crate) count: LbaCount,
    pub(crate) payload: Payload,
    pub(crate) fua: bool,
    /// How many events had happened when it was submitted.
    pub(crate) submitted: usize,
}

/// Data that an operation leaves on its LBAs.
#[derive(Clone)]
pub(crate) enum Payload {
    Bytes(Arc<[u8]>),
    Zeroes,
    Discard,
}

#[derive(Clone)]
pub(crate) enum Event {
    Completed {
        operation: usize,
        failed: bool,
    },
    /// A flush that was submitted after `covers` events.
    Flushed {
        device: usize,
        covers: usize,
    },
    Mark(u64),
}

impl History {
    pub(crate) fn new(
        devices: Vec<Attached>,
        operations: Vec<Operation>,
        mut events: Vec<Event>,
        skipped: &BTreeSet<(usize, u64)>,
    ) -> History {
        let mut flushes = vec![0u64; devices.len()];
        for event in &mut events {
            if let Event::Flushed { device, covers } = event {
                if skipped.contains(&(*device, flushes[*device])) {
                    *covers = 0;
                }
                flushes[*device] += 1;
            }
        }
        let marks = events
            .iter()
            .zip(1..)
            .filter_map(|(event, count)| match event {
                Event::Mark(id) => Some((count, *id)),
                _ => None,
            })
            .unzip();
        History(Arc::new(Record { devices, operations, events, marks }))
    }

    /// How many events there are: the last point at which it can crash.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.events.len()
    }

    /// Whether nothing happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.events.is_empty()
    }

    /// How many flushes of device `device` completed, for a test that skips one after the other.
    #[must_use]
    pub fn flushes(&self, device: usize) -> u64 {
        let mut count = 0;
        for event in &self.0.events {
            count += u64::from(matches!(event, Event::Flushed { device: d, .. } if *d == device));
        }
        count
    }

    /// The marks among the first `point` events, in order.
    #[must_use]
    pub fn marks_before(&self, point: usize) -> &[u64] {
        let (counts, ids) = &self.0.marks;
        &ids[..counts.partition_point(|&count| count <= point)]
    }
}

impl Operation {
    /// Leaves the payload on the LBAs of `lbas`.
    pub(crate) fn apply(&self, contents: &mut Contents, lbas: &LbaSet, lba_size: u32) {
        for run in lbas.runs() {
            let offset = (self.lba + LbaCount(run.start)).offset(lba_size);
            let within = LbaCount(run.start).bytes(lba_size)..LbaCount(run.end).bytes(lba_size);
            match &self.payload {
                Payload::Bytes(bytes) => {
                    contents.write(offset, &bytes[to_usize(within.start)..to_usize(within.end)]);
                }
                Payload::Zeroes | Payload::Discard => {
                    contents.zero(offset..offset + (within.end - within.start));
                }
            }
        }
    }

    /// The part of `other` that this operation covers, as indexes of `other`'s LBAs.
    fn covers(&self, other: &Operation) -> Range<u64> {
        if self.device != other.device {
            return 0..0;
        }
        let end = (self.lba + self.count).0.saturating_sub(other.lba.0);
        self.lba.0.saturating_sub(other.lba.0)..end.min(other.count.0)
    }
}

/// An operation that a crash may take away.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) operation: usize,
    pub(crate) live: LbaSet,
    /// The index of its completion, unless it failed: then no flush makes it durable.
    completed: Option<usize>,
}

/// A walk through a history.
pub(crate) struct Replay {
    history: History,
    point: usize,
    contents: Vec<Contents>,
    pending: Vec<Pending>,
    started: Vec<usize>,
    next_operation: usize,
}

impl Replay {
    pub(crate) fn new(history: &History) -> Replay {
        let devices = &history.0.devices;
        let mut replay = Replay {
            history: history.clone(),
            point: 0,
            contents: devices.iter().map(|d| d.contents.clone()).collect(),
            pending: Vec::new(),
            started: Vec::new(),
            next_operation: 0,
        };
        replay.start();
        replay
    }

    /// How many events have happened.
    pub(crate) fn point(&self) -> usize {
        self.point
    }

    /// Lets the next event happen. Returns whether it can have changed the durable content or the
    /// marks; if not, every state that a crash could leave before it can leave still.
    pub(crate) fn step(&mut self) -> bool {
        let record = self.history.0.clone();
        let mut changed = true;
        match record.events[self.point] {
            Event::Mark(_) => {}
            Event::Completed { operation, failed } => {
                changed = record.operations[operation].fua;
                self.started.retain(|&started| started != operation);
                self.pending.push(Pending {
                    operation,
                    live: LbaSet::range(0..record.operations[operation].count.0),
                    completed: (!failed).then_some(self.point),
                });
                if changed && !failed {
                    self.settle(&record, |pending| pending.operation == operation);
                }
            }
            Event::Flushed { device, covers } => self.settle(&record, |pending| {
                record.operations[pending.operation].device == device
                    && pending.completed.is_some_and(|event| event < covers)
            }),
        }
        self.point += 1;
        self.start();
        changed
    }

    fn start(&mut self) {
        let operations = &self.history.0.operations;
        while let Some(operation) = operations.get(self.next_operation)
            && operation.submitted <= self.point
        {
            self.started.push(self.next_operation);
            self.next_operation += 1;
        }
    }

    /// Makes the chosen pending operations durable.
    fn settle(&mut self, record: &Record, chosen: impl Fn(&Pending) -> bool) {
        let mut left: Vec<Pending> = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            if !chosen(&pending) {
                left.push(pending);
                continue;
            }
            let operation = &record.operations[pending.operation];
            let device = &record.devices[operation.device];
            let lbas = match operation.payload {
                Payload::Discard if !device.discards_zero => {
                    pending.live.intersection(&discarded(&pending, operation))
                }
                _ => pending.live,
            };
            let lba_size = device.geometry.lba_size;
            operation.apply(&mut self.contents[operation.device], &lbas, lba_size);
            for older in &mut left {
                let covered = operation.covers(&record.operations[older.operation]);
                older.live.remove(&covered);
            }
        }
        left.retain(|pending| !pending.live.is_empty());
        self.pending = left;
    }

    /// Returns the operations that a crash now may take away: completed ones, then those in flight.
    pub(crate) fn unflushed(&self) -> Vec<Pending> {
        let in_flight = self.started.iter().map(|&operation| Pending {
            operation,
            live: LbaSet::range(0..self.history.0.operations[operation].count.0),
            completed: None,
        });
        self.pending.iter().cloned().chain(in_flight).collect()
    }

    /// Returns the contents that no crash can take away, device by device.
    pub(crate) fn fork(&mut self) -> Vec<Contents> {
        self.contents.iter_mut().map(Contents::fork).collect()
    }
}

/// The LBAs of a durable discard that read as zeroes: by turns all, none and some.
fn discarded(pending: &Pending, operation: &Operation) -> LbaSet {
    match pending.operation % 3 {
        0 => LbaSet::range(0..operation.count.0),
        1 => LbaSet::default(),
        _ => {
            let mut rng = Rng::new(esker_base::units::to_u64(pending.operation));
            LbaSet::random(operation.count.0, &mut rng)
        }
    }
}
