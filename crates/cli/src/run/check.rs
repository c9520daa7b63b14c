//! `esker run --check`: what works on this machine, for this user and a program.

use std::fmt::Write;

use esker_base::units::human_bytes;

use super::program;
use crate::args::RunArgs;
use crate::failure::{Failure, Result};
use crate::output;

/// Pages memory of this process for a moment, looks at the program, and says what works.
pub(super) fn check(args: &RunArgs) -> Result {
    let mut text = String::new();
    let mut failure = None;
    let mut note = |name: &str, outcome: std::result::Result<String, Failure>| {
        let said = match &outcome {
            Ok(said) => said.as_str(),
            Err(failure) => failure.message(),
        };
        // A string takes all text.
        let _ = writeln!(text, "{name:<9} {said}");
        failure = failure.take().or(outcome.err());
    };
    match esker_pager::probe() {
        Ok(probe) => {
            let paged = human_bytes(probe.paged_bytes);
            note("paging", Ok(format!("works: {paged} have left memory and come back")));
            let forks = if probe.has_forks {
                "have paged memory, and their snapshots too"
            } else {
                "have none of it: run as root, or give the program CAP_SYS_PTRACE"
            };
            note("children", Ok(forks.to_owned()));
        }
        Err(error) => note("paging", Err(Failure::from(error))),
    }
    if let Some(name) = args.command.first() {
        let found = program::find(name).and_then(|program| {
            let libraries = program::libraries(&program, args.allocator)?;
            let brings_one = !libraries.to_string_lossy().contains(program::ALLOCATOR);
            let how = match (program.is_static, brings_one) {
                (true, _) => "by its system calls, as it loads no libraries",
                (false, true) => "with its own allocator",
                (false, false) => "with Esker's allocator",
            };
            Ok(format!("{}: runs, {how}", program.path.display()))
        });
        note("program", found);
    }
    output::print(&text)?;
    failure.map_or(Ok(()), Err)
}
