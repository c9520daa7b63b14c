//! Runs of one workload that differ in placement only, as a row of a chart.

use esker_report::{Axis, Chart, Line, Panel, Panels, Range, Unit};

use super::report::{Chapter, Run};

/// The name of runs without placement.
const NOTHING: &str = "no placement";
/// Suffix of the name of a run without placement that is a control.
const CONTROL: &str = "no placement (control)";

/// A workload, with its runs by their placement.
pub(super) struct Row<'a> {
    /// The name of the workload.
    pub(super) name: &'a str,
    /// How each run places, and the run.
    pub(super) runs: Vec<(&'a str, &'a Run)>,
}

/// Whether a run gives its stores handles.
pub(super) fn has_handles(run: &Run) -> bool {
    run.assumptions.iter().any(|one| one.name == "handles" && one.value != NOTHING)
}

/// The workload and the placement that a run's name says.
fn parts(run: &Run) -> (&str, &str) {
    match run.name.rsplit_once(", ") {
        Some((name, NOTHING | CONTROL)) => (name, NOTHING),
        Some((name, placing)) if placing.contains("handle") => (name, placing),
        _ if has_handles(run) => (&run.name, "with placement"),
        _ => (&run.name, NOTHING),
    }
}

/// The workloads of a chapter, in the order in which they were run.
pub(super) fn of(chapter: &Chapter) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for run in &chapter.runs {
        let (name, placing) = parts(run);
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.runs.push((placing, run)),
            None => rows.push(Row { name, runs: vec![(placing, run)] }),
        }
    }
    rows
}

/// Ways of placing, in the order in which they come.
pub(super) fn series(rows: &[Row<'_>]) -> Vec<String> {
    let mut series: Vec<String> = Vec::new();
    for (placing, _) in rows.iter().flat_map(|row| &row.runs) {
        if !series.iter().any(|one| one == placing) {
            series.push((*placing).to_owned());
        }
    }
    series
}

impl Row<'_> {
    /// The factor without placement, and the least with it.
    pub(super) fn gain(&self) -> Option<(f64, f64)> {
        let factor = |run: &Run| run.measured.write_amplification;
        let without = self.runs.iter().find(|(placing, _)| *placing == NOTHING)?;
        let with = self.runs.iter().filter(|(placing, _)| *placing != NOTHING);
        let with = with.map(|(_, run)| factor(run)).min_by(f64::total_cmp)?;
        Some((factor(without.1), with))
    }

    /// Returns the effect of placement here, in a sentence, if it has any.
    pub(super) fn finding(&self) -> Option<String> {
        let (without, with) = self.gain()?;
        (without - with > 0.005)
            .then(|| format!("{}: {without:.3} without placement, {with:.3} with it", self.name))
    }

    /// The factors over drive writes.
    pub(super) fn course(&self) -> Option<Chart> {
        let points = || self.runs.iter().map(|(_, run)| &run.measured.points);
        let mut at: Vec<f64> = points().flatten().map(|point| point.drive_writes).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let (from, to) = (0.0, *at.last()?);
        let most = points().flatten().map(|point| point.write_amplification).fold(1.0, f64::max);
        let lines = self.runs.iter().map(|(placing, run)| {
            let mut rest = run.measured.points.iter().peekable();
            let values = at.iter().map(|at| {
                let here = rest.next_if(|point| point.drive_writes == *at);
                here.map(|point| point.write_amplification)
            });
            Line::slope(*placing, values.collect())
        });
        let lines = lines.collect();
        let ends: Vec<String> = self
            .runs
            .iter()
            .map(|(placing, run)| format!("{placing} {:.3}", run.measured.write_amplification))
            .collect();
        let y = Axis::linear("write amplification", Unit::FineFactor);
        let y = y.over(Range::Fixed(0.99, (most * 1.02).max(1.1)));
        let x = Axis::linear("drive writes", Unit::Plain).over(Range::Fixed(from, to));
        let title = format!("{} ends at {}", self.name, ends.join(", "));
        Some(Chart::new(title, Panels::one(x, Panel::new(y, at, lines))))
    }
}
