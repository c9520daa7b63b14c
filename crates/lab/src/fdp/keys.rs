//! Which record an update is for.

use esker_base::Rng;
use esker_bench::key::fnv64;
use esker_bench::zipf::{DEFAULT_THETA, Zipfian};
use serde::{Deserialize, Serialize};

/// How often each record is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLaw {
    /// All alike.
    Uniform,
    /// YCSB's scrambled zipfian law (skew 0.99): a rank of ten billion, hashed to a record.
    Zipfian {
        /// How many records the table has of which those of the store are a sample. A table that
        /// is scaled down is less skewed than the whole: as many ranks are hashed to fewer
        /// records, which evens them out. `None` takes the store's own records for the whole.
        table_records: Option<u64>,
    },
}

impl std::fmt::Display for KeyLaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyLaw::Uniform => write!(f, "uniform"),
            KeyLaw::Zipfian { table_records: None } => {
                write!(f, "YCSB's scrambled zipfian, skew {DEFAULT_THETA}, over the scaled table")
            }
            KeyLaw::Zipfian { table_records: Some(records) } => write!(
                f,
                "YCSB's scrambled zipfian, skew {DEFAULT_THETA}, a sample of a table of {records} \
                 records"
            ),
        }
    }
}

/// The ranks over which YCSB draws.
const RANKS: u64 = 10_000_000_000;

/// Chooses records by a law.
#[derive(Clone, Debug)]
pub struct Keys {
    records: u32,
    zipfian: Option<Sampled>,
}

/// Every `stride`-th rank of the zipfian law, from the `stride`-th on: the ranks that a sample of
/// the table is asked for. Such a law has the same shape at every scale, and the ranks before the
/// first are so few that a sample has none of them.
#[derive(Clone, Debug)]
struct Sampled {
    ranks: Zipfian,
    stride: u64,
    /// The share of requests that are for ranks below `stride`.
    below: f64,
}

impl Keys {
    /// A chooser among so many records.
    #[must_use]
    pub fn new(law: KeyLaw, records: u32) -> Keys {
        let zipfian = match law {
            KeyLaw::Uniform => None,
            KeyLaw::Zipfian { table_records } => {
                let stride = table_records.unwrap_or(0) / u64::from(records.max(1));
                let ranks = Zipfian::new(RANKS, DEFAULT_THETA);
                let below = if stride > 1 { cumulative(&ranks, stride) } else { 0.0 };
                Some(Sampled { ranks, stride: stride.max(1), below })
            }
        };
        Keys { records, zipfian }
    }

    /// A record.
    pub fn choose(&self, rng: &mut Rng) -> u32 {
        let records = u64::from(self.records);
        let chosen = match &self.zipfian {
            None => rng.below(records),
            Some(sampled) => {
                let u = sampled.below + (1.0 - sampled.below) * rng.unit();
                fnv64(sampled.ranks.rank(u) / sampled.stride) % records
            }
        };
        u32::try_from(chosen).expect("below a count of 32 bits")
    }
}

/// The share of requests for ranks below `rank`, found where the sampler's inverse reaches it.
fn cumulative(ranks: &Zipfian, rank: u64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if ranks.rank(middle) < rank { low = middle } else { high = middle }
    }
    high
}
