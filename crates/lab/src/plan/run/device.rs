//! A load on a device, in virtual time: filled, warmed up, measured.

use std::sync::atomic::AtomicBool;

use esker_base::Rng;
use esker_base::units::to_u64;
use esker_trace::{Op, Request};

use crate::LabError;
use crate::device_load::{self, Job, LoadReport, Size, Source, Target, Timing, pieces};
use crate::plan::build::{Built, Maker};
use crate::plan::inputs::{Inputs, Load, StreamsLoad, TraceLoad};
use crate::plan::measured::{ClockKind, DeviceUse, KindLatency, Measured};
use crate::plan::requests::requests;

/// Bytes of the writes that fill a device.
const FILL_BYTES: u64 = 256 << 10;
/// The blocks that a trace is of.
const BLOCK: u64 = 4096;

/// The requests to send: some that are not measured, then those that are.
struct Phases {
    job: Job,
    warm_up: Option<Source>,
    /// Bytes of the warm-up, where the job makes its own requests.
    warm_up_bytes: Option<u64>,
    measured: Source,
    remarks: Vec<String>,
}

pub(super) fn run(
    inputs: &Inputs,
    follow: &mut dyn FnMut(&str) -> bool,
) -> Result<Measured, LabError> {
    let mut maker = Maker::new(None);
    let node = inputs.devices.first().ok_or_else(|| LabError::Invalid("no device".to_owned()))?;
    let built = maker.build(node, false)?;
    let stop = AtomicBool::new(false);
    let mut tell = |what: &str| match follow(what) {
        true => Ok(()),
        false => Err(LabError::Interrupted),
    };
    let Phases { job, warm_up, warm_up_bytes, measured, remarks } = phases(inputs, &built)?;
    tell("filling")?;
    if let Some(filled) = built.filled() {
        let filling = Job {
            fill: true,
            sizes: vec![Size { bytes: FILL_BYTES, weight: 1 }],
            // The streams are apart from the beginning, where there are any.
            streams: if std::ptr::eq(filled, &built) { job.streams } else { 0 },
            time_limit: None,
            bytes_limit: Some(0),
            seed: inputs.seed,
            ..Job::default()
        };
        device_load::run(&filling, Source::Mix, &target(filled, &maker), &stop)?;
    }
    let target = target(&built, &maker);
    if let Some(source) = warm_up {
        tell("warming up")?;
        let limit = warm_up_bytes.or(job.bytes_limit);
        let seed = job.seed.wrapping_add(1);
        let warming = Job { bytes_limit: limit, seed, ..job.clone() };
        device_load::run(&warming, source, &target, &stop)?;
    }
    tell("measuring")?;
    let (before, hits) = (built.uses(), built.hits());
    let report = device_load::run(&job, measured, &target, &stop)?;
    let found = hits.zip(built.hits());
    #[allow(clippy::cast_precision_loss)] // a share
    let hit_ratio = found
        .filter(|((all, _), (now, _))| now > all)
        .map(|((all, hit), (now, hit_now))| (hit_now - hit) as f64 / (now - all) as f64);
    let devices = DeviceUse::since(built.uses(), &before);
    Ok(assemble(
        &report,
        Measured {
            user_written_bytes: devices.first().map_or(0, |one| one.written_bytes),
            devices,
            dram: built.dram(),
            usable_bytes: built.capacity_bytes(),
            hit_ratio,
            remarks,
            ..empty()
        },
    ))
}

fn target(built: &Built, maker: &Maker) -> Target {
    Target { device: built.device.clone(), clock: maker.clock.clone(), model: None }
}

fn empty() -> Measured {
    Measured {
        clock: ClockKind::Virtual,
        elapsed_s: 0.0,
        operations: 0,
        ops_per_s: 0.0,
        bytes_per_s: 0.0,
        latencies: Vec::new(),
        user_written_bytes: 0,
        devices: Vec::new(),
        classes_written_bytes: 0,
        manifest_written_bytes: 0,
        dram: Vec::new(),
        usable_bytes: 0,
        space_amplification: 1.0,
        hit_ratio: None,
        decider: None,
        processors: None,
        remarks: Vec::new(),
    }
}

#[allow(clippy::cast_precision_loss)] // rates of counts
fn assemble(report: &LoadReport, measured: Measured) -> Measured {
    let elapsed_s = report.elapsed_ns as f64 / 1e9;
    let data = || report.kinds.iter().filter(|one| one.kind == "read" || one.kind == "write");
    let kinds = report.kinds.iter();
    Measured {
        elapsed_s,
        operations: data().map(|one| one.requests).sum(),
        ops_per_s: data().map(|one| one.requests_per_s).sum(),
        bytes_per_s: data().map(|one| one.bytes_per_s).sum(),
        latencies: kinds
            .filter_map(|one| Some(KindLatency::of(&one.kind, one.latency.as_ref()?)))
            .collect(),
        ..measured
    }
}

