//! Rooms inside a crate: folders of its sources, whose imports run one way.
//!
//! A room is a file `room.rs` in `src`, its face, with the folder `room/`. A file sees its own room and those below
//! it.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{Imports, Module, Sources, name};

/// The sources of a crate with rooms.
pub(crate) struct Rooms(Sources);

impl Rooms {
    /// Of files below `src`, and their contents.
    pub(crate) fn of<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Rooms {
        Rooms(Sources::of(files))
    }

    /// Imports that run upward: to a room that `order`, from the ground up, has above the importer's, or through the
    /// crate's root, which stands above all of them.
    pub(crate) fn upward(&self, order: &[&str]) -> Vec<String> {
        upward_in(&self.0.named(), order)
    }

    /// As [`Rooms::upward`], where the file that defines a name counts, not the one it is imported through.
    pub(crate) fn upward_by_definition(&self, order: &[&str]) -> Vec<String> {
        upward_in(&self.0.defining(), order)
    }

    /// Types whose name two files define, or one file twice.
    pub(crate) fn names_defined_twice(&self) -> Vec<String> {
        let mut homes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (module, file) in &self.0.0 {
            for defined in file.code.lines().filter_map(type_of) {
                homes.entry(defined).or_default().push(name(module));
            }
        }
        let twice = homes.into_iter().filter(|(_, homes)| homes.len() > 1);
        twice.map(|(name, homes)| format!("{name} is defined in {}", homes.join(" and "))).collect()
    }

    /// Calls of methods of the type `shared` that a room above the caller's defines. An import shows none of them: a
    /// type may have its methods in any room.
    pub(crate) fn calls_upward(&self, order: &[&str], shared: &str) -> Vec<String> {
        let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
        for (module, file) in &self.0.0 {
            for block in blocks_of(&file.code, shared) {
                let methods = block.lines().filter_map(method_of);
                homes.extend(methods.filter_map(|method| Some((method, floor(module, order)?))));
            }
        }
        let mut findings = Vec::new();
        for (module, file) in &self.0.0 {
            let Some(own) = floor(module, order) else { continue };
            let inside = blocks_of(&file.code, shared);
            let variable = format!("{}.", shared.to_lowercase());
            let calls = inside.iter().flat_map(|block| calls_on(block, "self."));
            let calls: BTreeSet<&str> = calls.chain(calls_on(&file.code, &variable)).collect();
            let up =
                calls.into_iter().filter(|call| homes.get(call).is_some_and(|home| *home > own));
            findings
                .extend(up.map(|call| format!("{} calls {shared}::{call}: upward", name(module))));
        }
        findings
    }
}

/// The place of a module's room in the order.
fn floor(module: &Module, order: &[&str]) -> Option<usize> {
    module.first().and_then(|room| order.iter().position(|known| known == room))
}

fn upward_in(imports: &Imports<'_>, order: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for (from, imports) in imports {
        if from.is_empty() {
            continue;
        }
        let Some(own) = floor(from, order) else {
            findings.push(format!("{}: its room is not in the order of rooms", name(from)));
            continue;
        };
        let up = imports.iter().filter(|to| floor(to, order).is_none_or(|other| other > own));
        findings.extend(up.map(|to| format!("{} imports {}: upward", name(from), name(to))));
    }
    findings
}

/// The type that a line of code defines, outside of any other item.
fn type_of(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) "));
    words = words.or(line.strip_prefix("pub ")).or(Some(line));
    let (kind, rest) = words?.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "union", "type"].contains(&kind);
    is_type.then(|| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next())?
}

/// The bodies of the `impl` blocks of a type.
fn blocks_of<'c>(code: &'c str, of: &str) -> Vec<&'c str> {
    let head = format!("\nimpl {of} {{\n");
    let blocks = code.match_indices(&head).map(|(at, _)| {
        let body = &code[at + head.len()..];
        &body[..body.find("\n}").unwrap_or(body.len())]
    });
    blocks.collect()
}

/// The method that a line of an `impl` block defines.
fn method_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ").filter(|line| !line.starts_with(' '))?;
    let (_, rest) = line.split_once("fn ")?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

/// The methods that are called on `receiver`, which ends with a point.
fn calls_on<'c>(code: &'c str, receiver: &str) -> Vec<&'c str> {
    let calls = code.match_indices(receiver).filter_map(|(at, _)| {
        let rest = &code[at + receiver.len()..];
        let size = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
        rest[size..].starts_with(['(', ':']).then(|| &rest[..size])
    });
    calls.collect()
}
