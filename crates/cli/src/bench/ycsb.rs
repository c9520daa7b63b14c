//! `esker bench ycsb`: the workloads of YCSB on a new database, or on one that an earlier run
//! loaded.

use std::time::Duration;

use esker_base::units::{counted, human_bytes, to_nanos, to_u64};
use esker_base::{Clock, ErrorKind};
use esker_bench::{Dataset, Distribution, KeyFormat, KeyOrder, RunOptions, RunResult, Runner};
use esker_bench::{ValueFormat, Workload, zipf};
use esker_kv::{Compression, KvError, Kvs, KvsOptions};
use esker_lab::store::KvStore;
use esker_serve::metrics::of_kvdb;
use serde_json::json;

use crate::args::{KeyOrderArg, RequestArg, YcsbArgs, engine_options};
use crate::failure::{Failure, Result};
use crate::figures::{self, grouped, short};
use crate::host;
use crate::measure::{self, Shown};
use crate::media::{Devices, Media};
use crate::metrics;
use crate::output::Outputs;
use crate::place::{self, Place};
use crate::traffic::{Traffic, columns};

/// Records of a load that names no number.
const RECORDS: u64 = 1_000_000;
/// How long a workload runs that has no limit of its own.
const SECONDS: Duration = Duration::from_secs(10);

/// The remedy where there is nothing to run workloads on.
const BEGIN: &str = "begin with --workload load, or name a loaded database with --db";

/// Runs the benchmark.
pub(crate) fn run(args: &YcsbArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
    let workloads = workloads(args)?;
    let mut dataset = dataset(args)?;
    let options = run_options(args);
    let durability = &args.durability;
    let engine = engine_options(args.memory, durability.durability_ms, durability.durability_bytes);
    let place = Place::new(args.db.as_ref(), &args.media);
    let found = place.exists();
    if found && Media::is_given(&args.media) {
        let why = "the database exists and its media classes are what they are; leave out \
                   --staging and --capacity, or name a new --db";
        return Err(Failure::usage(why));
    }
    if !found && workloads.first().is_none_or(|first| !is_load(first)) {
        return Err(match &place.dir {
            Some(dir) if dir.is_file() => {
                Failure::usage(format!("{}: it is a file", dir.display()))
            }
            Some(dir) => Failure::new(
                ErrorKind::NotFound,
                format!("{}: there is no database with records yet", dir.display()),
            ),
            None => Failure::usage("there is no database with records yet"),
        }
        .and(BEGIN));
    }
    let (db, devices) = match &place.dir {
        Some(dir) if found => place::open_in(dir, engine)?,
        // Nobody knows before how much compressing leaves of the values.
        _ if args.compression != Compression::None => place.create(engine, 0)?,
        _ => place.create(engine, measure::bytes(&dataset))?,
    };
    options.time_limit.iter().for_each(|span| host::note_long(*span, "a load"));
    host::note_long(args.warm_up, "a warm-up");
    host::note_threads(options.threads);
    place::warn_of_remarks(&db);
    let remarks = devices.remarks(&db);
    let kvs = match db.kvs(measure::KVS) {
        Err(KvError::UnknownKvs(_)) if workloads.iter().any(is_load) => {
            let compression = args.compression;
            db.create_kvs(measure::KVS, KvsOptions::default().compression(compression))?
        }
        found => found.map_err(|error| Failure::from(error).and(BEGIN))?,
    };
    let present = present(&kvs, args, &workloads, &mut dataset)?;
    let store = KvStore { db, kvs, process: host::samples };
    let exporter = metrics::if_asked(args.telling.metrics, || of_kvdb(&store.db, devices.stack()))?;
    outputs.say(&introduction(&place, &devices, &dataset, &options, args.memory))?;

    let mut report = measure::report("Esker: YCSB", dataset, &store, &remarks);
    measure::name_devices(&mut report, &devices);
    let clock = Clock::real();
    let shown = Shown::start(args.live.live, &report)?;
    let mut runner = Runner::new(&store, clock.clone(), dataset)?.with_records(present);
    let mut traffic = Vec::new();
    for workload in &workloads {
        if shown.is_interrupted() {
            break;
        }
        let before = store.db.stats();
        let run = measure::run(&mut runner, workload, &options, &shown)?;
        let settled = args.settle.then(|| measure::settle(&store, &clock, &shown));
        let settled = settled.transpose()?;
        let bytes = Traffic::between(&before, &store.db.stats());
        report.runs.push(run);
        traffic.push((workload.name.clone(), bytes, settled));
    }
    shown.clear();

    let stats = store.db.stats();
    let named: Vec<(&str, &Traffic)> = traffic.iter().map(|(n, t, _)| (&**n, t)).collect();
    let cpu: Vec<Option<f64>> = report.runs.iter().map(cpu_us).collect();
    outputs.say(&format!(
        "{}{}\nDevice writes of each run{}, and what it cost:\n\n{}\n{}{}",
        figures::runs_table(&report.runs),
        figures::remarks(&report.runs),
        if args.settle { ", maintenance after it included" } else { "" },
        columns(&named, &cpu),
        measure::memory(&stats, &devices),
        devices.conclusion(),
    ))?;
    measure::note_memory(&mut report, &stats, &devices);
    measure::note_interruption(&mut report, &shown, workloads.len());
    let runs: Vec<_> = traffic
        .iter()
        .map(|(name, bytes, settled)| {
            let settle_ns = settled.map(to_nanos);
            json!({ "workload": name, "settle_ns": settle_ns, "written": bytes.json() })
        })
        .collect();
    let more = json!({
        "traffic": runs,
        "peak_rss_bytes": host::peak_rss_bytes(),
        "devices": devices.json(),
    });
    outputs.finish(&measure::json_of(&report, &stats, more)?, &report.html())?;
    let interrupted = shown.end(|| report.html());
    drop(exporter);
    store.db.close()?;
    interrupted
}

