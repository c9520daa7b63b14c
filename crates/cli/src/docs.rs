//! `esker man` and `esker completions`, both from the definition of the command line.

use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use esker_base::files;

use crate::failure::{Failure, Result};
use crate::{args, output};

/// Writes a man page for each command to `dir`.
pub(crate) fn man(dir: &Path) -> Result {
    if dir.is_file() {
        return Err(Failure::usage(format!("{}: it is a file; name a directory", dir.display())));
    }
    let mut command = args::command();
    command.build();
    let count = pages(&command, dir)?;
    output::print(&format!("{count} man pages in {}\n", dir.display()))
}

fn pages(command: &Command, dir: &Path) -> Result<usize> {
    let page = clap_mangen::Man::new(command.clone());
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let advice = "give a directory that exists and can be written";
    files::write(&path, text).map_err(|error| Failure::file(&path, &error, advice))?;
    let shown =
        command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set());
    let below: Result<Vec<usize>> = shown.map(|sub| pages(sub, dir)).collect();
    Ok(1 + below?.iter().sum::<usize>())
}

/// A command without its hidden parts, which completions would offer.
fn shown(command: &Command) -> Command {
    let name: &'static str = command.get_name().to_owned().leak(); // the process ends soon
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set()).cloned();
    let below = command.get_subcommands().filter(|one| !one.is_hide_set()).map(shown);
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new(name).about(about).args(arguments).subcommands(below)
}

/// Prints the completions for `shell`.
pub(crate) fn completions(shell: Shell) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&args::command()), "esker", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
