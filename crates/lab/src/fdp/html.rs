//! The report as one HTML file that needs no network, in the style of the benchmarks' reports.
//!
//! Invariants
//! 1. Every string of the report is escaped where it enters the page.
//! 2. Without scripts the page still shows every factor, in tables.

use std::fmt::Write as _;

use esker_bench::html::{escape, page, place};

use super::report::{Assumption, Chapter, FdpReport, Published, Run};
use super::table::{factor, figure, sources, spare_cells};
use super::worth::Worth;

const SCRIPT: &str = include_str!("../../assets/fdp.js");

impl FdpReport {
    /// The report as one self-contained page: for each chapter a chart of write amplification over
    /// drive writes, with published figures as marks, and everything that the text has.
    #[must_use]
    pub fn html(&self) -> String {
        let mut main = String::new();
        for (index, chapter) in self.chapters.iter().enumerate() {
            main.push_str(&section(index, chapter));
        }
        if let Some(worth) = &self.worth {
            main.push_str(&worth_section(worth));
        }
        main.push_str(&place(&self.environment, &self.command));
        let subtitle = "<p>Write amplification: bytes written to the media for each byte that the \
                        host writes. Every factor is of a model, over its last two spans.</p>";
        let json = serde_json::to_string(self).expect("every field has a JSON form");
        page(&self.title, subtitle, &main, &json, SCRIPT)
    }
}

fn section(index: usize, chapter: &Chapter) -> String {
    let mut text = format!("<section>\n<h2>{}</h2>\n<ul>\n", escape(&chapter.name));
    let sources = sources(chapter).into_iter().map(|source| format!("Published: {source}."));
    for note in chapter.notes.iter().cloned().chain(sources) {
        let _ = writeln!(text, "<li>{}</li>", escape(&note));
    }
    let _ = write!(
        text,
        "</ul>\n<div class=\"chart\" data-chapter=\"{index}\"></div>\n<div class=\"wide\"><table>\n\
         <thead><tr><th>run</th><th>WAF</th><th>published</th><th>drive writes</th>\
         <th class=\"word\">what it depends on besides</th></tr></thead>\n<tbody>\n"
    );
    for run in &chapter.runs {
        text.push_str(&row(chapter, run));
    }
    for derived in &chapter.derived {
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{:.3}</td><td>{}</td><td></td><td></td></tr>",
            escape(&derived.name),
            derived.write_amplification,
            published(derived.published.as_ref())
        );
    }
    text.push_str("</tbody></table></div>\n");
    if chapter.runs.iter().any(|run| !run.measured.is_steady) {
        text.push_str(
            "<p>? Not steady: the last two spans differ by more than half a percent.</p>\n",
        );
    }
    text.push_str("<h3>All of them</h3>\n<table class=\"pairs\">\n");
    for Assumption { name, value } in chapter.common() {
        let (name, value) = (escape(name), escape(value));
        let _ = writeln!(text, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    text.push_str("</table>\n</section>\n");
    text
}

fn row(chapter: &Chapter, run: &Run) -> String {
    let particular: Vec<String> = chapter
        .particular(run)
        .into_iter()
        .map(|one| format!("{}: {}", escape(&one.name), escape(&one.value)))
        .collect();
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{:.1}</td>\
         <td class=\"word\" style=\"white-space: normal\">{}</td></tr>\n",
        escape(&run.name),
        factor(run).trim_end(),
        published(run.published.as_ref()),
        run.measured.drive_writes,
        particular.join("; ")
    )
}

/// A published figure, with its source where the pointer rests.
fn published(published: Option<&Published>) -> String {
    match published {
        None => String::new(),
        Some(one) => {
            format!("<span title=\"{}\">{}</span>", escape(&one.source), figure(Some(one)))
        }
    }
}

fn worth_section(worth: &Worth) -> String {
    let mut text = String::from("<section>\n<h2>What it is worth</h2>\n<ul>\n");
    for one in &worth.assumptions {
        let _ = writeln!(text, "<li>{}</li>", escape(one));
    }
    text.push_str(
        "</ul>\n<h3>Drive life</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>under</th>\
         <th>WAF</th><th>drive writes a day for 5 years</th><th>years at one a day</th></tr>\
         </thead>\n<tbody>\n",
    );
    for life in &worth.lives {
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{:.3}</td><td>{:.2}</td><td>{:.1}</td></tr>",
            escape(&life.name),
            life.write_amplification,
            life.drive_writes_per_day,
            life.years
        );
    }
    text.push_str(
        "</tbody></table></div>\n<h3>Spare space</h3>\n<div class=\"wide\"><table>\n<thead><tr>\
         <th>for the same factor</th><th>WAF</th><th>over-provisioning</th>\
         <th>capacity regained</th></tr></thead>\n<tbody>\n",
    );
    for spare in &worth.spares {
        let (needed, regained) = spare_cells(spare);
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{:.3}</td><td>{}</td><td>{regained}</td></tr>",
            escape(&spare.name),
            spare.write_amplification,
            escape(&needed)
        );
    }
    text.push_str("</tbody></table></div>\n</section>\n");
    text
}
