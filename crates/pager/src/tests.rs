//! Tests of several modules together.

pub(crate) mod model;
