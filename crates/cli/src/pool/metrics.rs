//! The metrics of a pool, for Prometheus.

use std::fmt;
use std::sync::Arc;

use esker_stack::OpenPool;
use esker_volume::{Latency, MemberStatus, Status, VolumeStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::target::metrics::Label;

/// The collector.
pub(crate) struct Metrics(pub(crate) Arc<OpenPool>);

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A figure of a drive.
type Count = fn(&MemberStatus) -> u64;
/// A figure of a volume.
type Figure = fn(&VolumeStats) -> u64;

fn gauge(bytes: u64) -> ConstGauge {
    ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Encodes a figure for each set of labels.
fn each<M: EncodeMetric, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, labels): (&str, &str, [&'static str; N]),
    kind: MetricType,
    figures: impl IntoIterator<Item = ([String; N], M)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (values, metric) in figures {
        let pairs: [(&'static str, Label<'_>); N] =
            std::array::from_fn(|index| (labels[index], Label(&values[index])));
        metric.encode(family.encode_family(&pairs)?)?;
    }
    Ok(())
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status: Status = self.0.status();
        space(&mut encoder, &status)?;
        written(&mut encoder, &status)?;
        drives(&mut encoder, &status)?;
        repair(&mut encoder, &status)?;
        volumes(&mut encoder, &self.0)
    }
}

fn space(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let space = status.space;
    let parts = [
        ("free", space.free),
        ("waiting", space.waiting),
        ("parity", space.parity),
        ("garbage", space.garbage),
        ("live", space.live),
        ("metadata", space.metadata),
    ];
    let parts = parts.map(|(name, bytes)| ([name.to_owned()], gauge(bytes)));
    let about = ("esker_pool_space_bytes", "Bytes of the drives, by what they hold", ["part"]);
    each(encoder, about, MetricType::Gauge, parts)?;
    for (name, help, value) in [
        ("esker_pool_usable_bytes", "What volumes can hold", space.usable),
        ("esker_pool_buffer_bytes", "Size of the write buffer", status.log.bytes),
        ("esker_pool_buffer_used_bytes", "Used of the write buffer", status.log.used),
        ("esker_pool_buffer_pending_bytes", "Not in segments yet", status.log.pending),
        ("esker_pool_map_bytes", "Memory of the map", status.map_bytes),
        ("esker_pool_sweeping_lineages", "What is swept after a deletion", status.sweeping),
        ("esker_pool_alarms", "Things that are wrong", status.alarms.len() as u64),
    ] {
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(value).encode(encoder)?;
    }
    let active = status.alarms.iter().map(|alarm| ([alarm.code.to_owned()], gauge(1)));
    let mut codes: Vec<_> = active.collect();
    codes.dedup_by(|one, other| one.0 == other.0);
    let about = ("esker_pool_alarm", "1 for each code of an alarm", ["code"]);
    each(encoder, about, MetricType::Gauge, codes)
}

fn written(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let written = status.written;
    let causes = [
        ("user", written.user),
        ("destaged", written.destaged),
        ("cleaned", written.cleaned),
        ("metadata", written.metadata),
        ("rebuilt", written.rebuilt),
    ];
    let counts = causes.map(|(name, bytes)| ([name.to_owned()], ConstCounter::new(bytes)));
    let about = ("esker_pool_written_bytes", "Bytes written, by cause", ["cause"]);
    each(encoder, about, MetricType::Counter, counts)?;
    let ratio = |bytes: u64| bytes as f64 / written.user.max(1) as f64;
    let ratios = causes[1..]
        .iter()
        .map(|(name, bytes)| ([(*name).to_owned()], ConstGauge::<f64>::new(ratio(*bytes))));
    let help = "Bytes written to segments for each byte of users, by cause";
    let about = ("esker_pool_write_amplification_ratio", help, ["cause"]);
    each(encoder, about, MetricType::Gauge, ratios)?;
    for (name, help, count) in [
        ("esker_pool_checkpoints", "Checkpoints", written.checkpoints),
        ("esker_pool_map_loads", "Leaves of the map read", status.map_loads),
        ("esker_pool_reconstructed_blocks", "Blocks computed from parities", written.reconstructed),
    ] {
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(count).encode(encoder)?;
    }
    Ok(())
}

fn drives(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let errors: [(&str, Count); 3] = [
        ("esker_pool_read_errors", |one| one.read_errors),
        ("esker_pool_write_errors", |one| one.write_errors),
        ("esker_pool_checksum_errors", |one| one.checksum_errors),
    ];
    for (name, count) in errors {
        let of = |one: &MemberStatus| ([one.index.0.to_string()], ConstCounter::new(count(one)));
        let about = (name, "Errors since the pool was opened", ["drive"]);
        each(encoder, about, MetricType::Counter, status.members.iter().map(of))?;
    }
    let state =
        |one: &MemberStatus| ([one.index.0.to_string(), super::view::state(one.state)], gauge(1));
    let about = ("esker_pool_drive_state", "1 for the state of each drive", ["drive", "state"]);
    each(encoder, about, MetricType::Gauge, status.members.iter().map(state))?;
    let free = |one: &MemberStatus| ([one.index.0.to_string()], gauge(one.slots.0));
    let about = ("esker_pool_drive_free_chunks", "Chunks that are free", ["drive"]);
    each(encoder, about, MetricType::Gauge, status.members.iter().map(free))
}

fn repair(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let lost =
        (0..).zip(status.segments).map(|(lost, count): (u8, _)| ([lost.to_string()], gauge(count)));
    let about = ("esker_pool_segments", "Segments, by how many of their chunks are lost", ["lost"]);
    each(encoder, about, MetricType::Gauge, lost)?;
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
        let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(value).encode(encoder)?;
    }
    Ok(())
}

