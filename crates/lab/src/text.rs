//! Tables of reports, and their layout for a terminal.

use std::fmt::Write as _;

/// Columns as wide as their widest cell.
pub(crate) fn aligned(head: &[String], rows: &[Vec<String>]) -> String {
    let all: Vec<&[String]> = std::iter::once(head).chain(rows.iter().map(Vec::as_slice)).collect();
    let width =
        |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in all {
        let mut line = format!("  {:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A table of a report; the text and the page have the same ones.
pub(crate) struct Table {
    /// Its title.
    pub(crate) title: &'static str,
    /// Names of its columns; empty names need no line.
    pub(crate) head: Vec<String>,
    /// Its rows; a table without any is left out.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A title, and the tables below it.
    pub(crate) fn text_of(title: &str, tables: Vec<Table>) -> String {
        let mut text = format!("{title}\n");
        for Table { title, head, rows } in tables.into_iter().filter(|table| !table.rows.is_empty())
        {
            let _ = write!(text, "\n{title}\n{}", aligned(&head, &rows));
        }
        text
    }

    /// Rows of names and values.
    pub(crate) fn rows_of(pairs: &[(String, String)]) -> Vec<Vec<String>> {
        pairs.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect()
    }
}

/// A span that is given in microseconds.
pub(crate) fn span(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} µs"),
        ..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}
