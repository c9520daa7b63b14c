//! The programs in `examples/` run, twice in a row, on what the first run has left.
//!
//! They are built with the tests: by `cargo test`, unless it is told to run this test alone. Then
//! `cargo build -p esker-kv --examples` comes first.

use std::path::PathBuf;
use std::process::Command;

const EXAMPLES: [&str; 6] = ["start", "index", "transfer", "series", "devices", "blocking"];

/// The program, which is newer than its source.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{}: run `cargo build -p esker-kv --examples`", program.display());
    program
}

#[test]
fn examples_run_twice_in_a_row() {
    let scratch = tempfile::tempdir().unwrap();
    for name in EXAMPLES {
        for run in 1..=2 {
            let output =
                Command::new(program(name)).arg(scratch.path().join(name)).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}, run {run}: {printed}{error}");
            assert!(!printed.is_empty(), "{name} prints something");
            if name == "start" {
                assert_eq!(printed, format!("run {run}\n"));
            }
        }
        let lines = std::fs::read_to_string(format!("examples/{name}.rs")).unwrap().lines().count();
        assert!(lines < 80, "{name} has {lines} lines");
    }
    let listed = std::fs::read_dir("examples").unwrap().count();
    assert_eq!(listed, EXAMPLES.len());
}
