//! One command at a time over a queue pair, for callers that have nothing else to do meanwhile,
//! and a pool of such ports for many threads.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use esker_base::sync::{Condvar, Mutex};
use esker_base::{AlignedBuf, Lba, LbaCount};

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
    ports: Mutex<Ports>,
    /// Signalled when a port comes back, or does not.
    returned: Condvar,
}

#[derive(Default)]
struct Ports {
    free: Vec<Port>,
    /// How many are handed out, or being opened.
    out: usize,
}

impl PortPool {
    /// A pool of ports of `device` with `depth` commands each; ports are opened when needed.
    #[must_use]
    pub fn new(device: Arc<dyn Device>, depth: usize) -> PortPool {
        PortPool { device, depth, ports: Mutex::default(), returned: Condvar::new() }
    }

    /// The device behind the pool.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// A port, which goes back to the pool when dropped. Where the device has no more queue pairs to give, it
    /// is one that another thread gives back: so nobody may ask for a second one.
    ///
    /// # Errors
    /// The device's, when it has no queue pair to give and nobody has a port.
    pub fn port(&self) -> Result<PooledPort<'_>, DeviceError> {
        let free = {
            let mut ports = self.ports.lock();
            ports.out += 1;
            ports.free.pop()
        };
        // Others come and go while one is opened.
        let opened = free.map_or_else(|| Port::open(&*self.device, self.depth), Ok);
        let port = opened.or_else(|refused| self.await_port(refused))?;
        Ok(PooledPort { pool: self, port: Some(port) })
    }

    /// A port that comes back; `refused`, by which another could not be opened, when nobody has one.
    fn await_port(&self, refused: DeviceError) -> Result<Port, DeviceError> {
        let mut ports = self.ports.lock();
        ports.out -= 1;
        self.returned.notify_all();
        loop {
            if let Some(port) = ports.free.pop() {
                ports.out += 1;
                return Ok(port);
            }
            if ports.out == 0 {
                return Err(refused);
            }
            self.returned.wait(&mut ports);
        }
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
        let is_whole = self.batch.is_empty() && self.queue.in_flight() == 0;
        let whole = self.port.take_if(|_| is_whole);
        {
            let mut ports = self.pool.ports.lock();
            ports.out -= 1;
            ports.free.extend(whole);
        }
        self.pool.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceStats, Geometry, MemoryDevice, OpKind};
    use std::sync::atomic::{AtomicUsize, Ordering};
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

    /// A device with so many queue pairs.
    struct Frugal(MemoryDevice, AtomicUsize);

    impl Device for Frugal {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
            let less = |left: usize| left.checked_sub(1);
            self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_err(|_| {
                let why = "none left".to_owned();
                DeviceError::invalid(self.name(), OpKind::Open, Lba(0), 0, why)
            })?;
            self.0.queue_pair(depth)
        }
        fn stats(&self) -> DeviceStats {
            self.0.stats()
        }
    }

    #[test]
    fn thread_without_a_queue_pair_waits_for_one_that_another_has() {
        let frugal = |pairs: usize| {
            let memory = MemoryDevice::new("memory", 1 << 20, 4096);
            Arc::new(PortPool::new(Arc::new(Frugal(memory, pairs.into())), 1))
        };
        assert!(frugal(0).port().is_err());
        let pool = frugal(2);
        let flush = |pool: Arc<PortPool>| {
            move || (0..1000).for_each(|_| pool.port().unwrap().flush().unwrap())
        };
        let threads: Vec<_> = (0..6)
            .map(|_| esker_base::thread::spawn("flush", flush(pool.clone())).unwrap())
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(pool.ports.lock().out, 0);
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
