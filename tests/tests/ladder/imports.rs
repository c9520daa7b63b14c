//! The sources of a crate by their modules, and the imports of each.
//!
//! A file imports the names of its `use` declarations, and the paths elsewhere in its code that begin with `crate`,
//! `super`, `self` or a child (`calibrate::run(…)`). Tests do not count. A name that a module gives on (`pub use`) is
//! defined elsewhere: giving it on is no import, so a module that is a face of its children does not depend on them.

use std::collections::{BTreeMap, BTreeSet};

use super::source;

/// A module by its path in the crate: `["tree", "view"]` is `tree/view.rs`, and nothing is the crate's root.
pub(crate) type Module = Vec<String>;

/// A name as it is written, in its parts.
type Name = Vec<String>;

/// The other files that each file imports.
pub(crate) type Imports<'s> = BTreeMap<&'s Module, BTreeSet<&'s Module>>;

/// A file of the crate.
pub(crate) struct File {
    /// Without comments, literals and tests.
    pub(crate) code: String,
    imports: Vec<Name>,
    exports: Vec<Name>,
}

/// The sources of a crate.
pub(crate) struct Sources(pub(crate) BTreeMap<Module, File>);

impl Sources {
    /// Of files below `src`, and their contents.
    pub(crate) fn of<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Sources {
        let files = files.into_iter().filter(|(name, _)| !is_test(name));
        let read = files.map(|(name, text)| {
            let path = name.strip_suffix(".rs").expect("a file of Rust");
            let is_root = |part: &&str| *part == "lib" || *part == "main";
            let module = path.split('/').filter(|part| !is_root(part)).map(str::to_owned);
            (module.collect(), File::read(without_tests(&source::code(text))))
        });
        Sources(read.collect())
    }

    /// The files that each names: a name that a face gives on counts as the face's.
    pub(crate) fn named(&self) -> Imports<'_> {
        self.imports(|module, name| self.locate(module, name).map(|(file, _)| file))
    }

    /// The files that define the imports of each.
    pub(crate) fn defining(&self) -> Imports<'_> {
        self.imports(|module, name| self.definition(module, name, 0))
    }

    fn imports<'s>(&'s self, file: impl Fn(&Module, &Name) -> Option<&'s Module>) -> Imports<'s> {
        let of_one = |(module, one): (&'s Module, &'s File)| {
            let found = one.imports.iter().filter_map(|name| file(module, name));
            (module, found.filter(|other| *other != module).collect())
        };
        self.0.iter().map(of_one).collect()
    }

    /// The file that has the longest part of a name which `module` writes, and the rest; none if that is outside of
    /// the crate.
    fn locate<'n>(&self, module: &Module, name: &'n Name) -> Option<(&Module, &'n [String])> {
        let up = name.iter().take_while(|part| *part == "super").count();
        let (mut at, mut rest) = match name.first()?.as_str() {
            "crate" => (Module::new(), &name[1..]),
            "self" => (module.clone(), &name[1..]),
            "super" => (module.get(..module.len().checked_sub(up)?)?.to_vec(), &name[up..]),
            child => {
                self.0.get(&[&module[..], &[child.to_owned()]].concat())?;
                (module.clone(), &name[..])
            }
        };
        while let Some(part) = rest.first() {
            at.push(part.clone());
            if !self.0.contains_key(&at) {
                at.pop();
                break;
            }
            rest = &rest[1..];
        }
        Some((self.0.get_key_value(&at)?.0, rest))
    }

    /// The file that defines a name, through the faces that give it on.
    fn definition(&self, module: &Module, name: &Name, depth: usize) -> Option<&Module> {
        let (file, rest) = self.locate(module, name)?;
        let mut exports = self.0[file].exports.iter();
        let given = rest.first().and_then(|one| exports.find(|export| export.last() == Some(one)));
        match given {
            Some(export) if depth < 8 => self.definition(file, export, depth + 1).or(Some(file)),
            _ => Some(file),
        }
    }
}

impl File {
    fn read(code: String) -> File {
        let (mut imports, mut exports) = (Vec::new(), Vec::new());
        let mut rest = &code[..];
        while let Some((at, is_export)) = next_use(rest) {
            inline(&rest[..at], &mut imports);
            let declaration = &rest[at..];
            let end = declaration.find(';').unwrap_or(declaration.len());
            let tree: Vec<&str> = declaration["use ".len()..end].split_whitespace().collect();
            let names = source::use_paths(&tree.join(" ")).into_iter().map(|mut name| {
                // `a::{self}` is `a`.
                name.pop_if(|last| last == "self");
                name
            });
            if is_export {
                exports.extend(names)
            } else {
                imports.extend(names)
            }
            rest = &declaration[end..];
        }
        inline(rest, &mut imports);
        File { code, imports, exports }
    }
}

/// All files that one imports, straight or through others; the crate's root is a map, and leads nowhere.
pub(crate) fn reach<'s>(from: &'s Module, imports: &Imports<'s>) -> BTreeSet<&'s Module> {
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
pub(crate) fn name(module: &Module) -> String {
    if module.is_empty() { "lib.rs".into() } else { format!("{}.rs", module.join("/")) }
}

/// Whether a file below `src` is for tests alone.
pub(crate) fn is_test(name: &str) -> bool {
    name.ends_with("tests.rs")
        || name.contains("tests/")
        || ["testing.rs", "fuzz.rs"].contains(&name)
        || name.starts_with("fuzz/")
}

/// The code without its tests.
pub(crate) fn without_tests(code: &str) -> String {
    let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    let mut is_test = false;
    let lines = code[..end].lines().filter(|line| {
        let skipped = std::mem::replace(&mut is_test, line.trim() == "#[cfg(test)]");
        !skipped && !is_test
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Where the next `use` declaration is, and whether it gives on the names in it.
fn next_use(code: &str) -> Option<(usize, bool)> {
    let mut from = 0;
    loop {
        let at = from + code[from..].find("use ")?;
        let head = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        let is_export = head == "pub" || head.starts_with("pub(") && head.ends_with(')');
        if head.is_empty() || is_export {
            return Some((at, is_export));
        }
        from = at + 1;
    }
}

/// Adds the paths in other code. Those that lead out of the crate, or to a type, name no file of it.
fn inline(code: &str, found: &mut Vec<Name>) {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.filter_map(|word| {
        let path = word.trim_end_matches(':');
        word.contains("::").then(|| path.split("::").map(str::to_owned).collect())
    });
    found.extend(paths);
}
