//! A plan's file: TOML with drives, the devices built of them, a load, and alternatives.
//!
//! Every refusal names the line. The reader (serde) finds a key that is unknown, or a value of another type. The
//! resolver of the plan finds settings that do not go together, and names the key ([`Wrong`]).

mod amount;
mod lines;

use std::collections::BTreeMap;

use esker_cache::{Admission, Mode};
use serde::Deserialize;
use toml::{Table, Value};

pub(super) use amount::{Bytes, Price};
pub(super) use lines::Lines;

use crate::LabError;

/// Something in a plan that does not go with the rest of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wrong {
    /// The key, from the outermost table on.
    pub(super) at: Vec<String>,
    /// The fault, and the right way.
    pub(super) why: String,
}

impl Wrong {
    pub(super) fn at<S: Into<String>>(
        at: impl IntoIterator<Item = S>,
        why: impl Into<String>,
    ) -> Wrong {
        Wrong { at: at.into_iter().map(Into::into).collect(), why: why.into() }
    }
}

/// Why a plan is refused: something does not go together, or a file is not there.
#[derive(Debug)]
pub(super) enum Refusal {
    Wrong(Wrong),
    Missing(Wrong),
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Refusal {
        Refusal::Wrong(wrong)
    }
}

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: Option<String>,
    pub(super) seed: Option<u64>,
    /// The divisor of data, memory, drives and caches.
    pub(super) scale: Option<f64>,
    #[serde(default)]
    pub(super) drive: BTreeMap<String, Drive>,
    #[serde(default)]
    pub(super) stripe: BTreeMap<String, StripeOf>,
    #[serde(default)]
    pub(super) cache: BTreeMap<String, CacheOf>,
    #[serde(default)]
    pub(super) pool: BTreeMap<String, PoolOf>,
    pub(super) ycsb: Option<Ycsb>,
    pub(super) mix: Option<Mix>,
    pub(super) streams: Option<Streams>,
    pub(super) trace: Option<TraceOf>,
    pub(super) growth: Option<Growth>,
    pub(super) prices: Option<Prices>,
    #[serde(default)]
    pub(super) sweep: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub(super) alternative: Vec<Alternative>,
}

/// A drive: a profile, and the figures that are another than the profile's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drive {
    pub(super) profile: String,
    pub(super) capacity: Option<Bytes>,
    pub(super) over_provisioning: Option<f64>,
    pub(super) reclaim_unit: Option<Bytes>,
    pub(super) placement: Option<bool>,
    pub(super) translation: Option<Translation>,
    pub(super) rated_erasures: Option<u32>,
    pub(super) sequential_read: Option<Bytes>,
    pub(super) sequential_write: Option<Bytes>,
    pub(super) random_reads: Option<u64>,
    pub(super) read_latency_us: Option<f64>,
    pub(super) write_latency_us: Option<f64>,
    pub(super) price: Option<Price>,
    pub(super) price_per_tb: Option<Price>,
}

/// The side that has the translation layer of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Translation {
    Host,
    Drive,
}

/// Several devices as one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StripeOf {
    pub(super) drives: Vec<String>,
    pub(super) chunk: Option<Bytes>,
}

/// A flash device in front of an origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CacheOf {
    pub(super) origin: String,
    pub(super) flash: String,
    pub(super) size: Option<Bytes>,
    pub(super) mode: Option<Mode>,
    pub(super) policy: Option<String>,
    pub(super) admit: Option<AdmitOf>,
    pub(super) bypass: Option<Bytes>,
    pub(super) read_ahead: Option<Bytes>,
    pub(super) set: Option<Bytes>,
}

/// Which missed blocks a cache lets in.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AdmitOf {
    All,
    Again,
    Auto,
}

impl From<AdmitOf> for Admission {
    fn from(of: AdmitOf) -> Admission {
        match of {
            AdmitOf::All => Admission::All,
            AdmitOf::Again => Admission::Again,
            AdmitOf::Auto => Admission::Auto,
        }
    }
}

/// A volume of a pool of drives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolOf {
    pub(super) drives: Vec<String>,
    pub(super) parity: Option<u8>,
    pub(super) chunk: Option<Bytes>,
    pub(super) spare_percent: Option<u8>,
    pub(super) map: Option<Bytes>,
}

/// Records of the engine, and the load of its clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ycsb {
    pub(super) records: u64,
    pub(super) value: Option<Bytes>,
    pub(super) workload: Option<String>,
    pub(super) read: Option<f64>,
    pub(super) update: Option<f64>,
    pub(super) insert: Option<f64>,
    pub(super) scan: Option<f64>,
    pub(super) read_modify_write: Option<f64>,
    pub(super) distribution: Option<Asked>,
    pub(super) theta: Option<f64>,
    pub(super) operations: u64,
    pub(super) memory: Bytes,
    pub(super) time: Option<Time>,
    pub(super) dilation: Option<u32>,
    pub(super) clients: Option<usize>,
}

/// How the time of the engine passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Time {
    Virtual,
    Dilated,
}

/// Which records or addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Asked {
    Uniform,
    Zipfian,
    Latest,
    Sequential,
}

