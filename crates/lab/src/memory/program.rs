//! The programs and the sides of the study.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An unchanged program with its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// GNU sort of lines that are nearly in order.
    Sort,
    /// A hash table of texts in mawk.
    Awk,
    /// Sums over a JSON document.
    Jq,
    /// Tables of pandas: grouped, joined, sorted.
    Pandas,
    /// Tables of polars: grouped, joined, sorted, by threads.
    Polars,
    /// Vectors of R: sorted, grouped, looked up.
    R,
    /// Scans and lookups of DuckDB in memory.
    Duckdb,
    /// SETs and GETs of Redis, and a snapshot.
    Redis,
    /// A database of SQLite in memory.
    Sqlite,
    /// A cache in Java that is read and written at random.
    JavaCache,
    /// Work on all of a map in Java.
    JavaBatch,
    /// MariaDB whose buffer pool is twice the budget.
    Mariadb,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 12] = [
        Program::Sort,
        Program::Awk,
        Program::Jq,
        Program::Pandas,
        Program::Polars,
        Program::R,
        Program::Duckdb,
        Program::Redis,
        Program::Sqlite,
        Program::JavaCache,
        Program::JavaBatch,
        Program::Mariadb,
    ];

    /// Its name in options and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Program::Sort => "sort",
            Program::Awk => "awk",
            Program::Jq => "jq",
            Program::Pandas => "pandas",
            Program::Polars => "polars",
            Program::R => "r",
            Program::Duckdb => "duckdb",
            Program::Redis => "redis",
            Program::Sqlite => "sqlite",
            Program::JavaCache => "java-cache",
            Program::JavaBatch => "java-batch",
            Program::Mariadb => "mariadb",
        }
    }

    /// Its work.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Program::Sort => "GNU sort of lines that are nearly in order",
            Program::Awk => "mawk keeps texts by key, and looks some up at random",
            Program::Jq => "jq sorts and sums a JSON document",
            Program::Pandas => "pandas joins, groups and sorts a table",
            Program::Polars => "polars joins, groups and sorts a table with two threads",
            Program::R => "R sorts, groups and looks up vectors",
            Program::Duckdb => "DuckDB loads, scans and looks up a table in memory",
            Program::Redis => {
                "Redis: SETs of values of 1,000 bytes, half of each one byte repeated; GETs; BGSAVE"
            }
            Program::Sqlite => "SQLite indexes, updates and joins a database in memory",
            Program::JavaCache => "a cache in Java (Serial GC), read and written at random",
            Program::JavaBatch => "a map in Java (G1) is filled, changed and summed up",
            Program::Mariadb => {
                "MariaDB reads and updates a table in a buffer pool of twice the budget"
            }
        }
    }
}

/// The part of Redis's work in which it saves a snapshot.
pub const SNAPSHOT: &str = "BGSAVE beside SETs";
/// The names of DuckDB's scans begin so.
pub(super) const SCAN: &str = "scan";

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        named(&Program::ALL, Program::name, text)
    }
}

/// Memory under a program, with the same total on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// `esker run`, its device a file.
    Esker,
    /// The kernel's swap on the same file, `vm.page-cluster=0`: one page a read.
    #[serde(rename = "swap-0")]
    Swap0,
    /// The same, `vm.page-cluster=3`: eight pages a read.
    #[serde(rename = "swap-3")]
    Swap3,
    /// The kernel's swap on compressed memory.
    Zram,
}

impl Side {
    /// All of them.
    pub const ALL: [Side; 4] = [Side::Esker, Side::Swap0, Side::Swap3, Side::Zram];
    /// Swap on a drive, which Esker is held against.
    pub const SWAPS: [Side; 2] = [Side::Swap0, Side::Swap3];

    /// Its name in options and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Esker => "esker",
            Side::Swap0 => "swap-0",
            Side::Swap3 => "swap-3",
            Side::Zram => "zram",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Side, String> {
        named(&Side::ALL, Side::name, text)
    }
}

fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        format!("there is no '{text}': there are {}", names.join(", "))
    })
}
