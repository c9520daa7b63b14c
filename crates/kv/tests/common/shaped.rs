//! A device in memory with a geometry of the test's choice. It holds its user to that geometry,
//! and records its commands.

use std::sync::Arc;

use esker_base::Lba;
use esker_base::sync::Mutex;
use esker_device::{
    Device, DeviceError, Geometry, MemoryDevice, Op, OpKind, PlacementId, QueuePair, forward,
};
use esker_sim::{Fate, HookDevice};

/// A command that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) kind: OpKind,
    pub(crate) lba: Lba,
    /// How many bytes it covers.
    pub(crate) bytes: u64,
    /// The first bytes that it writes.
    pub(crate) head: Vec<u8>,
    pub(crate) placement: Option<PlacementId>,
}

#[derive(Clone, Default)]
struct Record(Arc<Mutex<(Vec<Taken>, Vec<DeviceError>)>>);

/// See the head of this file.
pub(crate) struct ShapedDevice {
    inner: HookDevice,
    record: Record,
}

impl ShapedDevice {
    pub(crate) fn new(
        name: &str,
        bytes: u64,
        lba_size: u32,
        shape: impl FnOnce(&mut Geometry),
    ) -> Arc<ShapedDevice> {
        let memory = MemoryDevice::new(name, bytes, lba_size);
        let mut geometry = memory.geometry();
        shape(&mut geometry);
        let (name, record) = (name.to_owned(), Record::default());
        let noted = record.clone();
        let inner = HookDevice::new(Arc::new(memory))
            .with_geometry(move |shown| *shown = geometry)
            .on_command(move |op| match check(&name, &geometry, &noted, op) {
                Ok(()) => Fate::Pass,
                Err(error) => {
                    noted.0.lock().1.push(error.clone());
                    Fate::Fail(error.cause().clone())
                }
            });
        Arc::new(ShapedDevice { inner, record })
    }

    /// The commands taken since the last call.
    pub(crate) fn taken(&self) -> Vec<Taken> {
        std::mem::take(&mut self.record.0.lock().0)
    }

    /// The commands that broke the geometry.
    pub(crate) fn refused(&self) -> Vec<DeviceError> {
        self.record.0.lock().1.clone()
    }
}

impl Device for ShapedDevice {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.inner.queue_pair(depth)
    }

    forward!(inner: name, geometry, stats);
}

/// Notes a command, if it keeps to the geometry.
fn check(name: &str, geometry: &Geometry, record: &Record, op: &Op) -> Result<(), DeviceError> {
    op.check(name, geometry)?;
    let (lba, bytes) = op.range(geometry.lba_size);
    let (head, placement) = match op {
        Op::Write { buf, placement, .. } => (buf[..buf.len().min(16)].to_vec(), *placement),
        _ => (Vec::new(), None),
    };
    if placement.is_some_and(|id| id.0 >= geometry.placement_handles) {
        let why = format!("{placement:?} of {}", geometry.placement_handles);
        return Err(DeviceError::invalid(name, op.kind(), lba, bytes, why));
    }
    record.0.lock().0.push(Taken { kind: op.kind(), lba, bytes, head, placement });
    Ok(())
}
