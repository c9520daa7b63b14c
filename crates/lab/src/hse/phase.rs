//! The load or a workload on an arm, and the traffic of its drives meanwhile.

use std::ops::ControlFlow;

use esker_base::Clock;
use esker_bench::{RunOptions, RunResult, Runner, Workload};
use esker_kv::{MediaClass, Stats};
use serde::{Deserialize, Serialize};

use super::machine::{ArmDrive, Machine, Processors};
use crate::LabError;
use crate::store::KvStore;

/// Cause that decided how fast a phase was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decider {
    /// The drives: a class was busy for most of the time, and the processors were not.
    Drives,
    /// The processors: nothing is said of drives.
    Processors,
    /// Neither was busy: the engine or its clients waited.
    Waiting,
}

impl Decider {
    /// From this share of the time on a drive or the processors are said to decide.
    pub const BUSY: f64 = 0.7;

    pub(crate) fn of(processors: Option<f64>, drives: f64) -> Decider {
        match processors {
            Some(share) if share > Decider::BUSY => Decider::Processors,
            _ if drives >= Decider::BUSY => Decider::Drives,
            _ => Decider::Waiting,
        }
    }

    /// In a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Decider::Drives => "drives",
            Decider::Processors => "processors",
            Decider::Waiting => "waiting",
        }
    }
}

/// Latency of one kind of operation, in microseconds of the arm's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationLatency {
    /// `read`, `update`, `insert`, `scan` or `rmw`.
    pub operation: String,
    /// How many there were.
    pub count: u64,
    /// The arithmetic mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
}

/// Traffic of a drive in a phase, maintenance after it included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveUse {
    /// Its class.
    pub class: MediaClass,
    /// Its name.
    pub name: String,
    /// Bytes that the host wrote.
    pub written_bytes: u64,
    /// Bytes that the host read.
    pub read_bytes: u64,
    /// Reads of the host.
    pub reads: u64,
    /// Bytes that its media wrote, if it is a model.
    pub media_written_bytes: Option<u64>,
    /// The share of its rated life that went, in percent.
    pub life_percent: Option<f64>,
    /// How long it takes for all of this at least, in seconds.
    pub needs_s: Option<f64>,
    /// The same for its traffic before maintenance was waited for, as a share of that time.
    pub of_rates: Option<f64>,
}

/// Bytes of a stream in a phase, maintenance after it included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamBytes {
    /// The class.
    pub class: MediaClass,
    /// The stream's name.
    pub stream: String,
    /// Written.
    pub written_bytes: u64,
    /// Read.
    pub read_bytes: u64,
}

/// How busy a class was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassBusy {
    /// Which.
    pub class: MediaClass,
    /// The share of the time in which it had a command in flight.
    pub share: f64,
}

/// Results of a phase. Times are of the arm's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// The workload's name.
    pub workload: String,
    /// Operations that succeeded.
    pub operations: u64,
    /// A second.
    pub ops_per_s: f64,
    /// How long it took, in seconds.
    pub elapsed_s: f64,
    /// How long maintenance went on after it, in seconds.
    pub settle_s: f64,
    /// Latencies by operation.
    pub latencies: Vec<OperationLatency>,
    /// Keys and values that clients wrote.
    pub user_bytes: u64,
    /// Each drive.
    pub drives: Vec<DriveUse>,
    /// Each stream of each class that carried anything.
    pub streams: Vec<StreamBytes>,
    /// How busy each class was, before maintenance was waited for.
    pub busy: Vec<ClassBusy>,
    /// The share of their time in which the machine's processors had something to do.
    pub processors: Option<f64>,
    /// How long writers were slowed down and held up, in seconds of all clients together, by cause.
    pub held_s: Vec<(String, f64)>,
    /// The cause that decided how fast it was.
    pub decider: Decider,
    /// The run itself, with its course.
    pub run: RunResult,
}

impl Phase {
    /// Bytes written to the drives of a class.
    #[must_use]
    pub fn written_bytes(&self, class: MediaClass) -> u64 {
        self.drives.iter().filter(|one| one.class == class).map(|one| one.written_bytes).sum()
    }

