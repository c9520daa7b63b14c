//! The metrics of a pool, for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_stack::OpenPool;
use esker_volume::{MemberStatus, Status, VolumeStats};

use crate::metrics::{Collector, Families};

/// The collector.
pub(crate) struct PoolMetrics(pub(crate) Arc<OpenPool>);

/// A figure of a drive.
type Count = fn(&MemberStatus) -> u64;
/// A figure of a volume.
type Figure = fn(&VolumeStats) -> u64;

impl Collector for PoolMetrics {
    fn collect(&self, families: &mut Families) {
        let status = self.0.status();
        space(families, &status);
        alarms(families, &status);
        written(families, &status);
        drives(families, &status);
        repair(families, &status);
        volumes(families, &self.0);
    }
}

fn space(families: &mut Families, status: &Status) {
    let space = status.space;
    let parts = [
        ("free", space.free),
        ("waiting", space.waiting),
        ("parity", space.parity),
        ("garbage", space.garbage),
        ("live", space.live),
        ("metadata", space.metadata),
    ];
    let parts = parts.map(|(part, bytes)| ([part.to_owned()], bytes));
    let about = ("esker_pool_space_bytes", "Bytes of the drives, by what they hold", ["part"]);
    families.gauges(about, parts);
    for (name, help, value) in [
        ("esker_pool_usable_bytes", "What volumes can hold", space.usable),
        ("esker_pool_buffer_bytes", "Size of the write buffer", status.log.bytes),
        ("esker_pool_buffer_used_bytes", "Used of the write buffer", status.log.used),
        ("esker_pool_buffer_pending_bytes", "Not in segments yet", status.log.pending),
        ("esker_pool_map_bytes", "Memory of the map", status.map_bytes),
        ("esker_pool_sweeping_lineages", "What is swept after a deletion", status.sweeping),
    ] {
        families.gauge(name, help, value);
    }
}

fn alarms(families: &mut Families, status: &Status) {
    families.gauge("esker_pool_alarms", "Things that are wrong", status.alarms.len());
    let mut codes: Vec<_> =
        status.alarms.iter().map(|alarm| ([alarm.code.to_owned()], 1u64)).collect();
    codes.dedup_by(|one, other| one.0 == other.0);
    families.gauges(
        ("esker_pool_alarm", "Each code of an alarm that is raised, with the value 1", ["code"]),
        codes,
    );
}

fn written(families: &mut Families, status: &Status) {
    let written = status.written;
    let causes = [
        ("user", written.user),
        ("destaged", written.destaged),
        ("cleaned", written.cleaned),
        ("metadata", written.metadata),
        ("rebuilt", written.rebuilt),
    ];
    let counts = causes.map(|(cause, bytes)| ([cause.to_owned()], bytes));
    families
        .counters(("esker_pool_written_bytes_total", "Bytes written, by cause", ["cause"]), counts);
    let ratio = |bytes: u64| bytes as f64 / written.user.max(1) as f64;
    let ratios = causes[1..].iter().map(|(cause, bytes)| ([(*cause).to_owned()], ratio(*bytes)));
    let help = "Bytes written to segments for each byte of users, by cause";
    families.gauges(("esker_pool_write_amplification_ratio", help, ["cause"]), ratios);
    for (name, help, count) in [
        ("esker_pool_checkpoints_total", "Checkpoints", written.checkpoints),
        ("esker_pool_map_loads_total", "Leaves of the map read", status.map_loads),
        (
            "esker_pool_reconstructed_blocks_total",
            "Blocks computed from parities",
            written.reconstructed,
        ),
    ] {
        families.counter(name, help, count);
    }
}

fn drives(families: &mut Families, status: &Status) {
    let index = |one: &MemberStatus| one.index.0.to_string();
    let errors: [(&str, &str, Count); 3] = [
        ("esker_pool_read_errors_total", "Reads that failed", |one| one.read_errors),
        ("esker_pool_write_errors_total", "Writes that failed", |one| one.write_errors),
        ("esker_pool_checksum_errors_total", "Reads of damaged data", |one| one.checksum_errors),
    ];
    for (name, help, count) in errors {
        let values = status.members.iter().map(|one| ([index(one)], count(one)));
        families.counters((name, help, ["drive"]), values);
    }
    let state = |one: &MemberStatus| ([index(one), super::view::state(one.state)], 1u64);
    let about =
        ("esker_pool_drive_state", "The state of each drive, with the value 1", ["drive", "state"]);
    families.gauges(about, status.members.iter().map(state));
    let about = ("esker_pool_drive_free_chunks", "Chunks that are free", ["drive"]);
    families.gauges(about, status.members.iter().map(|one| ([index(one)], one.slots.0)));
}