/// Reads, writes and discards of a device, by a mix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mix {
    pub(super) reads: u32,
    #[serde(default)]
    pub(super) discards: u32,
    pub(super) request: Option<Bytes>,
    pub(super) pattern: Option<Asked>,
    pub(super) theta: Option<f64>,
    pub(super) span: Option<Bytes>,
    pub(super) filled: Option<f64>,
    pub(super) depth: Option<usize>,
    pub(super) rate: Option<f64>,
    pub(super) flush_every: Option<u64>,
    pub(super) streams: Option<u16>,
    pub(super) bytes: Bytes,
    pub(super) warm_up: Option<Bytes>,
}

/// Writers of equal parts of a device at different rates, each one a log that goes round.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Streams {
    pub(super) writers: Vec<f64>,
    pub(super) request: Option<Bytes>,
    pub(super) span: Option<Bytes>,
    pub(super) filled: Option<f64>,
    pub(super) pattern: Option<Asked>,
    pub(super) reads: Option<u32>,
    pub(super) depth: Option<usize>,
    pub(super) bytes: Bytes,
    pub(super) warm_up: Option<Bytes>,
}

/// Requests that were recorded, or those of a made-up database server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceOf {
    #[serde(default)]
    pub(super) files: Vec<String>,
    pub(super) database: Option<Database>,
    pub(super) requests: Option<usize>,
    pub(super) faster: Option<f64>,
    pub(super) depth: Option<usize>,
    pub(super) filled: Option<f64>,
    pub(super) warm_up: Option<f64>,
}

/// The made-up database server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Database {
    pub(super) data: Bytes,
    pub(super) memory: Option<Bytes>,
    pub(super) transactions_per_s: Option<f64>,
}

/// Data that is there, data to come, and how long a drive is kept.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Growth {
    pub(super) data: Option<Bytes>,
    pub(super) data_per_month: Option<Bytes>,
    pub(super) written_per_day: Option<Bytes>,
    pub(super) replace_after_years: Option<f64>,
}

/// Prices of other things than drives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    pub(super) currency: Option<String>,
    pub(super) dram_per_gib: Option<Price>,
}

/// Something to compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alternative {
    pub(super) name: String,
    /// The device that a load is run on.
    pub(super) device: Option<String>,
    /// The engine's classes.
    pub(super) capacity: Option<String>,
    pub(super) staging: Option<String>,
    /// Parameters that are others here.
    #[serde(default)]
    pub(super) set: BTreeMap<String, Value>,
}

/// A file that was read: as it is typed, as it can be changed, and where everything stands.
pub(super) struct Read {
    pub(super) file: File,
    pub(super) table: Table,
    pub(super) lines: Lines,
}

/// Reads the text of a file that is called `name`.
///
/// # Errors
/// The first line that is wrong, and why.
pub(super) fn read(name: &str, text: &str) -> Result<Read, LabError> {
    let lines = Lines::of(name, text)?;
    let wrong = |error: &toml::de::Error| {
        let line = error.span().map_or(1, |span| lines.line_of(span.start));
        lines.refusal(line, error.message())
    };
    let file: File = toml::from_str(text).map_err(|error| wrong(&error))?;
    let table: Table = text.parse().map_err(|error| wrong(&error))?;
    Ok(Read { file, table, lines })
}

/// The file with other values at some keys, such as `drive.qlc.over_provisioning`.
///
/// # Errors
/// The key that is none, or whose value cannot be this, and why.
pub(super) fn changed<'v>(
    table: &Table,
    values: impl IntoIterator<Item = (&'v str, &'v Value)> + Clone,
) -> Result<File, (String, String)> {
    // By way of text, so that one deserializer is compiled for these types.
    let typed = |table: Table| {
        let text = toml::to_string(&table).map_err(|error| error.to_string())?;
        toml::from_str::<File>(&text).map_err(|error| error.message().to_owned())
    };
    let mut all = table.clone();
    for (path, value) in values.clone() {
        put(&mut all, path, value).map_err(|why| (path.to_owned(), why))?;
    }
    typed(all).map_err(|why| {
        // One of them is at fault by itself, as the file without them is none.
        let alone = values.into_iter().find_map(|(path, value)| {
            let mut one = table.clone();
            put(&mut one, path, value).ok()?;
            typed(one).err().map(|why| (path.to_owned(), why))
        });
        alone.unwrap_or_else(|| (String::new(), why))
    })
}

/// Puts a value at a key of a device or of the load.
fn put(table: &mut Table, path: &str, value: &Value) -> Result<(), String> {
    let parts: Vec<&str> = path.split('.').collect();
    let Some((key, tables)) = parts.split_last() else { return Ok(()) };
    let roots = ["drive", "stripe", "cache", "pool", "ycsb", "mix", "streams", "trace"];
    if !tables.first().is_some_and(|root| roots.contains(root)) {
        let why = "only keys of drives, stripes, caches, pools and of the load can be changed";
        return Err(why.to_owned());
    }
    let mut inner = table;
    for part in tables {
        let found = inner.get_mut(*part).and_then(Value::as_table_mut);
        inner = found.ok_or_else(|| {
            format!("there is no table '{part}' in the file: name a key as in drive.NAME.KEY")
        })?;
    }
    inner.insert((*key).to_owned(), value.clone());
    Ok(())
}
