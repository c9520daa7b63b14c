//! Circles among the files of a crate: files each of which imports, straight or through others, all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Imports, Module, Sources, name, reach};

/// The most files in a circle: two that are one thought in two parts.
const MOST: usize = 2;

/// A circle of files.
pub(crate) type Circle<'s> = BTreeSet<&'s Module>;

/// The circles of more than two files, by the files that each one leads to.
pub(crate) fn of<'s>(edges: &Imports<'s>) -> BTreeSet<Circle<'s>> {
    let reached: BTreeMap<&Module, Circle<'s>> =
        edges.keys().map(|&file| (file, reach(file, edges))).collect();
    let mut circles = BTreeSet::new();
    for (file, there) in &reached {
        let back = |other: &&Module| reached.get(other).is_some_and(|from| from.contains(file));
        let circle: Circle<'s> = there.iter().copied().filter(back).collect();
        if circle.len() > MOST {
            circles.insert(circle);
        }
    }
    circles
}

/// A circle in words.
pub(crate) fn line(circle: &Circle<'_>) -> String {
    let names: Vec<String> = circle.iter().map(|file| name(file)).collect();
    format!("a circle of {} files: {}", names.len(), names.join(", "))
}

/// The circles of a crate's imports, one line each.
pub(crate) fn findings(sources: &Sources) -> Vec<String> {
    of(&sources.defining()).iter().map(line).collect()
}
