//! A page for a terminal: its sentences, verdicts and tables, without what needs a picture.
//!
//! Charts are their titles, which state the finding. Folded parts are shown, but for charts in them.

use std::fmt::Write as _;

use crate::block::Block;
use crate::page::{ASSUMPTIONS, Page, VERDICTS};
use crate::table::Table;

/// Columns within which sentences stay; tables are as wide as they need.
pub const WIDTH: usize = 100;

impl Page {
    /// The page for a terminal: everything but its charts, and the place and the command, which the caller knows.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for sentence in [&self.headline, &self.about] {
            if !sentence.is_empty() {
                text.push('\n');
                text.push_str(&wrapped("", "", sentence));
            }
        }
        if !self.verdicts.is_empty() {
            heading(&mut text, VERDICTS);
            self.verdicts.iter().for_each(|one| text.push_str(&one.text()));
        }
        for section in &self.sections {
            heading(&mut text, &section.heading);
            blocks(&mut text, &mut section.blocks.iter());
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

/// Whether a block has nothing for a terminal: charts that are folded away.
fn is_nothing(block: &Block) -> bool {
    let is_chart = |block: &Block| matches!(block, Block::Charts(_));
    matches!(block, Block::Folded(_, folded) if folded.iter().all(is_chart))
}

fn blocks(text: &mut String, blocks: &mut dyn Iterator<Item = &Block>) {
    // The first block, and those below a heading, stand right where they are.
    let mut is_apart = false;
    for block in blocks.filter(|block| !is_nothing(block)) {
        if is_apart {
            text.push('\n');
        }
        is_apart = !matches!(block, Block::Heading(_));
        match block {
            Block::Text(one) => text.push_str(&wrapped("", "", one)),
            Block::Heading(one) => text.push_str(&wrapped("", "", &format!("{one}:"))),
            Block::List(items) => {
                items.iter().for_each(|item| text.push_str(&wrapped("- ", "  ", item)));
            }
            Block::Table(table) => text.push_str(&table.text()),
            Block::Pairs(all) => {
                pairs(text, all.iter().map(|(name, value)| (&**name, &**value)));
            }
            Block::Charts(charts) => {
                charts.iter().for_each(|chart| text.push_str(&wrapped("", "", &chart.title)));
            }
            Block::Folded(summary, folded) => {
                text.push_str(&wrapped("", "", &format!("{summary}:")));
                let mut folded = folded.iter().filter(|one| !matches!(one, Block::Charts(_)));
                self::blocks(text, &mut folded);
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
        text.push_str(&wrapped(&format!("  {name:width$}  "), &indent, value));
    }
}

/// A paragraph in lines that fit, its first line behind `first` and the others behind `further`.
#[must_use]
pub fn wrapped(first: &str, further: &str, paragraph: &str) -> String {
    let mut text = String::new();
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
    text
}

/// Rows of cells behind an indent, with columns as wide as their widest cell: those of words to the left, figures to the
/// right.
pub fn aligned<R: AsRef<[C]>, C: AsRef<str>>(
    indent: &str,
    rows: &[R],
    is_words: impl Fn(usize) -> bool,
) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.as_ref().iter().enumerate() {
            let width = cell.as_ref().chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (column, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let (gap, cell) = (if column == 0 { "" } else { "  " }, cell.as_ref());
            let _ = match is_words(column) {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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
        let caption = match self.caption.as_str() {
            "" => String::new(),
            caption => wrapped("", "", &format!("{caption}:")),
        };
        caption + &aligned("  ", &all, |column| column == 0 || self.words.contains(&column))
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
        let text = wrapped("- ", "  ", &long);
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
