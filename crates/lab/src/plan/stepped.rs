//! A device whose background work is done in turn with its commands, for virtual time: on one thread, the same
//! whenever it runs.
//!
//! Commands in flight are handed back after a step that waits for a drive. So steps make latencies longer than a
//! thread beside would, and never shorter.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::Lba;
use esker_device::{Cause, Command, Device, DeviceError, Op, OpKind, QueuePair, forward};

/// Bytes of commands after which steps are due.
const EVERY: u64 = 256 << 10;
/// Does a step; whether there was anything to do.
type Step = dyn Fn() -> Result<bool, String> + Send + Sync;

/// The device.
pub(super) struct Stepped {
    device: Arc<dyn Device>,
    step: Arc<Step>,
    most: usize,
}

impl Stepped {
    /// `device`, with so many steps at once at most.
    pub(super) fn over(
        device: Arc<dyn Device>,
        most: usize,
        step: impl Fn() -> Result<bool, String> + Send + Sync + 'static,
    ) -> Arc<dyn Device> {
        Arc::new(Stepped { device, step: Arc::new(step), most })
    }
}

struct Queue {
    inner: Box<dyn QueuePair>,
    name: String,
    step: Arc<Step>,
    most: usize,
    moved: u64,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let sizes: Vec<u64> = commands
            .iter()
            .map(|command| match &command.op {
                Op::Read { buf, .. } | Op::Write { buf, .. } => {
                    u64::try_from(buf.len()).unwrap_or(u64::MAX)
                }
                _ => 0,
            })
            .collect();
        let taken = self.inner.submit(commands)?;
        self.moved += sizes.iter().take(taken).sum::<u64>();
        if self.moved >= EVERY {
            self.moved = 0;
            for _ in 0..self.most {
                let stepped = (self.step)().map_err(|why| {
                    DeviceError::new(&self.name, OpKind::Write, Lba(0), 0, Cause::Gone(why))
                })?;
                if !stepped {
                    break;
                }
            }
        }
        Ok(taken)
    }

    forward!(inner: poll, wait, in_flight);
}

impl Device for Stepped {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue {
            inner: self.device.queue_pair(depth)?,
            name: self.device.name().to_owned(),
            step: self.step.clone(),
            most: self.most,
            moved: 0,
        }))
    }

    forward!(device: name, geometry, discards_zero, usable_bytes, left_bytes, allocate, identity, stats, remarks, data_placement);
}
