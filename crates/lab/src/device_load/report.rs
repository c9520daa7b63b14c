//! Results of the load, as text and JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use esker_base::units::{human_bytes, to_nanos};
use esker_bench::result::Latency;
use esker_device::DeviceStats;
use esker_flash::ssd::Report as DriveReport;
use serde::Serialize;

use super::client::{INTERVAL, Outcome};
use super::job::{Job, Pattern};
use super::target::Target;

/// Version of the JSON; it changes with the form.
const FORMAT: &str = "esker-device-load/1";

/// The remark on reads of a modelled drive that holds less than what is read.
pub(super) const NOTHING_TO_READ: &str = "not comparable: the drive held less than the load reads, and reads of what was never \
                               written touch no media; add --fill";

/// The report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// The form of this report.
    pub format: String,
    /// The device.
    pub device: String,
    /// The load in words.
    pub load: String,
    /// How long it took, in nanoseconds of the device's time.
    pub elapsed_ns: u64,
    /// Each kind of request.
    pub kinds: Vec<KindResult>,
    /// Traffic of the device meanwhile.
    pub carried: Carried,
    /// State of the drive after the load, if it is a model.
    pub drive: Option<DriveResult>,
    /// Requests and bytes that came back.
    pub course: Vec<CoursePoint>,
    /// Remarks about the device.
    pub remarks: Vec<String>,
    /// Where it was run.
    pub environment: BTreeMap<String, String>,
    /// How.
    pub command: String,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindResult {
    /// `read`, `write`, `discard` or `flush`.
    pub kind: String,
    /// How many.
    pub requests: u64,
    /// A second.
    pub requests_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// How long they took, from when they were due.
    pub latency: Option<Latency>,
}

/// Traffic of the device during the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded or zeroed.
    pub discarded_bytes: u64,
}

/// State and counters of a modelled drive after the load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveResult {
    /// Bytes of all media in use.
    pub physical_bytes: u64,
    /// Bytes that the host can address.
    pub capacity_bytes: u64,
    /// Reclaim units, and those that cleaning keeps for itself.
    pub units: u32,
    /// See `units`.
    pub reserve_units: u32,
    /// Bytes of a reclaim unit.
    pub unit_bytes: u64,
    /// Bytes that are mapped, at the end.
    pub valid_bytes: u64,
    /// Bytes of the host.
    pub host_written_bytes: u64,
    /// Bytes that the media wrote.
    pub media_written_bytes: u64,
    /// Media over host; none where the host wrote nothing.
    pub write_amplification: Option<f64>,
    /// Pages copied by cleaning.
    pub copied_pages: u64,
    /// Of the rated erasures, how many went, in percent.
    pub life_percent: f64,
    /// Units by how often they were erased, at the end: erasures and units.
    pub wear: Vec<(u32, u32)>,
}

/// An interval of the course.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CoursePoint {
    /// Its end, since the load's begin.
    pub end_ns: u64,
    /// Requests that came back.
    pub requests: u64,
    /// Bytes that they read and wrote.
    pub bytes: u64,
}

/// A moment of the device.
pub(super) struct Moment {
    stats: DeviceStats,
    drive: Option<DriveReport>,
}

impl Moment {
    pub(super) fn of(target: &Target) -> Moment {
        Moment {
            stats: target.device.stats(),
            drive: target.model.as_ref().map(esker_flash::Ssd::report),
        }
    }
}