fn is_load(workload: &Workload) -> bool {
    workload.name == Workload::load().name
}

/// The workloads, with the request distribution that was asked for.
fn workloads(args: &YcsbArgs) -> Result<Vec<Workload>> {
    let loads = args.workload.iter().filter(|workload| is_load(workload)).count();
    if loads > 1 || (loads == 1 && !is_load(&args.workload[0])) {
        let why = "the load comes once, before the other workloads; correct --workload";
        return Err(Failure::usage(why));
    }
    let theta = args.theta.unwrap_or(zipf::DEFAULT_THETA);
    let asked = args.distribution.map(|name| match name {
        RequestArg::Uniform => Distribution::Uniform,
        RequestArg::Zipfian => Distribution::ScrambledZipfian { theta },
        RequestArg::Latest => Distribution::Latest { theta },
    });
    let skewed = |own: Distribution| match own {
        Distribution::Uniform => Distribution::Uniform,
        Distribution::Zipfian { .. } => Distribution::Zipfian { theta },
        Distribution::ScrambledZipfian { .. } => Distribution::ScrambledZipfian { theta },
        Distribution::Latest { .. } => Distribution::Latest { theta },
    };
    let chosen = args.workload.iter().map(|workload| Workload {
        request: asked.unwrap_or_else(|| skewed(workload.request)),
        ..workload.clone()
    });
    Ok(chosen.collect())
}

fn dataset(args: &YcsbArgs) -> Result<Dataset> {
    let fitting = |bytes: u64| {
        u32::try_from(bytes)
            .ok()
            .filter(|bytes| u64::from(*bytes) <= to_u64(esker_kv::VALUE_MAX))
            .ok_or_else(|| too_large(bytes))
    };
    let mut values = if args.fields.is_some() || args.field_bytes.is_some() {
        let ycsb = ValueFormat::default();
        ValueFormat {
            fields: args.fields.unwrap_or(ycsb.fields),
            field_bytes: args.field_bytes.map_or(Ok(ycsb.field_bytes), fitting)?,
            ..ycsb
        }
    } else {
        ValueFormat::one(fitting(args.value_bytes.unwrap_or(1_000))?)
    };
    if values.bytes() > to_u64(esker_kv::VALUE_MAX) {
        return Err(too_large(values.bytes()));
    }
    values.compressible_percent = args.compressible;
    Ok(Dataset {
        records: args.records.unwrap_or(RECORDS),
        keys: match args.key_order {
            KeyOrderArg::Hashed => KeyFormat::default(),
            // Padded to the longest number, so that keys ascend as text.
            KeyOrderArg::Ordered => KeyFormat { order: KeyOrder::Ordered, zero_padding: 20 },
        },
        values,
    })
}

fn too_large(bytes: u64) -> Failure {
    Failure::usage(format!(
        "records of {} bytes are too large: a value has at most {} bytes",
        grouped(bytes),
        grouped(to_u64(esker_kv::VALUE_MAX))
    ))
}

