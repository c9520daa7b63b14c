//! Queue pairs for reads in flight that nobody uses now: a device may have few, so they are kept for the next reader.

use esker_device::{Device, DeviceError, QueuePair};

use crate::sync::Mutex;
use crate::types::error::Result;

/// Reads in flight on one queue pair.
pub(crate) const DEPTH: usize = 32;

/// So many queue pairs are kept that nobody uses: a device may have few.
pub(crate) const KEPT: usize = 16;

/// Queue pairs of one device for reads in flight, those that nobody uses.
#[derive(Default)]
pub(crate) struct IdleQueues(Mutex<Vec<Box<dyn QueuePair>>>);

impl IdleQueues {
    pub(crate) fn queue(&self, device: &dyn Device) -> Result<Box<dyn QueuePair>, DeviceError> {
        let free = self.0.lock().pop();
        free.map_or_else(|| device.queue_pair(DEPTH), Ok)
    }

    pub(crate) fn keep(&self, queue: Box<dyn QueuePair>) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT {
            kept.push(queue);
        }
    }
}
