//! Tests of the whole stack; see `tests/`.
