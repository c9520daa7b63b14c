//! The queue pair of devices that finish a command as soon as they start it: a list of finished
//! commands, as long as the queue is deep.
//!
//! Invariants
//! 1. At most `depth` commands lie in the list, so it is never allocated anew.
//! 2. A command is executed when it is taken, in the order of submission.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::{Command, Completion, DeviceError, QueuePair};

/// Executor of single commands, each to its end.
pub trait Execute: Send + Sync {
    /// Executes a command, wrong ones included, and says how it ended.
    fn execute(&self, command: Command) -> Completion;
}

/// A queue pair whose commands complete within `submit`.
pub struct Immediate<E> {
    device: Arc<E>,
    depth: usize,
    done: Vec<Completion>,
}

impl<E: Execute> Immediate<E> {
    /// A queue pair that holds up to `depth` finished commands of `device`, which has checked the
    /// depth.
    #[must_use]
    pub fn new(device: Arc<E>, depth: usize) -> Immediate<E> {
        Immediate { device, depth, done: Vec::with_capacity(depth) }
    }
}

impl<E: Execute> QueuePair for Immediate<E> {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.done.len());
        let device = &*self.device;
        self.done.extend(commands.drain(..taken).map(|command| device.execute(command)));
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let count = self.done.len();
        done.append(&mut self.done);
        Ok(count)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.poll(done)
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