fn volumes(encoder: &mut DescriptorEncoder<'_>, pool: &OpenPool) -> fmt::Result {
    let names = pool.volumes();
    let found = pool.stats();
    let named: Vec<(String, &VolumeStats)> = found
        .iter()
        .filter_map(|(id, stats)| {
            let info = names.iter().find(|one| one.id == *id && one.trashed_until.is_none())?;
            Some((info.name.clone(), stats))
        })
        .collect();
    let figures: [(&str, &str, Figure); 6] = [
        ("esker_pool_volume_reads", "Completed reads", |one| one.reads),
        ("esker_pool_volume_writes", "Completed writes", |one| one.writes),
        ("esker_pool_volume_discards", "Completed discards and zeroes", |one| one.discards),
        ("esker_pool_volume_read_bytes", "Bytes read", |one| one.read_bytes),
        ("esker_pool_volume_written_bytes", "Bytes written", |one| one.written_bytes),
        ("esker_pool_volume_errors", "Commands that failed", |one| one.errors),
    ];
    for (name, help, figure) in figures {
        let counts =
            named.iter().map(|(name, stats)| ([name.clone()], ConstCounter::new(figure(stats))));
        each(encoder, (name, help, ["volume"]), MetricType::Counter, counts)?;
    }
    let latencies = named.iter().flat_map(|(name, stats)| {
        [("read", &stats.read_latency), ("write", &stats.write_latency)]
            .map(|(op, latency)| ([name.clone(), op.to_owned()], Histogram(latency.clone())))
    });
    let help = "From submission to completion";
    let about = ("esker_pool_volume_latency_seconds", help, ["volume", "operation"]);
    each(encoder, about, MetricType::Histogram, latencies)?;
    let stages = named.iter().flat_map(|(name, stats)| {
        stats.stages.iter().map(|(stage, latency)| {
            ([name.clone(), stage.name().to_owned()], Histogram(latency.clone()))
        })
    });
    let about =
        ("esker_pool_stage_latency_seconds", "Time of batches in a stage", ["volume", "stage"]);
    each(encoder, about, MetricType::Histogram, stages)
}

/// A latency histogram.
struct Histogram(Latency);

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // A bucket for each power of two is enough here, and the last one is open.
        let (first, rest) = self.0.counts.split_first().unwrap_or((&0, &[]));
        let mut buckets = vec![(Latency::bucket_end(0).as_secs_f64(), *first)];
        buckets.extend((1..).zip(rest.chunks(4)).map(|(octave, counts): (usize, _)| {
            (Latency::bucket_end(4 * octave).as_secs_f64(), counts.iter().sum())
        }));
        if let Some((end, _)) = buckets.last_mut() {
            *end = f64::MAX;
        }
        let sum = self.0.sum.as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, self.0.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
