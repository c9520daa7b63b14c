//! The load of a file.

use std::collections::BTreeMap;
use std::fs::File as Opened;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use esker_base::units::human_bytes;
use esker_bench::zipf::DEFAULT_THETA;
use esker_bench::{Dataset, Distribution, ValueFormat, Workload};
use esker_trace::MysqlOptions;
use sha2::{Digest, Sha256};

use crate::LabError;
use crate::device_load::{Job, Pattern, Size, Timing};
use crate::plan::drive::scaled;
use crate::plan::file::{Asked, File, Mix, Refusal, Streams, Time, TraceOf, Wrong, Ycsb};
use crate::plan::inputs::{EngineLoad, Load, StreamsLoad, TraceLoad, TraceSource, WarmUp};
use crate::plan::requests::{have_times, requests};
use crate::plan::surroundings::Surroundings;

/// The least memory of the engine.
const LEAST_MEMORY: u64 = 16 << 20;
/// The most requests of a trace that are replayed where nothing is said, and at all.
const REQUESTS: usize = 1_000_000;
const MOST_REQUESTS: usize = 100_000_000;
/// The slowest clock, and the one of a file that does not say.
const MOST_DILATION: u32 = 1000;
const DILATION: u32 = 24;
/// Requests in flight where nothing is said.
const DEPTH: usize = 32;

/// Checksums and lengths of traces, made once for all cases.
pub(super) struct Traces<'a> {
    folder: &'a Path,
    surroundings: &'a Surroundings<'a>,
    known: BTreeMap<Vec<PathBuf>, String>,
    spans: BTreeMap<String, f64>,
}

impl<'a> Traces<'a> {
    pub(super) fn new(folder: &'a Path, surroundings: &'a Surroundings<'a>) -> Traces<'a> {
        Traces { folder, surroundings, known: BTreeMap::new(), spans: BTreeMap::new() }
    }

    /// The path that a name in a file means: variables of the environment are put in, and it is seen from the file's
    /// folder.
    fn path(&self, name: &str) -> Result<PathBuf, String> {
        let mut text = String::new();
        let mut rest = name;
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let (variable, after) = match after.strip_prefix('{').and_then(|it| it.split_once('}'))
            {
                Some((variable, after)) => (variable, after),
                None => {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
                    after.split_at(end)
                }
            };
            let value = (self.surroundings.variable)(variable);
            let Some(value) = value else {
                return Err(format!(
                    "{name}: the environment has no variable {variable}: set it, or write the path"
                ));
            };
            text.push_str(&value);
            rest = after;
        }
        text.push_str(rest);
        Ok(self.folder.join(text))
    }

    /// The checksum of all bytes of these files.
    fn digest(&mut self, files: &[PathBuf]) -> Result<String, String> {
        if let Some(known) = self.known.get(files) {
            return Ok(known.clone());
        }
        let mut hash = Sha256::new();
        let mut part = vec![0; 1 << 20];
        for file in files {
            let failed = |error: std::io::Error| {
                format!("{}: {error}: name a trace that can be read", file.display())
            };
            let mut opened = Opened::open(file).map_err(failed)?;
            loop {
                let count = opened.read(&mut part).map_err(failed)?;
                if count == 0 {
                    break;
                }
                hash.update(&part[..count]);
            }
        }
        let text: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.known.insert(files.to_vec(), text.clone());
        Ok(text)
    }

    /// The seconds over which the requests were recorded.
    #[allow(clippy::cast_precision_loss)] // a span for people
    fn recorded_s(&mut self, load: &TraceLoad) -> Result<f64, LabError> {
        let source = match &load.source {
            TraceSource::Files { digest, .. } => digest.clone(),
            TraceSource::Database(options) => format!("{options:?}"),
        };
        let key = format!("{source} {}", load.requests);
        if let Some(known) = self.spans.get(&key) {
            return Ok(*known);
        }
        let requests = requests(load)?;
        let times = || requests.iter().map(|one| one.time_ns);
        let span = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let seconds = span as f64 / 1e9;
        self.spans.insert(key, seconds);
        Ok(seconds)
    }
}

