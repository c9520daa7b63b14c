//! Figures of the replays on devices, as JSON and as tables of the text and of the page.

use esker_base::units::human_bytes;
use esker_report::{Table, Unit};
use serde::{Deserialize, Serialize};

use super::devices::Real;
use crate::text::span;

/// The measurements on devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealReport {
    /// The slow device.
    pub disk: String,
    /// The device of the cache.
    pub flash: String,
    /// The size of the cache that was asked for, in percent of what the replayed requests touch.
    pub percent: u32,
    /// The most requests of a workload that were replayed.
    pub most_requests: usize,
    /// Requests in flight.
    pub depth: usize,
    /// One for each workload.
    pub workloads: Vec<RealResult>,
    /// Assumptions: name and value.
    pub assumptions: Vec<(String, String)>,
}

/// Figures of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealResult {
    /// Its name.
    pub name: String,
    /// Requests that warmed each arm.
    pub warming_requests: u64,
    /// Requests that were measured.
    pub measured_requests: u64,
    /// Requests beyond the disk, which wrapped around.
    pub requests_beyond: u64,
    /// Discards that were left out.
    pub discards_left_out: u64,
    /// Bytes of different blocks of all these requests.
    pub touched_bytes: u64,
    /// Bytes of the flash device that the cache took.
    pub flash_bytes: u64,
    /// Bytes of the cache's blocks.
    pub cache_bytes: u64,
    /// Blocks that the cache looked up in the measured part.
    pub blocks: u64,
    /// Of them, the share that it counted as hits.
    pub hit_ratio: f64,
    /// The share that the simulator counts for the same requests and a cache of the same size.
    pub simulated_hit_ratio: f64,
    /// Missed blocks that were not filled in: written meanwhile, or nothing clean was cold enough to go.
    pub fills_dropped: u64,
    /// Bytes that the disk did not have yet at the end.
    pub left_dirty_bytes: u64,
    /// How long writing them back took, in nanoseconds.
    pub written_back_ns: u64,
    /// The disk alone.
    pub alone: RealArm,
    /// The disk behind the cache.
    pub cached: RealArm,
}

/// Figures of one replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealArm {
    /// Its name.
    pub arm: String,
    /// How long the measured requests took, in nanoseconds of the devices' time.
    pub elapsed_ns: u64,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Times of each kind of request.
    pub kinds: Vec<KindTimes>,
    /// Work of the disk.
    pub disk: DeviceWork,
    /// Work of the flash device; none without it.
    pub flash: Option<DeviceWork>,
}

/// How long requests of a kind took, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindTimes {
    /// `read`, `write` or `flush`.
    pub kind: String,
    /// How many.
    pub requests: u64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
}

/// Commands and bytes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceWork {
    /// Commands that read.
    pub reads: u64,
    /// Commands that wrote.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl RealResult {
    /// Requests a second with the cache, over those of the disk alone.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.cached.requests_per_s / self.alone.requests_per_s.max(f64::MIN_POSITIVE)
    }

    /// Hits that were measured less those simulated, in points.
    #[must_use]
    pub fn difference(&self) -> f64 {
        (self.hit_ratio - self.simulated_hit_ratio) * 100.0
    }

    fn arms(&self) -> [&RealArm; 2] {
        [&self.alone, &self.cached]
    }
}

impl RealArm {
    /// Times of requests of a kind.
    pub(super) fn kind(&self, kind: &str) -> Option<&KindTimes> {
        self.kinds.iter().find(|one| one.kind == kind)
    }
}

impl RealReport {
    pub(crate) fn new(real: &Real, workloads: Vec<RealResult>) -> RealReport {
        let options = &real.options;
        let pair = |name: &str, value: String| (name.to_owned(), value);
        let mut assumptions = vec![
            pair("the disk", real.disk.name.clone()),
            pair("the flash device", real.flash.name.clone()),
            pair(
                "requests on devices",
                format!(
                    "the first {} of a workload, in order, {} in flight; the first half warms each arm, the second \
                     is measured; the arms follow one another, the disk alone first",
                    options.requests, options.depth
                ),
            ),
            pair(
                "the cache on devices",
                "write-back, made anew for each workload, with the defaults of cache: streams from 1 MiB on bypass it"
                    .to_owned(),
            ),
            pair(
                "hits simulated beside measured ones",
                "a cache of the same size, sets, policy and rules, without concurrency and without time".to_owned(),
            ),
        ];
        let remarks = (1..).zip(&real.remarks);
        assumptions.extend(remarks.map(|(at, one)| (format!("device, note {at}"), one.clone())));
        RealReport {
            disk: real.disk.name.clone(),
            flash: real.flash.name.clone(),
            percent: options.percent,
            most_requests: options.requests,
            depth: options.depth,
            workloads,
            assumptions,
        }
    }

