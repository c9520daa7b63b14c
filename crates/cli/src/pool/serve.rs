//! `esker pool serve`: the process that owns a pool, answers requests about it, and exports its volumes.
//!
//! Order at the end: no more requests, no more hosts, then the pool is closed. A process that is killed leaves the
//! pool as after a crash: what was acknowledged is there, and the next one exports what this one did.

use std::fmt;
use std::sync::Arc;

use esker_stack::{OpenPool, Stack, VolumeSpec};
use esker_volume::{MemberStatus, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::export::Exports;
use super::link::refused;
use super::routes::Served;
use super::socket::{Server, default_path};
use crate::args::PoolServeArgs;
use crate::failure::{Failure, Result};
use crate::output;
use crate::target::metrics;
use crate::target::signals::{Event, Waiting};

/// Serves a pool until it is ended.
pub(crate) fn serve(args: &PoolServeArgs) -> Result {
    // Before anything is open: a signal that comes early ends it in order, too.
    let mut signals = Waiting::new(args.time)?;
    let spec = VolumeSpec {
        map: args.map,
        grace: args.grace,
        scrub: args.scrub_within,
        ..args.opening.of(VolumeSpec::of_pool(&args.pool, &args.drives, &args.buffers))
    };
    let stack = Stack::new();
    let pool = stack.pool(&spec)?;
    for remark in pool.remarks() {
        eprintln!("esker: note: {remark}");
    }
    let exports = Exports::start(&pool, &args.listen, args.workers).map_err(refused)?;
    let more: Vec<Box<dyn Collector>> = vec![Box::new(Metrics(pool.clone()))];
    let metrics = metrics::Server::start(args.metrics, exports.target().clone(), more)?;
    let path = args.socket.clone().unwrap_or_else(|| default_path(&args.pool));
    let served = Arc::new(Served::exporting(stack, pool.clone(), exports));
    let server = Server::start(&path, &served)?;
    let mut text = format!("pool {} is served at {}\n", args.pool, path.display());
    for address in served.addresses() {
        text.push_str(&format!("listening on {address}\n"));
    }
    text.push_str(&format!("metrics at http://{}/metrics\n", metrics.address()));
    output::print(&text)?;
    loop {
        match signals.next(|| served.is_running()) {
            Event::Reload => {}
            Event::End(why) => {
                let _ = output::print(&format!("ending: {why}\n")); // nobody may read it
                break;
            }
        }
    }
    drop(server);
    drop(metrics);
    let served = Arc::into_inner(served).expect("the server had the other references");
    let ended = served.close();
    let closed = pool.close().map_err(|error| Failure::new(error.kind(), error));
    ended.and(closed)
}

/// What Prometheus collects of a pool.
struct Metrics(Arc<OpenPool>);

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A figure of a drive.
type Count = fn(&MemberStatus) -> u64;

fn gauge(bytes: u64) -> ConstGauge {
    ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Encodes a figure for each value of a label.
fn each<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, label): (&str, &str, &'static str),
    kind: MetricType,
    figures: impl IntoIterator<Item = (String, M)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (value, metric) in figures {
        let labels: [(&'static str, &str); 1] = [(label, &value)];
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status: Status = self.0.status();
        let space = status.space;
        let parts = [
            ("free", space.free),
            ("waiting", space.waiting),
            ("parity", space.parity),
            ("garbage", space.garbage),
            ("live", space.live),
            ("metadata", space.metadata),
        ];
        let parts = parts.map(|(name, bytes)| (name.to_owned(), gauge(bytes)));
        let about = ("esker_pool_space_bytes", "Bytes of the drives, by what they hold", "part");
        each(&mut encoder, about, MetricType::Gauge, parts)?;
        let written = status.written;
        let causes = [
            ("user", written.user),
            ("destaged", written.destaged),
            ("cleaned", written.cleaned),
            ("metadata", written.metadata),
            ("rebuilt", written.rebuilt),
        ];
        let causes = causes.map(|(name, bytes)| (name.to_owned(), ConstCounter::new(bytes)));
        let about = ("esker_pool_written_bytes", "Bytes written, by cause", "cause");
        each(&mut encoder, about, MetricType::Counter, causes)?;
        let lost = (0..)
            .zip(status.segments)
            .map(|(lost, count): (u8, _)| (lost.to_string(), gauge(count)));
        let about =
            ("esker_pool_segments", "Segments, by how many of their chunks are lost", "lost");
        each(&mut encoder, about, MetricType::Gauge, lost)?;
        let errors: [(&str, Count); 3] = [
            ("esker_pool_read_errors", |one| one.read_errors),
            ("esker_pool_write_errors", |one| one.write_errors),
            ("esker_pool_checksum_errors", |one| one.checksum_errors),
        ];
        for (name, count) in errors {
            let of = |one: &MemberStatus| (one.index.0.to_string(), ConstCounter::new(count(one)));
            let drives = status.members.iter().map(of);
            let about = (name, "Errors since the pool was opened", "drive");
            each(&mut encoder, about, MetricType::Counter, drives)?;
        }
        for (name, help, value) in [
            ("esker_pool_usable_bytes", "What volumes can hold", space.usable),
            ("esker_pool_buffer_bytes", "Size of the write buffer", status.log.bytes),
            ("esker_pool_buffer_used_bytes", "Used of the write buffer", status.log.used),
            ("esker_pool_map_bytes", "Memory of the map", status.map_bytes),
            (
                "esker_pool_segments_beyond_repair",
                "Segments that lost too much",
                status.beyond_repair,
            ),
            ("esker_pool_alarms", "Things that are wrong", status.alarms.len() as u64),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge(value).encode(encoder)?;
        }
        Ok(())
    }
}
