//! Values that every room speaks of and that do no I/O: limits, ids, extents, media classes, errors, options,
//! policies, remarks, streams, expiry, versions of the format, and keys with spans of them.
//!
//! Sees `sync` alone.

pub(crate) mod class;
pub(crate) mod compression;
pub(crate) mod error;
pub(crate) mod expiry;
pub(crate) mod extent;
pub(crate) mod format;
pub(crate) mod ids;
pub(crate) mod key;
pub(crate) mod key_bounds;
pub(crate) mod key_list;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod remark;
pub(crate) mod spans;
pub(crate) mod stream;
