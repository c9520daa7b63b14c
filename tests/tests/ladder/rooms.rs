//! Rooms inside a crate: folders of its sources, whose imports run one way.
//!
//! A room is a file `room.rs` in `src`, its face, with the folder `room/`. A file sees its own room and those below
//! it. Sources are read as text: `use` declarations, and paths that begin with `crate`, `super` or `self`. Tests are
//! not looked at.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;

/// The sources of a crate by their modules: `["tree", "view"]` is `tree/view.rs`, and nothing is `lib.rs`.
pub(crate) struct Rooms {
    code: BTreeMap<Vec<String>, String>,
}

impl Rooms {
    /// Of files below `src`, and their contents.
    pub(crate) fn of<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Rooms {
        let files = files.into_iter().filter(|(name, _)| !is_test(name));
        let code = files.map(|(name, text)| {
            let path = name.strip_suffix(".rs").expect("a file of Rust");
            let module = path.split('/').filter(|part| *part != "lib").map(str::to_owned);
            (module.collect(), without_tests(&source::code(text)))
        });
        Rooms { code: code.collect() }
    }

    /// What each file imports: modules that are files of this crate.
    fn imports(&self) -> Imports<'_> {
        let of_one = |(module, code): (&'_ Vec<String>, &'_ String)| {
            let own = paths(code).into_iter().filter_map(|path| absolute(module, &path, code));
            let files = own.map(|path| self.file_of(&path));
            files.filter(|file| *file != &module[..]).collect()
        };
        self.code.iter().map(|one| (&one.0[..], of_one(one))).collect()
    }

    /// The file that has the longest part of a path; what is in none is in the crate's root.
    fn file_of(&self, path: &[String]) -> &[String] {
        let parts = (0..=path.len()).rev().map(|size| &path[..size]);
        let found = parts.filter_map(|part| self.code.get_key_value(part)).next();
        found.map_or(&[], |(module, _)| &module[..])
    }

    /// Imports that run upward: to a room that `order`, from the ground up, has above the importer's, or through the
    /// crate's root, which stands above all of them.
    pub(crate) fn upward(&self, order: &[&str]) -> Vec<String> {
        let floor = |module: &[String]| {
            module.first().and_then(|room| order.iter().position(|known| known == room))
        };
        let mut findings = Vec::new();
        for (from, imports) in self.imports() {
            if from.is_empty() {
                continue;
            }
            let Some(own) = floor(from) else {
                findings.push(format!("{}: its room is not in the order of rooms", name(from)));
                continue;
            };
            let up = imports.into_iter().filter(|to| floor(to).is_none_or(|other| other > own));
            findings.extend(up.map(|to| format!("{} imports {}: upward", name(from), name(to))));
        }
        findings
    }

    /// Circles of more than two files.
    pub(crate) fn circles(&self) -> Vec<String> {
        let imports = self.imports();
        let files = || imports.keys().copied().filter(|file| !file.is_empty());
        let reached: BTreeMap<&[String], BTreeSet<&[String]>> =
            files().map(|from| (from, reach(from, &imports))).collect();
        let circle = |from| -> BTreeSet<&[String]> {
            let back = |to: &&[String]| reached[to].contains(from);
            reached[from].iter().copied().filter(back).collect()
        };
        let circles: BTreeSet<_> = files().map(circle).collect();
        let large = circles.into_iter().filter(|circle| circle.len() > 2);
        large
            .map(|circle| {
                let names: Vec<String> = circle.into_iter().map(name).collect();
                format!("a circle of {} files: {}", names.len(), names.join(", "))
            })
            .collect()
    }

    /// Types whose name two files define, or one file twice.
    pub(crate) fn names_defined_twice(&self) -> Vec<String> {
        let mut homes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (module, code) in &self.code {
            for defined in code.lines().filter_map(type_of) {
                homes.entry(defined).or_default().push(name(module));
            }
        }
        let twice = homes.into_iter().filter(|(_, homes)| homes.len() > 1);
        twice.map(|(name, homes)| format!("{name} is defined in {}", homes.join(" and "))).collect()
    }

    /// Calls of methods of the type `shared` that a room above the caller's defines. An import shows none of them: a
    /// type may have its methods in any room.
    pub(crate) fn calls_upward(&self, order: &[&str], shared: &str) -> Vec<String> {
        let floor = |module: &[String]| {
            module.first().and_then(|room| order.iter().position(|known| known == room))
        };
        let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
        for (module, code) in &self.code {
            for block in blocks_of(code, shared) {
                let methods = block.lines().filter_map(method_of);
                homes.extend(methods.filter_map(|method| Some((method, floor(module)?))));
            }
        }
        let mut findings = Vec::new();
        for (module, code) in &self.code {
            let Some(own) = floor(module) else { continue };
            let inside = blocks_of(code, shared);
            let variable = format!("{}.", shared.to_lowercase());
            let calls = inside.iter().flat_map(|block| calls_on(block, "self."));
            let calls: BTreeSet<&str> = calls.chain(calls_on(code, &variable)).collect();
            let up =
                calls.into_iter().filter(|call| homes.get(call).is_some_and(|home| *home > own));
            findings
                .extend(up.map(|call| format!("{} calls {shared}::{call}: upward", name(module))));
        }
        findings
    }
}

