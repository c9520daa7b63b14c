//! A device that does nothing, to measure what the seam itself costs. Every command completes
//! within `submit`, successfully, and a read gives its buffer back untouched.
//!
//! Invariant: no memory is allocated per command (`tests/allocation.rs` counts).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::LbaCount;

use crate::{Command, Completion, Counters, Device, DeviceError, DeviceStats, Geometry, QueuePair};

const NAME: &str = "null";

/// A device that completes everything and stores nothing.
pub struct NullDevice(Arc<Shared>);

struct Shared {
    geometry: Geometry,
    counters: Counters,
}

impl NullDevice {
    /// A device that pretends to have `capacity` LBAs of `lba_size` bytes.
    ///
    /// # Panics
    /// If `lba_size` is not a power of two from 512 to 4,096.
    #[must_use]
    pub fn new(capacity: LbaCount, lba_size: u32) -> NullDevice {
        assert!(
            lba_size.is_power_of_two() && (512..=4096).contains(&lba_size),
            "an LBA has 512 to 4,096 bytes, a power of two"
        );
        NullDevice(Arc::new(Shared {
            geometry: Geometry {
                lba_size,
                capacity,
                preferred_write_size: lba_size,
                max_transfer_size: 1 << 30,
                discard_granularity: 0,
                placement_handles: 0,
                volatile_write_cache: false,
            },
            counters: Counters::default(),
        }))
    }
}

impl Device for NullDevice {
    fn name(&self) -> &str {
        NAME
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(NAME, depth)?;
        Ok(Box::new(Queue { shared: self.0.clone(), depth, done: Vec::with_capacity(depth) }))
    }

    fn stats(&self) -> DeviceStats {
        self.0.counters.snapshot(NAME)
    }
}

struct Queue {
    shared: Arc<Shared>,
    depth: usize,
    done: Vec<Completion>,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.done.len());
        let Shared { geometry, counters } = &*self.shared;
        self.done.extend(commands.drain(..taken).map(|Command { tag, op }| {
            let result = op.check(NAME, geometry);
            counters.count(&op, geometry, &result);
            Completion { tag, result, buf: op.into_buf() }
        }));
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
