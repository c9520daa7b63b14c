//! The steps of an experiment, as they are taken.

use std::time::Duration;

use esker_base::{Clock, Nanos};
use esker_report::{Page, Section, Table};
use parking_lot::Mutex;

use super::{Live, Subject};

/// The steps so far, and the one that goes on.
pub(crate) struct Steps {
    title: String,
    command: String,
    clock: Clock,
    known: Mutex<Known>,
}

struct Known {
    version: u64,
    /// How far all is, as a sentence.
    state: String,
    /// Each step, and when it began.
    steps: Vec<(String, Nanos)>,
}

impl Steps {
    /// No step yet.
    pub(crate) fn of(title: String, command: String) -> Steps {
        let state = "The first step is about to begin.".to_owned();
        let known = Mutex::new(Known { version: 1, state, steps: Vec::new() });
        Steps { title, command, clock: Clock::real(), known }
    }
}

impl Live<Steps> {
    /// A step goes on; `state` says how far all is.
    pub(crate) fn step(&self, state: &str, step: &str) {
        let steps = self.subject();
        let mut known = steps.known.lock();
        if known.state != state {
            known.state = state.to_owned();
            known.version += 1;
        }
        if known.steps.last().is_none_or(|(last, _)| last != step) {
            known.steps.push((step.to_owned(), steps.clock.now()));
            known.version += 1;
        }
    }
}

impl Subject for Steps {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn now(&self, since: u64) -> Option<(u64, Page)> {
        let known = self.known.lock();
        if known.version == since {
            return None;
        }
        let mut page = Page::new(&self.title, &known.state);
        page.command.clone_from(&self.command);
        let mut table = Table::new(["step", "took"]).words([0]);
        let now = self.clock.now();
        let ends = known.steps.iter().skip(1).map(|(_, began)| Some(*began)).chain([None]);
        for ((step, began), end) in known.steps.iter().zip(ends) {
            let took = end.map_or_else(|| "goes on".to_owned(), |end| shown(end.since(*began)));
            table.row([step.clone(), took]);
        }
        if let Some((_, began)) = known.steps.first() {
            page.about = format!("{} so far", shown(now.since(*began)));
            let mut section = Section::new("Steps");
            section.add(table);
            page.sections.push(section);
        }
        Some((known.version, page))
    }
}

fn shown(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
