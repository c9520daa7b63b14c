//! The report as a page.

use esker_report::{Page, Section, Table as Shown, Verdict};

use super::report::{ASSUMPTIONS, PooledReport, Table, VERDICTS};
use super::verdicts::PooledVerdict;
use crate::Outcome;

impl PooledReport {
    /// The report as a page, with the tables of the text.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title, self.headline());
        page.about = "Nodes of Cassandra on local drives, and on volumes of one pool over NVMe/TCP with as many \
                      drives: real programs in real time, on modelled drives."
            .to_owned();
        page.verdicts = self.verdicts.iter().map(shown).collect();
        for Table { title, head, rows } in self.tables() {
            // A page has verdicts and assumptions of its own.
            if rows.is_empty() || [VERDICTS, ASSUMPTIONS].contains(&title) {
                continue;
            }
            let mut section = Section::new(title);
            let mut table = Shown::new(head).words([0, 1]);
            rows.into_iter().for_each(|row| table.row(row));
            section.add(table);
            page.sections.push(section);
        }
        let mut section = Section::new("Arms");
        section.list(self.arms.iter().map(|one| format!("{}: {}", one.name, one.description)));
        section.list(self.skipped.iter().map(|one| format!("Skipped: {one}")));
        if !section.blocks.is_empty() {
            page.sections.push(section);
        }
        page.assumptions.clone_from(&self.assumptions);
        page.environment.clone_from(&self.environment);
        page.command.clone_from(&self.command);
        page
    }

    /// How many goals are reached, in a sentence.
    fn headline(&self) -> String {
        let count = |outcome| self.verdicts.iter().filter(|one| one.outcome == outcome).count();
        format!(
            "{} of {} goals are reached, {} are missed, and of {} this run says nothing.",
            count(Outcome::Reached),
            self.verdicts.len(),
            count(Outcome::Missed),
            count(Outcome::NotComparable)
        )
    }
}

fn shown(verdict: &PooledVerdict) -> Verdict {
    let PooledVerdict { name, source, wanted, esker, outcome } = verdict;
    let published = if source.is_empty() { wanted.clone() } else { format!("{source}; {wanted}") };
    let esker = match outcome {
        Outcome::NotComparable => format!("{esker}; not comparable"),
        _ => esker.clone(),
    };
    Verdict { outcome: outcome.shown(), ..Verdict::new(name, published, esker, true) }
}
