//! Child processes: the test binary itself, run again for one of its ignored tests.

use std::path::Path;
use std::process::Command;

/// The variable that tells a child the directory to work on. The test that is the child does
/// nothing without it, so that running all ignored tests runs no child by mistake.
const DIR: &str = "ESKER_TEST_CHILD_DIR";

/// The command that runs the ignored test `name` of this binary as a child at work on `dir`.
pub(crate) fn command(name: &str, dir: &Path) -> Command {
    let binary = std::env::current_exe().expect("the test's own binary");
    let mut command = Command::new(binary);
    command.args(["--exact", "--ignored", "--nocapture", name]).env(DIR, dir);
    command
}

/// In a child: the directory to work on.
pub(crate) fn dir() -> Option<std::path::PathBuf> {
    std::env::var_os(DIR).map(Into::into)
}

/// In a child: a number that the parent set.
pub(crate) fn number(variable: &str) -> u64 {
    let text = std::env::var(variable).expect("the parent sets it");
    text.parse().expect("the parent sets a number")
}
