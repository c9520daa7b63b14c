//! A report as one HTML file that needs no network: tables made here, charts drawn by uPlot
//! (MIT, in `assets/`) from the report's JSON inside the page.
//!
//! Invariants
//! 1. Every string of the report is escaped where it enters the page: [`escape`] in markup,
//!    [`page`] in the JSON block.
//! 2. Without scripts the page still shows every figure that matters, in tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::result::{Latency, OperationResult, Report, RunResult};
use crate::table::{figures, grouped, remarks_of};
use crate::workload::OperationKind;
use crate::zipf::floor;

const CHART_SCRIPT: &str = include_str!("../assets/uPlot.iife.min.js");
const CHART_STYLE: &str = include_str!("../assets/uPlot.min.css");
const CHART_LICENCE: &str = include_str!("../assets/uPlot.LICENSE");
/// What the scripts of all reports share, called `esker` in them.
const SHARED_SCRIPT: &str = include_str!("../assets/charts.js");
const SCRIPT: &str = include_str!("../assets/report.js");
const STYLE: &str = include_str!("../assets/report.css");

/// A page that needs no network: this project's style, and uPlot for a script that draws charts.
///
/// `title` is text; `subtitle` and `main` are markup, with every foreign string in it escaped. The
/// script finds `json` as `esker.report`, with what the scripts of all reports share (`assets/charts.js`).
#[must_use]
pub fn page(title: &str, subtitle: &str, main: &str, json: &str, script: &str) -> String {
    let title = escape(title);
    // No string in the JSON can end the script element it is in.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{CHART_STYLE}\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1>{subtitle}</header>\n<main>\n{main}</main>\n\
         <script type=\"application/json\" id=\"report\">{json}</script>\n\
         <script>/*\n{CHART_LICENCE}*/\n{CHART_SCRIPT}</script>\n\
         <script>{SHARED_SCRIPT}\n{script}</script>\n</body>\n</html>\n"
    )
}

