//! One state that a crash may leave.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use esker_base::ErrorKind;
use esker_device::immediate::{Execute, Immediate};
use esker_device::{
    Command, Completion, Counters, Device, DeviceError, DeviceStats, Geometry, Identity,
    MemoryDevice, Op, QueuePair,
};
use parking_lot::Mutex;
use thiserror::Error;

use crate::contents::Contents;
use crate::history::{Event, History, Payload, Pending, Replay};
use crate::lba_set::LbaSet;

impl History {
    /// The image that `id` describes.
    ///
    /// # Errors
    /// When this history has no such crash point, or an operation that is to be kept was not
    /// submitted by then, or is durable: `id` belongs to another history.
    pub fn image(&self, id: &ImageId) -> Result<Image, BadImageId> {
        if id.point > self.len() {
            return Err(BadImageId::new(id, "the history is shorter"));
        }
        let mut replay = Replay::new(self);
        while replay.point() < id.point {
            replay.step();
        }
        let unflushed = replay.unflushed();
        let known = |operation| unflushed.iter().any(|p| p.operation == operation);
        if !id.kept.iter().all(|kept| known(kept.operation)) {
            return Err(BadImageId::new(id, "it keeps an operation that was not pending there"));
        }
        Ok(Image::new(self, id.clone(), replay.fork(), unflushed.into()))
    }
}

/// The name of an image: with the history it belongs to, it says everything about it.
///
/// Displayed and parsed as `point 17 keep 3 5[0-1,4]`: crash after 17 events; of the operations
/// that were not durable then, number 3 is there, LBAs 0, 1 and 4 of number 5 are, and no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageId {
    /// How many events happened before the crash.
    pub point: usize,
    /// The operations that are there although they were not durable.
    pub kept: Vec<Kept>,
}

/// An operation that outlived the crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// Its number, in the order of submission of writes and discards of all devices.
    pub operation: usize,
    /// The LBAs that are there, counted from its first; `None` for all.
    pub lbas: Option<LbaSet>,
}

/// An image's name that says nothing, or nothing of this history.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{id}' names no crash image: {why}; take the name from a failure of the same run")]
pub struct BadImageId {
    id: String,
    why: &'static str,
}

impl BadImageId {
    pub(crate) fn new(id: &dyn fmt::Display, why: &'static str) -> BadImageId {
        let id = id.to_string();
        BadImageId { id, why }
    }

    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "point {} keep", self.point)?;
        if self.kept.is_empty() {
            return f.write_str(" nothing");
        }
        for Kept { operation, lbas } in &self.kept {
            write!(f, " {operation}")?;
            if let Some(lbas) = lbas {
                write!(f, "[{lbas}]")?;
            }
        }
        Ok(())
    }
}

impl FromStr for ImageId {
    type Err = BadImageId;

    fn from_str(text: &str) -> Result<ImageId, BadImageId> {
        let bad = || BadImageId::new(&text, "expected 'point 17 keep 3 5[0-1,4]'");
        let (point, kept) = text
            .strip_prefix("point ")
            .and_then(|rest| rest.split_once(" keep "))
            .ok_or_else(bad)?;
        let parse = |word: &str| {
            let (operation, lbas) = match word.split_once('[') {
                Some((operation, lbas)) => {
                    let lbas = lbas.strip_suffix(']')?.parse().ok()?;
                    (operation, Some(lbas))
                }
                None => (word, None),
            };
            let operation = operation.parse().ok()?;
            Some(Kept { operation, lbas })
        };
        let words = kept.split(' ').filter(|&word| word != "nothing");
        Ok(ImageId {
            point: point.parse().map_err(|_| bad())?,
            kept: words.map(parse).collect::<Option<Vec<Kept>>>().ok_or_else(bad)?,
        })
    }
}

/// One state that a crash may leave of all devices of a recorder. Displayed for failure messages:
/// its [`ImageId`], and its meaning.
#[derive(Clone)]
pub struct Image {
    history: History,
    id: ImageId,
    durable: Vec<Contents>,
    unflushed: Arc<[Pending]>,
}

impl Image {
    pub(crate) fn new(
        history: &History,
        id: ImageId,
        durable: Vec<Contents>,
        unflushed: Arc<[Pending]>,
    ) -> Image {
        Image { history: history.clone(), id, durable, unflushed }
    }

    /// Its name, to rebuild it with [`History::image`].
    #[must_use]
    pub fn id(&self) -> &ImageId {
        &self.id
    }

    /// The marks that were set before the crash, in order.
    #[must_use]
    pub fn marks(&self) -> &[u64] {
        self.history.marks_before(self.id.point)
    }

