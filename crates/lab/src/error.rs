//! Errors of the laboratory.

use esker_base::ErrorKind;
use esker_bench::BenchError;
use esker_cache::CacheError;
use esker_device::DeviceError;
use esker_flash::FlashError;
use esker_kv::KvError;
use esker_nvmf::NvmfError;
use esker_trace::TraceError;
use thiserror::Error;

/// Why an experiment could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The parameters are wrong; the message says how to correct them.
    #[error("{0}")]
    Invalid(String),
    /// A store under test has no place left to write to.
    #[error(
        "the store with blocks of {block_bytes} bytes has none free, with {live_percent} % of its \
         space live: give it fewer records, or a higher threshold for its defragmentation"
    )]
    Full {
        /// The size of its blocks.
        block_bytes: u64,
        /// How much of its space is live.
        live_percent: u64,
    },
    /// A drive wrote something else over the network than in process.
    #[error(
        "{name}: the drive wrote {in_process} bytes of the host in process, and {over_network} over \
         the network: placement ids or commands were changed on the way"
    )]
    Differs {
        /// The workload.
        name: String,
        /// Media bytes of host bytes.
        in_process: String,
        /// The same over the network.
        over_network: String,
    },
    /// A run on this machine gave a wrong answer, or ended early.
    #[error("{way}: {why}")]
    Way {
        /// The way that was run.
        way: String,
        /// The problem.
        why: String,
    },
    /// A line of a file is wrong.
    #[error("{place}: {why}")]
    Line {
        /// The file and the line.
        place: String,
        /// The problem and the remedy.
        why: String,
        /// The remedy for callers.
        kind: ErrorKind,
    },
    /// A result could not be kept.
    #[error("{place}: {why}")]
    Kept {
        /// The file or folder.
        place: String,
        /// The refusal and the remedy.
        why: String,
        /// The remedy for callers.
        kind: ErrorKind,
    },
    /// The observer of its progress ended it.
    #[error("the experiment was ended before it was through")]
    Interrupted,
    /// The operating system has no thread to give.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
    /// The model of the drive refused.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The target or an initiator refused.
    #[error(transparent)]
    Nvmf(#[from] NvmfError),
    /// A trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The simulator of caches refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The engine refused.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// A workload could not be run.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

impl LabError {
    /// Returns the remedy for callers, as a kind of error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            LabError::Invalid(_) => ErrorKind::Invalid,
            LabError::Full { .. } => ErrorKind::NoSpace,
            LabError::Differs { .. } => ErrorKind::Corrupt,
            LabError::Way { .. } => ErrorKind::Io,
            LabError::Line { kind, .. } | LabError::Kept { kind, .. } => *kind,
            LabError::Interrupted => ErrorKind::Closed,
            LabError::Thread(error) => ErrorKind::from(error),
            LabError::Flash(error) => error.kind(),
            LabError::Device(error) => error.kind(),
            LabError::Trace(error) => error.kind(),
            LabError::Cache(error) => error.kind(),
            LabError::Nvmf(error) => error.kind(),
            LabError::Kv(error) => error.kind(),
            LabError::Bench(error) => error.kind(),
        }
    }
}
