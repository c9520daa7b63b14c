//! The report as a page.

use esker_report::{Axis, Bars, Chart, Page, Section, Table as Shown, Unit, Verdict};

use super::program::Side;
use super::report::{ASSUMPTIONS, MemoryReport, SECONDS, VERDICTS};
use crate::text::Table;

impl MemoryReport {
    /// The report as a page, with the tables of the text.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title, self.headline());
        page.about = "Unchanged programs, each side with the same total memory on the same drive: real programs in \
                      real time."
            .to_owned();
        page.verdicts.clone_from(&self.verdicts);
        for Table { title, head, rows } in self.tables() {
            // A page has verdicts and assumptions of its own.
            if rows.is_empty() || [VERDICTS, ASSUMPTIONS].contains(&title) {
                continue;
            }
            let mut section = Section::new(title);
            if title == SECONDS {
                section.charts(self.chart().into_iter().collect());
            }
            let mut table = Shown::new(head).words([0]);
            rows.into_iter().for_each(|row| table.row(row));
            section.add(table);
            page.sections.push(section);
        }
        let missing: Vec<String> =
            self.failures().into_iter().chain(self.skipped.clone()).collect();
        if !missing.is_empty() {
            let mut section = Section::new("Failed, or left out");
            section.list(missing);
            page.sections.push(section);
        }
        page.assumptions = self.assumptions.iter().cloned().map(Into::into).collect();
        page.environment.clone_from(&self.environment);
        page.command.clone_from(&self.command);
        page
    }

    /// How many times as fast as swap each program is.
    fn chart(&self) -> Option<Chart> {
        let bars: Vec<(String, Vec<f64>)> = self
            .programs
            .iter()
            .filter_map(|one| Some((one.program.name().to_owned(), vec![one.speed(None)?])))
            .collect();
        if bars.is_empty() {
            return None;
        }
        let axis = Axis::linear("swap's seconds for each of Esker's", Unit::Factor);
        let chart = Bars { axis, parts: vec![Side::Esker.name().to_owned()], bars };
        Some(Chart::new(self.finding(), chart))
    }

    /// The range of the speeds, in a sentence.
    fn finding(&self) -> String {
        let mut speeds: Vec<(f64, &str)> = self
            .programs
            .iter()
            .filter_map(|one| Some((one.speed(None)?, one.program.name())))
            .collect();
        speeds.sort_by(|a, b| a.0.total_cmp(&b.0));
        match (speeds.first(), speeds.last()) {
            (Some((least, slow)), Some((most, fast))) => format!(
                "Paged memory is {least:.2} ({slow}) to {most:.2} ({fast}) times as fast as the faster swap"
            ),
            _ => "No program completed both on Esker and on swap".to_owned(),
        }
    }

    fn headline(&self) -> String {
        let (count, tally) = (self.verdicts.len(), Verdict::tally(&self.verdicts));
        format!("{}. Of {count} goals: {tally}.", self.finding())
    }
}
