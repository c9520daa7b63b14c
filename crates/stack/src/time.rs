//! How fast a model is.

use std::fmt;
use std::str::FromStr;

/// How the time of a model passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// Not at all: commands complete at once, and are counted.
    None,
    /// From event to event, on the clock of the [`Stack`](crate::Stack); for one thread.
    Virtual,
    /// As it does.
    #[default]
    Real,
    /// So many times slower, at least twice.
    Dilated(u32),
}

impl Time {
    /// The forms that a specification may have.
    pub(crate) const FORMS: &str = "none, virtual, real, or 10x for ten times slower";
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        Ok(match text {
            "none" => Time::None,
            "virtual" => Time::Virtual,
            "real" => Time::Real,
            _ => match text.strip_suffix('x').unwrap_or(text).parse() {
                Ok(1) => Time::Real,
                Ok(factor) if factor > 0 => Time::Dilated(factor),
                _ => return Err(format!("'{text}' is no time; write {}", Time::FORMS)),
            },
        })
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Time::None => f.write_str("none"),
            Time::Virtual => f.write_str("virtual"),
            Time::Real => f.write_str("real"),
            Time::Dilated(factor) => write!(f, "{factor}x"),
        }
    }
}
