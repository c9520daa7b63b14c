//! The error output. A line that nobody can read, since a pipe is closed or a file system full, is no reason to stop.

use std::fmt;
use std::io::{self, Write};

/// Writes a line.
pub(crate) fn write_line(line: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(format_args!("{line}\n"));
}

/// Writes a line, with the arguments of `format!`.
macro_rules! tell {
    ($($argument:tt)*) => { $crate::stderr::write_line(format_args!($($argument)*)) };
}
pub(crate) use tell;
