//! A whole page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::block::{Assumption, Block, Section};
use crate::chart::{Chart, Kind};
use crate::escape::{escape, slug};
use crate::markup::{figure, json};
use crate::verdict::{Outcome, Verdict};

const UPLOT: &str = include_str!("../assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../assets/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../assets/uPlot.LICENSE");
const ECHARTS: &str = include_str!("../assets/echarts/echarts.min.js");
const ECHARTS_NOTICE: &str = include_str!("../assets/echarts/NOTICE");
/// Draws all charts that are not drawn yet.
const SCRIPT: &str = include_str!("../assets/charts.js");
/// Keeps a page up to date while its run goes on.
const LIVE: &str = include_str!("../assets/live.js");
const STYLE: &str = include_str!("../assets/report.css");

/// Sections from which on a page lists them at its head.
const MANY: usize = 3;

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The subject.
    pub title: String,
    /// The result, as a sentence with its figures.
    pub headline: String,
    /// The setup that everything in it was measured on, in a sentence; empty for nothing.
    pub about: String,
    /// Figures beside published ones.
    pub verdicts: Vec<Verdict>,
    /// The parts.
    pub sections: Vec<Section>,
    /// The assumptions that the figures depend on.
    pub assumptions: Vec<Assumption>,
    /// Where they were taken: commit, kernel, processor, devices.
    pub environment: BTreeMap<String, String>,
    /// The command that made it; several are on lines of their own.
    pub command: String,
}

impl Page {
    /// A page without sections.
    #[must_use]
    pub fn new(title: impl Into<String>, headline: impl Into<String>) -> Page {
        Page { title: title.into(), headline: headline.into(), ..Page::default() }
    }

    /// The page as one file that needs no network.
    #[must_use]
    pub fn html(&self) -> String {
        let mut draw = Drawing { charts: Vec::new(), command: &self.command };
        let (header, main) = (self.header(), self.main("", &mut draw));
        document(&self.title, &header, &main, &draw.charts)
    }

    /// The same while its subject goes on: the page asks for `state?since=VERSION` beside its own address once a
    /// second, shows the [`State`](crate::State) that it is answered, and becomes the report at the end.
    #[must_use]
    pub fn live(&self) -> String {
        let note = "<p id=\"live\" class=\"about\" role=\"status\" hidden>The process does not answer.</p>\n";
        let (header, main) = (self.header(), self.main("", &mut Drawing::default()));
        let title = escape(&self.title);
        // Charts of any kind may come.
        let script = format!(
            "<script type=\"application/json\" id=\"charts\">[]</script>\n\
             <script>/*\n{UPLOT_LICENCE}*/\n{UPLOT}</script>\n\
             <script>/*\n{ECHARTS_NOTICE}*/\n{ECHARTS}</script>\n\
             <script>{SCRIPT}</script>\n<script>{LIVE}</script>\n"
        );
        let head = "<link rel=\"icon\" href=\"data:,\">\n"; // or a browser asks for one
        markup(&title, head, &format!("{header}{note}"), &main, &script)
    }

    /// The parts that a live page replaces: the header's and the body's markup, and the charts' JSON.
    pub(crate) fn parts(&self) -> (String, String, serde_json::Value) {
        let mut draw = Drawing::default();
        let main = self.main("", &mut draw);
        let kinds: Vec<&Kind> = draw.charts.iter().map(|chart| &chart.kind).collect();
        let charts = serde_json::to_value(kinds).expect("every field has a JSON form");
        (self.header(), main, charts)
    }

    /// The title, the headline, and the sentence about the measurements.
    fn header(&self) -> String {
        let line = |class: &str, text: &str| match text {
            "" => String::new(),
            text => format!("<p class=\"{class}\">{}</p>", escape(text)),
        };
        let (headline, about) = (line("headline", &self.headline), line("about", &self.about));
        format!("<header><h1>{}</h1>{headline}{about}</header>\n", escape(&self.title))
    }

