//! A device under another name.
//!
//! A manifest keeps the names of its classes, so a KVDB on devices with longer names writes more. Two runs that
//! are to write the same, byte for byte, have devices with the same names.

use std::sync::Arc;

use esker_device::{
    DataPlacement, Device, DeviceError, DeviceStats, Geometry, Identity, QueuePair,
};

/// A device under another name.
pub(super) struct Renamed {
    pub(super) name: String,
    pub(super) device: Arc<dyn Device>,
}

impl Device for Renamed {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.device.queue_pair(depth)
    }

    fn discards_zero(&self) -> bool {
        self.device.discards_zero()
    }

    fn usable_bytes(&self) -> Option<u64> {
        self.device.usable_bytes()
    }

    fn identity(&self) -> Option<Identity> {
        self.device.identity()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn remarks(&self) -> Vec<String> {
        self.device.remarks()
    }

    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        self.device.data_placement()
    }
}
