//! A device some of whose operations are answered by a test.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::AlignedBuf;
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, Op, QueuePair,
};

/// `inner`, but for operations that `answer` takes: those succeed at once, with the buffer that it
/// gives back. Other operations it hands on. Every queue pair has a clone of it.
pub(crate) struct Answering<A> {
    pub(crate) inner: Arc<dyn Device>,
    pub(crate) answer: A,
}

struct Queue<A> {
    inner: Box<dyn QueuePair>,
    answer: A,
    done: Vec<Completion>,
}

impl<A: Fn(Op) -> Result<AlignedBuf, Op> + Clone + Send + Sync + 'static> Device for Answering<A> {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let (inner, answer) = (self.inner.queue_pair(depth)?, self.answer.clone());
        Ok(Box::new(Queue { inner, answer, done: Vec::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

impl<A: Fn(Op) -> Result<AlignedBuf, Op> + Send> QueuePair for Queue<A> {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len();
        let mut others = VecDeque::new();
        for Command { tag, op } in commands.drain(..) {
            match (self.answer)(op) {
                Ok(buf) => self.done.push(Completion { tag, result: Ok(()), buf: Some(buf) }),
                Err(op) => others.push_back(Command { tag, op }),
            }
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
