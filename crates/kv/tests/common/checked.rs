//! A queue pair that refuses commands, for devices of which the test says which commands they take.

use std::collections::VecDeque;
use std::time::Duration;

use esker_device::{Command, Completion, DeviceError, Op, QueuePair};

/// See the head of this file. `check` sees each command before the queue pair below does.
pub(crate) struct Checked<F> {
    inner: Box<dyn QueuePair>,
    depth: usize,
    check: F,
    refused: Vec<Completion>,
}

impl<F: FnMut(&Op) -> Result<(), DeviceError> + Send> Checked<F> {
    pub(crate) fn new(inner: Box<dyn QueuePair>, depth: usize, check: F) -> Checked<F> {
        Checked { inner, depth, check, refused: Vec::new() }
    }
}

impl<F: FnMut(&Op) -> Result<(), DeviceError> + Send> QueuePair for Checked<F> {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut taken = 0;
        while self.in_flight() < self.depth
            && let Some(Command { tag, op }) = commands.pop_front()
        {
            match (self.check)(&op) {
                Ok(()) => drop(self.inner.submit(&mut VecDeque::from([Command { tag, op }]))?),
                Err(error) => {
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
