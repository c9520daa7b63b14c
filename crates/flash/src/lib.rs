//! An exact SSD in software.
//!
//! | module | what |
//! | --- | --- |
