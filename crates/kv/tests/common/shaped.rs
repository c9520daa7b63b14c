//! A device in memory with a geometry of the test's choice. It holds its user to that geometry,
//! and writes down what it was given to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::Lba;
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, Op, OpKind,
    PlacementId, QueuePair,
};
use parking_lot::Mutex;

/// A command that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) kind: OpKind,
    pub(crate) lba: Lba,
    /// How many bytes it covers.
    pub(crate) bytes: u64,
    /// The first bytes of what it writes.
    pub(crate) head: Vec<u8>,
    pub(crate) placement: Option<PlacementId>,
}

#[derive(Clone, Default)]
struct Record(Arc<Mutex<(Vec<Taken>, Vec<DeviceError>)>>);

/// See the head of this file.
pub(crate) struct ShapedDevice {
    inner: MemoryDevice,
    geometry: Geometry,
    record: Record,
}

impl ShapedDevice {
    pub(crate) fn new(
        name: &str,
        bytes: u64,
        lba_size: u32,
        shape: impl FnOnce(&mut Geometry),
    ) -> Arc<ShapedDevice> {
        let inner = MemoryDevice::new(name, bytes, lba_size);
        let mut geometry = inner.geometry();
        shape(&mut geometry);
        Arc::new(ShapedDevice { inner, geometry, record: Record::default() })
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
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue {
            name: self.inner.name().to_owned(),
            geometry: self.geometry,
            record: self.record.clone(),
            inner: self.inner.queue_pair(depth)?,
            depth,
            refused: Vec::new(),
        }))
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

struct Queue {
    name: String,
    geometry: Geometry,
    record: Record,
    inner: Box<dyn QueuePair>,
    depth: usize,
    refused: Vec<Completion>,
}

impl Queue {
    fn check(&self, op: &Op) -> Result<(), DeviceError> {
        op.check(&self.name, &self.geometry)?;
        let (lba, bytes) = op.range(self.geometry.lba_size);
        let (head, placement) = match op {
            Op::Write { buf, placement, .. } => (buf[..buf.len().min(16)].to_vec(), *placement),
            _ => (Vec::new(), None),
        };
        if placement.is_some_and(|id| id.0 >= self.geometry.placement_handles) {
            let why = format!("{placement:?} of {}", self.geometry.placement_handles);
            return Err(DeviceError::invalid(&self.name, op.kind(), lba, bytes, why));
        }
        self.record.0.lock().0.push(Taken { kind: op.kind(), lba, bytes, head, placement });
        Ok(())
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut taken = 0;
        while self.in_flight() < self.depth
            && let Some(Command { tag, op }) = commands.pop_front()
        {
            match self.check(&op) {
                Ok(()) => drop(self.inner.submit(&mut VecDeque::from([Command { tag, op }]))?),
                Err(error) => {
                    self.record.0.lock().1.push(error.clone());
                    self.refused.push(Completion { tag, result: Err(error), buf: op.into_buf() });
                }
            }
            taken += 1;
        }
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let refused = self.refused.len();
        done.append(&mut self.refused);
        Ok(refused + self.inner.poll(done)?)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done) // everything completes within submit
    }

    fn in_flight(&self) -> usize {
        self.refused.len() + self.inner.in_flight()
    }
}