    /// Bytes written to a class for each byte of the clients; none where they wrote none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a ratio
    pub fn per_user_byte(&self, class: MediaClass) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.written_bytes(class) as f64 / self.user_bytes as f64)
    }

    /// The latencies of an operation.
    #[must_use]
    pub fn latency(&self, operation: &str) -> Option<&OperationLatency> {
        self.latencies.iter().find(|one| one.operation == operation)
    }

    /// How long its busiest drive takes for its traffic, in seconds.
    #[must_use]
    pub fn needs_s(&self) -> Option<f64> {
        self.drives.iter().filter_map(|one| one.needs_s).reduce(f64::max)
    }

    /// The largest share of its rates that a drive was used at.
    #[must_use]
    pub fn of_rates(&self) -> Option<f64> {
        self.drives.iter().filter_map(|one| one.of_rates).reduce(f64::max)
    }
}

/// An arm while it runs.
pub(super) struct Running<'a> {
    pub(super) store: &'a KvStore,
    pub(super) drives: &'a [ArmDrive],
    pub(super) clock: &'a Clock,
    pub(super) machine: &'a dyn Machine,
}

/// A moment of an arm's drives, and of the machine.
pub(super) struct Moment {
    drives: Vec<DriveMoment>,
    processors: Option<Processors>,
}

impl Moment {
    pub(super) fn of(drives: &[ArmDrive], machine: &dyn Machine) -> Moment {
        let drives = drives.iter().map(DriveMoment::of).collect();
        Moment { drives, processors: machine.processors() }
    }
}

/// A run on drives, in the time of their clock.
pub(super) struct Course<'a> {
    pub(super) run: RunResult,
    pub(super) drives: &'a [ArmDrive],
    /// Before the run, at its end, and when maintenance had come to rest.
    pub(super) moments: [&'a Moment; 3],
    pub(super) elapsed_s: f64,
    pub(super) settle_s: f64,
    pub(super) busy: Vec<ClassBusy>,
}

impl Course<'_> {
    /// The phase, as far as drives and clients tell: without streams, and without times for which writers were held.
    pub(super) fn phase(self) -> Phase {
        let Course { run, drives, moments: [before, ended, settled], .. } = self;
        let each = drives.iter().enumerate();
        let drives: Vec<DriveUse> = each
            .map(|(index, drive)| {
                let moments = [before, ended, settled].map(|moment| moment.drives[index]);
                drive_use(drive, moments, self.elapsed_s)
            })
            .collect();
        let processors = before.processors.zip(ended.processors);
        let processors = processors.map(|(then, now)| now.share_since(&then));
        let rates = drives.iter().filter_map(|one| one.of_rates);
        let busiest = self.busy.iter().map(|one| one.share).chain(rates).fold(0.0, f64::max);
        Phase {
            workload: run.workload.name.clone(),
            operations: run.operations,
            ops_per_s: run.ops_per_s,
            elapsed_s: self.elapsed_s,
            settle_s: self.settle_s,
            latencies: latencies(&run),
            user_bytes: run.user_bytes_written,
            drives,
            streams: Vec::new(),
            busy: self.busy,
            processors,
            held_s: Vec::new(),
            decider: Decider::of(processors, busiest),
            run,
        }
    }
}

#[derive(Clone, Copy)]
struct DriveMoment {
    written_bytes: u64,
    read_bytes: u64,
    reads: u64,
    media_written_bytes: Option<u64>,
    life_percent: Option<f64>,
}

impl Running<'_> {
    fn moment(&self) -> (Stats, Moment) {
        (self.store.db.stats(), Moment::of(self.drives, self.machine))
    }

    /// Runs the load or a workload, and waits until maintenance has nothing left to do.
    pub(super) fn phase(
        &self,
        runner: &mut Runner<'_>,
        workload: &Workload,
        options: &RunOptions,
        follow: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Phase, LabError> {
        let before = self.moment();
        let mut progress = |now: &esker_bench::Progress<'_>| {
            follow(&format!("{} {:.0} %", now.workload, now.fraction * 100.0))
        };
        let run = match workload.name == Workload::load().name {
            true => runner.load(options, &mut progress)?,
            false => runner.run(workload, options, &mut progress)?,
        };
        if run.interrupted {
            return Err(LabError::Interrupted);
        }
        let ended = self.moment();
        let began = self.clock.now();
        if follow("waiting for maintenance").is_break() {
            return Err(LabError::Interrupted);
        }
        self.store.db.settle()?;
        let settle_s = self.clock.now().since(began).as_secs_f64();
        Ok(self.result(run, settle_s, [before, ended, self.moment()]))
    }

    fn result(&self, run: RunResult, settle_s: f64, moments: [(Stats, Moment); 3]) -> Phase {
        let [(before, first), (ended, second), (settled, third)] = &moments;
        #[allow(clippy::cast_precision_loss)] // a span for people
        let elapsed_s = (run.elapsed_ns + run.sync_ns) as f64 / 1e9;
        let (moments, busy) = ([first, second, third], busy(before, ended));
        let course = Course { run, drives: self.drives, moments, elapsed_s, settle_s, busy };
        Phase {
            user_bytes: settled.user_bytes - before.user_bytes,
            streams: streams(before, settled),
            held_s: held(before, ended),
            ..course.phase()
        }
    }
}

