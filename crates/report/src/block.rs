//! Sections and their blocks.

use serde::{Deserialize, Serialize};

use crate::chart::Chart;
use crate::escape::slug;
use crate::table::Table;

/// A part of a page under a heading, with an anchor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// The section's blocks, in order.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A list of sentences.
    List(Vec<String>),
    /// A heading below the section's.
    Heading(String),
    /// A table.
    Table(Table),
    /// Names and their meanings.
    Pairs(Vec<(String, String)>),
    /// Charts; several stand side by side where there is room.
    Charts(Vec<Chart>),
    /// Blocks that are shown when the summary is clicked, and on paper.
    Folded(String, Vec<Block>),
}

impl Section {
    /// A section with nothing in it.
    #[must_use]
    pub fn new(heading: impl Into<String>) -> Section {
        Section { heading: heading.into(), blocks: Vec::new() }
    }

    /// Where links to it lead: `#` and this.
    #[must_use]
    pub fn anchor(&self) -> String {
        format!("s-{}", slug(&self.heading))
    }

    /// Adds a part.
    pub fn add(&mut self, block: impl Into<Block>) {
        self.blocks.push(block.into());
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.add(Block::Text(text.into()));
    }

    /// Adds a heading below the section's.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.add(Block::Heading(text.into()));
    }

    /// Adds a list, unless it is empty.
    pub fn list<S: Into<String>>(&mut self, items: impl IntoIterator<Item = S>) {
        let items: Vec<String> = items.into_iter().map(Into::into).collect();
        if !items.is_empty() {
            self.add(Block::List(items));
        }
    }

    /// Adds charts side by side, unless there are none.
    pub fn charts(&mut self, charts: Vec<Chart>) {
        if !charts.is_empty() {
            self.add(Block::Charts(charts));
        }
    }

    /// Adds names and their meanings, unless there are none.
    pub fn pairs(&mut self, pairs: Vec<(String, String)>) {
        if !pairs.is_empty() {
            self.add(Block::Pairs(pairs));
        }
    }

    /// Adds blocks that are folded away under a summary, unless there are none.
    pub fn fold(&mut self, summary: impl Into<String>, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            self.add(Block::Folded(summary.into(), blocks));
        }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Block {
        Block::Table(table)
    }
}

impl From<Chart> for Block {
    fn from(chart: Chart) -> Block {
        Block::Charts(vec![chart])
    }
}

/// Something that the figures of a report depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assumption {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl From<(String, String)> for Assumption {
    fn from((name, value): (String, String)) -> Assumption {
        Assumption { name, value }
    }
}

impl Assumption {
    /// A name and its value.
    #[must_use]
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Assumption {
        Assumption { name: name.into(), value: value.into() }
    }
}
