//! A device under another name, whose commands are executed one after the other.
//!
//! Two runs that are to write the same, byte for byte, have such devices. A manifest keeps the names of its classes, so a
//! KVDB on devices with longer names writes more. And writes that are in flight together may reach a drive in any order:
//! over a network in another one than in process, with other pages beside each other.

use std::sync::{Arc, Mutex, PoisonError};

use esker_device::immediate::{Execute, Immediate};
use esker_device::{Command, Completion, Device, DeviceError, Port, QueuePair, forward};

/// A device under another name, whose commands are executed one after the other.
pub(super) struct InTurn {
    name: String,
    device: Arc<dyn Device>,
    one: Arc<OneAtATime>,
}

/// The only port on which commands run, whichever queue pair took them.
struct OneAtATime(Mutex<Port>);

impl InTurn {
    /// # Errors
    /// The device's, when it has no queue pair to give.
    pub(super) fn new(name: String, device: Arc<dyn Device>) -> Result<InTurn, DeviceError> {
        let one = Arc::new(OneAtATime(Mutex::new(Port::open(&*device, 1)?)));
        Ok(InTurn { name, device, one })
    }
}

impl Execute for OneAtATime {
    fn execute(&self, Command { tag, op }: Command) -> Completion {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).run(op);
        match ended {
            Ok(buf) => Completion { tag, result: Ok(()), buf },
            Err(error) => Completion { tag, result: Err(error), buf: None },
        }
    }
}

impl Device for InTurn {
    fn name(&self) -> &str {
        &self.name
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Immediate::new(self.one.clone(), depth)))
    }

    forward!(device: geometry, discards_zero, usable_bytes, left_bytes, allocate, identity, stats, remarks, data_placement);
}
