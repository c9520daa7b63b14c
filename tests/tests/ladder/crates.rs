//! Which crate may depend on which.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A crate of the workspace, with the dependencies that its manifest names.
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency, of the workspace or from elsewhere.
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The purpose of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// The rungs; edges go to a lower one, except that `serve` stands on `stack`. Crates that are to come have their place
/// already.
const RUNGS: [(u8, &[&str]); 5] = [
    (1, &["base"]),
    (2, &["device", "report"]),
    (3, &["kv", "cache", "pager", "volume", "nvmf", "flash", "bench", "trace", "attach", "sim"]),
    (4, &["stack", "lab", "serve"]),
    (5, &["cli", "preload", "preload-malloc", "c", "python", "java", "node", "compare", "tests"]),
];

/// Devices for tests, of which no product may be made.
const FOR_TESTS: &str = "sim";

/// Crates for programs: their errors, arguments, runtimes and output. A name stands for all
/// that begin with it and go on with `-` or `_` too.
const FROM_RUNG_4: [&str; 24] = [
    "anyhow",
    "eyre",
    "color-eyre",
    "clap",
    "argh",
    "lexopt",
    "pico-args",
    "tokio",
    "async-std",
    "smol",
    "futures",
    "log",
    "env_logger",
    "tracing",
    "slog",
    "indicatif",
    "console",
    "colored",
    "owo-colors",
    "termcolor",
    "anstream",
    "crossterm",
    "comfy-table",
    "prettytable-rs",
];

fn rung(name: &str) -> Option<u8> {
    let short = name.strip_prefix("esker-")?;
    let found = RUNGS.iter().find(|(_, names)| names.contains(&short));
    found.map(|(rung, _)| *rung)
}

fn is_for_programs(name: &str) -> bool {
    FROM_RUNG_4.iter().any(|refused| {
        let rest = name.strip_prefix(refused);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    })
}

/// The crates of the workspace whose root is `root`.
pub(crate) fn of_workspace(root: &Path) -> Vec<Crate> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {error}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages
        .iter()
        .map(|package| Crate {
            name: text(&package["name"]),
            dependencies: package["dependencies"]
                .as_array()
                .expect("a list of dependencies")
                .iter()
                .map(|dependency| Dependency {
                    name: text(&dependency["name"]),
                    kind: match dependency["kind"].as_str() {
                        None => Kind::Normal,
                        Some("build") => Kind::Build,
                        Some("dev") => Kind::Dev,
                        Some(other) => panic!("a dependency of kind {other}"),
                    },
                })
                .collect(),
        })
        .collect()
}

/// The edges that break a rule.
pub(crate) fn findings(all: &[Crate]) -> Vec<String> {
    let mut findings = Vec::new();
    for from in all {
        let Some(own) = rung(&from.name) else {
            findings.push(format!("{} has no rung: give it one in this test", from.name));
            continue;
        };
        for to in &from.dependencies {
            if let Some(why) = refusal(&from.name, own, to) {
                findings.push(format!("{} -> {} ({:?}): {why}", from.name, to.name, to.kind));
            }
        }
    }
    findings
}

fn refusal(from: &str, own: u8, to: &Dependency) -> Option<&'static str> {
    let Some(rung) = rung(&to.name) else {
        if to.name.starts_with("esker-") {
            return Some("a crate that has no rung");
        }
        // Its examples show how to call it from such a runtime.
        let is_shown = (from, &*to.name, to.kind) == ("esker-kv", "tokio", Kind::Dev);
        let is_refused = own < 4 && is_for_programs(&to.name) && !is_shown;
        return is_refused.then_some("allowed from rung 4 up");
    };
    let short = |name: &str| name.trim_start_matches("esker-").to_owned();
    if short(&to.name) == FOR_TESTS {
        return (to.kind != Kind::Dev).then_some("a dependency in tests only");
    }
    let stands_on_stack = (&*short(from), &*short(&to.name)) == ("serve", "stack");
    if rung >= own && !stands_on_stack {
        return Some("edges point down, and this one points up or sideways");
    }
    match (&*short(from), &*short(&to.name)) {
        ("bench", "base" | "report") | (_, "base") => None,
        ("bench", _) => Some("bench stands on base and report only"),
        ("report", _) => Some("report stands on base only"),
        _ => None,
    }
}
