//! The signals that ask a process to end, as something that can be waited for.
//!
//! Invariant: from [`StopSignals::catch`] on, `SIGINT` and `SIGTERM` end no thread that was started
//! afterwards, nor the one that called; they are counted here.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// `SIGINT` and `SIGTERM`, caught.
#[derive(Debug)]
pub struct StopSignals(OwnedFd);

impl StopSignals {
    /// Catches them, for the rest of the process. To be called before other threads are started:
    /// the system delivers a signal to any thread that has not been told otherwise.
    ///
    /// # Errors
    /// The operating system's, when it has no descriptor to give.
    pub fn catch() -> io::Result<StopSignals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set, the others read or change it; none keeps it.
        // `signalfd` returns a descriptor of ours or a negative number.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            let error =
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(StopSignals(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Waits for a signal, for at most `timeout`; says whether one has come. Each is told once.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).ok();
        // A wait that is cut short is as one whose time has passed.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref());
        self.take()
    }

    /// Whether a signal has come that was not told yet.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        rustix::io::read(&self.0, &mut info).is_ok_and(|size| size > 0)
    }
}

/// Readable when a signal has come.
impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_once() {
        // In a thread of its own: the others of this process must not lose their signals.
        let thread = crate::thread::spawn("signals", || {
            let signals = StopSignals::catch().unwrap();
            assert!(!signals.take());
            // SAFETY: a signal to this thread, which has blocked it.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
            assert!(signals.wait(Duration::from_secs(60)));
            assert!(!signals.wait(Duration::ZERO));
        });
        thread.unwrap().join().unwrap();
    }
}
