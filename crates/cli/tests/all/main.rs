//! The tests of this crate that need no process of their own, as one program: it is linked once, and they run
//! beside each other.

#[path = "../common/mod.rs"]
mod common;

mod attach;
mod cache;
mod http;
mod kv;
mod lab;
mod measure;
mod missing;
mod mistakes;
mod plan;
mod pool;
mod pool_api;
mod pool_control;
mod pool_requests;
mod pool_serve;
mod progress;
mod schemas;
mod ssd;
mod target;
mod target_control;
mod trace;
