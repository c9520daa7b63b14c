//! A load on a device, in virtual time: filled, warmed up, measured.

use std::sync::atomic::AtomicBool;

use esker_base::Rng;
use esker_base::units::to_u64;
use esker_trace::{Op, Request};

use crate::LabError;
use crate::device_load::{self, Job, LoadReport, Size, Source, Target, Timing, pieces};
use crate::plan::build::{Built, Maker};
use crate::plan::inputs::{Inputs, Load, StreamsLoad, TraceLoad, WarmUp};
use crate::plan::measured::{ClockKind, DeviceUse, KindLatency, MeasuredCase};
use crate::plan::requests::requests;
use crate::plan::run::steady::{self, Warm};

/// Bytes of the writes that fill a device.
const FILL_BYTES: u64 = 256 << 10;
/// The blocks that a trace is of.
const BLOCK: u64 = 4096;

/// A load that goes with a device.
struct Prepared {
    job: Job,
    feed: Feed,
    remarks: Vec<String>,
}

/// Where the requests come from.
enum Feed {
    /// The job makes them.
    Mix { warm_up: WarmUp },
    /// Writers at different rates make them.
    Writers { writers: Box<Writers>, warm_up: WarmUp, bytes: u64 },
    /// They were recorded, or made up: some that are not measured, and those that are.
    Trace { warm_up: Vec<Request>, measured: Vec<Request>, timing: Timing },
}

/// A device under its load.
struct Bench<'a> {
    inputs: &'a Inputs,
    built: &'a Built,
    target: Target,
    stop: AtomicBool,
    job: Job,
}

pub(super) fn run(
    inputs: &Inputs,
    follow: &mut dyn FnMut(&str) -> bool,
) -> Result<MeasuredCase, LabError> {
    let mut maker = Maker::new(None);
    let node = inputs.devices.first().ok_or_else(|| LabError::Invalid("no device".to_owned()))?;
    let built = maker.build(node, false)?;
    let mut tell = |what: &str| match follow(what) {
        true => Ok(()),
        false => Err(LabError::Interrupted),
    };
    let Prepared { job, mut feed, remarks } = prepared(inputs, &built)?;
    let (target, stop) = (target(&built, &maker), AtomicBool::new(false));
    let bench = Bench { inputs, built: &built, target, stop, job };
    tell("filling")?;
    bench.fill(&maker)?;
    let empty_handed = built.uses();
    let warm = bench.warm_up(&mut feed, &mut tell)?;
    tell("measuring")?;
    let (before, hits) = (built.uses(), built.hits());
    let (job, source) = bench.measured(feed);
    let report = bench.run(&job, source)?;
    let after = built.uses();
    let found = hits.zip(built.hits());
    #[allow(clippy::cast_precision_loss)] // a share
    let hit_ratio = found
        .filter(|((all, _), (now, _))| now > all)
        .map(|((all, hit), (now, hit_now))| (hit_now - hit) as f64 / (now - all) as f64);
    let (since, unsteady) = match warm {
        Warmed::Steadily(Warm { since, unsteady }) => (since, unsteady),
        Warmed::ByPlan(then) => {
            let unsteady = steady::of_plan((&then, &before), (&before, &after));
            (before, unsteady)
        }
        Warmed::ByTrace => {
            let written = DeviceUse::since(after.clone(), &empty_handed).into_iter();
            let written = written.filter(|one| one.is_flash).map(|one| one.written_bytes);
            let unsteady = steady::of_trace(built.flash_bytes().into_iter().zip(written));
            (before, unsteady)
        }
        Warmed::NeverWritten => (before, None),
    };
    let devices = DeviceUse::since(after, &since);
    let clock = if built.is_in_turn() { ClockKind::InTurn } else { ClockKind::Virtual };
    Ok(assemble(
        &report,
        MeasuredCase {
            clock,
            user_written_bytes: devices.first().map_or(0, |one| one.written_bytes),
            devices,
            dram: built.dram(),
            usable_bytes: built.capacity_bytes(),
            hit_ratio,
            unsteady,
            remarks,
            ..empty()
        },
    ))
}

/// How a warm-up was made.
enum Warmed {
    /// Until the drives were steady, or for long.
    Steadily(Warm),
    /// For as long as the plan says; the traffic when its last part began.
    ByPlan(Vec<DeviceUse>),
    /// With the beginning of a trace.
    ByTrace,
    /// No flash drive is written.
    NeverWritten,
}

