//! Synthetic loads: requests as a known kind of program makes them, from a seed.

mod mysql;
mod pool;
mod skew;

pub use mysql::{Layout, MysqlLoad, MysqlOptions};
