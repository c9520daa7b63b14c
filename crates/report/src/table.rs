//! Tables: as markup that wraps on paper and becomes cards on phones, and as CSV.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::escape::{attribute, escape, percent_encoded, slug};

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The text that is shown.
    pub text: String,
    /// The figure without rounding, for CSV; the text stands there otherwise.
    pub figure: Option<f64>,
    /// The anchor of a section of the same page, without `#`.
    pub link: Option<String>,
}

impl Cell {
    /// A figure, written in one way and kept in another.
    #[must_use]
    pub fn figure(text: impl Into<String>, figure: f64) -> Cell {
        Cell { text: text.into(), figure: Some(figure), link: None }
    }

    /// Text that leads to a section of the page.
    #[must_use]
    pub fn link(text: impl Into<String>, anchor: impl Into<String>) -> Cell {
        Cell { text: text.into(), figure: None, link: Some(anchor.into()) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), figure: None, link: None }
    }
}

/// A table whose first column names its rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The table's caption; empty for none.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows, each with as many cells as the head.
    pub rows: Vec<Vec<Cell>>,
    /// Columns of words, which stand to the left and wrap.
    pub words: Vec<usize>,
    /// Rows above which a line is drawn.
    pub ruled: Vec<usize>,
    /// The text after the name of a column in CSV, where figures stand without their unit: ` (ns)`.
    pub(crate) units: Vec<Cow<'static, str>>,
}

/// The most rows that a page shows of a chart's data; CSV has all.
const SHOWN: usize = 60;

