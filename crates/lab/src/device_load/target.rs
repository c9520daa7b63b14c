//! The device under load.

use std::sync::Arc;

use esker_base::Clock;
use esker_device::Device;
use esker_flash::Ssd;

/// A device under load.
pub struct Target {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Its time.
    pub clock: Clock,
    /// The model, if it is one.
    pub model: Option<Ssd>,
}
