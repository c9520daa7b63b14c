//! The steps of an experiment, as they are taken.

use std::time::Duration;

use esker_base::{Clock, Nanos};
use esker_report::{Page, Section, Subject, Table};
use parking_lot::Mutex;

/// The steps so far, and the one that goes on.
pub struct Taken {
    title: String,
    command: String,
    clock: Clock,
    began: Nanos,
    known: Mutex<Known>,
}

struct Known {
    version: u64,
    /// How far all is, as a sentence.
    state: String,
    /// Each step, in the order in which they began, and when.
    steps: Vec<(String, Nanos)>,
}

impl Taken {
    /// No step yet.
    #[must_use]
    pub fn of(title: String, command: String) -> Taken {
        let state = "The first step is about to begin.".to_owned();
        let known = Mutex::new(Known { version: 1, state, steps: Vec::new() });
        let clock = Clock::real();
        Taken { title, command, began: clock.now(), clock, known }
    }

    /// A step goes on, whose share may stand after its name; `state` says how far all is.
    pub fn step(&self, state: &str, step: &str) {
        let step = without_share(step);
        let mut known = self.known.lock();
        if known.state != state {
            known.state = state.to_owned();
            known.version += 1;
        }
        // Steps that go on side by side are told in turn.
        if !known.steps.iter().any(|(known, _)| known == step) {
            known.steps.push((step.to_owned(), self.clock.now()));
            known.version += 1;
        }
    }
}

impl Subject for Taken {
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
        let mut table = Table::new(["step", "began after"]).words([0]);
        for (step, began) in &known.steps {
            table.row([step.clone(), shown(began.since(self.began))]);
        }
        if !known.steps.is_empty() {
            page.about = format!("{} so far", shown(self.clock.now().since(self.began)));
            let mut section = Section::new("Steps");
            section.add(table);
            page.sections.push(section);
        }
        Some((known.version, page))
    }
}

/// The name of a step: "load" of "load 12 %".
fn without_share(step: &str) -> &str {
    let share = step.strip_suffix(" %").and_then(|rest| rest.rsplit_once(' '));
    match share {
        Some((name, share)) if share.parse::<f64>().is_ok() => name,
        _ => step,
    }
}

fn shown(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_told_once_whatever_its_share() {
        let taken = Taken::of("Esker: lab".to_owned(), String::new());
        for share in ["round 1: load 1 %", "round 1: load 99.5 %", "round 1: a", "round 1: load"] {
            taken.step(&format!("{share}."), share);
        }
        let (version, page) = taken.now(0).unwrap();
        assert_eq!(page.headline, "round 1: load.");
        let text = serde_json::to_string(&page.sections).unwrap();
        assert_eq!(text.matches("round 1").count(), 2, "{text}");
        assert!(taken.now(version).is_none());
    }
}
