//! Esker's key-value engine for Node.js: the native part of the package `esker-level`, whose `index.js` makes an
//! `abstract-level` database of it.
//!
//! # Rooms
//!
//! Each sees only those before it: `js` (values of JavaScript as bytes, and bytes as values), `error` (the engine's
//! errors as those of JavaScript), `opened` (an open KVDB), `range` (bounds), `work` (calls on the thread pool), `lanes`
//! (reads and writes that share calls), `rows` (iterators), `database` (everything else).
//!
//! # Invariants
//! 1. The thread of JavaScript waits for no device, but in `getSync` and where a handle that was never closed ends.
//! 2. Work on the thread pool has bytes of its own: it sees no memory of JavaScript's.
//! 3. JavaScript's values hold copies.

mod database;
mod error;
mod js;
mod lanes;
mod opened;
mod range;
mod rows;
mod work;
