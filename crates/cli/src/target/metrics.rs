//! A target's metrics over HTTP: `/metrics` for Prometheus, `/status` for people.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use esker_base::units::human_bytes;
use esker_base::{ErrorKind, thread};
use esker_nvmf::Target;
use esker_nvmf::target::metrics::{FlowMetrics, bucket_start};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelValue, EncodeMetric, LabelValueEncoder, MetricEncoder,
    NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::failure::{Failure, Result};
use crate::figures::grouped;

/// Answers for a target, and whatever else is collected, until it is dropped.
pub(crate) struct Server {
    http: Arc<tiny_http::Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(
        address: SocketAddr,
        target: Arc<Target>,
        more: Vec<Box<dyn Collector>>,
    ) -> Result<Server> {
        let refused = |error: &dyn fmt::Display| {
            let why = format!("{address}: {error}; choose another address with --metrics");
            Failure::new(ErrorKind::Conflict, why)
        };
        let http = tiny_http::Server::http(address).map_err(|error| refused(&error))?;
        let address = http.server_addr().to_ip().unwrap_or(address);
        let http = Arc::new(http);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Metrics(target.clone())));
        more.into_iter().for_each(|one| registry.register_collector(one));
        let requests = http.clone();
        let answer = move || {
            for request in requests.incoming_requests() {
                let response = match request.url() {
                    "/metrics" => {
                        let mut text = String::new();
                        let _ = text::encode(&mut text, &registry); // a string takes all
                        tiny_http::Response::from_string(text).with_header(open_metrics())
                    }
                    "/status" => tiny_http::Response::from_string(status(&target)),
                    _ => tiny_http::Response::from_string("there are /metrics and /status\n")
                        .with_status_code(404),
                };
                let _ = request.respond(response); // whoever asked is gone
            }
        };
        let thread = thread::spawn("metrics", answer).map_err(|error| refused(&error))?;
        Ok(Server { http, address, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.http.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open_metrics() -> tiny_http::Header {
    let value = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    format!("Content-Type: {value}").parse().expect("a header")
}

/// The target's state as a table.
fn status(target: &Target) -> String {
    let metrics = target.metrics();
    let mut text = format!(
        "connections {}, controllers {}; accepted {}, refused {}, displaced {}, protocol violations {}, \
         timeouts {}, too slow {}, late commands {}, failed authentication {}\n",
        metrics.connections,
        metrics.controllers,
        metrics.accepted,
        metrics.refused,
        metrics.displaced,
        metrics.violations,
        metrics.timeouts,
        metrics.slow,
        metrics.late,
        metrics.unauthenticated
    );
    for why in &metrics.closed {
        let _ = writeln!(text, "{why}");
    }
    for flow in &metrics.flows {
        let us = |share: f64| flow.percentile(share).as_secs_f64() * 1e6;
        let _ = write!(
            text,
            "\n{}\n  namespace {} of {}\n  reads {} ({}), writes {} ({}), others {}, errors {}, \
             in flight {}\n  latency in µs: p50 {:.0}, p99 {:.0}, p99.9 {:.0}\n",
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
            us(0.5),
            us(0.99),
            us(0.999)
        );
    }
    text
}

/// What Prometheus collects.
struct Metrics(Arc<Target>);

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A figure of a flow.
type Figure = fn(&FlowMetrics) -> u64;

type Labels<'a> = [(&'static str, Label<'a>); 3];

/// The value of a label, in which what would end it, or its line, is escaped (OpenMetrics 1.0): the encoder
/// writes text as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'a>(pub(crate) &'a str);

impl EncodeLabelValue for Label<'_> {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        for one in self.0.chars() {
            match one {
                '\\' => encoder.write_str("\\\\")?,
                '"' => encoder.write_str("\\\"")?,
                '\n' => encoder.write_str("\\n")?,
                one => encoder.write_char(one)?,
            }
        }
        Ok(())
    }
}