    /// Everything below the header; all anchors begin with `prefix`.
    fn main<'a>(&'a self, prefix: &str, draw: &mut Drawing<'a>) -> String {
        draw.command = &self.command;
        let mut main = self.contents(prefix);
        main.push_str(&self.verdict_section(prefix));
        for (anchor, section) in self.anchors().into_iter().zip(&self.sections) {
            let heading = escape(&section.heading);
            let _ = writeln!(main, "<section id=\"{prefix}{anchor}\">\n<h2>{heading}</h2>");
            draw.blocks(&mut main, &section.blocks);
            main.push_str("</section>\n");
        }
        main.push_str(&self.assumption_section(prefix));
        main.push_str(&self.place(prefix));
        main
    }

    /// The anchor of each section; of several with the same heading the first one has it to itself.
    fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for section in &self.sections {
            let anchor = section.anchor();
            let earlier = anchors.iter().filter(|one| **one == anchor).count();
            anchors.push(if earlier == 0 { anchor } else { format!("{anchor}-{}", anchors.len()) });
        }
        anchors
    }

    /// Links to the sections of a page that has many.
    fn contents(&self, prefix: &str) -> String {
        if self.sections.len() < MANY {
            return String::new();
        }
        let mut text = String::from("<nav aria-label=\"Contents\"><ul>");
        let headings = self.sections.iter().map(|one| one.heading.as_str());
        let links = self.anchors().into_iter().zip(headings);
        let last = [(PLACE_ANCHOR.to_owned(), PLACE)];
        for (anchor, heading) in links.chain(last) {
            let _ = write!(text, "<li><a href=\"#{prefix}{anchor}\">{}</a></li>", escape(heading));
        }
        text.push_str("</ul></nav>\n");
        text
    }

    fn verdict_section(&self, prefix: &str) -> String {
        if self.verdicts.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "<section id=\"{prefix}verdicts\">\n<h2>{VERDICTS}</h2>\n<table class=\"verdicts\">\n\
             <thead><tr><th scope=\"col\">outcome</th><th scope=\"col\">figure</th>\
             <th scope=\"col\">published or wanted</th><th scope=\"col\">Esker</th></tr></thead>\n\
             <tbody>\n",
        );
        for one in &self.verdicts {
            let name = one.outcome.name();
            let class = slug(name);
            let shown = if one.outcome == Outcome::Shown { "–" } else { name };
            let figure = escape(&one.figure);
            let bounds = lines(&[("", &one.published), ("wanted: ", &one.wanted)]);
            let baseline = ("baseline: ", &one.baseline);
            let mut esker = lines(&[("", &one.measured), baseline]);
            for why in one.why() {
                let _ = write!(esker, "<br>{}", escape(&why));
            }
            let _ = writeln!(
                text,
                "<tr><td class=\"{class}\">{shown}</td><th scope=\"row\">{figure}</th>\
                 <td data-label=\"published or wanted\">{bounds}</td>\
                 <td data-label=\"Esker\">{esker}</td></tr>"
            );
        }
        text.push_str("</tbody></table>\n</section>\n");
        text
    }

    fn assumption_section(&self, prefix: &str) -> String {
        if self.assumptions.is_empty() {
            return String::new();
        }
        format!(
            "<section id=\"{prefix}assumptions\">\n<h2>{ASSUMPTIONS}</h2>\n{}</section>\n",
            pairs(self.assumptions.iter().map(|one| (&one.name, &one.value)))
        )
    }

    /// Where and how it was measured.
    fn place(&self, prefix: &str) -> String {
        let mut text = format!("<section id=\"{prefix}{PLACE_ANCHOR}\">\n<h2>{PLACE}</h2>\n");
        if !self.environment.is_empty() {
            text.push_str(&pairs(&self.environment));
        }
        if !self.command.is_empty() {
            let _ = writeln!(text, "<pre><code>{}</code></pre>", escape(&self.command));
        }
        if self.environment.is_empty() && self.command.is_empty() {
            text.push_str("<p>Not recorded.</p>\n");
        }
        text.push_str("</section>\n");
        text
    }
}

/// Several reports in one file: a summary, and a chapter for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// The page in front of the chapters: verdicts, and omissions.
    pub summary: Page,
    /// The chapters: a short name for anchors and links, and the report.
    pub chapters: Vec<(String, Page)>,
}

impl Book {
    /// The book as one file that needs no network. Each library is in it once.
    #[must_use]
    pub fn html(&self) -> String {
        let mut draw = Drawing { charts: Vec::new(), command: "" };
        let mut main = String::from("<nav aria-label=\"Chapters\"><ul>");
        for (name, page) in &self.chapters {
            let (anchor, title) = (slug(name), escape(&page.title));
            let _ = write!(main, "<li><a href=\"#{anchor}\">{title}</a></li>");
        }
        main.push_str("</ul></nav>\n");
        main.push_str(&self.summary.main("", &mut draw));
        for (name, page) in &self.chapters {
            let anchor = slug(name);
            let _ = write!(main, "<article class=\"chapter\" id=\"{anchor}\">\n{}", page.header());
            main.push_str(&page.main(&format!("{anchor}-"), &mut draw));
            main.push_str("</article>\n");
        }
        document(&self.summary.title, &self.summary.header(), &main, &draw.charts)
    }
}

