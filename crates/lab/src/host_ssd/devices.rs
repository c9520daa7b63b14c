//! Devices that the user names, beside the modelled drives: reads of 4 KiB at random, each device in its own time.
//!
//! Invariants
//! 1. A device is read only.
//! 2. A depth ends after a number of reads or a time of the device, so that a disk takes minutes at most.

use std::time::Duration;

use esker_base::units::{human_bytes, to_usize};
use serde::{Deserialize, Serialize};

use super::latency::{DepthResult, Latency, WITHIN};
use super::options::HostSsdOptions;
use crate::LabError;
use crate::device_load::job::{Job, Size};
use crate::device_load::{self, Target, report::valid_bytes};
use crate::steps::Steps;
use crate::study::Follow;

#[cfg(test)]
mod tests;

/// The most devices of a study: more curves are told apart by nobody.
pub const MOST: usize = 4;
/// Bytes of a read, unless an LBA is larger.
const READ: u64 = 4096;
/// A depth ends after this time of the device, or after [`FOR_EACH`] for each read under way where that is longer. A
/// disk of 100 reads a second has then served 50 for each.
const LEAST: Duration = Duration::from_secs(10);
const FOR_EACH: Duration = Duration::from_millis(500);
/// Reads that are not measured, for each one under way: buffers are new, and queues fill.
const WARM_UP: u64 = 2;

/// The columns of a device's table.
pub(super) const COLUMNS: [&str; 7] = [
    "depth",
    "reads",
    "p50 / p80 / p99 / p99.9",
    "mean",
    "reads a second",
    "conventional, modelled",
    "its reads a second",
];

/// A device to read.
pub struct ReadDevice {
    /// The name that the user gave it: its specification.
    pub name: String,
    /// The device, its time, and the model, if it is one.
    pub target: Target,
    /// Bytes that its files store, without their holes, where it lies in files alone.
    pub stored_bytes: Option<u64>,
    /// Remarks on how it was opened, and on a model.
    pub remarks: Vec<String>,
}

/// Figures of a named device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceResult {
    /// The name that the user gave it.
    pub name: String,
    /// Its capacity.
    pub capacity_bytes: u64,
    /// Bytes of a read.
    pub read_bytes: u64,
    /// Its figures at each depth.
    pub depths: Vec<DeviceDepth>,
    /// The greatest of these depths at which 80 % of the reads take no longer than 150 µs.
    pub depth_within: Option<u32>,
    /// The share of its bytes, 0 to 1, that hold no data; none where that is not known.
    pub unwritten: Option<f64>,
    /// How it compares with the modelled conventional drive, in a sentence.
    pub comparison: String,
    /// Remarks on how it was opened, and on a model.
    pub remarks: Vec<String>,
}

/// Figures of a named device at a depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceDepth {
    /// Reads under way.
    pub depth: u32,
    /// Reads that were measured.
    pub reads: u64,
    /// Reads a second.
    pub per_s: f64,
    /// How long they took, from submission.
    pub latency: Latency,
}

impl ReadDevice {
    fn capacity_bytes(&self) -> u64 {
        let geometry = self.target.device.geometry();
        geometry.capacity.bytes(geometry.lba_size)
    }

    fn read_bytes(&self) -> u64 {
        READ.max(u64::from(self.target.device.geometry().lba_size))
    }

    /// The share of its bytes that hold no data, where that is known.
    fn unwritten(&self) -> Option<f64> {
        let (stored, all) = match &self.target.model {
            Some(model) => {
                let drive = model.report();
                (valid_bytes(&drive), drive.parameters.capacity)
            }
            None => (self.stored_bytes?, self.capacity_bytes()),
        };
        #[allow(clippy::cast_precision_loss)] // a share of sizes
        let share = stored.min(all) as f64 / all.max(1) as f64;
        Some(1.0 - share)
    }
}

/// Makes sure that devices can be read at every depth, before anything that takes long.
///
/// # Errors
/// `Invalid` for options that make no sense, too many devices, or one that is too small; a device's when it refuses a
/// queue of the greatest depth.
pub fn check(options: &HostSsdOptions, devices: &[ReadDevice]) -> Result<(), LabError> {
    options.check()?;
    if devices.len() > MOST {
        let why = format!("{} devices: name at most {MOST} in one study", devices.len());
        return Err(LabError::Invalid(why));
    }
    let deepest = options.depths.iter().copied().max().unwrap_or(1);
    for one in devices {
        if one.capacity_bytes() < one.read_bytes() {
            let (has, needs) = (human_bytes(one.capacity_bytes()), human_bytes(one.read_bytes()));
            let why = format!("{} has {has}: name a device of {needs} or more", one.name);
            return Err(LabError::Invalid(why));
        }
        drop(one.target.device.queue_pair(to_usize(u64::from(deepest)))?);
    }
    Ok(())
}

/// Reads all devices, one after the other, at every depth.
///
/// # Errors
/// As [`check`]; a device's for a read that fails; `Invalid` for one that is too slow for a depth; when `follow` ends it.
pub fn measure(
    options: &HostSsdOptions,
    devices: &[ReadDevice],
    follow: &mut Follow<'_>,
) -> Result<Vec<DeviceResult>, LabError> {
    check(options, devices)?;
    let count = devices.len() * options.depths.len();
    let mut steps = Steps::new(follow, count);
    let mut results = Vec::new();
    for device in devices {
        let result = measure_one(options, device, &mut steps)?;
        // Of a device that was not read there is nothing to tell.
        results.extend(Some(result).filter(|one| !one.depths.is_empty()));
    }
    if results.is_empty() && steps.is_interrupted() {
        return Err(LabError::Interrupted);
    }
    Ok(results)
}