/// What each file imports.
type Imports<'m> = BTreeMap<&'m [String], BTreeSet<&'m [String]>>;

/// The files that one imports, straight or through others.
fn reach<'m>(from: &'m [String], imports: &Imports<'m>) -> BTreeSet<&'m [String]> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for to in imports.get(module).into_iter().flatten() {
            if !to.is_empty() && seen.insert(*to) {
                next.push(to);
            }
        }
    }
    seen
}

/// The file of a module, below `src`.
fn name(module: &[String]) -> String {
    if module.is_empty() { "lib.rs".into() } else { format!("{}.rs", module.join("/")) }
}

/// Whether a file below `src` is for tests alone.
pub(crate) fn is_test(name: &str) -> bool {
    name.ends_with("tests.rs") || name.contains("tests/") || name == "testing.rs"
}

/// The code without its tests.
pub(crate) fn without_tests(code: &str) -> String {
    let end = code.find("#[cfg(test)]\nmod tests").unwrap_or(code.len());
    let mut is_test = false;
    let lines = code[..end].lines().filter(|line| {
        let skipped = std::mem::replace(&mut is_test, line.trim() == "#[cfg(test)]");
        !skipped && !is_test
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The paths that the code names, each in its parts: those of `use` declarations, and others that say where they begin.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = next_use(rest) {
        inline(&rest[..at], &mut found);
        let declaration = &rest[at..];
        let end = declaration.find(';').unwrap_or(declaration.len());
        let tree: Vec<&str> = declaration["use ".len()..end].split_whitespace().collect();
        found.extend(source::use_paths(&tree.join(" ")).into_iter().map(|mut path| {
            // `a::{self}` is `a`.
            path.pop_if(|last| last == "self");
            path
        }));
        rest = &declaration[end..];
    }
    inline(rest, &mut found);
    found
}

/// Where the next `use` declaration is.
fn next_use(code: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + code[from..].find("use ")?;
        let before = code[..at].trim_end_matches([' ', '\t']);
        if before.is_empty()
            || before.ends_with('\n')
            || before.ends_with(')')
            || before.ends_with("pub")
        {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Adds the paths in other code that begin with `crate`, `super` or `self`.
fn inline(code: &str, found: &mut Vec<Vec<String>>) {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    for word in words {
        if ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start)) {
            found.push(word.trim_end_matches(':').split("::").map(str::to_owned).collect());
        }
    }
}

/// The path from the crate's root, if it is one of this crate.
fn absolute(module: &[String], path: &[String], code: &str) -> Option<Vec<String>> {
    let up = path.iter().take_while(|part| *part == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([module.get(..module.len().checked_sub(up)?)?, &path[up..]].concat()),
        child if code.contains(&format!("mod {child};")) => Some([module, path].concat()),
        _ => None,
    }
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