/// A file that needs no network.
fn document(title: &str, header: &str, main: &str, charts: &[&Chart]) -> String {
    markup(&escape(title), "", header, main, &script(charts))
}

fn markup(title: &str, head: &str, header: &str, main: &str, script: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n{head}<style>{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n\
         {header}<main>\n{main}</main>\n{script}</body>\n</html>\n"
    )
}

/// The headings of the parts that every page may have.
pub(crate) const VERDICTS: &str = "What came out";
pub(crate) const ASSUMPTIONS: &str = "What it depends on";
const PLACE: &str = "Where it was measured";
const PLACE_ANCHOR: &str = "place";

/// Numbers charts in the order in which they stand in the page.
#[derive(Default)]
struct Drawing<'a> {
    charts: Vec<&'a Chart>,
    command: &'a str,
}

impl<'a> Drawing<'a> {
    fn blocks(&mut self, text: &mut String, blocks: &'a [Block]) {
        for block in blocks {
            self.block(text, block);
        }
    }

    fn block(&mut self, text: &mut String, block: &'a Block) {
        let _ = match block {
            Block::Text(one) => writeln!(text, "<p>{}</p>", escape(one)),
            Block::Heading(one) => writeln!(text, "<h3>{}</h3>", escape(one)),
            Block::List(items) => {
                let items: String =
                    items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
                writeln!(text, "<ul>\n{items}</ul>")
            }
            Block::Pairs(all) => {
                write!(text, "{}", pairs(all.iter().map(|(name, value)| (name, value))))
            }
            Block::Table(table) => write!(text, "{}", table.markup("table", true)),
            Block::Charts(charts) => {
                let class = if charts.len() > 1 { "charts several" } else { "charts" };
                let _ = writeln!(text, "<div class=\"{class}\">");
                for chart in charts {
                    text.push_str(&figure(chart, self.charts.len(), self.command));
                    self.charts.push(chart);
                }
                writeln!(text, "</div>")
            }
            Block::Folded(summary, blocks) => {
                let _ = writeln!(text, "<details><summary>{}</summary>", escape(summary));
                self.blocks(text, blocks);
                writeln!(text, "</details>")
            }
        };
    }
}

