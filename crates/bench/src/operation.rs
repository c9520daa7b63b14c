//! Kinds of operations of a client.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of operation of a client on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Reads one record.
    Read,
    /// Replaces the value of one record.
    Update,
    /// Adds a record.
    Insert,
    /// Reads records in key order from a start key.
    Scan,
    /// Reads one record, then replaces its value; timed as one operation.
    ReadModifyWrite,
}

impl OperationKind {
    /// All kinds, in the order of reports.
    pub const ALL: [OperationKind; 5] = [
        OperationKind::Read,
        OperationKind::Update,
        OperationKind::Insert,
        OperationKind::Scan,
        OperationKind::ReadModifyWrite,
    ];

    /// The place of this kind in [`OperationKind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in tables: `rmw` for read-modify-write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OperationKind::Read => "read",
            OperationKind::Update => "update",
            OperationKind::Insert => "insert",
            OperationKind::Scan => "scan",
            OperationKind::ReadModifyWrite => "rmw",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
