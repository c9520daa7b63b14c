//! Latency by percentile of every kind of operation.

use esker_report::{Axis, Chart, Curve, Curves, Draw, Unit};

use crate::result::{Latency, RunResult};

/// An operation has one colour; a dashed curve counts from the intended start.
pub(super) fn by_percentile(run: &RunResult) -> Option<Chart> {
    let mut curves = Vec::new();
    let mut tails = Vec::new();
    let mut has_intended = false;
    for (colour, operation) in run.by_operation.iter().enumerate() {
        let name = operation.operation.name();
        if let Some(latency) = &operation.latency {
            let p99 = Unit::Nanoseconds.show(latency.p99_ns as f64);
            tails.push(format!("{p99} ({name})"));
            curves.push(curve(name.to_owned(), latency, colour, Draw::Line));
        }
        if let Some(latency) = &operation.intended_latency {
            has_intended = true;
            let name = format!("{name}, from intended start");
            curves.push(curve(name, latency, colour, Draw::Dashed));
        }
    }
    if curves.is_empty() {
        return None;
    }
    let title = format!("One operation in 100 takes longer than {}", tails.join(", "));
    let chart = Chart::new(title, Curves::percentiles(Axis::latency_ns("latency"), curves));
    let note = "Dashed: from the moment at which the fixed rate had the operation start.";
    Some(if has_intended { chart.note(note) } else { chart })
}

fn curve(name: String, latency: &Latency, colour: usize, draw: Draw) -> Curve {
    let points = latency.by_percentile.iter();
    let points = points.map(|point| (point.one_in, point.latency_ns as f64)).collect();
    Curve { colour: Some(colour), ..Curve::new(name, draw, points) }
}
