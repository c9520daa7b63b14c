//! One command at a time over a queue pair, for callers that have nothing else to do meanwhile,
//! and a pool of such ports for many threads.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba, LbaCount};
use parking_lot::Mutex;

use crate::{Command, Completion, Device, DeviceError, Op, PlacementId, QueuePair, Tag};

/// A queue pair used synchronously.
pub struct Port {
    queue: Box<dyn QueuePair>,
    batch: VecDeque<Command>,
    done: Vec<Completion>,
}

impl Port {
    /// Opens a port that keeps up to `depth` commands in flight ([`Port::run_all`]).
    ///
    /// # Errors
    /// The device's, when it has no queue pair to give.
    pub fn open(device: &dyn Device, depth: usize) -> Result<Port, DeviceError> {
        Ok(Port { queue: device.queue_pair(depth)?, batch: VecDeque::new(), done: Vec::new() })
    }

    /// Reads `buf.len()` bytes from `lba` on.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&mut self, lba: Lba, buf: AlignedBuf) -> Result<AlignedBuf, DeviceError> {
        Ok(self.run(Op::Read { lba, buf })?.expect("a read carries a buffer"))
    }

    /// Writes `buf` from `lba` on, and gives the buffer back.
    ///
    /// # Errors
    /// The device's.
    pub fn write(
        &mut self,
        lba: Lba,
        buf: AlignedBuf,
        placement: Option<PlacementId>,
    ) -> Result<AlignedBuf, DeviceError> {
        let op = Op::Write { lba, buf, placement, fua: false };
        Ok(self.run(op)?.expect("a write carries a buffer"))
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// The device's; nothing is durable then.
    pub fn flush(&mut self) -> Result<(), DeviceError> {
        self.run(Op::Flush).map(drop)
    }

    /// Says that the content of a range is no longer needed.
    ///
    /// # Errors
    /// The device's.
    pub fn discard(&mut self, lba: Lba, count: LbaCount) -> Result<(), DeviceError> {
        self.run(Op::Discard { lba, count }).map(drop)
    }

    /// Runs one operation to its end and gives its buffer back.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&mut self, op: Op) -> Result<Option<AlignedBuf>, DeviceError> {
        let mut result = Ok(None);
        self.run_all([op], |_, outcome| result = outcome)?;
        result
    }

    /// Runs operations with as many in flight as the depth allows, and hands each one's index and
    /// outcome to `each` as they finish, in any order.
    ///
    /// # Errors
    /// Only when the queue pair itself is broken; the operations' own errors go to `each`.
    pub fn run_all(
        &mut self,
        ops: impl IntoIterator<Item = Op>,
        mut each: impl FnMut(usize, Result<Option<AlignedBuf>, DeviceError>),
    ) -> Result<(), DeviceError> {
        let numbered = ops.into_iter().zip(0u64..);
        self.batch.extend(numbered.map(|(op, n)| Command { tag: Tag(n), op }));
        loop {
            if !self.batch.is_empty() {
                self.queue.submit(&mut self.batch)?;
            }
            if self.queue.in_flight() == 0 && self.batch.is_empty() {
                return Ok(());
            }
            self.queue.wait(&mut self.done, None)?;
            for completion in self.done.drain(..) {
                let index = esker_base::units::to_usize(completion.tag.0);
                each(index, completion.result.map(|()| completion.buf));
            }
        }
    }
}

/// Ports of one device, handed out to whichever thread needs one.
pub struct PortPool {
    device: Arc<dyn Device>,
    depth: usize,
    free: Mutex<Vec<Port>>,
}

impl PortPool {
    /// A pool of ports of `device` with `depth` commands each; ports are opened when needed.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, depth: usize) -> PortPool {
        PortPool { device, depth, free: Mutex::new(Vec::new()) }
    }

    /// The device behind the pool.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// A port, which goes back to the pool when dropped.
    ///
    /// # Errors
    /// The device's, when it has no queue pair to give.
    pub fn port(&self) -> Result<PooledPort<'_>, DeviceError> {
        // Others come and go while one is opened.
        let free = self.free.lock().pop();
        let port = match free {
            Some(port) => port,
            None => Port::open(&*self.device, self.depth)?,
        };
        Ok(PooledPort { pool: self, port: Some(port) })
    }
}

/// A port out of a [`PortPool`].
pub struct PooledPort<'a> {
    pool: &'a PortPool,
    port: Option<Port>,
}

impl Deref for PooledPort<'_> {
    type Target = Port;
    fn deref(&self) -> &Port {
        self.port.as_ref().expect("present until dropped")
    }
}

impl DerefMut for PooledPort<'_> {
    fn deref_mut(&mut self) -> &mut Port {
        self.port.as_mut().expect("present until dropped")
    }
}

impl Drop for PooledPort<'_> {
    fn drop(&mut self) {
        // A port whose queue pair broke in the middle of a batch must not serve another caller.
        let port = self.port.take().expect("present until dropped");
        if port.batch.is_empty() && port.queue.in_flight() == 0 {
            self.pool.free.lock().push(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceStats, Geometry, MemoryDevice, OpKind};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A device that says when it is asked for a queue pair, and then waits for leave to give one.
    struct Hesitant {
        memory: MemoryDevice,
        asked: Sender<()>,
        leave: Mutex<Receiver<()>>,
    }

    impl Device for Hesitant {
        fn name(&self) -> &str {
            self.memory.name()
        }
        fn geometry(&self) -> Geometry {
            self.memory.geometry()
        }
        fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
            self.asked.send(()).unwrap();
            match self.leave.lock().recv_timeout(Duration::from_secs(10)) {
                Ok(()) => self.memory.queue_pair(depth),
                Err(_) => {
                    let why = "no leave was given".to_owned();
                    Err(DeviceError::invalid(self.name(), OpKind::Open, Lba(0), 0, why))
                }
            }
        }
        fn stats(&self) -> DeviceStats {
            self.memory.stats()
        }
    }

    #[test]
    fn a_port_is_given_back_while_another_is_opened() {
        let ((asked, is_asked), (give_leave, leave)) = (channel(), channel());
        let memory = MemoryDevice::new("memory", 1 << 20, 4096);
        let device = Hesitant { memory, asked, leave: Mutex::new(leave) };
        let pool = Arc::new(PortPool::new(Arc::new(device), 1));
        give_leave.send(()).unwrap();
        let first = pool.port().unwrap();
        is_asked.recv().unwrap();
        let open = {
            let pool = pool.clone();
            move || pool.port().map(drop)
        };
        let second = esker_base::thread::spawn("second", open).unwrap();
        is_asked.recv().unwrap();
        drop(first);
        give_leave.send(()).unwrap();
        second.join().unwrap().unwrap();
    }
}