/// The load of a file, and the seconds over which it was recorded, if it was.
pub(super) fn resolve(
    file: &File,
    scale: f64,
    seed: u64,
    traces: &mut Traces<'_>,
) -> Result<(Load, Option<f64>), Refusal> {
    match (&file.ycsb, &file.mix, &file.streams, &file.trace) {
        (Some(of), None, None, None) => Ok((engine(of, scale)?, None)),
        (None, Some(of), None, None) => Ok((mix(of, scale, seed)?, None)),
        (None, None, Some(of), None) => Ok((streams(of, scale)?, None)),
        (None, None, None, Some(of)) => trace(of, seed, traces),
        (None, None, None, None) => {
            let why = "there is no load: add one of [ycsb], [mix], [streams] and [trace]";
            Err(Wrong::at(["title"], why).into())
        }
        _ => {
            let tables = [
                ("ycsb", file.ycsb.is_some()),
                ("mix", file.mix.is_some()),
                ("streams", file.streams.is_some()),
                ("trace", file.trace.is_some()),
            ];
            let second = tables.iter().filter(|(_, is_there)| *is_there).nth(1);
            let name = second.map_or("mix", |(name, _)| name);
            Err(Wrong::at([name], "a plan has one load: take the others out").into())
        }
    }
}

fn theta(table: &str, theta: Option<f64>) -> Result<f64, Wrong> {
    let theta = theta.unwrap_or(DEFAULT_THETA);
    match theta > 0.0 && theta < 1.0 {
        true => Ok(theta),
        false => {
            Err(Wrong::at([table, "theta"], format!("a skew of {theta}: give one between 0 and 1")))
        }
    }
}

fn engine(of: &Ycsb, scale: f64) -> Result<Load, Wrong> {
    let wrong = |key: &str, why: String| Wrong::at(["ycsb", key], why);
    let records = scaled(of.records, scale);
    let operations = scaled(of.operations, scale);
    if records < 1000 || operations < 1 {
        let why = format!(
            "{records} records and {operations} operations are left of them: scale by less"
        );
        return Err(wrong("records", why));
    }
    let memory_bytes = scaled(of.memory.0, scale);
    if memory_bytes < LEAST_MEMORY {
        let why = format!(
            "{} are left of the memory, and the engine needs {}: scale by less, or give more",
            human_bytes(memory_bytes),
            human_bytes(LEAST_MEMORY)
        );
        return Err(wrong("memory", why));
    }
    let value = of.value.map_or(1000, |bytes| bytes.0);
    let value = u32::try_from(value).ok().filter(|bytes| *bytes <= 1 << 20);
    let Some(value) = value else {
        return Err(wrong("value", "a value has at most 1 MiB here".to_owned()));
    };
    let dilation = match (of.time.unwrap_or(Time::Virtual), of.dilation) {
        (Time::Virtual, None) => None,
        (Time::Virtual, Some(_)) => {
            let why = "virtual time is not slower than another: leave it out, or write time = \"dilated\"";
            return Err(wrong("dilation", why.to_owned()));
        }
        (Time::Dilated, given) => {
            let dilation = given.unwrap_or(DILATION);
            if !(1..=MOST_DILATION).contains(&dilation) {
                return Err(wrong(
                    "dilation",
                    format!("a clock is 1 to {MOST_DILATION} times slower"),
                ));
            }
            Some(dilation)
        }
    };
    let clients = of.clients.unwrap_or(1);
    if !(1..=4096).contains(&clients) || (dilation.is_none() && clients > 1) {
        let why =
            "1 to 4096 clients; in virtual time there is one: write time = \"dilated\" for more";
        return Err(wrong("clients", why.to_owned()));
    }
    let workload = workload(of)?;
    Ok(Load::Engine(Box::new(EngineLoad {
        dataset: Dataset { records, values: ValueFormat::one(value), ..Dataset::default() },
        workload,
        operations,
        memory_bytes,
        dilation,
        clients,
    })))
}

