//! The store's own figures: counters as rates, levels as steps. Series that never move are left out.
//!
//! Counters of a unit share a panel where their names end alike after a comma ("staging log, written") or, of
//! nanoseconds, begin with "writers".

use esker_report::{Axis, Bars, Chart, Line, Panel, Panels, Unit as Shown};

use super::over_time::{axis, seconds};
use crate::result::{Point, RunResult, Series};
use crate::store::Unit;

/// The shortest stretch of which a rate is shown.
const LEAST_NS: u64 = 100_000_000;
/// The end of the names of series of written bytes.
const WRITTEN: &str = ", written";

/// Bytes written by series for each byte of the user, a bar for each run that wrote.
pub(super) fn by_run(runs: &[RunResult]) -> Option<Chart> {
    let is_written =
        |series: &&Series| series.unit == Unit::Bytes && series.name.ends_with(WRITTEN);
    let increase = |series: &Series| series.increase().filter(|bytes| *bytes > 0.0);
    let writers: Vec<&RunResult> = runs.iter().filter(|run| run.user_bytes_written > 0).collect();
    let mut names: Vec<&str> = Vec::new();
    for series in writers.iter().flat_map(|run| run.series.iter().filter(is_written)) {
        if increase(series).is_some() && !names.contains(&&*series.name) {
            names.push(&series.name);
        }
    }
    let bars = writers.iter().map(|run| {
        let of = |name: &&str| {
            let series = run.series.iter().find(|series| series.name == **name);
            let bytes = series.and_then(&increase).unwrap_or(0.0);
            bytes / run.user_bytes_written as f64
        };
        (run.workload.name.clone(), names.iter().map(of).collect())
    });
    let bars: Vec<(String, Vec<f64>)> = bars.collect();
    let sum = |(_, parts): &(String, Vec<f64>)| parts.iter().sum::<f64>();
    let most =
        bars.iter().max_by(|a, b| sum(a).total_cmp(&sum(b))).filter(|_| !names.is_empty())?;
    let title = format!(
        "{} writes most for each byte of the user: {:.2}",
        if most.0 == "load" { "The load".to_owned() } else { format!("Workload {}", most.0) },
        sum(most)
    );
    let parts = names.iter().map(|name| name.trim_end_matches(WRITTEN).to_owned()).collect();
    let axis =
        Axis::linear("device bytes written for each byte that the user wrote", Shown::Factor);
    let note = "While a workload ran and was synced; maintenance after it is not counted.";
    Some(Chart::new(title, Bars { axis, parts, bars }).note(note))
}

/// The store's work in each second.
pub(super) fn over_time(run: &RunResult) -> Option<Chart> {
    let moved = run.series.iter().filter(|series| series.increase().is_some_and(|n| n > 0.0));
    let mut groups: Vec<(String, Vec<&Series>)> = Vec::new();
    for series in moved {
        let group = group_of(series);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, all)) => all.push(series),
            None => groups.push((group, vec![series])),
        }
    }
    let panels: Vec<Panel> = groups.iter().map(|(group, all)| rates(group, all)).collect();
    if panels.is_empty() {
        return None;
    }
    let written = |series: &&Series| series.name.ends_with(WRITTEN);
    let written = run.series.iter().filter(written).filter_map(Series::increase).sum::<f64>();
    let span = seconds(run.elapsed_ns.max(1));
    let title = match written > 0.0 {
        true => {
            let [rate, all] = [Shown::BytesRate.show(written / span), Shown::Bytes.show(written)];
            format!("The store wrote {all} to its devices, {rate} on average")
        }
        false => "What the store did each second".to_owned(),
    };
    Some(Chart::new(title, Panels { x: axis(run), panels }))
}

/// The name of the panel that a counter belongs to.
fn group_of(series: &Series) -> String {
    let end = series.name.rsplit_once(", ").map(|(_, end)| end);
    match (series.unit, end) {
        (Unit::Bytes, Some(end)) => format!("bytes {end} each second"),
        (Unit::Nanoseconds, Some(end)) => format!("{end}, of the time"),
        (Unit::Nanoseconds, None) if series.name.starts_with("writers") => {
            "writers held up, of their time".to_owned()
        }
        (Unit::Nanoseconds, None) => format!("{}, seconds each second", series.name),
        (Unit::Bytes, None) => format!("{}, each second", series.name),
        (Unit::Count | Unit::Ratio, _) => "events each second".to_owned(),
    }
}

