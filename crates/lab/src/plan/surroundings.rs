//! Facts of the machine that a plan needs.

use crate::hse::machine::Processors;

/// Facts of the machine that a plan needs.
pub struct Surroundings<'a> {
    /// This program's version: results of another one are not used.
    pub version: &'a str,
    /// Runs in virtual time that are made at once.
    pub threads: usize,
    /// Memory that runs may take together, in bytes.
    pub memory_bytes: u64,
    /// The value of a variable of the environment.
    pub variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// The work of the processors so far, if the machine tells.
    pub processors: fn() -> Option<Processors>,
}
