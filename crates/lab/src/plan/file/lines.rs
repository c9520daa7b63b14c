//! Where the keys of a file stand.

use std::collections::BTreeMap;

use esker_base::ErrorKind;
use toml::de::{DeTable, DeValue};

use super::Wrong;
use crate::LabError;

/// The lines of a file, by key.
pub(in crate::plan) struct Lines {
    name: String,
    /// Where each line begins, in bytes.
    begins: Vec<usize>,
    /// The line of each key, by the names on the way to it.
    keys: BTreeMap<Vec<String>, usize>,
}

impl Lines {
    /// # Errors
    /// The line that is no TOML.
    pub(super) fn of(name: &str, text: &str) -> Result<Lines, LabError> {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let begins = std::iter::once(0).chain(ends).collect();
        let mut lines = Lines { name: name.to_owned(), begins, keys: BTreeMap::new() };
        let parsed = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.line_of(span.start));
            lines.refusal(line, error.message())
        })?;
        lines.note(&mut Vec::new(), parsed.get_ref());
        Ok(lines)
    }

    fn note(&mut self, way: &mut Vec<String>, table: &DeTable<'_>) {
        for (key, value) in table {
            way.push(key.get_ref().to_string());
            let line = self.line_of(key.span().start);
            self.keys.insert(way.clone(), line);
            match value.get_ref() {
                DeValue::Table(inner) => self.note(way, inner),
                DeValue::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        way.push(index.to_string());
                        let line = self.line_of(item.span().start);
                        self.keys.insert(way.clone(), line);
                        if let DeValue::Table(inner) = item.get_ref() {
                            self.note(way, inner);
                        }
                        way.pop();
                    }
                }
                _ => {}
            }
            way.pop();
        }
    }

    /// The line, from 1 on, in which a byte lies.
    pub(super) fn line_of(&self, byte: usize) -> usize {
        self.begins.partition_point(|begin| *begin <= byte)
    }

    /// The line of a key, or of the innermost table around it that is written.
    fn line_at(&self, way: &[String]) -> usize {
        let known = (0..=way.len()).rev().find_map(|length| self.keys.get(&way[..length]));
        known.copied().unwrap_or(1)
    }

    pub(super) fn refusal(&self, line: usize, why: &str) -> LabError {
        LabError::Line {
            place: format!("{}:{line}", self.name),
            why: why.to_owned(),
            kind: ErrorKind::Invalid,
        }
    }

    /// The refusal of a wrong setting.
    pub(in crate::plan) fn wrong(&self, wrong: &Wrong) -> LabError {
        self.refusal(self.line_at(&wrong.at), &wrong.why)
    }

    /// The same of something that is not there.
    pub(in crate::plan) fn missing(&self, wrong: &Wrong) -> LabError {
        let place = format!("{}:{}", self.name, self.line_at(&wrong.at));
        LabError::Line { place, why: wrong.why.clone(), kind: ErrorKind::NotFound }
    }
}
