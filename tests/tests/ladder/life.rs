//! The files that a hot path passes through, as its crate's own documentation names them.

use std::path::Path;

const MOST_FILES: usize = 10;
const MOST_LINES: usize = 4000;

/// The files that the section `title` of the documentation of the crate `own` names, each once, as paths below
/// the folder of the crates. They are the crate's, but for one right after the name of another crate:
/// `esker-device`: `blocking.rs`.
pub(crate) fn files_named(own: &str, text: &str, title: &str) -> Vec<String> {
    let docs = text.lines().map_while(|line| line.strip_prefix("//!"));
    let section = docs
        .map(str::trim)
        .skip_while(|line| line.strip_prefix("# ") != Some(title))
        .skip(1)
        .take_while(|line| !line.starts_with("# "));
    let section = section.collect::<Vec<_>>().join("\n");
    let mut files: Vec<String> = Vec::new();
    let mut owner = own;
    // Every second piece is between backticks.
    for name in section.split('`').skip(1).step_by(2) {
        if let Some(other) = name.strip_prefix("esker-") {
            owner = other;
        } else if name.ends_with(".rs") {
            let path = format!("{owner}/src/{name}");
            if !files.contains(&path) {
                files.push(path);
            }
            owner = own;
        }
    }
    files
}

/// Returns the faults of the files that `life` names.
pub(crate) fn findings(crates: &Path, life: &str, files: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    if files.len() > MOST_FILES {
        let (count, names) = (files.len(), files.join(", "));
        findings.push(format!("{life}: {count} files, at most {MOST_FILES}: {names}"));
    }
    let mut lines = 0;
    for file in files {
        match std::fs::read_to_string(crates.join(file)) {
            Ok(text) => lines += text.lines().count(),
            Err(_) => findings.push(format!("{life}: {file} does not exist")),
        }
    }
    if lines > MOST_LINES {
        findings.push(format!("{life}: {lines} lines, at most {MOST_LINES}"));
    }
    findings
}
