//! A device that stores nothing, to measure the cost of the seam itself. Every command completes
//! within `submit`, successfully, and a read gives zeroes.
//!
//! Invariant: no memory is allocated per command (`tests/allocation.rs` counts).

use std::sync::Arc;

use esker_base::LbaCount;

use crate::immediate::{Execute, Immediate};
use crate::{
    Command, Completion, Counters, Device, DeviceError, DeviceStats, Geometry, Op, QueuePair,
};

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
        Ok(Box::new(Immediate::new(self.0.clone(), depth)))
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn stats(&self) -> DeviceStats {
        self.0.counters.snapshot(NAME)
    }
}

impl Execute for Shared {
    #[inline] // a call would copy the command and its completion: 8 ns of 25
    fn execute(&self, Command { tag, mut op }: Command) -> Completion {
        let result = op.check(NAME, &self.geometry);
        // The next owner of the buffer must not see its former content (rule 6 of the seam).
        if let Op::Read { buf, .. } = &mut op
            && result.is_ok()
        {
            buf.fill(0);
        }
        self.counters.count(&op, &self.geometry, &result);
        Completion { tag, result, buf: op.into_buf() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn null_device_writes_every_byte_of_a_read() {
        for lba_size in [512, 4096] {
            let device = NullDevice::new(LbaCount(1 << 20), lba_size);
            conformance::reads_fill_their_buffers(&device, 7);
        }
    }
}
