//! The program `esker`. All of it is in the library, which Cargo compiles beside the crates that it uses; a program
//! waits until all of them are done.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    esker_cli::main()
}
