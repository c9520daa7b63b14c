//! A process becomes a program, and leaves another one behind that serves it.
//!
//! The program keeps the process: its number, parent, terminal, process group, and what the caller has set of signals and
//! standard descriptors. The server is no child of it, and belongs to no terminal.

#![allow(unsafe_code)]

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::trap::{self, Traps};

/// The byte by which a process says that it becomes the program, and the one by which it says that it does not.
const BECOMES: u8 = 0;
const STAYS: u8 = 1;

/// Signals that the kernel sends to a thread for what it does: blocking them would only hide them.
const OWN: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];
const NOWHERE: &std::ffi::CStr = c"/dev/null";

/// The caller ignores `SIGPIPE`.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);
/// Standard descriptors that the caller has closed, as bits.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// One of the two processes that [`split`] makes of one, with a stream to the other.
#[derive(Debug)]
pub enum Side {
    /// The caller's process.
    Program(UnixStream),
    /// The new one.
    Server(UnixStream),
}

/// Starts another process that goes on here too. It is no child of this one, in a session of its own, and takes no signal
/// but those that nobody can block. Of the descriptors it has the error output alone, so that no reader of a pipe and no
/// lock of the caller waits for it.
///
/// This process should have no other thread: a lock that one holds stays locked in the new process.
///
/// # Errors
/// The kernel's, when it has no process or descriptor to give.
pub fn split() -> io::Result<Side> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: the new process does nothing but what this function does, and goes on as this one would.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // The process in between: its end makes its child nobody's here.
            // SAFETY: no memory is involved.
            unsafe { libc::setsid() };
            // SAFETY: as above.
            match unsafe { libc::fork() } {
                0 => {
                    // Its number is closed below.
                    std::mem::forget(ours);
                    settle(&theirs);
                    Ok(Side::Server(theirs))
                }
                pid => {
                    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
                    // SAFETY: ends this process, without what the caller's wants to do at its end.
                    unsafe { libc::_exit(if pid > 0 { 0 } else { errno }) }
                }
            }
        }
        between => reap(between).map(|()| Side::Program(ours)),
    }
}

/// Waits for the process in between.
fn reap(between: i32) -> io::Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: the status is writable.
        if unsafe { libc::waitpid(between, &raw mut status, 0) } == between {
            break;
        }
        // Where the caller ignores SIGCHLD there is no status: a missing server is noticed by its silence.
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
    match libc::WEXITSTATUS(status) {
        errno if libc::WIFEXITED(status) && errno > 0 => Err(io::Error::from_raw_os_error(errno)),
        _ => Ok(()),
    }
}

/// Makes this process one that signals and terminals do not reach, and that has no descriptor of the caller's but the error
/// output.
fn settle(stream: &UnixStream) {
    let mut blocked = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call makes a set of it, and all numbers are signals'. Nothing can fail.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for own in OWN {
            libc::sigdelset(blocked.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), std::ptr::null_mut());
    }
    replace(libc::STDIN_FILENO);
    replace(libc::STDOUT_FILENO);
    let kept = stream.as_raw_fd().unsigned_abs();
    // SAFETY: nothing here has opened them, but for the stream.
    unsafe {
        libc::close_range(3, kept - 1, 0);
        libc::close_range(kept + 1, u32::MAX, 0);
    }
}

/// Gives up the error output, so that nobody who reads it waits for this process.
pub fn give_up_stderr() {
    replace(libc::STDERR_FILENO);
}

/// Replaces a descriptor by one of /dev/null.
fn replace(fd: i32) {
    // SAFETY: the path ends with a zero, and the descriptors are used by number alone. A system without /dev/null leaves
    // them as they are.
    unsafe {
        let nowhere = libc::open(NOWHERE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if nowhere >= 0 {
            libc::dup2(nowhere, fd);
            libc::close(nowhere);
        }
    }
}

/// The other side's last word.
#[derive(Debug)]
pub enum Parting {
    /// It becomes the program, whose system calls come from here if the kernel lets them be followed.
    Program(Option<Traps>),
    /// It does not.
    Failure,
}

/// Waits until the other side becomes the program, or says that it cannot.
///
/// # Errors
/// The kernel's.
pub fn await_program(stream: &UnixStream) -> io::Result<Parting> {
    let mut byte = [BECOMES];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let traps = fds.and_then(|mut fds| fds.next()).map(Traps::from);
    Ok(if byte == [BECOMES] { Parting::Program(traps) } else { Parting::Failure })
}

/// Says that this side does not become the program.
pub fn stay(stream: &UnixStream) {
    // The server may have ended.
    let _ = (&mut &*stream).write_all(&[STAYS]);
}

/// Has the server follow this process's system calls. Without the privilege it does not.
fn hand_over_calls(stream: BorrowedFd<'_>) {
    let Ok(traps) = trap::set() else { return };
    let fds = [traps.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    // If the server is gone, calls that would be held fail.
    let _ = sendmsg(stream, &[io::IoSlice::new(&[BECOMES])], &mut control, SendFlags::NOSIGNAL);
}

/// Becomes the program: `SIGPIPE` and the standard descriptors are as the caller of this process has left them, not as the
/// standard library has set them. The server follows its system calls, if `server` is given. Returns only with an error.
pub fn exec(command: &mut Command, server: Option<&UnixStream>) -> io::Error {
    let server = server.map(AsRawFd::as_raw_fd);
    let restore = move || {
        if IGNORES_PIPE.load(Ordering::Relaxed) {
            // SAFETY: no handler is involved.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        let closed = CLOSED.load(Ordering::Relaxed);
        for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
            // SAFETY: opened by the standard library to stand for nothing.
            unsafe { libc::close(fd) };
        }
        if let Some(server) = server {
            // SAFETY: the caller's stream, which is open until this process becomes the program.
            hand_over_calls(unsafe { BorrowedFd::borrow_raw(server) });
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(restore) };
    command.exec()
}

/// Notes what the caller has set, before the standard library changes it.
extern "C" fn note() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; a zeroed action is valid.
    let ignores = unsafe {
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    };
    IGNORES_PIPE.store(ignores, Ordering::Relaxed);
    // SAFETY: asks only.
    let is_closed = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0;
    let closed = (0..3).filter(is_closed).fold(0u8, |bits, fd| bits | 1 << fd);
    CLOSED.store(closed, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;