fn repair(families: &mut Families, status: &Status) {
    let lost = (0u8..).zip(status.segments).map(|(lost, count)| ([lost.to_string()], count));
    let about = ("esker_pool_segments", "Segments, by how many of their chunks are lost", ["lost"]);
    families.gauges(about, lost);
    let [_, one, two, more] = status.segments;
    let left = (one + two + more).saturating_sub(status.beyond_repair);
    let scrub = status.scrub.as_ref();
    let is_scrubbing = scrub.is_some_and(|scrub| scrub.is_running);
    for (name, help, value) in [
        ("esker_pool_rebuild_remaining_segments", "Segments that are to be rebuilt", left),
        ("esker_pool_segments_beyond_repair", "Segments that lost too much", status.beyond_repair),
        ("esker_pool_scrub_running", "Whether a scrub goes on", u64::from(is_scrubbing)),
        ("esker_pool_scrub_read_bytes", "Read by the scrub", scrub.map_or(0, |it| it.bytes)),
        ("esker_pool_scrub_errors", "Found by the scrub", scrub.map_or(0, |it| it.errors)),
    ] {
        families.gauge(name, help, value);
    }
}

fn volumes(families: &mut Families, pool: &OpenPool) {
    let seen = pool.volumes_seen();
    let names: BTreeMap<_, &str> = seen
        .iter()
        .filter(|one| one.trashed_until.is_none())
        .map(|one| (one.id, one.name.as_str()))
        .collect();
    let found = pool.stats();
    let named: Vec<(String, &VolumeStats)> = found
        .iter()
        .filter_map(|(id, stats)| Some(((*names.get(id)?).to_owned(), stats)))
        .collect();
    let figures: [(&str, &str, Figure); 6] = [
        ("esker_pool_volume_reads_total", "Completed reads", |one| one.reads),
        ("esker_pool_volume_writes_total", "Completed writes", |one| one.writes),
        ("esker_pool_volume_discards_total", "Completed discards and zeroes", |one| one.discards),
        ("esker_pool_volume_read_bytes_total", "Bytes read", |one| one.read_bytes),
        ("esker_pool_volume_written_bytes_total", "Bytes written", |one| one.written_bytes),
        ("esker_pool_volume_errors_total", "Commands that failed", |one| one.errors),
    ];
    for (name, help, figure) in figures {
        let counts = named.iter().map(|(name, stats)| ([name.clone()], figure(stats)));
        families.counters((name, help, ["volume"]), counts);
    }
    latencies(families, &apart(named));
}

/// Volumes whose latencies are told apart, at most: those of one take 19 KB. No volume has the name `*`, which stands for
/// all together.
const APART: usize = 32;

/// The same, or all together where there are too many.
fn apart(named: Vec<(String, &VolumeStats)>) -> Vec<(String, VolumeStats)> {
    let mut all: Vec<_> = named.into_iter().map(|(name, stats)| (name, stats.clone())).collect();
    if all.len() > APART {
        let rest = all.split_off(1);
        let (name, sum) = &mut all[0];
        "*".clone_into(name);
        rest.iter().for_each(|(_, stats)| sum.add(stats));
    }
    all
}

fn latencies(families: &mut Families, named: &[(String, VolumeStats)]) {
    let latencies = named.iter().flat_map(|(name, stats)| {
        [("read", &stats.read_latency), ("write", &stats.write_latency)]
            .map(|(op, latency)| ([name.clone(), op.to_owned()], latency))
    });
    let about = (
        "esker_pool_volume_latency_seconds",
        "From submission to completion",
        ["volume", "operation"],
    );
    families.histograms(about, latencies);
    let stages = named.iter().flat_map(|(name, stats)| {
        let stages = stats.stages.iter();
        stages.map(|(stage, latency)| ([name.clone(), stage.name().to_owned()], latency))
    });
    let about =
        ("esker_pool_stage_latency_seconds", "Time of batches in a stage", ["volume", "stage"]);
    families.histograms(about, stages);
}