fn workload(of: &Ycsb) -> Result<Workload, Wrong> {
    let wrong = |key: &str, why: String| Wrong::at(["ycsb", key], why);
    let parts = [of.read, of.update, of.insert, of.scan, of.read_modify_write];
    let is_own = parts.iter().any(Option::is_some);
    let mut workload = match (&of.workload, is_own) {
        (Some(_), true) => {
            let why = "a workload has its own shares: leave them out, or the workload";
            return Err(wrong("workload", why.to_owned()));
        }
        (Some(name), false) => {
            Workload::preset(name).filter(|one| one.insert < 1.0).ok_or_else(|| {
                wrong("workload", format!("'{name}' is no workload: write a, b, c, d, e or f"))
            })?
        }
        (None, false) => {
            return Err(wrong(
                "records",
                "add workload = \"a\", or shares such as read = 0.5".to_owned(),
            ));
        }
        (None, true) => {
            let [read, update, insert, scan, read_modify_write] =
                parts.map(|one| one.unwrap_or(0.0));
            let sum = read + update + insert + scan + read_modify_write;
            if (sum - 1.0).abs() > 1e-6
                || parts.iter().flatten().any(|one| !(0.0..=1.0).contains(one))
            {
                let why =
                    format!("the shares add up to {sum}: they are 0 to 1 each, and 1 together");
                return Err(wrong("read", why));
            }
            let name = "own mix".to_owned();
            Workload { name, read, update, insert, scan, read_modify_write, ..Workload::a() }
        }
    };
    let theta = theta("ycsb", of.theta)?;
    match of.distribution {
        None if of.theta.is_some() => workload.request = Distribution::ScrambledZipfian { theta },
        None => {}
        Some(Asked::Uniform) => workload.request = Distribution::Uniform,
        Some(Asked::Zipfian) => workload.request = Distribution::ScrambledZipfian { theta },
        Some(Asked::Latest) => workload.request = Distribution::Latest { theta },
        Some(Asked::Sequential) => {
            let why = "records are asked for uniformly, by \"zipfian\" or by \"latest\"";
            return Err(wrong("distribution", why.to_owned()));
        }
    }
    Ok(workload)
}

fn percent(table: &str, key: &str, percent: u32) -> Result<u32, Wrong> {
    match percent <= 100 {
        true => Ok(percent),
        false => Err(Wrong::at([table, key], format!("{percent} of 100 requests: give 0 to 100"))),
    }
}

fn mix(of: &Mix, scale: f64, seed: u64) -> Result<Load, Wrong> {
    percent("mix", "reads", of.reads.saturating_add(of.discards))?;
    let pattern = match of.pattern {
        None | Some(Asked::Uniform) => Pattern::Uniform,
        Some(Asked::Sequential) => Pattern::Sequential,
        Some(Asked::Zipfian) => Pattern::Zipfian(theta("mix", of.theta)?),
        Some(Asked::Latest) => {
            let why = "addresses are asked for by \"uniform\", \"zipfian\" or \"sequential\"";
            return Err(Wrong::at(["mix", "pattern"], why));
        }
    };
    let bytes = scaled(of.bytes.0, scale);
    let job = Job {
        read_percent: of.reads,
        discard_percent: of.discards,
        sizes: vec![Size { bytes: of.request.map_or(4096, |bytes| bytes.0), weight: 1 }],
        pattern,
        depth: of.depth.unwrap_or(DEPTH),
        span_bytes: of.span.map(|bytes| scaled(bytes.0, scale)),
        streams: of.streams.unwrap_or(0),
        flush_every: of.flush_every,
        rate: of.rate,
        time_limit: None,
        bytes_limit: Some(bytes),
        seed,
        ..Job::default()
    };
    let warm_up = match of.warm_up {
        Some(given) => WarmUp::Bytes(scaled(given.0, scale)),
        None if of.reads == 100 => WarmUp::Bytes(0),
        None => WarmUp::Steady,
    };
    Ok(Load::Mix { job: Box::new(job), warm_up })
}

