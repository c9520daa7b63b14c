//! A device that counts the writes to it, and whose power can be cut.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::Lba;
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Geometry, Op, OpKind, QueuePair,
};

/// A device behind a switch.
pub(crate) struct Outlet {
    device: Arc<dyn Device>,
    /// Bytes from here on are counted.
    from: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    cuts: AtomicU64,
}

struct Queue {
    inner: Box<dyn QueuePair>,
    from: u64,
    lba_size: u32,
    shared: Arc<Shared>,
    /// Power cuts before it was opened.
    cuts: u64,
}

impl Outlet {
    pub(crate) fn new(device: Arc<dyn Device>, from: u64) -> Arc<Outlet> {
        Arc::new(Outlet { device, from, shared: Arc::default() })
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Cuts the power, and gives it again: any holder of the open device has lost it.
    pub(crate) fn cut(&self) {
        self.shared.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Device for Outlet {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue {
            inner: self.device.queue_pair(depth)?,
            from: self.from,
            lba_size: self.geometry().lba_size,
            cuts: self.shared.cuts.load(Ordering::Relaxed),
            shared: self.shared.clone(),
        }))
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        if self.shared.cuts.load(Ordering::Relaxed) != self.cuts {
            let gone = Cause::Gone("the power was cut".to_owned());
            return Err(DeviceError::new("outlet", OpKind::Open, Lba(0), 0, gone));
        }
        let counted = |command: &Command| match &command.op {
            Op::Write { lba, buf, .. } if lba.offset(self.lba_size) >= self.from => {
                buf.len() as u64
            }
            _ => 0,
        };
        let bytes = commands.iter().map(counted).sum();
        let all = commands.len();
        let taken = self.inner.submit(commands)?;
        assert_eq!(taken, all, "a drive has one command at a time in flight");
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.inner.poll(done)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.inner.wait(done, timeout)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
