//! A page for a terminal: its sentences, verdicts and tables, without what needs a picture.
//!
//! Charts are their titles, which state the finding. Folded parts are shown, but for charts in them.

use std::fmt::Write as _;

use crate::block::Block;
use crate::page::{ASSUMPTIONS, Page, VERDICTS};
use crate::table::Table;

/// Columns within which sentences stay; tables are as wide as they need.
const WIDTH: usize = 100;

impl Page {
    /// The page for a terminal: everything but its charts, and the place and the command, which the caller knows.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for sentence in [&self.headline, &self.about] {
            if !sentence.is_empty() {
                text.push('\n');
                wrapped(&mut text, "", "", sentence);
            }
        }
        if !self.verdicts.is_empty() {
            heading(&mut text, VERDICTS);
            self.verdicts.iter().for_each(|one| text.push_str(&one.text()));
        }
        for section in &self.sections {
            heading(&mut text, &section.heading);
            blocks(&mut text, &section.blocks);
        }
        if !self.assumptions.is_empty() {
            heading(&mut text, ASSUMPTIONS);
            pairs(&mut text, self.assumptions.iter().map(|one| (&*one.name, &*one.value)));
        }
        text
    }
}

fn heading(text: &mut String, heading: &str) {
    let _ = writeln!(text, "\n{heading}\n{}", "-".repeat(heading.chars().count()));
}

fn blocks(text: &mut String, blocks: &[Block]) {
    for (at, block) in blocks.iter().enumerate() {
        // What is below a heading belongs to it.
        if at > 0 && !matches!(blocks[at - 1], Block::Heading(_)) {
            text.push('\n');
        }
        match block {
            Block::Text(one) => wrapped(text, "", "", one),
            Block::Heading(one) => wrapped(text, "", "", &format!("{one}:")),
            Block::List(items) => items.iter().for_each(|item| wrapped(text, "- ", "  ", item)),
            Block::Table(table) => text.push_str(&table.text()),
            Block::Pairs(all) => {
                pairs(text, all.iter().map(|(name, value)| (&**name, &**value)));
            }
            Block::Charts(charts) => {
                charts.iter().for_each(|chart| wrapped(text, "", "", &chart.title));
            }
            Block::Folded(summary, folded) => {
                let is_drawn = |block: &&Block| !matches!(block, Block::Charts(_));
                let folded: Vec<Block> = folded.iter().filter(is_drawn).cloned().collect();
                if folded.is_empty() {
                    // Nothing stands between the blocks on its sides.
                    text.truncate(text.trim_end_matches('\n').len() + 1);
                } else {
                    wrapped(text, "", "", &format!("{summary}:"));
                    self::blocks(text, &folded);
                }
            }
        }
    }
}

/// Each value begins in one column, unless names are long.
fn pairs<'a>(text: &mut String, all: impl Iterator<Item = (&'a str, &'a str)> + Clone) {
    let longest = all.clone().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let width = longest.min(WIDTH / 4);
    let indent = " ".repeat(width + 4);
    for (name, value) in all {
        wrapped(text, &format!("  {name:width$}  "), &indent, value);
    }
}

/// Appends a paragraph, its first line behind `first` and the others behind `further`.
fn wrapped(text: &mut String, first: &str, further: &str, paragraph: &str) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in paragraph.split_whitespace() {
        let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if !is_empty && length > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            further.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

impl Table {
    /// The table for a terminal, with columns as wide as their widest cell: words to the left, figures to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let head: Vec<&str> = self.head.iter().map(String::as_str).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
        let mut all: Vec<Vec<&str>> = rows.collect();
        if head.iter().any(|name| !name.is_empty()) {
            all.insert(0, head);
        }
        let length = |row: &Vec<&str>, column: usize| {
            row.get(column).map_or(0, |cell: &&str| cell.chars().count())
        };
        let width = |column| all.iter().map(|row| length(row, column)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        if !self.caption.is_empty() {
            wrapped(&mut text, "", "", &format!("{}:", self.caption));
        }
        for row in all {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column == 0 || self.words.contains(&column) {
                    true => write!(line, "  {cell:<width$}"),
                    false => write!(line, "  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Assumption, Section};
    use crate::chart::{Axis, Chart, Dots};
    use crate::unit::Unit;
    use crate::verdict::Verdict;

    fn chart(title: &str) -> Chart {
        Chart::new(title, Dots::new(Axis::linear("n", Unit::Plain), ["a"], Vec::new()))
    }

    #[test]
    fn a_page_has_all_of_its_parts() {
        let mut page = Page::new("Reads", "Reads take 72 µs.");
        page.about = "On a model.".to_owned();
        page.verdicts.push(Verdict::new("median", "72 µs").wanted("at most 84 µs", true));
        let mut section = Section::new("Latency");
        section.text("One at a time.");
        section.add(chart("Half take 72 µs"));
        let mut table = Table::new(["depth", "µs", "decided"]).words([2]).caption("Medians");
        table.row(["1", "72", "drive"]);
        table.row(["32", "1000", "processors"]);
        section.add(table);
        section.fold("Courses", vec![Block::Charts(vec![chart("unseen")])]);
        section.heading("Notes");
        section.list(["one", "two"]);
        section.fold("By clock", vec![Block::Pairs(vec![("a".to_owned(), "virtual".to_owned())])]);
        page.sections.push(section);
        page.assumptions.push(Assumption::new("seed", "1"));
        let expected = "\
Reads

Reads take 72 µs.

On a model.

What came out
-------------
reached         median
                wanted: at most 84 µs
                Esker: 72 µs

Latency
-------
One at a time.

Half take 72 µs

Medians:
  depth    µs  decided
  1        72  drive
  32     1000  processors

Notes:
- one
- two

By clock:
  a  virtual

What it depends on
------------------
  seed  1
";
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn sentences_stay_within_the_width_and_words_stay_whole() {
        let long = "word ".repeat(60) + &"x".repeat(150);
        let mut text = String::new();
        wrapped(&mut text, "- ", "  ", &long);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[..lines.len() - 1].iter().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(lines.last().map(|line| line.trim_start().len()), Some(150));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text)[1..], words(&long));
    }

    #[test]
    fn a_table_whose_columns_have_no_names_has_no_head() {
        let mut table = Table::new(["", ""]);
        table.row(["acknowledged", "12"]);
        table.row(["lost", "0"]);
        assert_eq!(table.text(), "  acknowledged  12\n  lost           0\n");
    }
}
