//! A target's metrics, and its state for people.

use std::fmt::Write as _;
use std::sync::Arc;

use esker_base::latency::Latency;
use esker_base::units::{bound, grouped, human_bytes};
use esker_nvmf::Target;
use esker_nvmf::target::metrics::FlowMetrics;

use crate::metrics::{Collector, Families, Page};

/// The page `/status` of a target.
pub(crate) fn page(target: Arc<Target>) -> Page {
    ("/status", Box::new(move || status(&target)))
}

/// The target's state as a table.
fn status(target: &Target) -> String {
    let metrics = target.metrics();
    let mut text = format!(
        "connections {}, controllers {}; accepted {}, refused {}, displaced {}, protocol violations {}, \
         timeouts {}, too slow {}, late commands {}, failed authentication {}, panics {}\n",
        metrics.connections,
        metrics.controllers,
        metrics.accepted,
        metrics.refused,
        metrics.displaced,
        metrics.violations,
        metrics.timeouts,
        metrics.slow,
        metrics.late,
        metrics.unauthenticated,
        metrics.panics
    );
    for why in &metrics.closed {
        let _ = writeln!(text, "{why}");
    }
    for flow in &metrics.flows {
        let latency = |share: f64| bound(flow.latency.percentile(share), Latency::open_from());
        let _ = write!(
            text,
            "\n{}\n  namespace {} of {}\n  reads {} ({}), writes {} ({}), others {}, errors {}, \
             in flight {}\n  latency: p50 {}, p99 {}, p99.9 {}\n",
            flow.host,
            flow.nsid,
            flow.subsystem,
            grouped(flow.reads),
            human_bytes(flow.read_bytes),
            grouped(flow.writes),
            human_bytes(flow.written_bytes),
            grouped(flow.others),
            grouped(flow.errors),
            flow.in_flight,
            latency(0.5),
            latency(0.99),
            latency(0.999)
        );
    }
    text
}

/// The collector.
pub(crate) struct TargetMetrics(pub(crate) Arc<Target>);

/// A figure of a flow.
type Figure = fn(&FlowMetrics) -> u64;

const FIGURES: [(&str, &str, Figure); 6] = [
    ("esker_target_reads_total", "Completed reads", |flow| flow.reads),
    ("esker_target_writes_total", "Completed writes", |flow| flow.writes),
    ("esker_target_others_total", "Other completed commands", |flow| flow.others),
    ("esker_target_read_bytes_total", "Bytes read", |flow| flow.read_bytes),
    ("esker_target_written_bytes_total", "Bytes written", |flow| flow.written_bytes),
    ("esker_target_errors_total", "Commands that failed", |flow| flow.errors),
];

/// The labels of a flow.
const LABELS: [&str; 3] = ["host", "subsystem", "nsid"];

fn labels(flow: &FlowMetrics) -> [String; 3] {
    [flow.host.clone(), flow.subsystem.clone(), flow.nsid.to_string()]
}

impl Collector for TargetMetrics {
    fn collect(&self, families: &mut Families) {
        let metrics = self.0.metrics();
        families.gauge("esker_target_connections", "Connections now", metrics.connections);
        families.gauge("esker_target_controllers", "Controllers now", metrics.controllers);
        for (name, help, count) in [
            ("esker_target_accepted_total", "Connections accepted", metrics.accepted),
            ("esker_target_refused_total", "Connections refused", metrics.refused),
            (
                "esker_target_displaced_total",
                "Connections of strangers that others took the place of",
                metrics.displaced,
            ),
            ("esker_target_late_total", "Commands that a device did not end in time", metrics.late),
            (
                "esker_target_violations_total",
                "Connections closed for a violation of the protocol",
                metrics.violations,
            ),
            ("esker_target_timeouts_total", "Connections closed for silence", metrics.timeouts),
            (
                "esker_target_slow_total",
                "Connections closed because the host was too slow",
                metrics.slow,
            ),
            (
                "esker_target_unauthenticated_total",
                "Hosts that failed to prove their identity",
                metrics.unauthenticated,
            ),
            (
                "esker_target_panics_total",
                "Panics of workers, whose connections were closed",
                metrics.panics,
            ),
        ] {
            families.counter(name, help, count);
        }
        for (name, help, figure) in FIGURES {
            let values = metrics.flows.iter().map(|flow| (labels(flow), figure(flow)));
            families.counters((name, help, LABELS), values);
        }
        let about = ("esker_target_queue_depth", "Commands being worked on", LABELS);
        families.gauges(about, metrics.flows.iter().map(|flow| (labels(flow), flow.in_flight)));
        let latencies = metrics.flows.iter().map(|flow| (labels(flow), &flow.latency));
        let about = ("esker_target_latency_seconds", "From capsule to response", LABELS);
        families.histograms(about, latencies);
    }
}
