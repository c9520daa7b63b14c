//! The report as one HTML file that needs no network, in the style of the benchmarks' reports.
//!
//! Invariants
//! 1. Every string of the report is escaped where it enters the page.
//! 2. Without scripts the page still shows every figure but the curves, in tables.

use std::fmt::Write as _;

use esker_bench::html::{escape, page, place};

use super::report::{BOUNDED_COLUMNS, HostSsdReport, LATENCY_COLUMNS, Verdict};

const SCRIPT: &str = include_str!("../../assets/host-ssd.js");
/// Sentences in tables wrap, and on paper everything does: nobody can scroll there.
const STYLE: &str = include_str!("../../assets/host-ssd.css");

impl HostSsdReport {
    /// The report as one self-contained page: verdicts, a cumulative distribution for each depth, the account of
    /// what each part is worth, and everything that the text has.
    #[must_use]
    pub fn html(&self) -> String {
        let mut main = format!("<style>{STYLE}</style>\n");
        main.push_str(&self.verdict_section());
        main.push_str(&self.latency_section());
        main.push_str(&self.account_section());
        main.push_str(&self.installed_section());
        main.push_str(&self.assumption_section());
        main.push_str(&place(&self.environment, &self.command));
        let subtitle = "<p>A software-controlled SSD beside a conventional drive of the same NAND, in virtual time: \
                        the same figures on every machine.</p>";
        let json = serde_json::to_string(self).expect("every field has a JSON form");
        page(&self.title, subtitle, &main, &json, SCRIPT)
    }

    fn verdict_section(&self) -> String {
        let mut text = String::from(
            "<section>\n<h2>What came out</h2>\n<table class=\"verdicts\">\n<thead><tr><th></th>\
             <th>figure</th><th>published or wanted</th><th>Esker</th></tr></thead>\n<tbody>\n",
        );
        for Verdict { name, wanted, esker, is_reached } in &self.verdicts {
            let mark = if *is_reached { "reached" } else { "missed" };
            let (name, wanted, esker) = (escape(name), escape(wanted), escape(esker));
            let _ = writeln!(
                text,
                "<tr><td class=\"{mark}\">{mark}</td><th scope=\"row\">{name}</th><td>{wanted}</td>\
                 <td>{esker}</td></tr>"
            );
        }
        text.push_str("</tbody></table>\n</section>\n");
        text
    }

    fn latency_section(&self) -> String {
        let mut text = String::from("<section>\n<h2>4 KiB reads at random</h2>\n");
        text.push_str("<div class=\"charts\">\n");
        for index in 0..self.depths.len() {
            let _ = writeln!(text, "<div class=\"chart\" data-depth=\"{index}\"></div>");
        }
        text.push_str("</div>\n");
        text.push_str("<h3>Microseconds: p50 / p80 / p99 / p99.9</h3>\n");
        text.push_str(&table(&LATENCY_COLUMNS.map(str::to_owned), &self.latency_rows()));
        text.push_str("<h3>So many at the dies, and 64 more in the host</h3>\n");
        text.push_str(&table(&BOUNDED_COLUMNS.map(str::to_owned), &self.bounded_rows()));
        text.push_str("</section>\n");
        text
    }

    fn account_section(&self) -> String {
        let (head, rows) = self.account_rows();
        let mut text = format!(
            "<section>\n<h2>Data four times memory</h2>\n<p>What a lookup takes and what a scan carries; in \
             parentheses how many times faster than in the first line.</p>\n{}<ul>\n",
            table(&head, &rows)
        );
        for step in &self.account {
            let beside = if step.is_on_the_way { "" } else { " (for comparison)" };
            let (name, what) = (escape(&step.name), escape(&step.what));
            let _ = writeln!(text, "<li>{name}{beside}: {what}</li>");
        }
        text.push_str("</ul>\n<h3>Factors with one thread, where a figure is another one</h3>\n");
        let head = ["figure", "lookups", "scan"].map(str::to_owned);
        text.push_str(&table(&head, &self.sensitivity_rows()));
        text.push_str("</section>\n");
        text
    }

    fn installed_section(&self) -> String {
        let Some(installed) = &self.installed else { return String::new() };
        let subtitle = escape(&installed.subtitle());
        let mut text = format!("<section>\n<h2>What is installed here</h2>\n<p>{subtitle}</p>\n");
        for (head, rows) in [installed.way_rows(), installed.query_rows()] {
            if !rows.is_empty() {
                text.push_str(&table(&head, &rows));
            }
        }
        text.push_str("<ul>\n");
        for one in &installed.ways {
            let _ = writeln!(text, "<li>{}: {}</li>", escape(&one.name), escape(&one.what));
        }
        text.push_str("</ul>\n</section>\n");
        text
    }

    fn assumption_section(&self) -> String {
        let mut text = String::from("<section>\n<h2>What it depends on</h2>\n");
        for drive in &self.drives {
            let _ = writeln!(text, "<h3>{}</h3>\n<ul>", escape(&drive.title));
            for (mark, list) in [("Source", &drive.sources), ("Assumed", &drive.assumptions)] {
                for one in list {
                    let _ = writeln!(text, "<li>{mark}: {}</li>", escape(one));
                }
            }
            text.push_str("</ul>\n");
        }
        text.push_str("<h3>The study</h3>\n<table class=\"pairs\">\n");
        for one in &self.assumptions {
            let (name, value) = (escape(&one.name), escape(&one.value));
            let _ = writeln!(text, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
        }
        text.push_str("</table>\n");
        for one in &self.skipped {
            let _ = writeln!(text, "<p>Skipped: {}</p>", escape(one));
        }
        text.push_str("</section>\n");
        text
    }
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let mut text = String::from("<div class=\"wide\"><table>\n<thead><tr>");
    for cell in head {
        let _ = write!(text, "<th>{}</th>", escape(cell));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        for (index, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            let _ = match index {
                0 => write!(text, "<tr><th scope=\"row\">{cell}</th>"),
                _ => write!(text, "<td>{cell}</td>"),
            };
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}
