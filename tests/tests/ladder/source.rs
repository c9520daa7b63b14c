//! Constructs that the sources of the libraries may not contain.

use std::path::{Path, PathBuf};

/// The Rust files under `folder` and their contents, in order.
pub(crate) fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder that is there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

/// A file of more than `most` lines.
pub(crate) fn too_long(path: &Path, text: &str, most: usize) -> Option<String> {
    let lines = text.lines().count();
    let path = path.display();
    (lines > most).then(|| format!("{path} has {lines} lines: which is its second noun?"))
}

/// The files beside `main`, whose contents are `text`, that it does not declare: nothing would run their tests.
pub(crate) fn undeclared(main: &Path, text: &str, files: &[PathBuf]) -> Vec<String> {
    let beside = files.iter().filter(|path| path.parent() == main.parent() && *path != main);
    let declared = |path: &Path| {
        let module = format!("mod {};", path.file_stem().unwrap_or_default().display());
        text.lines().any(|line| line == module)
    };
    let lost = beside.filter(|path| !declared(path));
    lost.map(|path| format!("{} does not declare {}", main.display(), path.display())).collect()
}

/// Libraries that have no need of unsafe code.
const SAFE: [&str; 6] = ["kv", "bench", "trace", "stack", "lab", "serve"];
/// The library of tests, which no product has: it reads the seeds that a person gives.
const OF_TESTS: &str = "sim";

/// The code of a file: without comments, strings and a module `tests` at its end.
pub(crate) fn code(text: &str) -> String {
    without_tests(&blank(text)).to_owned()
}

/// Returns the lines that break a rule in the file `name` of `library`. A module `tests` at its end is not looked
/// at, nor is a file of that name or in a folder of that name.
pub(crate) fn findings(library: &str, name: &str, text: &str) -> Vec<String> {
    if name.ends_with("/tests.rs") || name.contains("/tests/") {
        return Vec::new();
    }
    let code = code(text);
    let mut findings = Vec::new();
    let allows = code.lines().any(|line| line.trim() == "#![allow(unsafe_code)]");
    if allows && SAFE.contains(&library) {
        findings.push(format!("{name}: no unsafe code in {library}"));
    } else if allows && name.ends_with("/lib.rs") {
        findings.push(format!("{name}: allows unsafe code in the whole crate"));
    }
    for (number, line) in (1..).zip(code.lines()) {
        let words: Vec<&str> =
            line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '!')).collect();
        let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
        let mut complain = |what: &str| findings.push(format!("{name}:{number}: {what}"));
        if has(&["println!", "eprintln!", "print!", "eprint!", "dbg!", "stdout", "stderr"]) {
            complain("libraries do not print");
        }
        if has(&["env"]) && library != OF_TESTS {
            complain("libraries do not look at the environment");
        }
        let is_attribute = line.trim() == "#![allow(unsafe_code)]";
        if has(&["unsafe"]) && !allows || has(&["unsafe_code"]) && !is_lint(line, is_attribute) {
            complain("unsafe code only in a file that says #![allow(unsafe_code)] at its head");
        }
    }
    findings
}

/// Calls that make files and directories. Those of `esker_base::files` refuse to do so under `/dev`.
const MAKES: [&str; 6] = [
    "File::create",
    "fs::write(",
    "fs::create_dir",
    ".create(true)",
    ".create_new(true)",
    "OFlags::CREATE",
];

/// The files that may call them: that module, one that asks it, and one that writes the kernel's switches.
const MAKERS: [&str; 3] =
    ["base/src/files.rs", "device/src/file/open.rs", "trace/src/capture/tracefs.rs"];

/// Where the file `name` makes a file by itself.
pub(crate) fn makes_files(name: &str, text: &str) -> Vec<String> {
    let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
    if is_test || MAKERS.iter().any(|maker| name.ends_with(maker)) {
        return Vec::new();
    }
    let code = code(text);
    let makes = |line: &str| MAKES.iter().any(|call| line.contains(call));
    let lines = (1..).zip(code.lines()).filter(|(_, line)| makes(line));
    lines
        .map(|(number, _)| format!("{name}:{number}: files are made by esker_base::files"))
        .collect()
}

/// Whether a line that names the lint of unsafe code does one of the permitted things: allow it in a whole file, or
/// forbid it.
fn is_lint(line: &str, is_attribute: bool) -> bool {
    is_attribute || line.contains("forbid(") || line.contains("deny(")
}

/// The code before the tests at the end of a file.
fn without_tests(code: &str) -> &str {
    let tests = "#[cfg(test)]\nmod tests {";
    code.find(tests).map_or(code, |at| &code[..at])
}

/// The text with comments and the contents of literals blanked, line by line as it was.
pub(crate) fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let size = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment_size(rest)
        } else if first == '"' {
            string_size(rest)
        } else if let Some(hashes) = raw_hashes(rest).filter(|_| !ends_in_word(&out)) {
            raw_size(rest, hashes)
        } else if first == '\'' {
            char_size(rest)
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        out.extend(rest[..size].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &rest[size..];
    }
    out
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Comments between `/*` and `*/` nest.
fn comment_size(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            match text[at..].chars().next() {
                Some(c) => at += c.len_utf8(),
                None => return at,
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

fn string_size(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The number of `#` of a raw string that begins here.
fn raw_hashes(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

fn raw_size(text: &str, hashes: usize) -> usize {
    let open = text.find('"').expect("it begins here") + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    text[open..].find(&end).map_or(text.len(), |at| open + at + end.len())
}

/// A character, or the tick of a lifetime.
fn char_size(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((after, _))) => {
            let rest = text[after + 1..].find('\'');
            rest.map_or(text.len(), |at| after + at + 2)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// The names of a `use`, of which each may have braces.
pub(crate) fn use_paths(text: &str) -> Vec<Vec<String>> {
    let text = text.trim();
    let path = |text: &str| -> Vec<String> {
        let text = text.split(" as ").next().unwrap_or_default();
        text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let Some((head, body)) = text.split_once('{') else { return vec![path(text)] };
    let body = body.strip_suffix('}').unwrap_or(body);
    let (mut parts, mut depth, mut start) = (Vec::new(), 0u32, 0);
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&body[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[start..]);
    let within = parts.into_iter().filter(|part| !part.trim().is_empty()).flat_map(use_paths);
    within.map(|name| [path(head), name].concat()).collect()
}
