//! A report as one HTML file that needs no network: its sections and tables. The charts of a run are made in `html/`.

#[path = "html/latency.rs"]
mod latency;
#[path = "html/over_time.rs"]
mod over_time;
#[path = "html/traffic.rs"]
mod traffic;

use std::fmt::Write as _;

use esker_base::units::grouped;
use esker_report::{Block, Cell, Page, Section, Table};

use crate::operation::OperationKind;
use crate::result::{Latency, OperationResult, Report, RunResult};
use crate::table::{counters_of, figures, warnings_of};
use crate::zipf::floor;

impl Report {
    /// The report as one self-contained HTML page.
    #[must_use]
    pub fn html(&self) -> String {
        self.page().html()
    }

    /// The page, to which its caller adds facts of its own.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title, self.headline());
        page.about = self.about();
        page.sections.push(self.summary());
        page.sections.extend(self.runs.iter().map(section));
        page.environment = self.environment.clone();
        page.command.clone_from(&self.command);
        page
    }

    fn about(&self) -> String {
        let values = self.dataset.values;
        let (records, bytes) = (grouped(self.dataset.records), grouped(values.bytes()));
        let mut text = format!("{records} records, values of {bytes} bytes");
        if values.compressible_percent > 0 {
            let _ = write!(text, ", {} % compressible", values.compressible_percent);
        }
        text
    }

    /// The rates of all runs and the worst of their tails, in a sentence or two.
    fn headline(&self) -> String {
        let rate = |run: &RunResult| grouped(floor(run.ops_per_s.round()));
        let mut text = String::new();
        if let Some(load) = self.runs.iter().find(|run| is_load(run)) {
            let _ = write!(text, "The load ran at {} operations a second. ", rate(load));
        }
        let others = || self.runs.iter().filter(|run| !is_load(run));
        let by_rate = |a: &&RunResult, b: &&RunResult| a.ops_per_s.total_cmp(&b.ops_per_s);
        if let (Some(fastest), Some(slowest)) = (others().max_by(by_rate), others().min_by(by_rate))
        {
            let _ = if fastest.workload.name == slowest.workload.name {
                write!(text, "Workload {} ran at {}. ", fastest.workload.name, rate(fastest))
            } else {
                let (most, least) = (rate(fastest), rate(slowest));
                let [fast, slow] = [fastest, slowest].map(|run| &run.workload.name);
                write!(
                    text,
                    "Of the workloads {fast} was fastest at {most}, {slow} slowest at {least}. "
                )
            };
        }
        let tails = self.runs.iter().flat_map(|run| {
            let tail = |one: &OperationResult| {
                let latency = one.intended_latency.as_ref().or(one.latency.as_ref())?;
                Some((latency.p999_ns, one.operation.name(), run.workload.name.clone()))
            };
            run.by_operation.iter().filter_map(tail).collect::<Vec<_>>()
        });
        if let Some((ns, operation, workload)) = tails.max() {
            let ns = esker_report::Unit::Nanoseconds.show(ns as f64);
            let _ = write!(text, "The worst p99.9 is {ns}: {operation} in {workload}.");
        }
        if text.is_empty() { "No workload was run.".to_owned() } else { text.trim_end().to_owned() }
    }

    /// The table of all runs, each of which leads to its section.
    fn summary(&self) -> Section {
        let mut table = Table::new([
            "workload",
            "ops/s",
            "operation",
            "count",
            "mean, µs",
            "p50, µs",
            "p95, µs",
            "p99, µs",
            "p99.9, µs",
            "max, µs",
        ])
        .words([2]);
        for run in &self.runs {
            for (index, (label, operation, latency)) in lines(run).into_iter().enumerate() {
                let name = match index {
                    0 => Cell::link(&run.workload.name, section_of(run).anchor()),
                    _ => Cell::from(""),
                };
                let rate =
                    if index == 0 { grouped(floor(run.ops_per_s.round())) } else { String::new() };
                let mut row =
                    vec![name, rate.into(), label.into(), grouped(operation.operations).into()];
                row.extend(figures(latency).map(Cell::from));
                match index {
                    0 => table.ruled_row(row),
                    _ => table.row(row),
                }
            }
        }
        let mut section = Section::new("All workloads");
        if table.rows.is_empty() {
            section.text("No workload was run.");
            return section;
        }
        section.add(table);
        section.charts(traffic::by_run(&self.runs).into_iter().collect());
        section
    }
}

fn is_load(run: &RunResult) -> bool {
    run.workload.name == "load"
}

fn section_of(run: &RunResult) -> Section {
    Section::new(match run.workload.name.as_str() {
        "load" => "Load".to_owned(),
        name => format!("Workload {name}"),
    })
}

/// The section of one run: settings, charts, and its counters.
fn section(run: &RunResult) -> Section {
    let mut section = section_of(run);
    section.text(description(run));
    section.list(warnings_of(run));
    let charts: Vec<_> = [
        over_time::throughput(run),
        latency::by_percentile(run),
        traffic::over_time(run),
        traffic::levels(run),
    ]
    .into_iter()
    .flatten()
    .collect();
    if charts.is_empty() {
        section.text("No operation was measured.");
    }
    section.charts(charts);
    let counters = counters_of(run);
    if !counters.is_empty() {
        section.fold("What the store counted in all", vec![Block::List(counters)]);
    }
    section
}

/// The mix and the settings of a run in a sentence.
fn description(run: &RunResult) -> String {
    let mut mix = String::new();
    for kind in OperationKind::ALL {
        let share = run.workload.proportion(kind) * 100.0;
        if share > 0.0 {
            let separator = if mix.is_empty() { "" } else { ", " };
            let _ = write!(mix, "{separator}{} % {kind}", rounded(share));
        }
    }
    let settings = &run.settings;
    let threads = settings.threads;
    let plural = if threads == 1 { "" } else { "s" };
    let pace = match settings.target_ops_per_s {
        Some(rate) => format!("at {} ops/s", grouped(floor(rate.round()))),
        None => "as fast as possible".to_owned(),
    };
    let sync = match run.sync_ns {
        // It goes on still.
        0 => String::new(),
        ns => format!(", then a sync of {:.3} s", ns as f64 / 1e9),
    };
    format!(
        "{mix}; {threads} thread{plural} {pace}; {} operations in {:.2} s, {:.1} s of warm-up \
         before{sync}.",
        grouped(run.operations),
        run.elapsed_ns as f64 / 1e9,
        settings.warm_up_ns as f64 / 1e9
    )
}

/// At most two decimals, none when they are zero.
fn rounded(share: f64) -> String {
    let text = format!("{share:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Every kind of operation of a run with its latency, then those from the intended start.
fn lines(run: &RunResult) -> Vec<(String, &OperationResult, Option<&Latency>)> {
    let mut lines = Vec::new();
    for operation in &run.by_operation {
        let name = operation.operation.name();
        lines.push((name.to_owned(), operation, operation.latency.as_ref()));
        if let Some(intended) = &operation.intended_latency {
            lines.push((format!("{name}, intended"), operation, Some(intended)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dataset;

    #[test]
    fn no_string_of_a_report_becomes_markup() {
        let hostile = "</script><b onload='x'>\"&";
        let mut report = Report::new(hostile, Dataset::default());
        report.command = hostile.to_owned();
        report.environment.insert(hostile.to_owned(), hostile.to_owned());
        let page = report.html();
        assert!(!page.contains("<b onload") && !page.contains("</script>"), "{page}");
    }
}