    /// The first workload in a sentence.
    pub(crate) fn headline(&self) -> String {
        let Some(first) = self.workloads.first() else {
            return format!("No workload was replayed on {}.", self.disk);
        };
        format!(
            "{} on {}: {} requests a second alone, {} behind the cache, which hits {:.1} % ({:.1} % simulated).",
            first.name,
            self.disk,
            Unit::Count.show(first.alone.requests_per_s),
            Unit::Count.show(first.cached.requests_per_s),
            first.hit_ratio * 100.0,
            first.simulated_hit_ratio * 100.0
        )
    }

    /// All tables.
    pub(super) fn tables(&self) -> [Table; 3] {
        [self.hits(), self.times(), self.work()]
    }

    /// Remarks on single workloads.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for one in &self.workloads {
            let all = one.warming_requests + one.measured_requests;
            if one.requests_beyond > 0 {
                notes.push(format!(
                    "{}: {} of {all} requests lie beyond the disk, and wrap around",
                    one.name, one.requests_beyond
                ));
            }
            if one.fills_dropped > 0 {
                notes.push(format!(
                    "{}: {} missed blocks were not filled in, as they were written meanwhile or nothing clean could go; \
                     the simulator writes back in no time, and fills in all",
                    one.name, one.fills_dropped
                ));
            }
            if one.discards_left_out > 0 {
                notes.push(format!(
                    "{}: {} discards between the requests were left out",
                    one.name, one.discards_left_out
                ));
            }
        }
        notes
    }

    fn hits(&self) -> Table {
        let head = [
            "workload",
            "requests",
            "touched",
            "cache",
            "of that",
            "hits",
            "simulated",
            "difference",
            "left to write back",
            "took",
        ];
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let row = |one: &RealResult| {
            vec![
                one.name.clone(),
                format!("{} + {}", one.warming_requests, one.measured_requests),
                human_bytes(one.touched_bytes),
                human_bytes(one.cache_bytes),
                percent(share(one.cache_bytes, one.touched_bytes)),
                percent(one.hit_ratio),
                percent(one.simulated_hit_ratio),
                format!("{:+.1} points", one.difference()),
                human_bytes(one.left_dirty_bytes),
                time(one.written_back_ns),
            ]
        };
        Table::of(head, self.workloads.iter().map(row))
            .caption("Hits by block, of the measured half")
    }

    fn times(&self) -> Table {
        let mut head = vec!["workload".to_owned(), "arm".to_owned(), "a second".to_owned()];
        for kind in ["read", "write"] {
            head.extend(["mean", "p99", "p99.9"].map(|one| format!("{kind} {one}")));
        }
        let row = |(name, arm): (&str, &RealArm)| {
            let mut cells =
                vec![name.to_owned(), arm.arm.clone(), Unit::Count.show(arm.requests_per_s)];
            for kind in ["read", "write"] {
                match arm.kind(kind) {
                    Some(one) => {
                        cells.push(span(one.mean_ns / 1e3));
                        cells.extend([one.p99_ns, one.p999_ns].map(time));
                    }
                    None => cells.extend(["", "", ""].map(str::to_owned)),
                }
            }
            cells
        };
        Table::of(head, self.by_arm().map(row)).caption("Requests").words([0, 1])
    }

    fn work(&self) -> Table {
        let head = [
            "workload",
            "arm",
            "disk reads",
            "disk writes",
            "flushes",
            "read from disk",
            "written to disk",
            "read from flash",
            "written to flash",
        ];
        let row = |(name, arm): (&str, &RealArm)| {
            let flash = |of: fn(&DeviceWork) -> u64| {
                arm.flash.as_ref().map_or_else(String::new, |work| human_bytes(of(work)))
            };
            vec![
                name.to_owned(),
                arm.arm.clone(),
                arm.disk.reads.to_string(),
                arm.disk.writes.to_string(),
                arm.disk.flushes.to_string(),
                human_bytes(arm.disk.read_bytes),
                human_bytes(arm.disk.written_bytes),
                flash(|work| work.read_bytes),
                flash(|work| work.written_bytes),
            ]
        };
        Table::of(head, self.by_arm().map(row))
            .caption("Commands and bytes of the devices, for the measured half")
            .words([0, 1])
    }

    fn by_arm(&self) -> impl Iterator<Item = (&str, &RealArm)> {
        self.workloads.iter().flat_map(|one| one.arms().map(|arm| (&*one.name, arm)))
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn time(ns: u64) -> String {
    span(ns as f64 / 1e3)
}

#[allow(clippy::cast_precision_loss)] // a share
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
