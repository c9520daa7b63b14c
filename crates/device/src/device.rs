//! The traits of devices and of their queue pairs. The contract that both keep is the crate's documentation.

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::{Lba, LbaCount};

use crate::command::{Command, Completion};
use crate::error::DeviceError;
use crate::fdp::DataPlacement;
use crate::geometry::Geometry;
use crate::identity::Identity;
use crate::stats::DeviceStats;

/// Something with logical blocks: a file, a drive, a model of one, a volume, a remote namespace.
pub trait Device: Send + Sync {
    /// The name that errors and statistics carry: a path, an address, a model's name.
    fn name(&self) -> &str;

    /// The device's properties. Its capacity may grow between two calls; nothing else changes.
    fn geometry(&self) -> Geometry;

    /// Opens a queue pair that holds up to `depth` commands (1 to [`MAX_DEPTH`](crate::MAX_DEPTH)).
    ///
    /// # Errors
    /// When the depth is out of range, or the device has no more queue pairs to give or is closed.
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError>;

    /// Whether a discard, once completed, leaves zeroes on the whole of its range until that is
    /// written again. Like a write it may be missing after a crash, whole or in part, if it was
    /// not flushed.
    fn discards_zero(&self) -> bool {
        false
    }

    /// How many bytes it can hold, those included that it holds, where that may be less than its capacity: a
    /// file holds as much as its file system has room for. It may change at any time.
    fn usable_bytes(&self) -> Option<u64> {
        None
    }

    /// How many bytes more the file system can give that it lies on, where [`Device::usable_bytes`] is bounded by one.
    fn left_bytes(&self) -> Option<u64> {
        None
    }

    /// Gives a range room on the medium now, so that no later write to it fails for lack of room. Its content stays.
    /// `false` where nothing was done: the device's room is its own, or it cannot promise any.
    ///
    /// # Errors
    /// `NoSpace` when there is not enough; some of the range may have room then.
    fn allocate(&self, lba: Lba, count: LbaCount) -> Result<bool, DeviceError> {
        let _ = (lba, count);
        Ok(false)
    }

    /// Facts that tell it from other devices, the same whenever it is opened; none where nothing
    /// lasting does. A device that only passes commands on has the identity of the one under it.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Whether its queue pairs never make their user wait: to be opened, to take commands, and to be polled.
    /// They work, or leave the work to others. A user that has other things to do at the same time drives
    /// them itself, and gives other devices a thread.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Work that this device and the devices under it have carried so far.
    fn stats(&self) -> DeviceStats;

    /// Remarks for the user on how the device was opened (a fallback taken, say).
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Data placement, if the device is a namespace of a drive that has it.
    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        None
    }
}

/// A submission queue and a completion queue, owned by one thread.
///
/// Every command that [`QueuePair::submit`] takes is completed exactly once. Dropping a queue pair
/// waits for the commands in flight, so that no buffer is freed under the device.
pub trait QueuePair: Send {
    /// Takes commands from the front of `commands` until it is empty or the queue is full, starts
    /// them, and returns how many it took. A command that is wrong in itself (beyond the
    /// capacity, not a multiple of the LBA size) is taken too and completes with an error.
    ///
    /// # Errors
    /// When the queue pair itself is broken; nothing was taken.
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError>;

    /// Appends finished commands to `done` without blocking, and returns how many.
    ///
    /// # Errors
    /// When the queue pair itself is broken.
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError>;

    /// Like [`QueuePair::poll`], but blocks until a command finishes or `timeout` has passed.
    /// Returns 0 at once when nothing is in flight. `None` waits for as long as it takes.
    ///
    /// # Errors
    /// When the queue pair itself is broken.
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError>;

    /// How many commands were taken and not yet handed back by poll or wait.
    fn in_flight(&self) -> usize;
}
