//! Everything that a run's figures depend on, and nothing else: names, prices and growth are not in it.
//!
//! Two runs with the same inputs give the same figures in virtual time, so that results are kept by
//! [`Inputs::canonical`].

use std::path::PathBuf;

use esker_base::policy::Kind;
use esker_bench::{Dataset, Workload};
use esker_cache::{Admission, Mode};
use esker_flash::Parameters;
use esker_flash::disk::DiskParameters;
use esker_trace::MysqlOptions;

use crate::device_load::{Job, Timing};

/// Bytes that a request of a trace moves, about.
const REQUEST_MOVES: u64 = 16 << 10;
/// Memory of a run beside its drives and requests.
const LEAST_BYTES: u64 = 64 << 20;
/// Memory of a request of a trace: as it was read, and in the parts that a device takes.
const REQUEST_BYTES: u64 = 96;

/// The inputs of a run.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// The devices: those that a load on a device is run on; or the engine's capacity, then its staging class.
    pub(super) devices: Vec<Node>,
    pub(super) load: Load,
    /// The share of a device that holds data when a load on it begins; the rest is trimmed.
    pub(super) filled: f64,
    pub(super) seed: u64,
}

/// A device.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Ssd(Box<SsdNode>),
    Disk(Box<DiskParameters>),
    Stripe { drives: Vec<Node>, chunk_bytes: u64 },
    Cache(Box<CacheNode>),
    Pool(Box<PoolNode>),
}

/// A solid-state drive, scaled down.
#[derive(Clone, Debug)]
pub(super) struct SsdNode {
    pub(super) parameters: Parameters,
    /// Whether data placement is enabled.
    pub(super) placement: bool,
}

/// A flash device in front of an origin.
#[derive(Clone, Debug)]
pub(super) struct CacheNode {
    pub(super) origin: Node,
    pub(super) flash: Node,
    pub(super) size: Option<u64>,
    pub(super) mode: Mode,
    pub(super) policy: Kind,
    pub(super) admission: Admission,
    pub(super) bypass_bytes: u64,
    pub(super) read_ahead_bytes: u64,
    pub(super) set_bytes: u64,
}

/// A volume of all the room of a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolNode {
    pub(super) drives: Vec<Node>,
    pub(super) parity: u8,
    pub(super) chunk_bytes: u64,
    pub(super) log_bytes: u64,
    pub(super) spare_percent: u8,
    pub(super) map_bytes: u64,
}

/// The load on the devices.
#[derive(Clone, Debug)]
pub(super) enum Load {
    Mix { job: Box<Job>, warm_up: WarmUp },
    Streams(Box<StreamsLoad>),
    Trace(Box<TraceLoad>),
    Engine(Box<EngineLoad>),
}

/// The writes before the measured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarmUp {
    /// Until the write amplification of the drives is steady.
    Steady,
    /// So many bytes, as the plan says.
    Bytes(u64),
}

impl WarmUp {
    /// Bytes that it moves on a device of so many, nearly.
    fn bytes(self, device_bytes: u64) -> u64 {
        match self {
            WarmUp::Steady => device_bytes.saturating_mul(4),
            WarmUp::Bytes(bytes) => bytes,
        }
    }
}

/// Writers at different rates.
#[derive(Clone, Debug)]
pub(super) struct StreamsLoad {
    pub(super) writers: Vec<f64>,
    pub(super) request_bytes: u64,
    pub(super) span_bytes: Option<u64>,
    pub(super) is_uniform: bool,
    pub(super) read_percent: u32,
    pub(super) depth: usize,
    pub(super) bytes: u64,
    pub(super) warm_up: WarmUp,
}

/// Requests that were recorded or made up.
#[derive(Clone, Debug)]
pub(super) struct TraceLoad {
    pub(super) source: TraceSource,
    /// The most requests.
    pub(super) requests: usize,
    pub(super) timing: Timing,
    pub(super) depth: usize,
    /// The share of the requests that is not measured.
    pub(super) warm_up: f64,
}

/// Where requests come from.
#[derive(Clone, Debug)]
pub(super) enum TraceSource {
    /// Files, known by a checksum of all their bytes.
    Files {
        digest: String,
        files: Vec<PathBuf>,
    },
    Database(MysqlOptions),
}