impl LoadReport {
    pub(super) fn new(
        job: &Job,
        target: &Target,
        outcomes: Vec<Outcome>,
        elapsed: Duration,
        before: &Moment,
    ) -> LoadReport {
        let mut all = Outcome::default();
        outcomes.iter().for_each(|one| all.merge(one));
        let after = Moment::of(target);
        let seconds = elapsed.as_secs_f64().max(1e-9);
        #[allow(clippy::cast_precision_loss)] // rates of counts
        let kinds = all.kinds.iter().map(|(op, kind)| KindResult {
            kind: op.name().to_owned(),
            requests: kind.requests,
            requests_per_s: kind.requests as f64 / seconds,
            bytes_per_s: kind.bytes as f64 / seconds,
            latency: kind.latencies.summary(),
        });
        let point = |(end, &(requests, bytes)): (u64, &(u64, u64))| CoursePoint {
            end_ns: end * to_nanos(INTERVAL),
            requests,
            bytes,
        };
        let held = before.drive.as_ref().map(valid_bytes);
        let reads_nothing = job.read_percent > 0 && held.is_some_and(|held| held < job.span());
        let nothing_to_read = reads_nothing.then(|| NOTHING_TO_READ.to_owned());
        let (now, then) = (&after.stats, &before.stats);
        LoadReport {
            format: FORMAT.to_owned(),
            device: target.device.name().to_owned(),
            load: in_words(job),
            elapsed_ns: to_nanos(elapsed),
            kinds: kinds.collect(),
            carried: Carried {
                read_bytes: now.read_bytes - then.read_bytes,
                written_bytes: now.written_bytes - then.written_bytes,
                discarded_bytes: now.discarded_bytes - then.discarded_bytes,
            },
            drive: after.drive.zip(before.drive.as_ref()).map(|(now, then)| drive(&now, then)),
            course: (1..).zip(&all.course).map(point).collect(),
            remarks: target.device.remarks().into_iter().chain(nothing_to_read).collect(),
            environment: BTreeMap::new(),
            command: String::new(),
        }
    }

    /// The same with the load in other words: the requests of a trace are not in the job.
    #[must_use]
    pub fn with_load(self, load: String) -> LoadReport {
        LoadReport { load, ..self }
    }

    /// As JSON, indented.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form")
    }
}

/// Bytes of the host that a drive holds.
pub(crate) fn valid_bytes(drive: &DriveReport) -> u64 {
    let pages: u64 = drive.writers.iter().map(|(_, units)| units.valid_pages).sum();
    pages * u64::from(drive.parameters.page_size)
}

fn drive(now: &DriveReport, then: &DriveReport) -> DriveResult {
    let parameters = &now.parameters;
    let pages = now.pages.since(&then.pages);
    let host = now.host_written_bytes - then.host_written_bytes;
    let media = now.media_written_bytes() - then.media_written_bytes();
    #[allow(clippy::cast_precision_loss)] // a ratio of byte counts
    let amplification = (host > 0).then(|| media as f64 / host as f64);
    DriveResult {
        physical_bytes: parameters.unit_size * u64::from(parameters.units),
        capacity_bytes: parameters.capacity,
        units: parameters.units,
        reserve_units: now.reserve_units,
        unit_bytes: parameters.unit_size,
        valid_bytes: valid_bytes(now),
        host_written_bytes: host,
        media_written_bytes: media,
        write_amplification: amplification,
        copied_pages: pages.copied,
        life_percent: now.used_percent() - then.used_percent(),
        wear: now.wear.clone(),
    }
}

/// The load in words.
fn in_words(job: &Job) -> String {
    let sizes: Vec<String> = job.sizes.iter().map(|one| human_bytes(one.bytes)).collect();
    let pattern = match job.pattern {
        Pattern::Sequential => "in order".to_owned(),
        Pattern::Uniform => "uniform".to_owned(),
        Pattern::Zipfian(theta) => format!("zipfian, skew {theta}"),
    };
    let writes = 100 - job.read_percent - job.discard_percent;
    let mut text = format!(
        "{} % reads, {writes} % writes, {} % discards of {}, {pattern}, over {}, {} in flight on {} thread(s)",
        job.read_percent,
        job.discard_percent,
        sizes.join(", "),
        human_bytes(job.span()),
        job.depth,
        job.threads
    );
    if let Some(rate) = job.rate {
        let _ = write!(text, ", {rate} a second");
    }
    if job.streams > 0 {
        let _ = write!(text, ", {} placement identifiers", job.streams);
    }
    text
}
