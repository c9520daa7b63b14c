//! Throughput and latency over time, one below the other, with stalls of writers marked.

use esker_report::{Axis, Chart, Line, Panel, Panels, Range, Span, Unit};

use crate::result::{Interval, RunResult};

/// Seconds of a moment.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The time axis of a run's charts.
pub(super) fn axis(run: &RunResult) -> Axis {
    let ends = run.series.iter().flat_map(|series| series.points.last().map(|point| point.at_ns));
    let ends = ends.chain(run.intervals.last().map(|interval| interval.end_ns));
    let end = seconds(ends.chain([run.elapsed_ns]).max().unwrap_or(0));
    Axis::seconds().over(Range::Fixed(0.0, if end > 0.0 { end } else { 1.0 }))
}

/// The rate, and below it the latencies of the same intervals.
pub(super) fn throughput(run: &RunResult) -> Option<Chart> {
    let intervals: Vec<&Interval> =
        run.intervals.iter().filter(|one| one.end_ns > one.start_ns).collect();
    let slowest = intervals.iter().min_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s))?;
    let middle = |one: &&Interval| seconds(one.start_ns.midpoint(one.end_ns));
    let at: Vec<f64> = intervals.iter().map(middle).collect();
    let of = |figure: fn(&Interval) -> Option<u64>| -> Vec<Option<f64>> {
        intervals.iter().map(|one| figure(one).map(|value| value as f64)).collect()
    };
    let rate = intervals.iter().map(|one| Some(one.ops_per_s)).collect();
    let rate = Panel::new(
        Axis::linear("operations a second", Unit::Rate),
        at.clone(),
        vec![Line::slope("operations", rate)],
    )
    .shade("writers stalled for a tenth of the time or more", stalls(run));
    let mut lines = vec![
        Line::slope("p50", of(|one| one.p50_ns)),
        Line::slope("p99", of(|one| one.p99_ns)),
        Line::slope("p99.9", of(|one| one.p999_ns)),
        Line::slope("slowest", of(|one| one.max_ns)),
    ];
    lines.retain(|line| line.values.iter().any(Option::is_some));
    let mut latency = Panel::new(Axis::latency_ns("latency"), at.clone(), lines);
    latency.bands = (1..latency.lines.len()).map(|upper| (upper, upper - 1)).collect();
    let mut panels = vec![rate, latency];
    if run.errors > 0 {
        let line = Line::slope("errors", of(|one| Some(one.errors)));
        panels.push(Panel::new(Axis::linear("errors", Unit::Count), at, vec![line]));
    }
    let show = |rate: f64| Unit::Count.show(rate);
    let title = format!(
        "{} operations a second in all; the slowest interval had {}, at {:.1} s",
        show(run.ops_per_s),
        show(slowest.ops_per_s),
        seconds(slowest.start_ns)
    );
    Some(Chart::new(title, Panels { x: axis(run), panels }))
}

/// When writers were stalled for a tenth of their time or more, between one sample and the next.
fn stalls(run: &RunResult) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let threads = run.settings.threads.max(1) as f64;
    for series in run.series.iter().filter(|series| series.is_stall()) {
        for pair in series.points.windows(2) {
            let time_ns = pair[1].at_ns.saturating_sub(pair[0].at_ns) as f64;
            let stalled_ns = pair[1].value - pair[0].value;
            if stalled_ns <= 0.0 || stalled_ns < 0.1 * time_ns * threads {
                continue;
            }
            let (from, to) = (seconds(pair[0].at_ns), seconds(pair[1].at_ns));
            match spans.last_mut().filter(|last| last.to >= from) {
                Some(last) => last.to = to,
                None => spans.push(Span { from, to }),
            }
        }
    }
    spans
}
