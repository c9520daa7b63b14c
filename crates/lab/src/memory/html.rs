//! The document of the study.

use esker_report::{Axis, Bars, Chart, Page, Section, Unit};

use super::program::Side;
use super::report::{MemoryFigures, SECONDS};
use crate::study::QUICK;

impl MemoryFigures {
    /// The document.
    pub(super) fn document(&self) -> Page {
        let label = if self.quick { QUICK } else { "" };
        let title = format!("Programs with paged memory, on swap and on zram{label}");
        let mut page = Page::new(title, format!("{}.", self.finding()));
        page.about = "Unchanged programs, each side with the same total memory on the same drive: real programs in \
                      real time."
            .to_owned();
        for (title, table) in self.tables() {
            let mut section = Section::new(title);
            if title == SECONDS {
                section.charts(self.chart().into_iter().collect());
            }
            section.add(table);
            page.sections.push(section);
        }
        let failed = self.failures().into_iter().map(|one| format!("failed: {one}"));
        let mut section = Section::new("Failed, or left out");
        section.list(failed.chain(self.skipped.iter().map(|one| format!("SKIPPED: {one}"))));
        if !self.skipped.is_empty() {
            let (skipped, ran) = (self.skipped.len(), self.programs.len());
            section.text(format!("{skipped} programs were SKIPPED, {ran} ran."));
        }
        if !section.blocks.is_empty() {
            page.sections.push(section);
        }
        page.assumptions = self.assumptions.iter().cloned().map(Into::into).collect();
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
}
