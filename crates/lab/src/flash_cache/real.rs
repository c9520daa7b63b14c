//! The same workloads on devices: on a disk alone, and on the disk behind Esker's cache on a flash device.
//!
//! | module | content |
//! | --- | --- |
//! | `devices` | [`Real`]: the devices, and whether a workload fits them |
//! | `requests` | a workload's requests as the disk takes them |
//! | `arm` | one replay, warmed and measured |
//! | [`report`] | [`RealReport`]: figures, tables, notes |
//! | `html` | the same as a section of the page |
//!
//! Called by the study ([`FlashCache`](super::FlashCache)), with devices that its caller has opened; it replays with
//! [`device_load`](crate::device_load).
//!
//! Invariants
//! 1. Both arms and the simulation get the same requests, in the same order.
//! 2. The first half of the requests warms each arm and is not measured.
//! 3. Nothing is written before the sizes of all workloads' caches are known to fit.

mod arm;
mod devices;
mod html;
pub mod report;
mod requests;
#[cfg(test)]
mod tests;

use esker_base::units::to_u64;

use super::disk::BLOCK_BYTES;
use crate::LabError;
use crate::steps::Steps;
pub(super) use devices::{LEAST_REQUESTS, Planned};
pub use devices::{Real, RealDevice, RealOptions};
pub use report::{RealReport, RealResult};
use requests::Load;

/// Replays a workload in both arms. Each is a step.
pub(super) fn replay(
    real: &Real,
    name: &str,
    planned: &Planned,
    seed: u64,
    steps: &mut Steps<'_>,
) -> Result<RealResult, LabError> {
    steps.step(&format!("{name}, on {} alone", real.disk.name))?;
    let alone = arm::alone(real, planned, seed)?;
    steps.step(&format!("{name}, behind the cache on {}", real.flash.name))?;
    let cached = arm::cached(real, planned, seed)?;
    let Load { warming, measured, beyond, discards } = &planned.load;
    Ok(RealResult {
        name: name.to_owned(),
        warming_requests: to_u64(warming.len()),
        measured_requests: to_u64(measured.len()),
        requests_beyond: *beyond,
        discards_left_out: *discards,
        touched_bytes: planned.trace.footprint() * BLOCK_BYTES,
        flash_bytes: planned.flash_bytes,
        cache_bytes: cached.cache_bytes,
        blocks: cached.blocks,
        hit_ratio: cached.hit_ratio,
        simulated_hit_ratio: cached.simulated_hit_ratio,
        fills_dropped: cached.fills_dropped,
        left_dirty_bytes: cached.left_dirty_bytes,
        written_back_ns: cached.written_back_ns,
        alone,
        cached: cached.arm,
    })
}