fn phases(inputs: &Inputs, built: &Built) -> Result<Phases, LabError> {
    match &inputs.load {
        Load::Mix { job, warm_up_bytes } => {
            let streams = streams(u64::from(job.streams), built)?;
            let job = Job { streams, ..(**job).clone() };
            let warm_up = (*warm_up_bytes > 0).then_some(Source::Mix);
            let warm_up_bytes = Some(*warm_up_bytes);
            Ok(Phases { job, warm_up, warm_up_bytes, measured: Source::Mix, remarks: Vec::new() })
        }
        Load::Streams(load) => of_streams(load, inputs.seed, built),
        Load::Trace(load) => of_trace(load, inputs.seed, built),
        Load::Engine(_) => Err(LabError::Invalid("a load of the engine has no device".to_owned())),
    }
}

/// How many placement identifiers writes carry: all that are wanted, or none on a device without data placement.
fn streams(wanted: u64, built: &Built) -> Result<u16, LabError> {
    let has = built.device.geometry().placement_handles;
    match (has, u16::try_from(wanted)) {
        (0, _) => Ok(0),
        (has, Ok(wanted)) if wanted <= has => Ok(wanted),
        (has, _) => Err(LabError::Invalid(format!(
            "the load has {wanted} streams, and the drive tells {has} apart: take fewer writers, or a drive without \
             placement"
        ))),
    }
}

fn of_streams(load: &StreamsLoad, seed: u64, built: &Built) -> Result<Phases, LabError> {
    let writers = to_u64(load.writers.len());
    let capacity = built.capacity_bytes();
    let span = load.span_bytes.unwrap_or(capacity);
    let part = span / writers / load.request_bytes * load.request_bytes;
    if part == 0 || span > capacity {
        return Err(LabError::Invalid(format!(
            "{writers} writers with requests of {} bytes do not fit {span} bytes of a device with {capacity}",
            load.request_bytes
        )));
    }
    let mut rng = Rng::new(seed);
    let total: f64 = load.writers.iter().sum();
    let mut at = vec![0; load.writers.len()];
    let mut next = || {
        let mut draw = rng.unit() * total;
        let chosen = load.writers.iter().position(|rate| {
            draw -= rate;
            draw < 0.0
        });
        let writer = chosen.unwrap_or(load.writers.len() - 1);
        let reads = rng.below(100) < u64::from(load.read_percent);
        let anywhere = rng.below(part / load.request_bytes) * load.request_bytes;
        let place = match reads || load.is_uniform {
            true => anywhere,
            false => {
                let place = at[writer];
                at[writer] = (place + load.request_bytes) % part;
                place
            }
        };
        Request {
            time_ns: 0,
            offset: to_u64(writer) * part + place,
            length: load.request_bytes,
            device: 0,
            op: if reads { Op::Read } else { Op::Write },
        }
    };
    let mut requests =
        |bytes: u64| -> Vec<Request> { (0..bytes / load.request_bytes).map(|_| next()).collect() };
    let (warm_up, measured) = (requests(load.warm_up_bytes), requests(load.bytes));
    let job = Job {
        sizes: vec![Size { bytes: load.request_bytes, weight: 1 }],
        depth: load.depth,
        span_bytes: Some(part * writers),
        streams: streams(writers, built)?,
        time_limit: None,
        bytes_limit: None,
        seed,
        ..Job::default()
    };
    Ok(Phases {
        job,
        warm_up: (!warm_up.is_empty()).then_some(Source::Trace(warm_up, Timing::Order)),
        warm_up_bytes: None,
        measured: Source::Trace(measured, Timing::Order),
        remarks: Vec::new(),
    })
}

fn of_trace(load: &TraceLoad, seed: u64, built: &Built) -> Result<Phases, LabError> {
    let all = requests(load)?;
    let capacity = built.capacity_bytes();
    let beyond = all.iter().filter(|one| one.offset + one.length > capacity).count();
    let mut remarks = Vec::new();
    if beyond > 0 {
        remarks.push(format!(
            "{beyond} of {} requests lie beyond the device's {capacity} bytes, and wrap around: give it more capacity",
            all.len()
        ));
    }
    let geometry = built.device.geometry();
    let most = u64::from(geometry.max_transfer_size).max(BLOCK) / BLOCK * BLOCK;
    let mut parts: Vec<Request> = all.iter().flat_map(|one| pieces(one, most)).collect();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let first = (parts.len() as f64 * load.warm_up) as usize;
    let measured = parts.split_off(first);
    let job = Job {
        sizes: vec![Size { bytes: BLOCK.max(u64::from(geometry.lba_size)), weight: 1 }],
        depth: load.depth,
        time_limit: None,
        bytes_limit: None,
        seed,
        ..Job::default()
    };
    Ok(Phases {
        job,
        warm_up: (!parts.is_empty()).then_some(Source::Trace(parts, load.timing)),
        warm_up_bytes: None,
        measured: Source::Trace(measured, load.timing),
        remarks,
    })
}
