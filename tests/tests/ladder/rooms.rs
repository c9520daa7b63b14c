//! Rooms inside a crate: folders of its sources, whose imports run one way.
//!
//! A room is a file `room.rs` in `src`, its face, with the folder `room/`. A file sees its own room and those below
//! it.

use std::collections::{BTreeMap, BTreeSet};

use super::circles;
use super::imports::{Imports, Module, Sources, name};

/// The sources of a crate with rooms.
pub(crate) struct Rooms(Sources);

impl Rooms {
    /// Of files below `src`, and their contents.
    pub(crate) fn of<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Rooms {
        Rooms(Sources::of(files))
    }

    /// The files.
    pub(crate) fn sources(&self) -> &Sources {
        &self.0
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
        self.defined_twice(|_| true)
    }

    /// As [`Rooms::names_defined_twice`], of types that the whole crate or others see.
    pub(crate) fn public_names_defined_twice(&self) -> Vec<String> {
        self.defined_twice(|line| line.starts_with("pub ") || line.starts_with("pub(crate) "))
    }

    fn defined_twice(&self, counts: impl Fn(&str) -> bool) -> Vec<String> {
        let mut homes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (module, file) in &self.0.0 {
            for defined in file.code.lines().filter(|line| counts(line)).filter_map(type_of) {
                homes.entry(defined).or_default().push(name(module));
            }
        }
        let twice = homes.into_iter().filter(|(_, homes)| homes.len() > 1);
        twice.map(|(name, homes)| format!("{name} is defined in {}", homes.join(" and "))).collect()
    }

    /// Circles of more than two files of one room, by the methods of one type that each calls of the others. Imports
    /// show none of them.
    pub(crate) fn method_circles(&self) -> Vec<String> {
        let mut homes: BTreeMap<(&str, &str), BTreeMap<&Module, BTreeSet<&str>>> = BTreeMap::new();
        for (module, file) in &self.0.0 {
            let Some(room) = module.first() else { continue };
            for (of, body) in impls(&file.code) {
                let files = homes.entry((room, of)).or_default();
                files.entry(module).or_default().extend(body.lines().filter_map(method_of));
            }
        }
        let mut found = Vec::new();
        for ((_, of), files) in &homes {
            let calls = |module: &Module| {
                let code = &self.0.0[module].code;
                let own = blocks_of(code, of).into_iter().flat_map(|body| calls_on(body, "self."));
                let by_name = format!("{}.", of.to_lowercase());
                own.chain(calls_on(code, &by_name)).collect::<BTreeSet<&str>>()
            };
            let edges = files.keys().map(|&module| {
                let calls = calls(module);
                let others = files.iter().filter(|(other, methods)| {
                    **other != module && calls.iter().any(|call| methods.contains(call))
                });
                (module, others.map(|(other, _)| *other).collect())
            });
            let found_here = circles::of(&edges.collect());
            found.extend(
                found_here.iter().map(|it| format!("{of}'s methods: {}", circles::line(it))),
            );
        }
        found
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
    impls(code).into_iter().filter(|(name, _)| *name == of).map(|(_, body)| body).collect()
}

/// The `impl` blocks that are of no trait, each with its type and its body.
fn impls(code: &str) -> Vec<(&str, &str)> {
    let blocks = code.match_indices("\nimpl").filter_map(|(at, _)| {
        let (head, body) = code[at + "\nimpl".len()..].split_once(" {\n")?;
        let of = match head.strip_prefix('<') {
            Some(parameters) => parameters.split_once("> ")?.1,
            None => head.strip_prefix(' ')?,
        };
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let name = &of[..of.find(|c| !is_name(c)).unwrap_or(of.len())];
        let is_trait = of.contains(" for ");
        (!is_trait).then(|| (name, &body[..body.find("\n}").unwrap_or(body.len())]))
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
