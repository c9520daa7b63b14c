//! `esker run`: a program with more memory than DRAM.

mod figures;
mod program;
mod swap;

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{Clock, ErrorKind};
use esker_pager::{Options, Pager};
use esker_stack::Stack;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::args::RunArgs;
use crate::failure::{Failure, Result};
use crate::metrics::{self, Exporter, Paging};
use crate::progress::Line;

/// How often the program, signals and figures are looked at.
const STEP: Duration = Duration::from_millis(10);
/// How often a terminal shows figures.
const SHOWN: Duration = Duration::from_secs(1);

/// Runs a program until it ends. Its exit code becomes this command's.
pub(crate) fn run(args: &RunArgs) -> Result {
    let program = program::find(&args.command[0])?;
    let libraries = program::libraries(&program, args.allocator)?;
    if let Err(error) = esker_pager::client::open() {
        return Err(Failure::from(esker_pager::PagerError::Refused(error.to_io())));
    }
    let stack = Arc::new(Stack::new());
    let swap = swap::open(&stack, &args.swap)?;
    for remark in swap.remarks() {
        eprintln!("esker: note: {remark}");
    }
    let geometry = swap.geometry();
    let capacity = geometry.capacity.bytes(geometry.lba_size);
    let options = Options {
        budget_bytes: to_usize(args.memory),
        slow_bytes: to_usize(args.reserve.unwrap_or(capacity)),
        read_ahead: !args.no_read_ahead,
    };
    let pager = Arc::new(Pager::start(swap.clone(), options)?);
    let exporter = Exporter::if_asked(args.telling.metrics, || {
        let paging = Paging { pager: pager.clone(), budget_bytes: args.memory };
        let mut collectors = metrics::of_device(swap, &stack);
        collectors.push(Box::new(paging));
        collectors
    })?;
    let caught = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]);
    let mut signals = caught.map_err(crate::signals::refused)?;
    let mut command = Command::new(&program.path);
    command.args(&args.command[1..]).env("ESKER_PAGER", pager.address());
    command.env("LD_PRELOAD", libraries);
    // Its first reservation is a gigabyte, which may be more than there is; in KiB.
    command.env("MIMALLOC_ARENA_RESERVE", "65536");
    let spawned = command.spawn();
    let mut child = spawned
        .map_err(|error| Failure::file(&program.path, &error, "check that it can be run"))?;
    let status = follow(&mut child, &pager, &mut signals, args)?;
    drop(exporter);
    if !args.quiet {
        eprint!("{}", figures::summary(&pager.stats()));
    }
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::silent(u8::try_from(code & 0xff).unwrap_or(1))),
        None => {
            let signal = status.signal().unwrap_or(0);
            let message = format!("{}: ended by signal {signal}", program.path.display());
            Err(Failure::coded(u8::try_from(128 + signal).unwrap_or(255), message))
        }
    }
}

/// Passes signals on and shows figures until the program has ended.
fn follow(
    child: &mut Child,
    pager: &Pager,
    signals: &mut Signals,
    args: &RunArgs,
) -> Result<ExitStatus> {
    let clock = Clock::real();
    let (began, line) = (clock.now(), Line::new());
    let mut last = (began, pager.stats());
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    loop {
        let status = child.try_wait();
        let status = status.map_err(|error| {
            Failure::new(ErrorKind::from(&error), format!("waiting for the program: {error}"))
        })?;
        for report in pager.reports() {
            eprintln!("esker: {report}");
        }
        if let Some(status) = status {
            return Ok(status);
        }
        for signal in signals.pending() {
            if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
                // It has ended, and is seen to have next time.
                let _ = kill_process(pid, signal);
            }
        }
        let now = clock.now();
        let span = now.since(last.0);
        if span >= args.every.unwrap_or(SHOWN) {
            let stats = pager.stats();
            let text = figures::line(&last.1, &stats, span);
            if args.every.is_some() {
                eprintln!("esker: {text}");
            } else {
                line.show(&text);
            }
            last = (now, stats);
        }
        clock.sleep(STEP);
    }
}