/// The share of a device that holds data before a load on it.
pub(super) fn filled(file: &File) -> Result<f64, Wrong> {
    let tables = [
        ("mix", file.mix.as_ref().and_then(|of| of.filled)),
        ("streams", file.streams.as_ref().and_then(|of| of.filled)),
        ("trace", file.trace.as_ref().and_then(|of| of.filled)),
    ];
    let Some((table, filled)) = tables.into_iter().find_map(|(table, of)| Some((table, of?)))
    else {
        return Ok(1.0);
    };
    match filled > 0.0 && filled <= 1.0 {
        true => Ok(filled),
        false => {
            let why = format!("{filled}: a share of the device, such as 0.5, and at most 1");
            Err(Wrong::at([table, "filled"], why))
        }
    }
}

fn streams(of: &Streams, scale: f64) -> Result<Load, Wrong> {
    let is_rate = |rate: &f64| *rate > 0.0 && rate.is_finite();
    if !(1..=128).contains(&of.writers.len()) || !of.writers.iter().all(is_rate) {
        let why = "1 to 128 writers with a rate above 0 each, such as [1, 4, 16, 64]";
        return Err(Wrong::at(["streams", "writers"], why));
    }
    let is_uniform = match of.pattern {
        None | Some(Asked::Sequential) => false,
        Some(Asked::Uniform) => true,
        Some(_) => {
            let why =
                "a writer goes round (\"sequential\") or writes anywhere in its part (\"uniform\")";
            return Err(Wrong::at(["streams", "pattern"], why));
        }
    };
    let bytes = scaled(of.bytes.0, scale);
    Ok(Load::Streams(Box::new(StreamsLoad {
        writers: of.writers.clone(),
        request_bytes: of.request.map_or(64 << 10, |bytes| bytes.0),
        span_bytes: of.span.map(|bytes| scaled(bytes.0, scale)),
        is_uniform,
        read_percent: percent("streams", "reads", of.reads.unwrap_or(0))?,
        depth: of.depth.unwrap_or(DEPTH),
        bytes,
        warm_up: of.warm_up.map_or(WarmUp::Steady, |given| WarmUp::Bytes(scaled(given.0, scale))),
    })))
}

