//! The arms: how the drives of all nodes are put together, and where data is compressed.

use serde::{Deserialize, Serialize};

/// How the drives reach the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Each node has a stripe of its own drives.
    Stripe,
    /// All drives are one pool, and each node has a volume of it over NVMe/TCP.
    Pool,
    /// Each node has a pool of its own drives, opened by the process that attaches it.
    PoolHere,
}

/// One side of the comparison, or a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deployment {
    /// Local drives; Cassandra compresses.
    Local,
    /// The same once more: their difference is the effect of repetition alone.
    LocalAgain,
    /// One pool over the network; the pool compresses.
    Remote,
    /// One pool over the network; nobody compresses.
    RemotePlain,
    /// Local drives; nobody compresses.
    LocalPlain,
    /// A pool for each node, without a network; the pool compresses.
    PoolHere,
}

impl Deployment {
    /// All of them.
    pub const ALL: [Deployment; 6] = [
        Deployment::Local,
        Deployment::LocalAgain,
        Deployment::Remote,
        Deployment::RemotePlain,
        Deployment::LocalPlain,
        Deployment::PoolHere,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Deployment::Local => "local",
            Deployment::LocalAgain => "local again",
            Deployment::Remote => "remote",
            Deployment::RemotePlain => "remote, uncompressed",
            Deployment::LocalPlain => "local, uncompressed",
            Deployment::PoolHere => "pool without network",
        }
    }

    /// A sentence on its deployment.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Deployment::Local => {
                "each node on a stripe of its own drives, Cassandra compresses (LZ4)"
            }
            Deployment::LocalAgain => "the same databases as local, measured once more (A/A)",
            Deployment::Remote => {
                "all drives in one pool, each node on a volume over NVMe/TCP, the pool compresses (LZ4)"
            }
            Deployment::RemotePlain => "as remote, and nobody compresses",
            Deployment::LocalPlain => "as local, and nobody compresses",
            Deployment::PoolHere => {
                "each node on a pool of its own drives without a network, the pool compresses (LZ4)"
            }
        }
    }

    /// How the drives reach its nodes.
    #[must_use]
    pub fn storage(self) -> Storage {
        match self {
            Deployment::Local | Deployment::LocalAgain | Deployment::LocalPlain => Storage::Stripe,
            Deployment::Remote | Deployment::RemotePlain => Storage::Pool,
            Deployment::PoolHere => Storage::PoolHere,
        }
    }

    /// Whether Cassandra compresses.
    #[must_use]
    pub fn node_compresses(self) -> bool {
        matches!(self, Deployment::Local | Deployment::LocalAgain)
    }

    /// Whether the pool compresses, if there is one.
    #[must_use]
    pub fn pool_compresses(self) -> bool {
        matches!(self, Deployment::Remote | Deployment::PoolHere)
    }

    /// The arm whose databases this one uses.
    #[must_use]
    pub fn data(self) -> Deployment {
        if self == Deployment::LocalAgain { Deployment::Local } else { self }
    }
}
