//! Circles among the files of a crate: files each of which imports, directly or through others, all of them.
//!
//! What counts is what a file imports with `use`, outside of its tests. A name that a module gives on (`pub use`)
//! counts as imported from where it is defined, and giving it on as no import: a module that is a face of its
//! children does not depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::source;

/// The most files in a circle: two that are one thought in two parts.
const MOST: usize = 2;

/// A module by its path in the crate; the crate itself is empty.
type Module = Vec<String>;

/// A name that a `use` brings in: its path, as it is written.
type Name = Vec<String>;

/// What a file imports, and what it gives on.
#[derive(Default)]
struct File {
    imports: Vec<Name>,
    exports: Vec<Name>,
}

/// The circles of the crate whose sources are in `folder`, one line each.
pub(crate) fn findings(folder: &Path) -> Vec<String> {
    let name = |path: &Path| {
        let path = path.strip_prefix(folder).expect("a file below it").with_extension("");
        let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
        parts.filter(|part| part != "lib" && part != "main").collect::<Module>()
    };
    let files = source::files(folder);
    findings_in(files.iter().map(|(path, text)| (name(path), text.as_str())))
}

/// The circles among these files.
pub(crate) fn findings_in<'a>(files: impl Iterator<Item = (Module, &'a str)>) -> Vec<String> {
    let is_test = |module: &Module| module.iter().any(|part| part == "tests");
    let files = files.filter(|(module, _)| !is_test(module));
    let files: BTreeMap<Module, File> = files.map(|(module, text)| (module, read(text))).collect();
    let mut imports: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, file) in &files {
        let found = file.imports.iter().filter_map(|name| resolve(&files, module, name, 0));
        // The root is a map of the crate: what is imported through it is found where it is.
        let found = found.filter(|other| other != module && !other.is_empty());
        imports.insert(module, found.collect());
    }
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (*module, reach(&imports, module))).collect();
    let mut circles = BTreeSet::new();
    for (module, there) in &reached {
        let back = |other: &&&Module| reached.get(**other).is_some_and(|all| all.contains(module));
        let circle: BTreeSet<String> =
            there.iter().filter(back).map(|one| one.join("::")).collect();
        if circle.len() > MOST {
            circles.insert(circle);
        }
    }
    let line = |circle: BTreeSet<String>| {
        let names: Vec<String> = circle.into_iter().collect();
        format!("a circle of {} files: {}", names.len(), names.join(", "))
    };
    circles.into_iter().map(line).collect()
}

/// All that a module reaches.
fn reach<'a>(
    imports: &'a BTreeMap<&Module, BTreeSet<Module>>,
    from: &Module,
) -> BTreeSet<&'a Module> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = next.pop() {
        for other in imports.get(&module).into_iter().flatten() {
            if found.insert(other) {
                next.push(other.clone());
            }
        }
    }
    found
}

/// The module in which a name is defined that `module` writes as `name`; none if that is outside of the crate.
fn resolve(
    files: &BTreeMap<Module, File>,
    module: &Module,
    name: &Name,
    depth: usize,
) -> Option<Module> {
    let (mut at, mut rest) = (module.clone(), &name[..]);
    match rest.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        first => {
            let child = [&at[..], &[first.to_owned()]].concat();
            files.get(&child)?;
        }
    }
    while let Some(part) = rest.first() {
        let child = [&at[..], std::slice::from_ref(part)].concat();
        if !files.contains_key(&child) {
            break;
        }
        (at, rest) = (child, &rest[1..]);
    }
    let given = rest.first().and_then(|wanted| {
        files.get(&at)?.exports.iter().find(|export| export.last() == Some(wanted))
    });
    match given {
        Some(export) if depth < 8 => resolve(files, &at, export, depth + 1).or(Some(at)),
        _ => Some(at),
    }
}

/// The imports of a file, and what it gives on.
fn read(text: &str) -> File {
    let code = source::code(text);
    let mut file = File::default();
    let mut rest = code.as_str();
    while let Some(at) = rest.find("use ") {
        let before = &rest[..at];
        let head = before.rsplit('\n').next().unwrap_or_default().trim();
        rest = &rest[at + 4..];
        let is_use =
            head.is_empty() || head == "pub" || head.starts_with("pub(") && head.ends_with(')');
        let Some(end) = rest.find(';').filter(|_| is_use) else { continue };
        let names =
            source::use_paths(&rest[..end].split_whitespace().collect::<Vec<_>>().join(" "));
        let all = if head.is_empty() { &mut file.imports } else { &mut file.exports };
        all.extend(names);
        rest = &rest[end..];
    }
    file
}
