//! The write buffer: a log that makes writes durable before they are acknowledged, and in memory what it holds until
//! that is in segments. Sees `types`, `omf` and `drive`.

pub(crate) mod ahead;
pub(crate) mod mark;
pub(crate) mod pending;
pub(crate) mod ring;

pub(crate) use ahead::Ahead;
pub(crate) use pending::{Data, Pending, Points};
pub(crate) use ring::Ring;
