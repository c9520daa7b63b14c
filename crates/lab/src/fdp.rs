//! What data placement saves when several stores share a drive.

pub mod circular;
pub mod configuration;
pub mod course;
pub mod keys;
pub mod measure;
pub mod sink;
pub mod store;
pub mod turns;
pub mod writer;
