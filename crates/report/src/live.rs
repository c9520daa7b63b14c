//! Pages of what goes on: their subjects, and answers to them.

use serde_json::json;

use crate::page::Page;

/// Something that goes on, and is a page at each moment.
pub trait Subject: Send + Sync + 'static {
    /// The title of its report.
    fn title(&self) -> String;

    /// The page as of now, and its version; none if that is `since`. Versions begin at 1, and only grow.
    fn now(&self, since: u64) -> Option<(u64, Page)>;
}

/// The state of a live page's subject.
pub enum State<'a> {
    /// As the page has it.
    Unchanged,
    /// It goes on, and this is known so far.
    Running(&'a Page),
    /// It has ended, and this is the report: a whole page.
    Ended(&'a str),
}

impl State<'_> {
    /// The answer to a page, as JSON; it asks next for a state newer than `version`, which only grows.
    #[must_use]
    pub fn json(&self, version: u64) -> String {
        let answer = match self {
            State::Unchanged => json!({ "version": version }),
            State::Running(page) => {
                let (header, main, charts) = page.parts();
                json!({ "version": version, "header": header, "main": main, "charts": charts })
            }
            State::Ended(report) => json!({ "version": version, "report": report }),
        };
        answer.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Chart, Line, Panel, Panels, Section, Unit};

    fn page() -> Page {
        let line = Line::slope("<b>", vec![Some(1.0)]);
        let panel = Panel::new(Axis::linear("n", Unit::Count), vec![0.0], vec![line]);
        let mut section = Section::new("Rates");
        section.add(Chart::new("Rates rise", Panels::one(Axis::seconds(), panel)));
        let mut page = Page::new("Run", "It runs at </script>.");
        page.sections.push(section);
        page
    }

    #[test]
    fn states_have_what_the_page_needs_and_no_more() {
        let parsed = |state: State<'_>| -> serde_json::Value {
            serde_json::from_str(&state.json(7)).unwrap()
        };
        assert_eq!(parsed(State::Unchanged), json!({ "version": 7 }));
        assert_eq!(parsed(State::Ended("<p>")), json!({ "version": 7, "report": "<p>" }));
        let running = parsed(State::Running(&page()));
        assert!(running["header"].as_str().unwrap().contains("runs at &lt;/script&gt;."));
        assert!(running["main"].as_str().unwrap().contains("id=\"s-rates\""));
        assert_eq!(running["charts"][0]["panels"][0]["lines"][0]["name"], "<b>");
    }

    #[test]
    fn live_page_asks_nobody_but_its_server() {
        let html = page().live();
        for reference in ["src=\"", "@import", "url(http", "href=\"http"] {
            assert!(!html.contains(reference), "{reference}");
        }
        assert_eq!(html.matches("fetch(").count(), 1);
        assert!(html.contains("fetch(`state?since="));
        assert!(!page().html().contains("fetch("));
    }
}