/// Records of the engine.
#[derive(Clone, Debug)]
pub(super) struct EngineLoad {
    pub(super) dataset: Dataset,
    pub(super) workload: Workload,
    pub(super) operations: u64,
    pub(super) memory_bytes: u64,
    /// How many times slower than real time the clock is; none for virtual time, in which clients and maintenance
    /// take turns.
    pub(super) dilation: Option<u32>,
    pub(super) clients: usize,
}

impl Inputs {
    /// All of it as text, in one form only. Where the files of a trace lie is left out: their content counts.
    pub(super) fn canonical(&self) -> String {
        let mut plain = self.clone();
        if let Load::Trace(trace) = &mut plain.load
            && let TraceSource::Files { files, .. } = &mut trace.source
        {
            files.clear();
        }
        format!("{plain:?}")
    }

    /// Whether the run's time does not pass by itself, so that it gives the same figures on every machine.
    pub(super) fn is_virtual(&self) -> bool {
        match &self.load {
            Load::Engine(engine) => engine.dilation.is_none(),
            _ => true,
        }
    }

    /// Bytes of memory that the run takes at most, nearly: the data that its drives hold, and their maps.
    pub(super) fn memory_bytes(&self) -> u64 {
        let (keeps, more) = match &self.load {
            Load::Engine(engine) => (true, engine.memory_bytes),
            Load::Mix { .. } => (false, LEAST_BYTES),
            Load::Streams(of) => {
                let device: u64 = self.devices.iter().map(Node::fill_bytes).sum();
                // Warm-ups are made in parts of a device at most.
                let requests = of.bytes.max(device) / of.request_bytes;
                (false, requests.saturating_mul(REQUEST_BYTES).saturating_add(LEAST_BYTES))
            }
            Load::Trace(of) => {
                let requests = u64::try_from(of.requests).unwrap_or(u64::MAX);
                (false, requests.saturating_mul(REQUEST_BYTES).saturating_add(LEAST_BYTES))
            }
        };
        let devices = self.devices.iter().map(|one| one.memory_bytes(keeps)).sum::<u64>();
        devices.saturating_add(more)
    }

    /// Bytes that are moved, nearly: how long it takes grows with them.
    pub(super) fn work_bytes(&self) -> u64 {
        let filled: u64 = self.devices.iter().map(Node::fill_bytes).sum();
        let load = match &self.load {
            Load::Mix { job, warm_up } => {
                job.bytes_limit.unwrap_or(0).saturating_add(warm_up.bytes(filled))
            }
            Load::Streams(streams) => streams.bytes.saturating_add(streams.warm_up.bytes(filled)),
            Load::Trace(trace) => {
                u64::try_from(trace.requests).unwrap_or(u64::MAX).saturating_mul(REQUEST_MOVES)
            }
            Load::Engine(engine) => {
                let count = engine.dataset.records.saturating_add(engine.operations);
                return count.saturating_mul(engine.dataset.values.bytes());
            }
        };
        filled.saturating_add(load)
    }
}

impl Node {
    /// Bytes of memory, where the content of drives is kept or not.
    fn memory_bytes(&self, keeps: bool) -> u64 {
        match self {
            Node::Ssd(ssd) => {
                let parameters = &ssd.parameters;
                let map = parameters.media_bytes() / u64::from(parameters.page_size) * 12;
                map + if keeps { parameters.media_bytes() } else { 0 }
            }
            Node::Disk(_) => 1 << 20,
            Node::Stripe { drives, .. } => drives.iter().map(|one| one.memory_bytes(keeps)).sum(),
            Node::Cache(cache) => cache.origin.memory_bytes(keeps) + cache.flash.memory_bytes(true),
            Node::Pool(pool) => {
                pool.map_bytes + pool.drives.iter().map(|one| one.memory_bytes(true)).sum::<u64>()
            }
        }
    }

    /// Bytes that are written before a load on a device begins.
    fn fill_bytes(&self) -> u64 {
        match self {
            Node::Ssd(ssd) => ssd.parameters.capacity,
            Node::Disk(_) => 0,
            Node::Stripe { drives, .. } => drives.iter().map(Node::fill_bytes).sum(),
            Node::Cache(cache) => cache.origin.fill_bytes(),
            Node::Pool(pool) => pool.drives.iter().map(Node::fill_bytes).sum(),
        }
    }
}