/// Where and how something was measured, as markup: the environment and the command.
#[must_use]
pub fn place(environment: &BTreeMap<String, String>, command: &str) -> String {
    let mut text = String::from("<section>\n<h2>Where it was measured</h2>\n");
    if !environment.is_empty() {
        text.push_str("<table class=\"pairs\">\n");
        for (name, value) in environment {
            let (name, value) = (escape(name), escape(value));
            let _ = writeln!(text, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
        }
        text.push_str("</table>\n");
    }
    if !command.is_empty() {
        let _ = writeln!(text, "<pre><code>{}</code></pre>", escape(command));
    }
    if environment.is_empty() && command.is_empty() {
        text.push_str("<p>Not recorded.</p>\n");
    }
    text.push_str("</section>\n");
    text
}

impl Report {
    /// The report as one self-contained HTML page of some 60 KB and the report's JSON.
    #[must_use]
    pub fn html(&self) -> String {
        let mut main = self.summary();
        for (index, run) in self.runs.iter().enumerate() {
            main.push_str(&section(index, run));
        }
        main.push_str(&place(&self.environment, &self.command));
        let json = serde_json::to_string(self).expect("every field has a JSON form");
        page(&self.title, &self.subtitle(), &main, &json, SCRIPT)
    }

    fn subtitle(&self) -> String {
        let values = self.dataset.values;
        let mut text = format!(
            "{} records, values of {} bytes",
            grouped(self.dataset.records),
            grouped(values.bytes())
        );
        if values.compressible_percent > 0 {
            let _ = write!(text, ", {} % compressible", values.compressible_percent);
        }
        format!("<p>{text}</p>")
    }

    /// The table of all runs, and what a reader must not miss.
    fn summary(&self) -> String {
        let mut rows = String::new();
        for run in &self.runs {
            for (index, (label, operation, latency)) in lines(run).into_iter().enumerate() {
                let first = index == 0;
                let class = if first { " class=\"first\"" } else { "" };
                let of_run = |text: String| if first { text } else { String::new() };
                let name = of_run(escape(&run.workload.name));
                let all = of_run(grouped(floor(run.ops_per_s.round())));
                let _ = write!(
                    rows,
                    "<tr{class}><th scope=\"row\">{name}</th><td>{all}</td>\
                     <td class=\"word\">{label}</td><td>{}</td>",
                    grouped(operation.operations)
                );
                for figure in figures(latency) {
                    let _ = write!(rows, "<td>{figure}</td>");
                }
                rows.push_str("</tr>\n");
            }
        }
        if rows.is_empty() {
            rows.push_str("<tr><td colspan=\"10\" class=\"word\">no workload was run</td></tr>\n");
        }
        format!(
            "<section>\n<h2>All workloads</h2>\n<div class=\"wide\"><table>\n<thead><tr>\
             <th>workload</th><th>ops/s</th><th class=\"word\">operation</th><th>count</th>\
             <th>mean, µs</th><th>p50, µs</th><th>p95, µs</th><th>p99, µs</th>\
             <th>p99.9, µs</th><th>max, µs</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\
             </div>\n</section>\n"
        )
    }
}

/// The section of one run: settings, charts, and the same figures as tables.
fn section(index: usize, run: &RunResult) -> String {
    let heading = match run.workload.name.as_str() {
        "load" => "Load".to_owned(),
        name => format!("Workload {name}"),
    };
    let mut text =
        format!("<section>\n<h2>{}</h2>\n<p>{}</p>\n", escape(&heading), escape(&description(run)));
    let remarks = remarks_of(run);
    if !remarks.is_empty() {
        text.push_str("<ul>\n");
        for remark in remarks {
            let _ = writeln!(text, "<li>{}</li>", escape(&remark));
        }
        text.push_str("</ul>\n");
    }
    let _ = write!(
        text,
        "<div class=\"charts\" data-run=\"{index}\"></div>\n\
         <details><summary>Over time, as a table</summary>\n<div class=\"wide\">{}</div>\
         </details>\n</section>\n",
        intervals(run)
    );
    text
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
    format!(
        "{mix}; {threads} thread{plural} {pace}; {} operations in {:.2} s, {:.1} s of warm-up \
         before, then a sync of {:.3} s.",
        grouped(run.operations),
        run.elapsed_ns as f64 / 1e9,
        settings.warm_up_ns as f64 / 1e9,
        run.sync_ns as f64 / 1e9
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

/// The run over time; of a long run every n-th interval.
fn intervals(run: &RunResult) -> String {
    const MOST: usize = 200;
    let step = run.intervals.len().div_ceil(MOST).max(1);
    let mut rows = String::new();
    for interval in run.intervals.iter().step_by(step) {
        let [p99, max] = [interval.p99_ns, interval.max_ns]
            .map(|ns| ns.map_or("-".to_owned(), |ns| crate::table::micros(ns as f64)));
        let _ = writeln!(
            rows,
            "<tr><td>{:.2} to {:.2}</td><td>{}</td><td>{p99}</td><td>{max}</td><td>{}</td></tr>",
            interval.start_ns as f64 / 1e9,
            interval.end_ns as f64 / 1e9,
            grouped(floor(interval.ops_per_s.round())),
            grouped(interval.errors),
        );
    }
    let every = if step > 1 {
        format!("<caption>Every {step}th interval; the JSON report has all.</caption>")
    } else {
        String::new()
    };
    format!(
        "<table>{every}<thead><tr><th>seconds</th><th>ops/s</th><th>p99, µs</th><th>max, µs</th>\
         <th>errors</th></tr></thead>\n<tbody>\n{rows}</tbody></table>"
    )
}

/// Text as HTML text or as a quoted attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
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
        assert!(!page.contains("<b onload"));
        assert_eq!(page.matches("</script>").count(), 3, "its own three");
        let start = page.find("id=\"report\">").unwrap() + "id=\"report\">".len();
        let json = &page[start..start + page[start..].find("</script>").unwrap()];
        assert_eq!(Report::from_json(json).unwrap(), report);
    }

    #[test]
    fn the_page_needs_no_network() {
        let page = Report::new("t", Dataset::default()).html();
        for reference in ["src=", "href=", "@import", "fetch(", "XMLHttpRequest", "url("] {
            assert!(!page.contains(reference), "{reference}");
        }
    }
}
