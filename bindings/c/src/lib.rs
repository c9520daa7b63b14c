//! `libesker`: the engine and paged memory behind an interface in C. The comments of the functions become those of
//! `include/esker.h`, which cbindgen generates: they speak to a programmer of C.
//!
//! | module | content |
//! | --- | --- |
//! | `error` | `esker_error`: a stable number and a message |
//! | `border` | catches panics; handles with a tag, which a wrong pointer lacks |
//! | `bytes` | slices of the caller's, values that are freed, ranges |
//! | `list` | texts that are freed |
//! | `options` | options, the place of a KVDB, callbacks |
//! | `kvs` | a KVS: reads, writes, its options |
//! | `iter` | iterators |
//! | `batch` | batches |
//! | `snapshot`, `transaction` | reads of one moment, transactions |
//! | `kvdb` | opening and closing, KVSs, sync, statistics |
//! | `maintenance` | backup, check, repair, compaction, classes |
//! | `arena` | paged memory |
//! | `measure` | loops in Rust, which the benchmark compares with calls |
//!
//! Invariants
//! 1. A panic never crosses the border: each function that can fail runs in `border::border`.
//! 2. A handle is used only after its tag was found to be the one of its type.
//! 3. There is no global state.

// The linker reaches what no other crate does.
#![allow(unreachable_pub)]

mod arena;
mod batch;
mod border;
mod bytes;
mod error;
mod iter;
mod kvdb;
mod kvs;
mod list;
mod maintenance;
#[cfg(feature = "measure")]
mod measure;
mod options;
mod snapshot;
mod transaction;