fn run_options(args: &YcsbArgs) -> RunOptions {
    let unlimited = args.seconds.is_none() && args.operations.is_none();
    let time_limit = args.seconds.or(unlimited.then_some(SECONDS));
    RunOptions {
        threads: args.threads.unwrap_or_else(host::cores),
        operations: args.operations,
        time_limit,
        target_ops_per_s: args.rate,
        warm_up: args.warm_up,
        interval: measure::interval(time_limit.unwrap_or(SECONDS)),
        verify: args.verify,
        seed: args.seed,
        ..RunOptions::default()
    }
}

/// How many records of the data set the database holds already; the data set takes that number
/// where there is nothing to load.
fn present(
    kvs: &Kvs,
    args: &YcsbArgs,
    workloads: &[Workload],
    dataset: &mut Dataset,
) -> Result<u64> {
    let records = count_records(kvs, dataset)?;
    let loads = workloads.iter().any(is_load);
    if loads && records == 0 && kvs.cursor()?.next()?.is_some() {
        return Err(Failure::usage(format!(
            "the KVS '{}' holds other records than this data set's; give the --key-order it was \
             loaded with, or another --db",
            kvs.name()
        )));
    }
    if loads && records > 0 {
        return Err(Failure::usage(format!(
            "the database is loaded already: it holds {}; leave the load out of \
             --workload, or name a new --db",
            counted(records, "record")
        )));
    }
    if loads {
        return Ok(0);
    }
    if records == 0 {
        return Err(Failure::usage(format!(
            "the KVS '{}' holds no record of this data set; give the --key-order it was loaded \
             with, or begin with --workload load",
            kvs.name()
        )));
    }
    if let Some(wanted) = args.records.filter(|wanted| *wanted > records) {
        return Err(Failure::usage(format!(
            "the database holds {}, not {}; leave out --records",
            counted(records, "record"),
            grouped(wanted)
        )));
    }
    check_value_size(kvs, dataset)?;
    dataset.records = records;
    Ok(records)
}

fn count_records(kvs: &Kvs, dataset: &Dataset) -> Result<u64> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    end_of(|number| {
        dataset.keys.write(number, &mut key);
        Ok(kvs.get_into(&key, &mut value)?)
    })
}

/// The first number that is not held. They are held without gaps from 0 on, so it is found by
/// doubling and halving.
fn end_of(mut holds: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let mut end = 1;
    while holds(end - 1)? {
        end *= 2;
    }
    // The first `held` numbers are held, the first `end` are not.
    let mut held = end / 2;
    while end - held > 1 {
        let middle = held + (end - held) / 2;
        if holds(middle - 1)? {
            held = middle;
        } else {
            end = middle;
        }
    }
    Ok(held)
}

fn check_value_size(kvs: &Kvs, dataset: &Dataset) -> Result {
    let mut key = Vec::new();
    dataset.keys.write(0, &mut key);
    let got = kvs.get(&key)?.map_or(0, |value| to_u64(value.len()));
    if got == dataset.values.bytes() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the database holds records of {got} bytes, not {}; give --value-bytes {got}",
        dataset.values.bytes()
    )))
}

fn introduction(
    place: &Place,
    devices: &Devices,
    dataset: &Dataset,
    options: &RunOptions,
    memory_bytes: u64,
) -> String {
    let rate = options.target_ops_per_s;
    format!(
        "YCSB: {} of {}, {}, {} of memory, {}\n{}\n{}\n",
        counted(dataset.records, "record"),
        counted(dataset.values.bytes(), "byte"),
        counted(to_u64(options.threads), "thread"),
        human_bytes(memory_bytes),
        rate.map_or_else(
            || "as fast as possible".to_owned(),
            |rate| format!("{} operations/s", short(rate))
        ),
        place.describe(),
        devices.introduction()
    )
}

/// CPU time of the process for each operation of a run, in microseconds.
fn cpu_us(run: &RunResult) -> Option<f64> {
    let series = run.series.iter().find(|series| series.name == "CPU time")?;
    Some(series.increase()? / run.operations.max(1) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_gapless_numbers_is_found() {
        for count in (0..70).chain([1_000_000, (1 << 40) + 1]) {
            assert_eq!(end_of(|number| Ok(number < count)).unwrap(), count);
        }
    }
}
