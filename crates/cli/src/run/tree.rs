//! The processes of a program, as /proc has them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that becomes the program.
pub(super) struct Main {
    pid: Pid,
    /// None: it was gone at once.
    handle: Option<OwnedFd>,
    /// Closed when it has become the program; it sends a byte when it cannot.
    stream: UnixStream,
}

impl Main {
    pub(super) fn new(pid: Pid, stream: UnixStream) -> Main {
        Main { pid, handle: pidfd_open(pid, PidfdFlags::empty()).ok(), stream }
    }

    /// Sends it what the server has to say before it can go on.
    pub(super) fn tell(&self, code: u8, text: &str) -> io::Result<()> {
        (&self.stream).write_all(&[&[code], text.as_bytes()].concat())?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Whether it has become the program: to be asked when it has ended.
    pub(super) fn has_run(&self) -> bool {
        matches!((&self.stream).read(&mut [0]), Ok(0))
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