impl Bench<'_> {
    fn run(&self, job: &Job, source: Source) -> Result<LoadReport, LabError> {
        device_load::run(job, source, &self.target, &self.stop)
    }

    /// Writes the part that holds data once.
    fn fill(&self, maker: &Maker) -> Result<(), LabError> {
        let Some(filled) = self.built.filled() else { return Ok(()) };
        let filling = Job {
            fill: true,
            sizes: vec![Size { bytes: FILL_BYTES, weight: 1 }],
            span_bytes: Some(held_bytes(self.inputs, filled)),
            // The streams are apart from the beginning, where there are any.
            streams: if std::ptr::eq(filled, self.built) { self.job.streams } else { 0 },
            time_limit: None,
            bytes_limit: Some(0),
            seed: self.inputs.seed,
            ..Job::default()
        };
        device_load::run(&filling, Source::Mix, &target(filled, maker), &self.stop)?;
        Ok(())
    }

    fn warm_up(
        &self,
        feed: &mut Feed,
        tell: &mut dyn FnMut(&str) -> Result<(), LabError>,
    ) -> Result<Warmed, LabError> {
        let flash: u64 = self.built.flash_bytes().iter().sum();
        let is_written = flash > 0 && self.job.read_percent < 100;
        let (warm_up, measured_bytes) = match feed {
            Feed::Mix { warm_up } => (*warm_up, self.job.bytes_limit.unwrap_or(0)),
            Feed::Writers { warm_up, bytes, .. } => (*warm_up, *bytes),
            Feed::Trace { warm_up, timing, .. } => {
                if !warm_up.is_empty() {
                    tell("warming up")?;
                    self.run(&self.job, Source::Trace(std::mem::take(warm_up), *timing))?;
                }
                return Ok(if flash > 0 { Warmed::ByTrace } else { Warmed::NeverWritten });
            }
        };
        let bytes = match warm_up {
            WarmUp::Steady if is_written => {
                let part_bytes = flash.min(self.built.capacity_bytes());
                let warm = steady::until_steady(
                    || self.built.uses(),
                    |part| {
                        tell(&format!("warming up, part {part}"))?;
                        self.warming(feed, part, part_bytes).map(|_| ())
                    },
                )?;
                return Ok(Warmed::Steadily(warm));
            }
            WarmUp::Steady => measured_bytes / 2,
            WarmUp::Bytes(bytes) => bytes,
        };
        let last = (bytes / 2).min(measured_bytes);
        let mut then = self.built.uses();
        for (part, bytes) in [(1, bytes - last), (2, last)] {
            if bytes > 0 {
                tell("warming up")?;
                then = self.built.uses();
                let (job, source) = self.requests(feed, part, bytes);
                self.run(&job, source)?;
            }
        }
        Ok(if is_written { Warmed::ByPlan(then) } else { Warmed::NeverWritten })
    }

    /// A part of a warm-up in which the user writes so many bytes. Reads matter to the content of a cache alone.
    fn warming(&self, feed: &mut Feed, part: usize, bytes: u64) -> Result<LoadReport, LabError> {
        let (mut job, source) = self.requests(feed, part, bytes);
        job.rate = None;
        if let (Feed::Mix { .. }, Some(limit)) = (&*feed, &mut job.bytes_limit) {
            let others = u64::from(100 - job.read_percent);
            match self.built.has_cache() {
                true => *limit = bytes.saturating_mul(100) / others,
                false => {
                    let discards = u64::from(job.discard_percent) * 100 / others;
                    job.discard_percent = u32::try_from(discards).unwrap_or(0);
                    job.read_percent = 0;
                }
            }
        }
        self.run(&job, source)
    }

    /// The requests of a part of the warm-up that moves so many bytes.
    fn requests(&self, feed: &mut Feed, part: usize, bytes: u64) -> (Job, Source) {
        let seed = self.job.seed.wrapping_add(to_u64(part));
        match feed {
            Feed::Writers { writers, .. } => {
                (self.job.clone(), Source::Trace(writers.requests(bytes), Timing::Order))
            }
            Feed::Mix { .. } | Feed::Trace { .. } => {
                (Job { bytes_limit: Some(bytes), seed, ..self.job.clone() }, Source::Mix)
            }
        }
    }

    /// The requests of the measured part.
    fn measured(&self, feed: Feed) -> (Job, Source) {
        let source = match feed {
            Feed::Mix { .. } => Source::Mix,
            Feed::Writers { mut writers, bytes, .. } => {
                Source::Trace(writers.requests(bytes), Timing::Order)
            }
            Feed::Trace { measured, timing, .. } => Source::Trace(measured, timing),
        };
        (self.job.clone(), source)
    }
}

/// Bytes of a device that hold data before a load on it.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn held_bytes(inputs: &Inputs, device: &Built) -> u64 {
    let capacity = device.capacity_bytes();
    let held = (capacity as f64 * inputs.filled) as u64;
    (held / FILL_BYTES * FILL_BYTES).max(FILL_BYTES.min(capacity))
}

fn target(built: &Built, maker: &Maker) -> Target {
    Target { device: built.device.clone(), clock: maker.clock.clone(), model: None }
}

fn empty() -> MeasuredCase {
    MeasuredCase {
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
        unsteady: None,
        written_bytes_per_s: 0.0,
        remarks: Vec::new(),
    }
}