fn pairs<'a>(all: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let mut text = String::from("<table class=\"pairs\">\n");
    for (name, value) in all {
        let (name, value) = (escape(name), escape(value));
        let _ = writeln!(text, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    text.push_str("</table>\n");
    text
}

/// The parts that are not empty, each on a line of its own behind its label.
fn lines(parts: &[(&str, &String)]) -> String {
    let parts = parts.iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> =
        parts.map(|(label, value)| format!("{label}{}", escape(value))).collect();
    lines.join("<br>")
}

/// The charts' JSON and the scripts that draw them.
fn script(charts: &[&Chart]) -> String {
    if charts.is_empty() {
        return String::new();
    }
    let mut text =
        format!("<script type=\"application/json\" id=\"charts\">{}</script>\n", json(charts));
    if charts.iter().any(|chart| chart.needs_uplot()) {
        let _ = writeln!(text, "<script>/*\n{UPLOT_LICENCE}*/\n{UPLOT}</script>");
    }
    if charts.iter().any(|chart| chart.needs_echarts()) {
        let _ = writeln!(text, "<script>/*\n{ECHARTS_NOTICE}*/\n{ECHARTS}</script>");
    }
    let _ = writeln!(text, "<script>{SCRIPT}</script>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Curve, Curves, Dot, DotRow, Dots, Line, Panel, Panels};
    use crate::table::Table;
    use crate::unit::Unit;
    use crate::verdict::Precondition;

    const HOSTILE: &str = "</script><b onload='x'>\"&";

    fn line(name: &str) -> Panels {
        let line = Line::slope(name, vec![Some(1.0)]);
        Panels::one(
            Axis::seconds(),
            Panel::new(Axis::linear(name, Unit::Count), vec![0.0], vec![line]),
        )
    }

    fn hostile() -> Page {
        let mut page = Page::new(HOSTILE, HOSTILE);
        page.about = HOSTILE.to_owned();
        let condition = Precondition::new(HOSTILE, HOSTILE, false);
        let verdict = Verdict::new(HOSTILE, HOSTILE).published(HOSTILE).baseline(HOSTILE);
        page.verdicts.push(verdict.wanted(HOSTILE, false).requires(condition));
        page.assumptions.push(Assumption::new(HOSTILE, HOSTILE));
        page.environment.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        page.command = HOSTILE.to_owned();
        let mut section = Section::new(HOSTILE);
        section.text(HOSTILE);
        section.list([HOSTILE]);
        section.pairs(vec![(HOSTILE.to_owned(), HOSTILE.to_owned())]);
        let mut table = Table::new([HOSTILE]).caption(HOSTILE);
        table.row([HOSTILE]);
        section.fold(HOSTILE, vec![Block::from(table)]);
        let axis = || Axis::linear(HOSTILE, Unit::Plain);
        let row = DotRow { name: HOSTILE.to_owned(), dots: vec![Dot::new(0, 1.0)] };
        let curve = Curve::line(HOSTILE, vec![(1.0, 1.0)]);
        section.charts(vec![
            Chart::new(HOSTILE, line(HOSTILE)).note(HOSTILE),
            Chart::new(HOSTILE, Curves::new(axis(), axis(), vec![curve])),
            Chart::new(HOSTILE, Dots::new(axis(), [HOSTILE], vec![row])),
        ]);
        page.sections = vec![section.clone(), section];
        page
    }

    #[test]
    fn no_string_becomes_markup_or_ends_the_script() {
        let page = hostile().html();
        assert!(!page.contains("<b onload"));
        assert_eq!(page.matches("</script>").count(), 4, "its own four");
        let start = page.find("id=\"charts\">").unwrap() + "id=\"charts\">".len();
        let json = &page[start..start + page[start..].find("</script>").unwrap()];
        let charts: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(charts[0]["panels"][0]["lines"][0]["name"], HOSTILE);
    }

    #[test]
    fn the_page_needs_no_network() {
        let page = hostile().html();
        for reference in ["src=\"", "@import", "XMLHttpRequest", "url(http", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
        for link in page.split("href=\"").skip(1) {
            assert!(link.starts_with('#') || link.starts_with("data:text/csv"), "{}", &link[..40]);
        }
    }

    #[test]
    fn a_page_holds_only_the_libraries_that_its_charts_need() {
        let of = |charts: Vec<Chart>| {
            let mut page = Page::new("t", "h");
            let mut section = Section::new("s");
            section.charts(charts);
            page.sections.push(section);
            let html = page.html();
            (html.contains("var uPlot="), html.contains("var echarts="))
        };
        let axis = || Axis::linear("n", Unit::Plain);
        let curves = || Curves::new(axis(), axis(), Vec::new());
        assert_eq!(of(Vec::new()), (false, false));
        assert_eq!(of(vec![Chart::new("t", line("n"))]), (true, false));
        assert_eq!(of(vec![Chart::new("t", curves())]), (false, true));
        let dots = Dots::new(axis(), ["a"], Vec::new());
        assert_eq!(of(vec![Chart::new("t", dots)]), (false, false));
    }

    #[test]
    fn chapters_share_libraries_and_no_anchor() {
        let chapter = |name: &str| {
            let mut page = Page::new(name, "found");
            page.verdicts.push(Verdict::new("figure", "2").wanted("1", true));
            let mut section = Section::new("Rates");
            section.add(Chart::new("c", line("n")));
            page.sections = vec![section];
            (name.to_owned(), page)
        };
        let summary = Page::new("All", "two of two");
        let book = Book { summary, chapters: vec![chapter("one"), chapter("two")] };
        let again: Book = serde_json::from_str(&serde_json::to_string(&book).unwrap()).unwrap();
        assert_eq!(again, book);
        let html = book.html();
        assert_eq!(html.matches("var uPlot=").count(), 1);
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).map(|rest| &rest[..rest.find('"').unwrap()]).collect();
        for id in ["one", "one-s-rates", "two-verdicts", "chart-2"] {
            assert!(ids.contains(&id), "{id} of {ids:?}");
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "{ids:?}");
    }

    #[test]
    fn sections_of_one_heading_have_anchors_of_their_own() {
        let mut page = Page::new("t", "h");
        page.sections = vec![Section::new("A b"), Section::new("A b"), Section::new("?")];
        assert_eq!(page.anchors(), ["s-a-b", "s-a-b-1", "s-part"]);
    }
}
