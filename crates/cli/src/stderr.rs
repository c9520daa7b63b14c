//! The error output. A line that nobody can read, since a pipe is closed or a file system full, is no reason to stop.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether `--quiet` was given: notes are not written, errors are.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// Whether the terminal shows a bar, which a line takes the place of.
pub(crate) static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Writes no notes from here on.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes the line of a note, unless the user wants none.
pub(crate) fn write_note(line: fmt::Arguments<'_>) {
    if !is_quiet() {
        write_line(line);
    }
}

/// Writes a line.
pub(crate) fn write_line(line: fmt::Arguments<'_>) {
    let clear = if IS_DRAWN.load(Ordering::Relaxed) { "\r\x1b[K" } else { "" };
    let _ = io::stderr().write_fmt(format_args!("{clear}{line}\n"));
}

/// Writes a note, with the arguments of `format!`.
macro_rules! tell {
    ($($argument:tt)*) => { $crate::stderr::write_note(format_args!($($argument)*)) };
}

/// Writes a line about a failure, with the arguments of `format!`.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::stderr::write_line(format_args!($($argument)*)) };
}
pub(crate) use {complain, tell};
