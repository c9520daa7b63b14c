//! The laboratory: experiments whose published figures stand beside Esker's.
//!
//! | module | what |
//! | --- | --- |
//! | [`fdp`] | what data placement saves when several stores share a drive |
//!
//! An experiment is a function from options to a report, which renders itself as text, JSON and one
//! HTML file. Nothing here prints or writes files.

pub mod error;
pub mod fdp;

pub use error::LabError;
