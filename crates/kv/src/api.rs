//! Types that callers hold: the KVDB, its KVSs, batches, snapshots, transactions, statistics and observers; and where
//! a KVDB lives ([`layout`]).
//!
//! Sees every room but `copies`.

pub(crate) mod batch;
pub(crate) mod kvdb;
pub(crate) mod kvs;
pub(crate) mod layout;
pub(crate) mod observer;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod transaction;