/// Encodes one figure of every flow.
fn each<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    kind: MetricType,
    flows: &[FlowMetrics],
    metric: impl Fn(&FlowMetrics) -> M,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for flow in flows {
        let nsid = flow.nsid.to_string();
        let labels: Labels<'_> = [
            ("host", Label(&flow.host)),
            ("subsystem", Label(&flow.subsystem)),
            ("nsid", Label(&nsid)),
        ];
        metric(flow).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = self.0.metrics();
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (name, help, value) in [
            ("esker_target_connections", "Connections now", signed(metrics.connections)),
            ("esker_target_controllers", "Controllers now", signed(metrics.controllers)),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        for (name, help, value) in [
            ("esker_target_accepted", "Connections accepted", metrics.accepted),
            ("esker_target_refused", "Connections refused", metrics.refused),
            (
                "esker_target_displaced",
                "Connections of strangers that others took the place of",
                metrics.displaced,
            ),
            ("esker_target_late", "Commands that a device did not end in time", metrics.late),
            ("esker_target_violations", "Connections closed for a violation", metrics.violations),
            ("esker_target_timeouts", "Connections closed for silence", metrics.timeouts),
            ("esker_target_slow", "Connections closed because the host was too slow", metrics.slow),
            (
                "esker_target_unauthenticated",
                "Hosts that failed to prove who they are",
                metrics.unauthenticated,
            ),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(counter)?;
        }
        let figures: [(&str, &str, Figure); 6] = [
            ("esker_target_reads", "Completed reads", |flow| flow.reads),
            ("esker_target_writes", "Completed writes", |flow| flow.writes),
            ("esker_target_others", "Other completed commands", |flow| flow.others),
            ("esker_target_read_bytes", "Bytes read", |flow| flow.read_bytes),
            ("esker_target_written_bytes", "Bytes written", |flow| flow.written_bytes),
            ("esker_target_errors", "Commands that failed", |flow| flow.errors),
        ];
        for (name, help, figure) in figures {
            let counter = |flow: &FlowMetrics| ConstCounter::new(figure(flow));
            each(&mut encoder, (name, help), MetricType::Counter, &metrics.flows, counter)?;
        }
        let in_flight =
            |flow: &FlowMetrics| ConstGauge::new(i64::try_from(flow.in_flight).unwrap_or(i64::MAX));
        let about = ("esker_target_queue_depth", "Commands being worked on");
        each(&mut encoder, about, MetricType::Gauge, &metrics.flows, in_flight)?;
        let about = ("esker_target_latency_seconds", "From capsule to response");
        let latency = |flow: &FlowMetrics| Latency(flow.latency.clone());
        each(&mut encoder, about, MetricType::Histogram, &metrics.flows, latency)
    }
}

/// A latency histogram.
struct Latency(Vec<u64>);

impl EncodeMetric for Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let middle = |index: usize| {
            f64::midpoint(bucket_start(index).as_secs_f64(), bucket_start(index + 1).as_secs_f64())
        };
        let sum =
            self.0.iter().enumerate().map(|(index, &count)| middle(index) * count as f64).sum();
        // A bucket for each power of two is enough here, and the last one is open.
        let mut buckets: Vec<(f64, u64)> = (0..)
            .zip(self.0.chunks(4))
            .map(|(power, counts)| {
                (bucket_start(4 * (power + 1)).as_secs_f64(), counts.iter().sum())
            })
            .collect();
        if let Some((end, _)) = buckets.last_mut() {
            *end = f64::MAX;
        }
        encoder.encode_histogram::<NoLabelSet>(sum, self.0.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct One(&'static str);

    impl Collector for One {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut family = encoder.encode_descriptor("one", "One", None, MetricType::Gauge)?;
            let labels = [("name", Label(self.0))];
            ConstGauge::new(1i64).encode(family.encode_family(&labels)?)
        }
    }

    #[test]
    fn value_of_a_label_ends_neither_itself_nor_its_line() {
        for (value, shown) in [
            ("/dev/sda", "/dev/sda"),
            ("a\"} 7\nforged 1", "a\\\"} 7\\nforged 1"),
            ("back\\slash", "back\\\\slash"),
        ] {
            let mut registry = Registry::default();
            registry.register_collector(Box::new(One(value)));
            let mut text = String::new();
            text::encode(&mut text, &registry).unwrap();
            assert!(text.contains(&format!("one{{name=\"{shown}\"}} 1\n")), "{text}");
            assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 1, "{text}");
        }
    }
}