/// Tables of more columns become cards on phones.
const FEW: usize = 3;
/// Tables of more columns are in smaller print on paper, where figures are not to break.
const MANY: usize = 8;

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), ..Table::default() }
    }

    /// A table of these rows, whose first column is of words.
    #[must_use]
    pub fn of<S: Into<String>, C: Into<Cell>>(
        head: impl IntoIterator<Item = S>,
        rows: impl IntoIterator<Item = impl IntoIterator<Item = C>>,
    ) -> Table {
        let mut table = Table::new(head).words([0]);
        rows.into_iter().for_each(|row| table.row(row));
        table
    }

    /// Sets the caption.
    #[must_use]
    pub fn caption(self, caption: impl Into<String>) -> Table {
        Table { caption: caption.into(), ..self }
    }

    /// Makes columns of words of these.
    #[must_use]
    pub fn words(self, columns: impl IntoIterator<Item = usize>) -> Table {
        Table { words: columns.into_iter().collect(), ..self }
    }

    /// Adds a column of figures.
    pub(crate) fn column(&mut self, name: impl Into<String>, unit: &'static str) {
        self.units.resize(self.head.len(), Cow::Borrowed(""));
        self.head.push(name.into());
        self.units.push(Cow::Borrowed(unit));
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a row with a line above it.
    pub fn ruled_row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.ruled.push(self.rows.len());
        self.row(cells);
    }

    /// The table as CSV (RFC 4180), all of its rows.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::new();
        let unit = |column: usize| self.units.get(column).map_or("", |unit| unit);
        let names = self.head.iter().enumerate();
        let names: Vec<String> = names.map(|(at, name)| format!("{name}{}", unit(at))).collect();
        line(&mut text, names.iter().map(String::as_str));
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .map(|cell| cell.figure.map_or_else(|| cell.text.clone(), |n| n.to_string()))
                .collect();
            line(&mut text, cells.iter().map(String::as_str));
        }
        text
    }

    /// A link that saves the table as CSV; the file's name is made of `name`.
    pub(crate) fn download(&self, name: &str) -> String {
        format!(
            "<a class=\"csv\" download=\"{}.csv\" href=\"data:text/csv;charset=utf-8,{}\">\
             Save as CSV</a>",
            slug(name),
            percent_encoded(&self.csv())
        )
    }

    /// The table as markup. Wide ones become cards on phones where `cards` says so, and scroll otherwise.
    pub(crate) fn markup(&self, name: &str, cards: bool) -> String {
        let cards_class = (cards && self.head.len() > FEW).then_some("cards");
        let many_class = (self.head.len() > MANY).then_some("many");
        let classes: Vec<&str> = cards_class.into_iter().chain(many_class).collect();
        let class = match classes.is_empty() {
            true => String::new(),
            false => format!(" class=\"{}\"", classes.join(" ")),
        };
        let label = if self.caption.is_empty() { name } else { &self.caption };
        let mut text = format!(
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\
             <table{class}>\n{}<thead><tr>",
            attribute(label),
            self.caption_markup(cards)
        );
        for (column, name) in self.head.iter().enumerate() {
            let _ = write!(text, "<th scope=\"col\"{}>{}</th>", self.class(column), escape(name));
        }
        text.push_str("</tr></thead>\n<tbody>\n");
        let step = self.step(cards);
        for (index, row) in self.rows.iter().enumerate().step_by(step) {
            text.push_str(&self.row_markup(index, row));
        }
        if self.rows.is_empty() {
            let _ = writeln!(text, "<tr><td colspan=\"{}\">nothing</td></tr>", self.head.len());
        }
        text.push_str("</tbody></table></div>\n");
        text
    }

    /// Every how many rows one is shown: all of them in a table that is no chart's.
    fn step(&self, cards: bool) -> usize {
        if cards { 1 } else { self.rows.len().div_ceil(SHOWN).max(1) }
    }

    fn caption_markup(&self, cards: bool) -> String {
        let mut caption = escape(&self.caption);
        let step = self.step(cards);
        if step > 1 {
            let gap = if caption.is_empty() { "" } else { ". " };
            let _ = write!(caption, "{gap}One row in {step}; the CSV has all.");
        }
        if caption.is_empty() { caption } else { format!("<caption>{caption}</caption>\n") }
    }

    fn class(&self, column: usize) -> &'static str {
        if column > 0 && self.words.contains(&column) { " class=\"word\"" } else { "" }
    }

    fn row_markup(&self, index: usize, row: &[Cell]) -> String {
        let ruled = if self.ruled.contains(&index) { " class=\"first\"" } else { "" };
        let mut text = format!("<tr{ruled}>");
        for (column, cell) in row.iter().enumerate() {
            let shown = match &cell.link {
                Some(anchor) => {
                    format!("<a href=\"#{}\">{}</a>", attribute(anchor), escape(&cell.text))
                }
                None => escape(&cell.text),
            };
            let _ = if column == 0 {
                write!(text, "<th scope=\"row\">{shown}</th>")
            } else {
                let label = self.head.get(column).map_or("", String::as_str);
                let empty = if cell.text.is_empty() { " data-empty" } else { "" };
                let class = self.class(column);
                write!(text, "<td{class} data-label=\"{}\"{empty}>{shown}</td>", attribute(label))
            };
        }
        text.push_str("</tr>\n");
        text
    }
}

fn line<'a>(text: &mut String, cells: impl Iterator<Item = &'a str>) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            text.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            let _ = write!(text, "\"{}\"", cell.replace('"', "\"\""));
        } else {
            text.push_str(cell);
        }
    }
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_has_commas_and_keeps_figures_whole() {
        let mut table = Table::new(["run", "rate"]);
        table.row([Cell::from("a, \"b\""), Cell::figure("1.2 k/s", 1234.5)]);
        assert_eq!(table.csv(), "run,rate\r\n\"a, \"\"b\"\"\",1234.5\r\n");
        assert!(table.download("A b!").contains("download=\"a-b.csv\""));
    }

    #[test]
    fn long_tables_show_some_rows_and_save_all() {
        let mut table = Table::new(["n"]);
        (0..1000).for_each(|n| table.row([n.to_string()]));
        let markup = table.markup("t", false);
        assert_eq!(markup.matches("<th scope=\"row\">").count(), 59);
        assert!(markup.contains("One row in 17"));
        assert_eq!(table.csv().lines().count(), 1001);
    }

    #[test]
    fn no_cell_becomes_markup() {
        let mut table = Table::new(["<i>", "\"><i>"]);
        table.row([Cell::link("<i>", "\"><i>"), Cell::from("<i>")]);
        let markup = table.markup("<i>", true);
        assert!(!markup.contains("<i>"), "{markup}");
    }
}
