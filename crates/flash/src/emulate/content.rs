//! Data of an emulated device: on any device, which executes commands at once.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Op, OpKind, QueuePair, Tag,
};

/// The content of an emulated device. Commands are executed one at a time, each to its end.
pub struct Content {
    device: Arc<dyn Device>,
    queue: Box<dyn QueuePair>,
    batch: VecDeque<Command>,
    done: Vec<Completion>,
    /// Stands in for a command's buffer while the device has it.
    spare: Option<AlignedBuf>,
}

impl Content {
    /// Content on `device`.
    ///
    /// # Errors
    /// The device's, when it has no queue pair to give.
    pub fn new(device: Arc<dyn Device>) -> Result<Content, DeviceError> {
        let queue = device.queue_pair(1)?;
        let spare = Some(AlignedBuf::zeroed(0));
        Ok(Content { device, queue, batch: VecDeque::new(), done: Vec::new(), spare })
    }

    /// The device that stores it.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Statistics of the device that stores it.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    /// Executes `op`, its LBAs counted from `base` on.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&mut self, op: &mut Op, base: LbaCount) -> Result<(), DeviceError> {
        let own = match op {
            Op::Read { lba, buf } => Op::Read { lba: *lba + base, buf: self.lend(buf) },
            Op::Write { lba, buf, placement, fua } => {
                let (lba, placement, fua) = (*lba + base, *placement, *fua);
                Op::Write { lba, buf: self.lend(buf), placement, fua }
            }
            Op::Flush => Op::Flush,
            Op::Discard { lba, count } => Op::Discard { lba: *lba + base, count: *count },
            Op::WriteZeroes { lba, count } => Op::WriteZeroes { lba: *lba + base, count: *count },
        };
        let completion = self.execute(own)?;
        if let (Op::Read { buf, .. } | Op::Write { buf, .. }, Some(own)) = (op, completion.buf) {
            self.spare = Some(mem::replace(buf, own));
        }
        completion.result
    }

    fn lend(&mut self, buf: &mut AlignedBuf) -> AlignedBuf {
        mem::replace(buf, self.spare.take().unwrap_or_else(|| AlignedBuf::zeroed(0)))
    }

    fn execute(&mut self, op: Op) -> Result<Completion, DeviceError> {
        self.batch.push_back(Command { tag: Tag(0), op });
        self.queue.submit(&mut self.batch)?;
        while self.queue.in_flight() > 0 {
            self.queue.wait(&mut self.done, None)?;
        }
        self.done.pop().ok_or_else(|| {
            let cause = Cause::Gone("it took a command and never finished it".to_owned());
            DeviceError::new(self.device.name(), OpKind::Open, Lba(0), 0, cause)
        })
    }
}
