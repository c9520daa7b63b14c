//! Kinds of operations: what commands, errors and counters name.

use std::fmt;

/// The operation of a command, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// See [`Op::Read`](crate::Op::Read).
    Read,
    /// See [`Op::Write`](crate::Op::Write).
    Write,
    /// See [`Op::Flush`](crate::Op::Flush).
    Flush,
    /// See [`Op::Discard`](crate::Op::Discard).
    Discard,
    /// See [`Op::WriteZeroes`](crate::Op::WriteZeroes).
    WriteZeroes,
    /// Opening the device or a queue pair of it.
    Open,
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpKind::Read => "read",
            OpKind::Write => "write",
            OpKind::Flush => "flush",
            OpKind::Discard => "discard",
            OpKind::WriteZeroes => "write zeroes",
            OpKind::Open => "open",
        })
    }
}
