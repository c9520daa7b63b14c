//! Queue pairs for reads in flight that nobody uses now: a device may have few, so they are kept for the next reader.
//!
//! A device, or a process without descriptors to spare, may have none to give. Commands run one after the other then,
//! through the ports of the class, of which one was opened when the class was: so neither a flush of the log nor
//! maintenance fails for lack of a queue pair.

use std::sync::Arc;

use esker_base::ErrorKind;
use esker_device::immediate::{Execute, Immediate};
use esker_device::{Command, Completion, DeviceError, QueuePair};

use crate::media::class::Media;
use crate::sync::Mutex;
use crate::types::error::Result;

/// Reads in flight on one queue pair.
pub(crate) const DEPTH: usize = 32;

/// So many queue pairs are kept that nobody uses: a device may have few.
pub(crate) const KEPT: usize = 16;

/// Queue pairs of one device for reads in flight, those that nobody uses.
#[derive(Default)]
pub(crate) struct IdleQueues(Mutex<Vec<Box<dyn QueuePair>>>);

/// A queue pair for commands in flight.
pub(crate) enum CommandQueue {
    /// One of the device's.
    Own(Box<dyn QueuePair>),
    /// The device has given none: the ports of its class run each command as it comes.
    Ports(Immediate<Media>),
}

impl CommandQueue {
    /// One of the device's: one that is idle, or a new one.
    pub(crate) fn own(media: &Media) -> Result<CommandQueue, DeviceError> {
        let idle = media.idle_queues.0.lock().pop();
        idle.map_or_else(|| media.device().queue_pair(DEPTH), Ok).map(CommandQueue::Own)
    }

    /// The same, or the ports of the class.
    pub(crate) fn any(media: &Arc<Media>) -> Result<CommandQueue, DeviceError> {
        match CommandQueue::own(media) {
            Err(error) if error.kind() != ErrorKind::Closed => {
                Ok(CommandQueue::Ports(Immediate::new(media.clone(), DEPTH)))
            }
            own => own,
        }
    }

    pub(crate) fn pair(&mut self) -> &mut dyn QueuePair {
        match self {
            CommandQueue::Own(own) => &mut **own,
            CommandQueue::Ports(ports) => ports,
        }
    }

    /// Keeps a queue pair without commands for the next reader of the class.
    pub(crate) fn keep(self, media: &Media) {
        let CommandQueue::Own(own) = self else { return };
        let mut kept = media.idle_queues.0.lock();
        if kept.len() < KEPT {
            kept.push(own);
        }
    }
}

impl Execute for Media {
    fn execute(&self, Command { tag, op }: Command) -> Completion {
        match self.ports.port().and_then(|mut port| port.run(op)) {
            Ok(buf) => Completion { tag, result: Ok(()), buf },
            Err(error) => Completion { tag, result: Err(error), buf: None },
        }
    }
}
