//! The laboratory: experiments whose published figures stand beside Esker's.
//!
//! | module | what |
//! | --- | --- |
//! | [`fdp`] | what data placement saves when several stores share a drive |
//! | [`flash_cache`] | what a flash cache was in 2013, is, and could be |
//! | [`host_ssd`] | what a drive that the host manages is worth, to reads and to paged programs |
//!
//! An experiment is a function from options to a report, which renders itself as text, JSON and one
//! HTML file. Nothing here prints or writes files.

pub mod error;
pub mod fdp;
pub mod flash_cache;
pub mod host_ssd;

pub use error::LabError;
