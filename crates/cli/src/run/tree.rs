//! The processes of a program, as /proc has them.

use std::cell::Cell;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

use esker_pager::launch::{self, Parting};
use esker_pager::trap::Traps;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that becomes the program.
pub(super) struct Main {
    pid: Pid,
    /// None: it was gone at once.
    handle: Option<OwnedFd>,
    /// Closed when it has become the program.
    stream: UnixStream,
    has_run: Cell<bool>,
}

impl Main {
    pub(super) fn new(pid: Pid, stream: UnixStream) -> Main {
        Main {
            pid,
            handle: pidfd_open(pid, PidfdFlags::empty()).ok(),
            stream,
            has_run: Cell::new(false),
        }
    }

    /// Sends it what the server has to say before it can go on.
    pub(super) fn tell(&self, code: u8, text: &str) -> io::Result<()> {
        (&self.stream).write_all(&[&[code], text.as_bytes()].concat())?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Waits until it becomes the program, and gives its system calls, if they can be followed.
    pub(super) fn await_program(&self) -> Option<Traps> {
        let Ok(Parting::Program(traps)) = launch::await_program(&self.stream) else { return None };
        self.has_run.set(true);
        traps
    }

    /// Whether it has become the program.
    pub(super) fn has_run(&self) -> bool {
        // It could not after all: then it says so.
        self.has_run.get() && !matches!((&self.stream).read(&mut [0]), Ok(1))
    }

    pub(super) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(super) fn has_ended(&self) -> bool {
        let Some(handle) = &self.handle else { return true };
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())) == Ok(1)
    }

    /// Whether the terminal is its own at this moment: it is neither stopped nor in the background.
    pub(super) fn is_in_foreground(&self) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{}/stat", self.number())) else {
            return false;
        };
        // The name in parentheses may have any byte in it.
        let Some((_, rest)) = text.rsplit_once(") ") else { return false };
        let fields: Vec<&str> = rest.split(' ').collect();
        let [state, _, group, _, _, foreground, ..] = fields[..] else { return false };
        state != "T" && group == foreground
    }
}

/// Whether a process was started with this line in its environment. Only such ones can connect to a pager.
pub(super) fn has_any(line: &str) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_bytes()[0].is_ascii_digit();
    let processes = entries.flatten().filter(is_process);
    let mut environments = processes.filter_map(|one| fs::read(one.path().join("environ")).ok());
    environments.any(|all| all.split(|&byte| byte == 0).any(|one| one == line.as_bytes()))
}
