//! The devices, and the size that a workload's cache takes of them.

use std::sync::Arc;

use esker_base::Clock;
use esker_base::units::human_bytes;
use esker_cache::Layout;
use esker_cache::replay::Trace;
use esker_device::{Device, MAX_DEPTH};

use super::requests::Load;
use crate::LabError;
use crate::flash_cache::disk::BLOCK_BYTES;
use crate::flash_cache::options::FlashCacheOptions;
use crate::flash_cache::workload::{self, WorkloadSource};

/// The least requests of which one in a hundred says something.
pub(crate) const LEAST_REQUESTS: usize = 200;
/// The least slots of a cache.
const LEAST_SLOTS: u64 = 64;

/// How workloads are replayed on devices.
#[derive(Clone, Debug)]
pub struct RealOptions {
    /// The size of the cache, in percent of what the replayed requests touch.
    pub percent: u32,
    /// The most requests of a workload that are replayed, those that warm included.
    pub requests: usize,
    /// Requests that are in flight.
    pub depth: usize,
}

impl Default for RealOptions {
    fn default() -> RealOptions {
        RealOptions { percent: 20, requests: 20_000, depth: 8 }
    }
}

/// A device that was opened for the replay. Its content is lost.
pub struct RealDevice {
    /// Its name for the report.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
}

/// The devices on which workloads are replayed.
pub struct Real {
    /// Parameters of the replay.
    pub options: RealOptions,
    /// The slow device.
    pub disk: RealDevice,
    /// The device of the cache.
    pub flash: RealDevice,
    /// Time of both.
    pub clock: Clock,
    /// Remarks about them, assumptions of models included.
    pub remarks: Vec<String>,
}

/// A workload that fits the devices.
pub(crate) struct Planned {
    pub(super) load: Load,
    /// The same requests as the simulator takes them.
    pub(super) trace: Trace,
    /// Bytes of the flash device that the cache takes.
    pub(super) flash_bytes: u64,
    /// Bytes of a set.
    pub(super) set_bytes: u64,
}

impl RealDevice {
    fn bytes(&self) -> u64 {
        let geometry = self.device.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    }
}

impl Real {
    /// Refuses options and devices that make no sense.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        let RealOptions { percent, requests, depth } = self.options;
        if !(1..=100).contains(&percent) {
            return refuse(format!("a cache of {percent} %: give --real-size 1 to 100"));
        }
        if requests < LEAST_REQUESTS {
            return refuse(format!(
                "half of {requests} requests says nothing of the slowest: give --real-requests {LEAST_REQUESTS} or more"
            ));
        }
        if !(1..=MAX_DEPTH).contains(&depth) {
            return refuse(format!("a depth of {depth}: give --real-depth 1 to {MAX_DEPTH}"));
        }
        if self.clock.is_virtual() {
            let why = "virtual time is for one thread, and the cache has another: say time=none, real or 10x";
            return refuse(why.to_owned());
        }
        if self.disk.bytes() < BLOCK_BYTES {
            return refuse(format!("{}: it has no whole block of 4 KiB", self.disk.name));
        }
        Ok(())
    }

    /// The requests of a workload, and the size of its cache; none where it has too few requests.
    ///
    /// # Errors
    /// When the workload cannot be read; `Invalid` when the flash device is too small for its cache.
    pub(crate) fn plan(
        &self,
        source: &WorkloadSource,
        options: &FlashCacheOptions,
    ) -> Result<Option<Planned>, LabError> {
        let disk = &self.disk.device;
        let load = Load::on(&**disk, source.requests(options)?, self.options.requests)?;
        let all = [&load.warming[..], &load.measured].concat();
        if all.len() < LEAST_REQUESTS {
            return Ok(None);
        }
        let trace = workload::built(&all)?;
        let (flash_bytes, set_bytes) = self.size(source.name(), trace.footprint())?;
        Ok(Some(Planned { load, trace, flash_bytes, set_bytes }))
    }

    /// Bytes that the cache of a workload takes of the flash device, and bytes of a set.
    fn size(&self, name: &str, touched: u64) -> Result<(u64, u64), LabError> {
        let has = self.flash.bytes();
        let of = |percent: u32| {
            let slots = (touched * u64::from(percent) / 100).max(LEAST_SLOTS);
            Layout::sized(slots)
        };
        let percent = self.options.percent;
        let sized = of(percent);
        if let Some(size) = sized.filter(|(bytes, _)| *bytes <= has) {
            return Ok(size);
        }
        let needed = sized.map_or(u64::MAX, |(bytes, _)| bytes);
        let fits = (1..percent).rev().find(|less| of(*less).is_some_and(|(bytes, _)| bytes <= has));
        let remedy = match fits {
            Some(less) => format!("--real-size {less}"),
            None => "fewer --real-requests".to_owned(),
        };
        Err(LabError::Invalid(format!(
            "{}: a cache of {percent} % of what '{name}' touches takes {} ({needed} bytes), and the device has {}: \
             name one of that size, or give {remedy}",
            self.flash.name,
            human_bytes(needed),
            human_bytes(has),
        )))
    }
}