fn measure_one(
    options: &HostSsdOptions,
    device: &ReadDevice,
    steps: &mut Steps<'_>,
) -> Result<DeviceResult, LabError> {
    let mut depths = Vec::new();
    for &depth in &options.depths {
        if steps.step(&format!("{}: reads, {depth} at a time", device.name)).is_err() {
            break;
        }
        depths.push(at_depth(options, device, depth, LEAST.max(FOR_EACH * depth))?);
    }
    let within = depths.iter().filter(|one| one.latency.is_within());
    Ok(DeviceResult {
        name: device.name.clone(),
        capacity_bytes: device.capacity_bytes(),
        read_bytes: device.read_bytes(),
        depth_within: within.map(|one| one.depth).max(),
        depths,
        unwritten: device.unwritten(),
        comparison: String::new(),
        remarks: device.remarks.clone(),
    })
}

fn at_depth(
    options: &HostSsdOptions,
    device: &ReadDevice,
    depth: u32,
    limit: Duration,
) -> Result<DeviceDepth, LabError> {
    let bytes = device.read_bytes();
    let job = Job {
        sizes: vec![Size { bytes, weight: 1 }],
        depth: to_usize(u64::from(depth)),
        time_limit: Some(limit),
        bytes_limit: Some(options.device_reads.saturating_mul(bytes)),
        seed: options.seed,
        ..Job::default()
    };
    let warm_up = WARM_UP * u64::from(depth);
    let device_load::Reads { latencies, per_s } =
        device_load::reads(&job, &device.target, warm_up)?;
    if latencies.count() == 0 {
        return Err(LabError::Invalid(format!(
            "{}: fewer than {warm_up} reads have ended within {} s, {depth} at a time; give lesser --depths",
            device.name,
            limit.as_secs_f64()
        )));
    }
    let latency = Latency::recorded(&latencies);
    Ok(DeviceDepth { depth, reads: latencies.count(), per_s, latency })
}

/// The assumptions behind the figures of named devices, names and values; none where none is named.
pub(super) fn assumptions(
    options: &HostSsdOptions,
    devices: &[DeviceResult],
) -> Vec<(&'static str, String)> {
    if devices.is_empty() {
        return Vec::new();
    }
    let known = devices.iter().filter_map(|one| {
        Some(format!("; {:.0} % of {} hold no data", one.unwritten? * 100.0, one.name))
    });
    vec![
        (
            "reads of named devices",
            format!(
                "by one thread, over the whole device, in its own time; at each depth at most {}, for {} s, or {} s \
                 for each one under way where that is longer",
                options.device_reads,
                LEAST.as_secs(),
                FOR_EACH.as_secs_f64()
            ),
        ),
        (
            "named devices, blocks that were never written",
            format!(
                "a read of one needs no media and is faster, as in a hole of a file or an empty model: fill a device \
                 before it is compared{}",
                known.collect::<String>()
            ),
        ),
    ]
}

/// A factor with two decimals, or with two significant digits where it is small: a disk beside a drive.
fn times(factor: f64) -> String {
    let decimals = (0..9).find(|&more| factor * 10f64.powi(more) >= 0.1).unwrap_or(0);
    format!("{factor:.0$}", to_usize(u64::from(decimals.unsigned_abs())) + 2)
}

impl DeviceResult {
    /// The figures at a depth.
    pub(super) fn at(&self, depth: u32) -> Option<&DeviceDepth> {
        self.depths.iter().find(|one| one.depth == depth)
    }

    /// Says how it compares with the conventional drive of `models`.
    pub(super) fn compare<'a>(&mut self, models: &'a [DepthResult]) {
        let beside = |one: &'a DepthResult| Some((one, self.at(one.depth)?));
        let pairs: Vec<(&DepthResult, &DeviceDepth)> = models.iter().filter_map(beside).collect();
        let least = pairs.iter().min_by_key(|(model, _)| model.depth);
        let most = pairs.iter().max_by_key(|(model, _)| model.depth);
        let (Some((alone, own_alone)), Some((deep, own_deep))) = (least, most) else { return };
        let within = models.iter().filter(|one| one.conventional.is_within());
        let up_to = |depth: Option<u32>| {
            depth.map_or("at no depth".to_owned(), |depth| format!("up to depth {depth}"))
        };
        self.comparison = format!(
            "Beside the modelled conventional drive, a read takes {} times as long in the median at depth {}, there are \
             {} times as many reads a second at depth {}, and {:.0} % are within {:.0} µs {}, there {}.",
            times(own_alone.latency.p50_us / alone.conventional.p50_us),
            alone.depth,
            times(own_deep.per_s / deep.per_s[0]),
            deep.depth,
            WITHIN.0 * 100.0,
            WITHIN.1,
            up_to(self.depth_within),
            up_to(within.map(|one| one.depth).max()),
        );
    }

    /// The headline of its table.
    pub(super) fn subtitle(&self) -> String {
        let (capacity, read) = (human_bytes(self.capacity_bytes), human_bytes(self.read_bytes));
        format!("{}, {capacity}: {read} reads at random, µs", self.name)
    }

    /// The rows of its table, in the order of [`COLUMNS`].
    pub(super) fn rows(&self, models: &[DepthResult]) -> Vec<Vec<String>> {
        let row = |one: &DeviceDepth| {
            let model = models.iter().find(|model| model.depth == one.depth);
            vec![
                one.depth.to_string(),
                one.reads.to_string(),
                one.latency.cell(),
                format!("{:.1}", one.latency.mean_us),
                format!("{:.0}", one.per_s),
                model.map(|model| model.conventional.cell()).unwrap_or_default(),
                model.map(|model| format!("{:.0}", model.per_s[0])).unwrap_or_default(),
            ]
        };
        self.depths.iter().map(row).collect()
    }
}
