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
    /// Twitter's caches.
    Twitter,
    /// IBM's object store.
    ObjectStore,
    /// libCacheSim's lcs.
    Lcs,
    /// libCacheSim's csv.
    Csv,
    /// libCacheSim's plain text: an object's id a line.
    Text,
    /// 32-bit block numbers.
    U32le,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 20] = [
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
        Format::Twitter,
        Format::ObjectStore,
        Format::Lcs,
        Format::Csv,
        Format::Text,
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
            Format::Twitter => "twitter",
            Format::ObjectStore => "object-store",
            Format::Lcs => "lcs",
            Format::Csv => "csv",
            Format::Text => "txt",
            Format::U32le => "u32le",
        }
    }

    /// The names of all, for people.
    #[must_use]
    pub fn list() -> String {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        names.join(", ")
    }

    /// Whether requests carry the times at which they were recorded. Readers of the other formats put requests at equal
    /// distances.
    #[must_use]
    pub fn has_times(self) -> bool {
        !matches!(self, Format::Lis | Format::Text | Format::U32le)
    }

    /// The bytes of a unit of address where the format does not say: `None` where it does.
    #[must_use]
    pub fn default_unit_bytes(self) -> Option<u64> {
        match self {
            Format::Lis => Some(512),
            Format::U32le
            | Format::OracleGeneral
            | Format::Twitter
            | Format::ObjectStore
            | Format::Lcs
            | Format::Csv
            | Format::Text => Some(4096),
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
            format!("'{text}' is no format of traces; use one of {}", Format::list())
        })
    }
}

/// Columns of csv, counted from 1, and what stands between them.
///
/// Written as libCacheSim's parameters are: `time=1,id=2,size=3,op=4`, or `time-col=1, obj-id-col=2, ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Seconds, which may have a fraction; without them lines are a microsecond apart.
    pub time: Option<u32>,
    /// The object.
    pub id: u32,
    /// Its size in bytes.
    pub size: Option<u32>,
    /// The operation; without it all requests are reads.
    pub op: Option<u32>,
}

impl Default for Columns {
    /// Time, object, size.
    fn default() -> Columns {
        Columns { time: Some(1), id: 2, size: Some(3), op: None }
    }
}

/// Bytes that may stand between two columns: the first of them that a line has does.
const BETWEEN: &[u8] = b",\t;|";

impl Columns {
    /// The columns that a header names; `None` for a line that is none, or names no time or no object.
    pub(crate) fn of_header(line: &[u8]) -> Option<Columns> {
        let (mut time, mut id, mut size, mut op) = (None, None, None, None);
        for (column, name) in (1..).zip(Columns::default().cells(line)) {
            let found = match &name.to_ascii_lowercase()[..] {
                b"time" | b"timestamp" | b"clock_time" | b"real_time" => &mut time,
                b"id" | b"obj_id" | b"object_id" | b"object" | b"obj" | b"key" | b"lbn"
                | b"lba" => &mut id,
                b"size" | b"obj_size" | b"object_size" | b"bytes" => &mut size,
                b"op" | b"operation" => &mut op,
                _ => continue,
            };
            *found = found.or(Some(column));
        }
        Some(Columns { time: Some(time?), id: id?, size, op })
    }

    /// The cells of a line.
    pub(crate) fn cells(self, line: &[u8]) -> impl Iterator<Item = &[u8]> {
        let between = line.iter().copied().find(|byte| BETWEEN.contains(byte)).unwrap_or(b',');
        line.split(move |&byte| byte == between).map(<[u8]>::trim_ascii)
    }
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Columns, String> {
        let wrong = || {
            format!(
                "'{text}' names no columns: write time=1,id=2,size=3,op=4, of which id is needed"
            )
        };
        let (mut time, mut id, mut size, mut op) = (None, None, None, None);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, column) = part.split_once('=').ok_or_else(wrong)?;
            let column = column.trim().parse::<u32>().ok().filter(|column| *column > 0);
            let found = match name.trim() {
                "time" | "time-col" => &mut time,
                "id" | "obj-id-col" => &mut id,
                "size" | "obj-size-col" => &mut size,
                "op" | "op-col" => &mut op,
                _ => return Err(wrong()),
            };
            *found = Some(column.ok_or_else(wrong)?);
        }
        Ok(Columns { time, id: id.ok_or_else(wrong)?, size, op })
    }
}