#[allow(clippy::cast_precision_loss)] // rates of counts
fn assemble(report: &LoadReport, measured: MeasuredCase) -> MeasuredCase {
    let elapsed_s = report.elapsed_ns as f64 / 1e9;
    let data = || report.kinds.iter().filter(|one| one.kind == "read" || one.kind == "write");
    let kinds = report.kinds.iter();
    MeasuredCase {
        elapsed_s,
        operations: data().map(|one| one.requests).sum(),
        ops_per_s: data().map(|one| one.requests_per_s).sum(),
        bytes_per_s: data().map(|one| one.bytes_per_s).sum(),
        written_bytes_per_s: data()
            .filter(|one| one.kind == "write")
            .map(|one| one.bytes_per_s)
            .sum(),
        latencies: kinds
            .filter_map(|one| Some(KindLatency::of(&one.kind, one.latency.as_ref()?)))
            .collect(),
        ..measured
    }
}

fn prepared(inputs: &Inputs, built: &Built) -> Result<Prepared, LabError> {
    match &inputs.load {
        Load::Mix { job, warm_up } => {
            let streams = streams(u64::from(job.streams), built)?;
            let span_bytes = span(inputs, job.span_bytes, built)?;
            let job = Job { streams, span_bytes, ..(**job).clone() };
            Ok(Prepared { job, feed: Feed::Mix { warm_up: *warm_up }, remarks: Vec::new() })
        }
        Load::Streams(load) => of_streams(inputs, load, built),
        Load::Trace(load) => of_trace(load, inputs.seed, built),
        Load::Engine(_) => Err(LabError::Invalid("a load of the engine has no device".to_owned())),
    }
}

/// The bytes that a load is spread over: those that it says, or those that hold data.
fn span(inputs: &Inputs, said: Option<u64>, built: &Built) -> Result<Option<u64>, LabError> {
    if inputs.filled >= 1.0 {
        return Ok(said);
    }
    let held = held_bytes(inputs, built);
    match said {
        Some(said) if said > held => Err(LabError::Invalid(format!(
            "the load spreads over {said} bytes and {held} are filled: make filled larger, or span smaller"
        ))),
        said => Ok(Some(said.unwrap_or(held))),
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

/// Writers that take turns at random, each as often as its rate says.
struct Writers {
    load: StreamsLoad,
    rng: Rng,
    /// Bytes of each writer's part.
    part: u64,
    /// Where each writer goes on in its part.
    at: Vec<u64>,
}

impl Writers {
    fn requests(&mut self, bytes: u64) -> Vec<Request> {
        (0..bytes / self.load.request_bytes).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Request {
        let Writers { load, rng, part, at } = self;
        let total: f64 = load.writers.iter().sum();
        let mut draw = rng.unit() * total;
        let chosen = load.writers.iter().position(|rate| {
            draw -= rate;
            draw < 0.0
        });
        let writer = chosen.unwrap_or(load.writers.len() - 1);
        let reads = rng.below(100) < u64::from(load.read_percent);
        let anywhere = rng.below(*part / load.request_bytes) * load.request_bytes;
        let place = match reads || load.is_uniform {
            true => anywhere,
            false => {
                let place = at[writer];
                at[writer] = (place + load.request_bytes) % *part;
                place
            }
        };
        Request {
            time_ns: 0,
            offset: to_u64(writer) * *part + place,
            length: load.request_bytes,
            device: 0,
            op: if reads { Op::Read } else { Op::Write },
        }
    }
}

fn of_streams(inputs: &Inputs, load: &StreamsLoad, built: &Built) -> Result<Prepared, LabError> {
    let writers = to_u64(load.writers.len());
    let capacity = built.capacity_bytes();
    let span = span(inputs, load.span_bytes, built)?.unwrap_or(capacity);
    let part = span / writers / load.request_bytes * load.request_bytes;
    if part == 0 || span > capacity {
        return Err(LabError::Invalid(format!(
            "{writers} writers with requests of {} bytes do not fit {span} bytes of a device with {capacity}",
            load.request_bytes
        )));
    }
    let job = Job {
        read_percent: load.read_percent,
        sizes: vec![Size { bytes: load.request_bytes, weight: 1 }],
        depth: load.depth,
        span_bytes: Some(part * writers),
        streams: streams(writers, built)?,
        time_limit: None,
        bytes_limit: None,
        seed: inputs.seed,
        ..Job::default()
    };
    let at = vec![0; load.writers.len()];
    let writers = Box::new(Writers { load: load.clone(), rng: Rng::new(inputs.seed), part, at });
    let feed = Feed::Writers { writers, warm_up: load.warm_up, bytes: load.bytes };
    Ok(Prepared { job, feed, remarks: Vec::new() })
}

fn of_trace(load: &TraceLoad, seed: u64, built: &Built) -> Result<Prepared, LabError> {
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
    let feed = Feed::Trace { warm_up: parts, measured, timing: load.timing };
    Ok(Prepared { job, feed, remarks })
}
