//! The report as one HTML file that needs no network, in the style of the benchmarks' reports.
//!
//! Invariants
//! 1. Every string of the report is escaped where it enters the page.
//! 2. Without scripts the page still shows every figure of the versions, in tables.

use std::fmt::Write as _;

use esker_base::units::human_bytes;
use esker_bench::html::{escape, page, place};

use super::report::{COLUMNS, FlashCacheReport, SizeResult, WorkloadResult};

const SCRIPT: &str = include_str!("../../assets/flash-cache.js");

impl FlashCacheReport {
    /// The report as one self-contained page: for each workload hits and disk time by size, hits by
    /// place of insertion, and tables of everything.
    #[must_use]
    pub fn html(&self) -> String {
        let mut main =
            String::from("<section>\n<h2>What is compared</h2>\n<table class=\"pairs\">\n");
        for (name, what) in &self.versions {
            let (name, what) = (escape(name), escape(what));
            let _ = writeln!(main, "<tr><th scope=\"row\">{name}</th><td>{what}</td></tr>");
        }
        main.push_str("</table>\n<ul>\n");
        for note in &self.notes {
            let _ = writeln!(main, "<li>{}</li>", escape(note));
        }
        main.push_str("</ul>\n</section>\n");
        for (index, workload) in self.workloads.iter().enumerate() {
            main.push_str(&section(index, workload));
        }
        main.push_str(&place(&self.environment, &self.command));
        let times = &self.times;
        let subtitle = format!(
            "<p>Over a {}: {:.2} ms for a random read, {:.2} ms for a write.</p>",
            escape(&times.disk),
            times.read_ns / 1e6,
            times.write_ns / 1e6
        );
        let json = serde_json::to_string(self).expect("every field has a JSON form");
        page(&self.title, &subtitle, &main, &json, SCRIPT)
    }
}

fn section(index: usize, workload: &WorkloadResult) -> String {
    let mut text = format!(
        "<section>\n<h2>{}</h2>\n<p>{}</p>\n",
        escape(&workload.name),
        escape(&workload.line())
    );
    for chart in ["hits", "time", "insertion"] {
        let _ = writeln!(
            text,
            "<div class=\"chart\" data-workload=\"{index}\" data-chart=\"{chart}\"></div>"
        );
    }
    for size in &workload.sizes {
        text.push_str(&table(size));
    }
    text.push_str("</section>\n");
    text
}

fn table(size: &SizeResult) -> String {
    let mut text = format!(
        "<h3>A cache of {} ({} %)</h3>\n<div class=\"wide\"><table>\n<thead><tr>",
        human_bytes(size.cache_bytes),
        size.percent
    );
    for column in COLUMNS {
        let _ = write!(text, "<th>{column}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in size.rows() {
        let _ = write!(text, "<tr><th scope=\"row\">{}</th>", escape(&row[0]));
        for cell in &row[1..] {
            let _ = write!(text, "<td>{}</td>", escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}