fn trace(of: &TraceOf, seed: u64, traces: &mut Traces<'_>) -> Result<(Load, Option<f64>), Refusal> {
    let wrong = |key: &str, why: String| Wrong::at(["trace", key], why);
    let source = match (&of.files[..], &of.database) {
        ([], Some(database)) => {
            let usual = MysqlOptions::default();
            let data = database.data.0;
            TraceSource::Database(MysqlOptions {
                data_bytes: data,
                pool_bytes: database.memory.map_or(data / 16, |bytes| bytes.0),
                scan_bytes: data / 64,
                transactions_per_s: database.transactions_per_s.unwrap_or(usual.transactions_per_s),
                seed,
                ..usual
            })
        }
        (names, None) if !names.is_empty() => {
            let mut files = Vec::new();
            for (index, name) in names.iter().enumerate() {
                let at = || Wrong::at(["trace", "files", &index.to_string()], String::new());
                let missing = |why: String| Refusal::Missing(Wrong { why, ..at() });
                let path = traces.path(name).map_err(missing)?;
                let found = esker_trace::read::files_of(&path);
                files.extend(found.map_err(|error| missing(error.to_string()))?);
            }
            let digest = traces.digest(&files);
            let digest = digest.map_err(|why| Refusal::Missing(wrong("files", why)))?;
            TraceSource::Files { digest, files }
        }
        _ => {
            let why = "a trace is files = [\"PATH\"], or database = { data = \"8GiB\" }, which makes one up";
            return Err(Wrong::at(["trace"], why).into());
        }
    };
    let requests = of.requests.unwrap_or(REQUESTS);
    if !(1..=MOST_REQUESTS).contains(&requests) {
        return Err(wrong("requests", format!("1 to {MOST_REQUESTS} requests are replayed")).into());
    }
    let timing = match of.faster {
        None => Timing::Order,
        Some(faster) if faster > 0.0 && faster <= 1e6 => Timing::Recorded(faster),
        Some(faster) => {
            return Err(wrong("faster", format!("{faster} times: give 1 for as recorded")).into());
        }
    };
    let warm_up = of.warm_up.unwrap_or(0.0);
    if !(0.0..1.0).contains(&warm_up) {
        return Err(
            wrong("warm_up", format!("{warm_up}: a share of the requests, such as 0.2")).into()
        );
    }
    let depth = of.depth.unwrap_or(DEPTH);
    let load = TraceLoad { source, requests, timing, depth, warm_up };
    let key = match &load.source {
        TraceSource::Files { .. } => "files",
        TraceSource::Database(_) => "database",
    };
    let of_trace = |error: LabError| wrong(key, error.to_string());
    let has_times = have_times(&load.source).map_err(of_trace)?;
    if matches!(load.timing, Timing::Recorded(_)) && !has_times {
        let why =
            "a trace of this format has no times: leave it out, and requests are replayed in order";
        return Err(wrong("faster", why.to_owned()).into());
    }
    let recorded = traces.recorded_s(&load).map_err(of_trace)?;
    let recorded = Some(recorded).filter(|seconds| has_times && *seconds > 0.0);
    Ok((Load::Trace(Box::new(load)), recorded))
}

fn warmed(of: WarmUp) -> String {
    match of {
        WarmUp::Steady => "until write amplification is steady".to_owned(),
        WarmUp::Bytes(bytes) => format!("of {}", human_bytes(bytes)),
    }
}

/// A load in words.
pub(super) fn in_words(load: &Load) -> String {
    let in_flight = |depth: usize| format!("{depth} in flight");
    match load {
        Load::Mix { job, warm_up } => format!(
            "{} % reads, {} % discards, the rest writes, of {}; {}; {} after a warm-up {}",
            job.read_percent,
            job.discard_percent,
            human_bytes(job.largest()),
            in_flight(job.depth),
            human_bytes(job.bytes_limit.unwrap_or(0)),
            warmed(*warm_up)
        ),
        Load::Streams(of) => {
            let rates: Vec<String> = of.writers.iter().map(f64::to_string).collect();
            format!(
                "writers at {} of {} each, {}, {} % reads; {}; {} after a warm-up {}",
                rates.join(":"),
                human_bytes(of.request_bytes),
                if of.is_uniform { "anywhere in their parts" } else { "going round their parts" },
                of.read_percent,
                in_flight(of.depth),
                human_bytes(of.bytes),
                warmed(of.warm_up)
            )
        }
        Load::Trace(of) => {
            let when = match of.timing {
                Timing::Order => format!("in order, {}", in_flight(of.depth)),
                Timing::Recorded(faster) => format!("when recorded, {faster} times as fast"),
            };
            match &of.source {
                TraceSource::Files { files, .. } => {
                    let name = |file: &PathBuf| {
                        file.file_name().unwrap_or_default().to_string_lossy().into_owned()
                    };
                    let names: Vec<String> = files.iter().map(name).collect();
                    format!("up to {} requests of {}, {when}", of.requests, names.join(", "))
                }
                TraceSource::Database(options) => format!(
                    "{} requests of a made-up database server over {}, {when}",
                    of.requests,
                    human_bytes(options.data_bytes)
                ),
            }
        }
        Load::Engine(of) => format!(
            "{} records of {} bytes, then {} operations of workload {} by {} client(s), {} of memory",
            of.dataset.records,
            of.dataset.values.bytes(),
            of.operations,
            of.workload.name,
            of.clients,
            human_bytes(of.memory_bytes)
        ),
    }
}