/// A panel with the rates of counters.
fn rates(group: &str, all: &[&Series]) -> Panel {
    let is_share = group.ends_with("of the time") || group.ends_with("of their time");
    let (unit, scale) = match all[0].unit {
        Unit::Bytes => (Shown::BytesRate, 1e9),
        Unit::Nanoseconds if is_share => (Shown::Percent, 100.0),
        Unit::Nanoseconds => (Shown::Plain, 1.0),
        Unit::Count | Unit::Ratio => (Shown::Rate, 1e9),
    };
    let edges = edges(&all[0].points);
    let line = |series: &&Series| {
        let value = |at: u64| series.points.iter().find(|point| point.at_ns == at).map(|p| p.value);
        let rate = |pair: &[u64]| {
            let increase = value(pair[1])? - value(pair[0])?;
            Some(scale * increase / (pair[1] - pair[0]) as f64)
        };
        let values = edges.windows(2).map(rate).collect();
        let name = match series.name.rsplit_once(", ") {
            Some((name, _)) => name,
            None => &series.name,
        };
        Line::step(name, values)
    };
    let lines = all.iter().map(line).collect();
    Panel::new(Axis::linear(group, unit), edges.iter().map(|at| seconds(*at)).collect(), lines)
}

/// Moments far enough apart that a rate between them is no noise.
fn edges(points: &[Point]) -> Vec<u64> {
    let mut edges: Vec<u64> = Vec::new();
    for point in points {
        match edges[..] {
            [] => edges.push(point.at_ns),
            [.., last] if point.at_ns - last >= LEAST_NS => edges.push(point.at_ns),
            _ => {}
        }
    }
    // The rest joins the stretch before it.
    if let (Some(end), true) = (points.last(), edges.len() > 1) {
        let last = edges.len() - 1;
        edges[last] = end.at_ns;
    }
    edges
}

/// Levels: memory, and the shape of the stored data.
pub(super) fn levels(run: &RunResult) -> Option<Chart> {
    let says = |series: &&Series| !series.counter && series.points.iter().any(|p| p.value != 0.0);
    let (mut bytes, mut panels) = (Vec::new(), Vec::new());
    for series in run.series.iter().filter(says) {
        match series.unit {
            Unit::Bytes => bytes.push(series),
            Unit::Count => panels.push(level(&[series], &series.name, Shown::Count)),
            Unit::Nanoseconds => panels.push(level(&[series], &series.name, Shown::Nanoseconds)),
            Unit::Ratio => panels.push(level(&[series], &series.name, Shown::Plain)),
        }
    }
    let peak = bytes.iter().flat_map(|series| &series.points).map(|point| point.value);
    let peak = peak.fold(0.0, f64::max);
    if !bytes.is_empty() {
        panels.insert(0, level(&bytes, "memory", Shown::Bytes));
    }
    if panels.is_empty() {
        return None;
    }
    let title = match peak > 0.0 {
        true => format!("Memory reaches {}; the shape of what is stored", Shown::Bytes.show(peak)),
        false => "The shape of what is stored".to_owned(),
    };
    Some(Chart::new(title, Panels { x: axis(run), panels }))
}

fn level(all: &[&Series], name: &str, unit: Shown) -> Panel {
    let at = all[0].points.iter().map(|point| seconds(point.at_ns)).collect();
    let line = |series: &&Series| {
        let values = series.points.iter().map(|point| Some(point.value)).collect();
        Line::step(series.name.as_str(), values)
    };
    Panel::new(Axis::linear(name, unit), at, all.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, unit: Unit, points: &[(u64, f64)]) -> Series {
        let points = points.iter().map(|&(ms, value)| Point { at_ns: ms * 1_000_000, value });
        Series { name: name.to_owned(), unit, counter: true, points: points.collect() }
    }

    #[test]
    fn rates_are_over_100_ms_and_the_rest_joins_the_last() {
        let points = [(0, 0.0), (100, 10e6), (130, 11e6), (230, 30e6), (235, 31e6)];
        let panel =
            rates("bytes written each second", &[&series("log, written", Unit::Bytes, &points)]);
        assert_eq!(panel.at, [0.0, 0.1, 0.235]);
        let values: Vec<f64> = panel.lines[0].values.iter().map(|value| value.unwrap()).collect();
        assert!((values[0] - 100e6).abs() < 1.0 && (values[1] - 21e6 / 0.135).abs() < 1.0);
        assert_eq!((panel.lines[0].name.as_str(), panel.lines[0].is_step), ("log", true));
    }

    #[test]
    fn counters_share_a_panel_by_the_end_of_their_names() {
        let group = |name: &str, unit| group_of(&series(name, unit, &[]));
        assert_eq!(group("staging log, written", Unit::Bytes), "bytes written each second");
        assert_eq!(group("capacity values, read", Unit::Bytes), "bytes read each second");
        assert_eq!(group("staging, busy", Unit::Nanoseconds), "busy, of the time");
        assert_eq!(group("writers stalled", Unit::Nanoseconds), "writers held up, of their time");
        assert_eq!(group("CPU time", Unit::Nanoseconds), "CPU time, seconds each second");
        assert_eq!(group("record cache hits", Unit::Count), "events each second");
    }
}
