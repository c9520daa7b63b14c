//! Gives the binary the commit it was built from, so that reports can name it.

use std::path::Path;
use std::process::Command;

fn main() {
    // The log of HEAD grows with every commit and checkout. Without a repository there is none.
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
    let asked = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = match asked {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout).into(),
        _ => String::from("unknown"),
    };
    println!("cargo::rustc-env=ESKER_COMMIT={}", commit.trim());
}