    /// A fresh device with the content that the crash left of device `index`, in memory. Writes to it change
    /// neither the image nor any other device.
    ///
    /// # Panics
    /// If the recorder had no such device.
    #[must_use]
    pub fn device(&self, index: usize) -> Arc<dyn Device> {
        let record = &self.history.0;
        let attached = &record.devices[index];
        let mut contents = self.durable[index].clone();
        for pending in &*self.unflushed {
            let operation = &record.operations[pending.operation];
            if operation.device == index {
                let lbas = self.kept(pending);
                operation.apply(&mut contents, &lbas, attached.geometry.lba_size);
            }
        }
        Arc::new(ImageDevice(Arc::new(Shared {
            name: attached.name.clone(),
            geometry: attached.geometry,
            discards_zero: attached.discards_zero,
            identity: attached.identity.clone(),
            contents: Mutex::new(contents),
            counters: Counters::default(),
        })))
    }

    /// The LBAs of a pending operation that are there.
    fn kept(&self, pending: &Pending) -> LbaSet {
        let mut all = self.id.kept.iter();
        match all.find(|kept| kept.operation == pending.operation) {
            None => LbaSet::default(),
            Some(Kept { lbas: None, .. }) => pending.live.clone(),
            Some(Kept { lbas: Some(lbas), .. }) => pending.live.intersection(lbas),
        }
    }

    fn write_operation(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        let operation = &self.history.0.operations[index];
        let kind = match operation.payload {
            Payload::Bytes(_) => "write",
            Payload::Zeroes => "write zeroes",
            Payload::Discard => "discard",
        };
        let name = &self.history.0.devices[operation.device].name;
        write!(
            f,
            "operation {index}, {kind} of {} LBAs at {} of '{name}'",
            operation.count, operation.lba
        )
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.history.0;
        let (point, last) = (self.id.point, self.history.len());
        write!(f, "crash image '{}'\n  event {point} of {last}: ", self.id)?;
        match point.checked_sub(1).map(|event| &record.events[event]) {
            None => f.write_str("the start")?,
            Some(Event::Mark(id)) => write!(f, "mark {id}")?,
            Some(Event::Flushed { device, .. }) => {
                write!(f, "flush of '{}'", record.devices[*device].name)?;
            }
            Some(Event::Completed { operation, failed }) => {
                self.write_operation(f, *operation)?;
                f.write_str(if *failed { " failed" } else { " completed" })?;
            }
        }
        for pending in &*self.unflushed {
            f.write_str("\n  ")?;
            self.write_operation(f, pending.operation)?;
            let kept = self.kept(pending);
            if kept.is_empty() {
                f.write_str(": lost")?;
            } else if kept == pending.live {
                f.write_str(": kept")?;
            } else {
                write!(f, ": torn, LBAs {kept} kept")?;
            }
        }
        Ok(())
    }
}

/// A device of an image, or one that begins empty: in memory, copy-on-write.
pub struct ImageDevice(Arc<Shared>);

impl ImageDevice {
    /// An empty device of `bytes` bytes in LBAs of `lba_size` bytes.
    #[must_use]
    pub fn new(name: &str, bytes: u64, lba_size: u32) -> ImageDevice {
        let geometry = MemoryDevice::new(name, bytes, lba_size).geometry();
        ImageDevice(Arc::new(Shared {
            name: name.to_owned(),
            geometry,
            discards_zero: true,
            identity: None,
            contents: Mutex::default(),
            counters: Counters::default(),
        }))
    }

    /// Another device with the name and the content that this one has at this moment. Put in its place later, it
    /// is a device that returns stale.
    #[must_use]
    pub fn fork(&self) -> ImageDevice {
        let Shared { name, geometry, discards_zero, identity, contents, .. } = &*self.0;
        ImageDevice(Arc::new(Shared {
            name: name.clone(),
            geometry: *geometry,
            discards_zero: *discards_zero,
            identity: identity.clone(),
            contents: Mutex::new(contents.lock().fork()),
            counters: Counters::default(),
        }))
    }
}

struct Shared {
    name: String,
    geometry: Geometry,
    discards_zero: bool,
    identity: Option<Identity>,
    contents: Mutex<Contents>,
    counters: Counters,
}

impl Device for ImageDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.0.name, depth)?;
        Ok(Box::new(Immediate::new(self.0.clone(), depth)))
    }

    fn discards_zero(&self) -> bool {
        self.0.discards_zero
    }

    fn identity(&self) -> Option<Identity> {
        self.0.identity.clone()
    }

    fn stats(&self) -> DeviceStats {
        self.0.counters.snapshot(&self.0.name)
    }
}

impl Execute for Shared {
    fn execute(&self, Command { tag, mut op }: Command) -> Completion {
        let Shared { name, geometry, contents, counters, .. } = self;
        let result = op.check(name, geometry);
        if result.is_ok() {
            apply(&mut contents.lock(), &mut op, geometry.lba_size);
        }
        counters.count(&op, geometry, &result);
        Completion { tag, result, buf: op.into_buf() }
    }
}

fn apply(contents: &mut Contents, op: &mut Op, lba_size: u32) {
    match op {
        Op::Read { lba, buf } => contents.read(lba.offset(lba_size), buf),
        Op::Write { lba, buf, .. } => contents.write(lba.offset(lba_size), buf),
        Op::Flush => {}
        Op::Discard { lba, count } | Op::WriteZeroes { lba, count } => {
            contents.zero(lba.offset(lba_size)..(*lba + *count).offset(lba_size));
        }
    }
}
