//! `esker trace record`: the requests to a block device, for a while or while a command runs.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::counted;
use esker_trace::{Capture, Writer};

use super::input::said_of;
use crate::failure::{Failure, Result};
use crate::host::note_long;
use crate::output;
use crate::progress::Line;
use crate::signals::StopSignals;
use crate::stderr::tell;

/// The longest wait between two looks at the kernel's buffers.
const ROUND: Duration = Duration::from_millis(50);

/// How long, when nothing was said.
const DEFAULT: Duration = Duration::from_secs(10);

pub(super) fn record(
    device: &Path,
    seconds: Option<Duration>,
    path: &Path,
    buffer: u64,
    command: &[OsString],
) -> Result {
    // Before anything is to be put in order at the end.
    let mut signals = StopSignals::catch()?;
    // Faults of the device are reported before a file is made.
    let mut capture = Capture::start(device, buffer)?;
    let mut writer = Writer::create(path)?;
    writer.device(&device.to_string_lossy())?;
    let mut child = start(command)?;
    let limit = seconds.or(command.is_empty().then_some(DEFAULT));
    limit.iter().for_each(|span| note_long(*span, "a recording"));
    let clock = Clock::real();
    let (began, line) = (clock.now(), Line::new());
    let mut requests = Vec::new();
    loop {
        let passed = clock.now().since(began);
        let is_over = limit.is_some_and(|limit| passed >= limit);
        if is_over || signals.take() || has_ended(child.as_mut())? {
            break;
        }
        let left = limit.map_or(ROUND, |limit| limit.saturating_sub(passed));
        capture.poll(left.min(ROUND), &mut requests)?;
        for request in requests.drain(..) {
            writer.push(&request)?;
        }
        line.show(&format!("  {}, {} s", counted(capture.seen(), "request"), passed.as_secs()));
    }
    let lost = capture.finish(&mut requests)?;
    drop(line);
    for request in &requests {
        writer.push(request)?;
    }
    writer.dropped(lost);
    let (_, written) = writer.finish()?;
    if lost > 0 {
        tell!(
            "note: the kernel lost {}, since its buffer was full; use a larger --buffer",
            counted(lost, "request")
        );
    }
    output::print(&said_of(path, &written))?;
    match child {
        Some(child) => tell_of(child, &command[0]),
        None => Ok(()),
    }
}

fn start(command: &[OsString]) -> Result<Option<Child>> {
    let [program, arguments @ ..] = command else { return Ok(None) };
    let child = Command::new(program).args(arguments).spawn();
    let child = child.map_err(|error| {
        Failure::file(Path::new(program), &error, "check the command's name and its permissions")
    })?;
    Ok(Some(child))
}

fn has_ended(child: Option<&mut Child>) -> Result<bool> {
    match child {
        Some(child) => Ok(child.try_wait()?.is_some()),
        None => Ok(false),
    }
}

/// How the command ended. One that goes on when the time is over is left to itself.
fn tell_of(mut child: Child, program: &OsString) -> Result {
    let program = program.to_string_lossy();
    match child.try_wait()? {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(74);
            Err(Failure::coded(code, format!("{program}: {status}; the trace was recorded")))
        }
        None => {
            tell!("note: {program} goes on, process {}", child.id());
            Ok(())
        }
    }
}
