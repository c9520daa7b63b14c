//! Types that callers hold: the KVDB, its KVSs, batches, snapshots, transactions, statistics and observers; and where
//! a KVDB lives ([`location`]).
//!
//! Sees every room but `copies`.

pub(crate) mod batch;
pub(crate) mod builder;
pub(crate) mod creation;
pub(crate) mod item;
pub(crate) mod iter;
pub(crate) mod kvdb;
pub(crate) mod kvs;
pub(crate) mod location;
pub(crate) mod observer;
pub(crate) mod readable;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod transaction;
