//! `esker run`: a program with more memory than DRAM.
//!
//! The process becomes the program, so signals, the terminal, the exit code and the caller's view of it are the
//! program's own. Before that it has started another process, which serves the program.
//!
//! | module | content |
//! | --- | --- |
//! | `program` | the program: whether it can be helped |
//! | `check` | what works on this machine |
//! | `swap` | where pages go |
//! | `figures` | the figures of a pager, for people |
//! | `tree` | the processes of a program |
//! | `serve` | the process that serves it |

mod check;
mod figures;
mod program;
mod serve;
mod swap;
mod tree;

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use esker_base::ErrorKind;
use esker_pager::launch::{self, Side};
use rustix::process::getpid;

use crate::args::RunArgs;
use crate::failure::{Failure, Result};

/// The variable by which programs find their pager.
const VARIABLE: &str = "ESKER_PAGER";
/// The server's first byte when programs can connect; any other is an exit code, and a message follows.
const SERVED: u8 = 0;

/// Becomes a program; returns only if that fails, or in the process that serves it, when the last one has ended.
pub(crate) fn run(args: &RunArgs) -> Result {
    if args.check {
        return check::check(args);
    }
    shed_libraries();
    let program = program::find(&args.command[0])?;
    let libraries = program::libraries(&program, args.allocator)?;
    let mapping = program::library(program::MAPPING)?;
    if let Err(error) = esker_pager::client::open() {
        return Err(Failure::from(esker_pager::PagerError::Refused(error.to_io())));
    }
    let failed = |error: io::Error| {
        Failure::new(ErrorKind::from(&error), format!("the process that serves programs: {error}"))
    };
    let pid = getpid();
    let mut server = match launch::split().map_err(failed)? {
        Side::Program(server) => server,
        Side::Server(program) => {
            serve(args, &tree::Main::new(pid, program), mapping);
            return Ok(());
        }
    };
    let address = address(&mut server)?;
    let mut command = Command::new(&program.path);
    command.args(&args.command[1..]).env(VARIABLE, address).env("LD_PRELOAD", libraries);
    command.env_remove(program::PRELOADED);
    // Its first reservation is a gigabyte, which may be more than there is; in KiB.
    command.env("MIMALLOC_ARENA_RESERVE", "65536");
    let error = launch::exec(&mut command, Some(&server));
    // The server ends without a word.
    launch::stay(&server);
    Err(Failure::file(&program.path, &error, "check that it can be run"))
}

/// Runs this program again without libraries that the caller has preloaded for the other one. They may have descriptors, which
/// the serving process closes.
fn shed_libraries() {
    let Some(preloaded) = std::env::var_os("LD_PRELOAD").filter(|names| !names.is_empty()) else {
        return;
    };
    let Ok(own) = std::env::current_exe() else { return };
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).env_remove("LD_PRELOAD");
    // If that fails, they stay.
    let _ = launch::exec(command.env(program::PRELOADED, preloaded), None);
}

/// Serves programs, and tells the first one where.
fn serve(args: &RunArgs, main: &tree::Main, library: PathBuf) {
    match serve::Service::start(args, main, library) {
        Ok(service) => {
            // If it is gone, the service ends by itself.
            let _ = main.tell(SERVED, &service.address());
            service.await_program(main);
            service.follow(main);
        }
        Err(failure) => drop(main.tell(failure.code(), failure.message())),
    }
}

/// Waits until programs are served. Returns the pager's address.
fn address(server: &mut UnixStream) -> Result<OsString> {
    let mut said = Vec::new();
    // A broken connection says as little as one that ends.
    let _ = server.read_to_end(&mut said);
    match said.split_first() {
        Some((&SERVED, address)) => Ok(OsString::from_vec(address.to_vec())),
        Some((&code, message)) => Err(Failure::coded(code, String::from_utf8_lossy(message))),
        None => Err(Failure::new(ErrorKind::Io, "the process that serves programs has ended")),
    }
}
