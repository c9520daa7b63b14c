//! The member drives: where things lie on each, and commands to many of them at once. Sees `types` and `omf`.

pub(crate) mod fleet;
pub(crate) mod io;
pub(crate) mod layout;

pub(crate) use fleet::{Drive, Fleet};
pub(crate) use io::{Io, IoPool, Read, Write};
pub(crate) use layout::Layout;
