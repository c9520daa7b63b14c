//! A device that fails the commands that a test selects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Geometry, Op, QueuePair,
};

type Refuses = Arc<dyn Fn(&Op) -> bool + Send + Sync>;

/// `inner`, but for operations that `refuses` refuses: these never reach it, and fail.
pub(crate) struct Refusing {
    inner: Arc<dyn Device>,
    refuses: Refuses,
}

struct Queue {
    name: String,
    lba_size: u32,
    inner: Box<dyn QueuePair>,
    refuses: Refuses,
    done: Vec<Completion>,
}

/// `inner` with refusals.
pub(crate) fn refusing(
    inner: &Arc<dyn Device>,
    refuses: impl Fn(&Op) -> bool + Send + Sync + 'static,
) -> Arc<dyn Device> {
    Arc::new(Refusing { inner: inner.clone(), refuses: Arc::new(refuses) })
}

impl Device for Refusing {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let (name, lba_size) = (self.name().to_owned(), self.geometry().lba_size);
        let (inner, refuses) = (self.inner.queue_pair(depth)?, self.refuses.clone());
        Ok(Box::new(Queue { name, lba_size, inner, refuses, done: Vec::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len();
        let mut others = VecDeque::new();
        for Command { tag, op } in commands.drain(..) {
            if !(self.refuses)(&op) {
                others.push_back(Command { tag, op });
                continue;
            }
            let (kind, (lba, bytes)) = (op.kind(), op.range(self.lba_size));
            let cause = Cause::Media("refused".into());
            let error = DeviceError::new(&self.name, kind, lba, bytes, cause);
            self.done.push(Completion { tag, result: Err(error), buf: op.into_buf() });
        }
        while !others.is_empty() {
            self.inner.submit(&mut others)?;
            self.inner.poll(&mut self.done)?;
        }
        Ok(count)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.inner.poll(&mut self.done)?;
        let count = self.done.len();
        done.append(&mut self.done);
        Ok(count)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done)
    }
    fn in_flight(&self) -> usize {
        self.done.len() + self.inner.in_flight()
    }
}