impl DriveMoment {
    fn of(drive: &ArmDrive) -> DriveMoment {
        let stats = drive.stats();
        let report = drive.model.as_ref().map(esker_flash::Ssd::report);
        DriveMoment {
            written_bytes: stats.written_bytes,
            read_bytes: stats.read_bytes,
            reads: stats.reads,
            media_written_bytes: report.as_ref().map(esker_flash::ssd::Report::media_written_bytes),
            life_percent: report.as_ref().map(esker_flash::ssd::Report::used_percent),
        }
    }
}

fn drive_use(drive: &ArmDrive, moments: [DriveMoment; 3], elapsed_s: f64) -> DriveUse {
    let [before, ended, settled] = moments;
    let needs = |now: DriveMoment| {
        let rates = drive.rates?;
        Some(rates.seconds(
            now.written_bytes - before.written_bytes,
            now.read_bytes - before.read_bytes,
            now.reads - before.reads,
        ))
    };
    let media = settled.media_written_bytes.zip(before.media_written_bytes);
    let life = settled.life_percent.zip(before.life_percent);
    DriveUse {
        class: drive.class,
        name: drive.name.clone(),
        written_bytes: settled.written_bytes - before.written_bytes,
        read_bytes: settled.read_bytes - before.read_bytes,
        reads: settled.reads - before.reads,
        media_written_bytes: media.map(|(now, then)| now - then),
        life_percent: life.map(|(now, then)| now - then),
        needs_s: needs(settled),
        of_rates: needs(ended).map(|seconds| seconds / elapsed_s.max(1e-9)),
    }
}

fn latencies(run: &RunResult) -> Vec<OperationLatency> {
    #[allow(clippy::cast_precision_loss)] // nanoseconds become microseconds
    let us = |ns: u64| ns as f64 / 1e3;
    let each = run.by_operation.iter().filter_map(|one| {
        let latency = one.latency.as_ref()?;
        Some(OperationLatency {
            operation: one.operation.name().to_owned(),
            count: latency.count,
            mean_us: latency.mean_ns / 1e3,
            p50_us: us(latency.p50_ns),
            p99_us: us(latency.p99_ns),
            p999_us: us(latency.p999_ns),
        })
    });
    each.collect()
}

fn streams(before: &Stats, after: &Stats) -> Vec<StreamBytes> {
    let classes = after.classes.iter().zip(&before.classes);
    let each = classes.flat_map(|(now, then)| {
        now.streams.iter().zip(&then.streams).map(move |(stream, old)| StreamBytes {
            class: now.class,
            stream: stream.stream.to_string(),
            written_bytes: stream.written_bytes - old.written_bytes,
            read_bytes: stream.read_bytes - old.read_bytes,
        })
    });
    each.filter(|one| one.written_bytes + one.read_bytes > 0).collect()
}

#[allow(clippy::cast_precision_loss)] // a share of a span
fn busy(before: &Stats, after: &Stats) -> Vec<ClassBusy> {
    let span = (after.open_ns - before.open_ns).max(1) as f64;
    let classes = after.classes.iter().zip(&before.classes);
    let each = classes.map(|(now, then)| ClassBusy {
        class: now.class,
        share: (now.busy_ns - then.busy_ns) as f64 / span,
    });
    each.collect()
}

fn held(before: &Stats, after: &Stats) -> Vec<(String, f64)> {
    let (then, now) = (&before.stalls, &after.stalls);
    #[allow(clippy::cast_precision_loss)] // nanoseconds become seconds
    let seconds = |ns: u64| ns as f64 / 1e9;
    let causes = [
        ("stalled", now.total_ns - then.total_ns),
        ("paced by spills", now.paced_by_spills_ns - then.paced_by_spills_ns),
        ("paced by ingest", now.paced_by_ingest_ns - then.paced_by_ingest_ns),
        ("paced by the log", now.paced_by_log_ns - then.paced_by_log_ns),
    ];
    causes.into_iter().map(|(cause, ns)| (cause.to_owned(), seconds(ns))).collect()
}
