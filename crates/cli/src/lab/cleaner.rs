//! A process of its own that undoes a study's changes to a machine: it waits for the end of a pipe, and so does its
//! work however this process ends.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The process; dropping it has it do its work.
pub(super) struct Cleaner(Option<Child>);

impl Cleaner {
    /// Starts a shell script, which has to read its standard input to the end before it undoes anything.
    pub(super) fn start(script: &str, arguments: &[&OsStr]) -> io::Result<Cleaner> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "cleaner"]).args(arguments);
        let child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        Ok(Cleaner(Some(child)))
    }

    /// Has it do its work, once; whether all is undone.
    pub(super) fn end(&mut self) -> bool {
        let Some(mut child) = self.0.take() else { return true };
        drop(child.stdin.take());
        child.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        // Another error is under way, and told.
        self.end();
    }
}
