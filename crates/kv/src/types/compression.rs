//! How the values of a KVS are compressed, as a user says it. `values/compression.rs` does it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::types::error::{KvError, Result};

/// How the values of a KVS are compressed when they age. Values that are compressed already stay as
/// they are. Zstandard needs the feature `zstd`, which is on by default; a build without it opens no KVDB with a KVS
/// that uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4, where it saves more than an eighth: the fastest to read.
    Lz4,
    /// Zstandard, where it saves more than an eighth: the smallest.
    Zstd,
    /// Whichever of both a sample of the values says: Zstandard where it saves another eighth over
    /// LZ4, neither where neither saves one.
    Auto,
}

impl Compression {
    /// All of them.
    pub const ALL: [Compression; 4] =
        [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Auto];

    /// Refuses what this build has no code for.
    pub(crate) fn check(self, kvs: &str) -> Result<()> {
        match self {
            Compression::Zstd | Compression::Auto if !cfg!(feature = "zstd") => {
                Err(KvError::WithoutZstd(kvs.into()))
            }
            _ => Ok(()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
            Compression::Auto => "auto",
        }
    }
}

impl FromStr for Compression {
    type Err = String;
    fn from_str(name: &str) -> Result<Compression, String> {
        let found = Compression::ALL.into_iter().find(|known| known.name() == name);
        found.ok_or_else(|| format!("'{name}' is no compression; use none, lz4, zstd or auto"))
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
