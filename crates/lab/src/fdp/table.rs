//! The report as plain text, within 100 columns where names allow.

use std::fmt::Write as _;

use esker_report::{Assumption, Verdict};

use super::course::Measured;
use super::network::NetworkReport;
use super::report::{Chapter, FdpReport, Published, Run, percent};
use super::worth::Worth;

/// Columns of text.
const WIDTH: usize = 100;

impl FdpReport {
    /// The report as text: for each chapter its factors, beside them the published figures, and
    /// everything they depend on.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for chapter in &self.chapters {
            text.push_str(&table_of(chapter));
        }
        let verdicts = self.verdicts();
        if !verdicts.is_empty() {
            let _ =
                writeln!(text, "\nOf {} figures: {}\n", verdicts.len(), Verdict::tally(&verdicts));
            verdicts.iter().for_each(|one| text.push_str(&one.text()));
        }
        if let Some(worth) = &self.worth {
            text.push_str(&worth_table(worth));
        }
        text
    }
}

fn table_of(chapter: &Chapter) -> String {
    let mut text = format!("\n{}\n{}\n", chapter.name, "-".repeat(chapter.name.chars().count()));
    for note in &chapter.notes {
        wrap(&mut text, "", note);
    }
    let mut rows = vec![["", "WAF", "drive writes", "published"].map(str::to_owned)];
    for run in &chapter.runs {
        rows.push([
            run.name.clone(),
            factor(run),
            format!("{:.1}", run.measured.drive_writes),
            figure(run.published.as_ref()),
        ]);
    }
    for derived in &chapter.derived {
        let published = figure(derived.published.as_ref());
        let factor = format!("{:.3} ", derived.write_amplification);
        rows.push([derived.name.clone(), factor, String::new(), published]);
    }
    text.push('\n');
    text.push_str(&align(&rows));
    if chapter.runs.iter().any(|run| !run.measured.is_steady) {
        text.push_str("? not steady: its last two spans differ by more than half a percent\n");
    }
    for source in sources(chapter) {
        wrap(&mut text, "", &source);
    }
    text.push_str(&assumptions_of(chapter));
    text
}

/// Everything that the factors of a chapter depend on.
fn assumptions_of(chapter: &Chapter) -> String {
    let mut text = "\nall of them:\n".to_owned();
    for one in chapter.common() {
        wrap(&mut text, "  ", &pair(one));
    }
    for run in &chapter.runs {
        let particular: Vec<String> = chapter.particular(run).into_iter().map(pair).collect();
        if !particular.is_empty() {
            wrap(&mut text, "  ", &format!("{}: {}", run.name, particular.join("; ")));
        }
    }
    text
}

impl NetworkReport {
    /// The report as text: each factor both ways, whether they are the same to the byte, and
    /// everything they depend on.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        let mut rows = vec![["", "WAF in process", "over the network", "bytes"].map(str::to_owned)];
        for pair in &self.pairs {
            let of = |measured: &Measured| format!("{:.3}", measured.write_amplification);
            let equal = if pair.is_equal() { "equal" } else { "DIFFERENT" };
            let (here, there) = (of(&pair.in_process), of(&pair.over_network));
            rows.push([pair.name.clone(), here, there, equal.to_owned()]);
        }
        text.push_str(&align(&rows));
        let runs = self.pairs.iter().map(|pair| Run {
            name: pair.name.clone(),
            assumptions: pair.assumptions.clone(),
            measured: pair.in_process.clone(),
            published: None,
        });
        let (name, notes, derived) = (String::new(), Vec::new(), Vec::new());
        text.push_str(&assumptions_of(&Chapter { name, notes, runs: runs.collect(), derived }));
        text
    }
}

fn pair(one: &Assumption) -> String {
    format!("{}: {}", one.name, one.value)
}

/// A factor, with a question mark where it is not steady.
pub(super) fn factor(run: &Run) -> String {
    let mark = if run.measured.is_steady { ' ' } else { '?' };
    format!("{:.3}{mark}", run.measured.write_amplification)
}

pub(super) fn figure(published: Option<&Published>) -> String {
    published.map_or(String::new(), |published| format!("{}", published.figure))
}

/// Returns the sources of the published figures.
pub(super) fn sources(chapter: &Chapter) -> Vec<String> {
    let of_runs = chapter.runs.iter().filter_map(|run| run.published.as_ref());
    let derived = chapter.derived.iter().filter_map(|derived| derived.published.as_ref());
    let mut sources: Vec<String> = of_runs
        .chain(derived)
        .map(|published| format!("{}: {}", published.figure, published.source))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

fn worth_table(worth: &Worth) -> String {
    let name = "What it is worth";
    let mut text = format!("\n{name}\n{}\n", "-".repeat(name.len()));
    for one in &worth.assumptions {
        wrap(&mut text, "", one);
    }
    let mut rows =
        vec![["", "WAF", "writes a day, 5 years", "years at 1 a day"].map(str::to_owned)];
    for life in &worth.lives {
        rows.push([
            life.name.clone(),
            format!("{:.3}", life.write_amplification),
            format!("{:.2}", life.drive_writes_per_day),
            format!("{:.1}", life.years),
        ]);
    }
    text.push('\n');
    text.push_str(&align(&rows));
    let mut rows = vec![["", "WAF", "spare space", "capacity regained"].map(str::to_owned)];
    for spare in &worth.spares {
        let (needed, regained) = spare_cells(spare);
        rows.push([
            spare.name.clone(),
            format!("{:.3}", spare.write_amplification),
            needed,
            regained,
        ]);
    }
    text.push('\n');
    text.push_str(&align(&rows));
    text
}

/// Returns two cells: the spare space that a search found, and the capacity that this gives back.
pub(super) fn spare_cells(spare: &super::worth::Spare) -> (String, String) {
    let given = percent(spare.over_provisioning);
    let needed = match spare.needed {
        None => format!("{given} -> more than 300 %"),
        Some(needed) if needed < 0.021 => format!("{given} -> 2 % or less"),
        Some(needed) => format!("{given} -> {:.0} %", needed * 100.0),
    };
    let regained = spare.regained.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    (needed, regained)
}

/// Columns as wide as their widest cell; words to the left, numbers to the right.
fn align(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 4] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Appends a paragraph, every line indented, further lines a little more.
fn wrap(text: &mut String, indent: &str, paragraph: &str) {
    let mut line = indent.to_owned();
    for word in paragraph.split_whitespace() {
        let is_first = line.trim().is_empty();
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = format!("{indent}  {word}");
            continue;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
