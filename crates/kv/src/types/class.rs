//! Media classes: the two kinds of medium that a KVDB stands on.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The kinds of medium a KVDB stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaClass {
    /// Fast, durable to write: young data, and keys.
    Staging,
    /// Cheap, to be written seldom and in key order: old values.
    Capacity,
}

impl MediaClass {
    /// Both classes.
    pub const ALL: [MediaClass; 2] = [MediaClass::Staging, MediaClass::Capacity];

    pub(crate) fn other(self) -> MediaClass {
        match self {
            MediaClass::Staging => MediaClass::Capacity,
            MediaClass::Capacity => MediaClass::Staging,
        }
    }
}

impl fmt::Display for MediaClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MediaClass::Staging => "staging",
            MediaClass::Capacity => "capacity",
        })
    }
}

impl FromStr for MediaClass {
    type Err = String;
    fn from_str(name: &str) -> Result<MediaClass, String> {
        let found = MediaClass::ALL.into_iter().find(|class| class.to_string() == name);
        found.ok_or_else(|| format!("'{name}' is no media class; use staging or capacity"))
    }
}
