//! The formats of traces.

use std::fmt;
use std::str::FromStr;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Esker's own.
    Compact,
    /// Linux blktrace, version 7.
    Blktrace,
    /// The output of blkparse.
    Blkparse,
    /// MSR Cambridge.
    Msr,
    /// SPC, as the UMass traces.
    Spc,
    /// VMware's vscsi, both versions.
    Vscsi,
    /// libCacheSim's oracleGeneral.
    OracleGeneral,
    /// Alibaba Cloud's block storage.
    Alibaba,
    /// Tencent's cloud block storage.
    Tencent,
    /// The traces of the ARC paper.
    Lis,
    /// DiskSim, SSDsim and MQSim.
    Disksim,
    /// Systor '17.
    Systor,
    /// FIU.
    Fiu,
    /// CacheLib's block chunks.
    Cachelib,
    /// 32-bit block numbers.
    U32le,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 15] = [
        Format::Compact,
        Format::Blktrace,
        Format::Blkparse,
        Format::Msr,
        Format::Spc,
        Format::Vscsi,
        Format::OracleGeneral,
        Format::Alibaba,
        Format::Tencent,
        Format::Lis,
        Format::Disksim,
        Format::Systor,
        Format::Fiu,
        Format::Cachelib,
        Format::U32le,
    ];

    /// The name by which a user says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Compact => "esker",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Vscsi => "vscsi",
            Format::OracleGeneral => "oracle-general",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Lis => "lis",
            Format::Disksim => "disksim",
            Format::Systor => "systor",
            Format::Fiu => "fiu",
            Format::Cachelib => "cachelib",
            Format::U32le => "u32le",
        }
    }

    /// Whether requests carry the times at which they were recorded. Readers of the other formats put requests at equal
    /// distances.
    #[must_use]
    pub fn has_times(self) -> bool {
        !matches!(self, Format::Lis | Format::U32le)
    }

    /// The bytes of a unit of address where the format does not say: `None` where it does.
    #[must_use]
    pub fn default_unit_bytes(self) -> Option<u64> {
        match self {
            Format::Lis => Some(512),
            Format::U32le | Format::OracleGeneral => Some(4096),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        Format::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("'{text}' is no format of traces; use one of {}", names.join(", "))
        })
    }
}
