//! Circles among the files of a crate: files each of which imports, straight or through others, all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Module, Sources, name, reach};

/// The most files in a circle: two that are one thought in two parts.
const MOST: usize = 2;

/// The circles of a crate, one line each.
pub(crate) fn findings(sources: &Sources) -> Vec<String> {
    let imports = sources.defining();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|&file| (file, reach(file, &imports))).collect();
    let mut circles = BTreeSet::new();
    for (file, there) in &reached {
        let back = |other: &&Module| reached[other].contains(file);
        let circle: BTreeSet<&Module> = there.iter().copied().filter(back).collect();
        if circle.len() > MOST {
            circles.insert(circle);
        }
    }
    let line = |circle: BTreeSet<&Module>| {
        let names: Vec<String> = circle.into_iter().map(name).collect();
        format!("a circle of {} files: {}", names.len(), names.join(", "))
    };
    circles.into_iter().map(line).collect()
}
