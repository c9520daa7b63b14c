//! System calls that change a program's memory are handed to the pager before the kernel carries them out.
//!
//! A filter that `esker run` installs holds them, in the program and in all that comes from it, so also those of programs
//! that call the kernel directly. The pager lets a call go on, or answers it. Calls of this crate's own carry [`KEY`],
//! and pass.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use esker_base::units::to_usize;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::filter::{ARCH, ARCHITECTURE, NUMBER, argument, equals, give, has, load};
use crate::raw::{self, Errno, KEY, flag};

/// `SECCOMP_IOCTL_NOTIF_RECV` and `_SEND` of `linux/seccomp.h`.
const RECEIVE: usize = 0xc050_2100;
const SEND: usize = 0xc018_2101;
/// `SECCOMP_IOCTL_NOTIF_ID_VALID`.
const IS_VALID: usize = 0x4008_2102;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u64 = 1;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` and `_WAIT_KILLABLE_RECV`: only its end interrupts a thread whose call is looked at.
const LISTEN: usize = 1 << 3 | 1 << 5;
const HOLD: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// Calls that are held, whatever their arguments.
const ALL_OF: [i64; 10] = [
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_pkey_mprotect,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_exit_group,
    libc::SYS_process_madvise,
];
/// A call that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    id: u64,
    /// The thread, as this process calls it; 0 if it cannot be seen from here.
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) args: [usize; 6],
}

/// Answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The kernel carries it out.
    Go,
    /// This is its result: a value, or an error number below 0.
    Result(i64),
    /// Another thread answers it.
    Elsewhere,
}

impl Reply {
    /// The call fails.
    pub(crate) fn error(errno: i32) -> Reply {
        Reply::Result(-i64::from(errno))
    }
}

/// Where held calls come from.
#[derive(Debug)]
pub struct Traps(OwnedFd);

impl From<OwnedFd> for Traps {
    fn from(fd: OwnedFd) -> Traps {
        Traps(fd)
    }
}

impl AsFd for Traps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Traps {
    /// Whether there is a call, and whether any process is left that could make one.
    fn state(&self) -> (bool, bool) {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let _ = rustix::event::poll(&mut polled, Some(&Timespec::default()));
        let found = polled[0].revents();
        (found.contains(PollFlags::IN), !found.contains(PollFlags::HUP))
    }

    /// Whether all processes whose calls come from here have ended.
    pub(crate) fn is_over(&self) -> bool {
        !self.state().1
    }

    /// The next call, if there is one; and whether any process is left that could make one.
    pub(crate) fn next(&self) -> (Option<Call>, bool) {
        let (has_call, has_callers) = self.state();
        (has_call.then(|| self.receive()).flatten(), has_callers)
    }

    /// The next call. None: it was interrupted meanwhile. There has to be one, else it waits.
    fn receive(&self) -> Option<Call> {
        let mut words = [0u64; 10];
        let args =
            [flag(self.0.as_raw_fd()), RECEIVE, words.as_mut_ptr().expose_provenance(), 0, 0, 0];
        // SAFETY: a `struct seccomp_notif` has ten words, which have to be zeroes.
        unsafe { raw::call(libc::SYS_ioctl, args) }.ok()?;
        let [id, thread, number, _, args @ ..] = words;
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        let (thread, number) = (low(thread), i64::from(low(number)));
        Some(Call { id, thread, number, args: args.map(to_usize) })
    }

    /// Whether the thread still waits: else its number may be another one's.
    pub(crate) fn is_waiting(&self, call: &Call) -> bool {
        let id = &raw const call.id;
        let args = [flag(self.0.as_raw_fd()), IS_VALID, id.expose_provenance(), 0, 0, 0];
        // SAFETY: the number is readable.
        unsafe { raw::call(libc::SYS_ioctl, args) }.is_ok()
    }

    /// Answers a call. If its thread was killed, nothing happens.
    pub(crate) fn reply(&self, call: &Call, reply: Reply) {
        let (value, error, flags) = match reply {
            Reply::Elsewhere => return,
            Reply::Go => (0, 0, CONTINUE),
            Reply::Result(errno @ -4095..0) => (0, errno, 0),
            Reply::Result(value) => (value, 0, 0),
        };
        let error = error.cast_unsigned() & u64::from(u32::MAX);
        let words = [call.id, value.cast_unsigned(), error | flags << 32];
        let args = [flag(self.0.as_raw_fd()), SEND, words.as_ptr().expose_provenance(), 0, 0, 0];
        // SAFETY: a `struct seccomp_notif_resp` has three words.
        let _ = unsafe { raw::call(libc::SYS_ioctl, args) };
    }
}

/// Has calls of this process, and of all that comes from it, held from now on. It allocates nothing.
///
/// # Errors
/// `EACCES` without privilege; the kernel's. `EBUSY` where another process looks at its calls already.
pub(crate) fn set() -> io::Result<OwnedFd> {
    let instructions = filter();
    // `struct sock_fprog`: the count, padded, and where they are.
    let program = [LENGTH, instructions.as_ptr().expose_provenance()];
    let program = program.as_ptr().expose_provenance();
    let args = [libc::SECCOMP_SET_MODE_FILTER as usize, LISTEN, program, 0, 0, 0];
    // SAFETY: the program is as long as it says, and lives until the call returns.
    let fd = unsafe { raw::call(libc::SYS_seccomp, args) }.map_err(Errno::to_io)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Where the parts of the filter begin.
const CALLS: usize = 3;
const PASS: usize = CALLS + ALL_OF.len() + 2;
const PROTECT: usize = PASS + 1;
const MAP: usize = PROTECT + 3;
const KEY_OF_ALL: usize = MAP + 5;
const KEY_OF_MAP: usize = KEY_OF_ALL + 6;
const LENGTH: usize = KEY_OF_MAP + 6;

/// Holds the calls, unless they have the key: of an anonymous mapping, which ignores its descriptor, there; of the others as
/// the last argument, which they have not.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // numbers and counts are small
fn filter() -> [libc::sock_filter; LENGTH] {
    let allow = libc::SECCOMP_RET_ALLOW;
    // Jumps count from the instruction behind.
    let from = |at: usize, to: usize| (to - at - 1) as u8;
    let mut filter = [give(allow); LENGTH];
    filter[0] = load(ARCH);
    filter[1] = equals(ARCHITECTURE, 0, from(1, PASS));
    filter[2] = load(NUMBER);
    for (at, call) in (CALLS..).zip(ALL_OF) {
        filter[at] = equals(call as u32, from(at, KEY_OF_ALL), 0);
    }
    filter[PASS - 2] = equals(libc::SYS_mprotect as u32, from(PASS - 2, PROTECT), 0);
    filter[PASS - 1] = equals(libc::SYS_mmap as u32, from(PASS - 1, MAP), 0);
    // An access that lets nobody write brings no page.
    filter[PROTECT] = load(argument(2));
    filter[PROTECT + 1] = has(libc::PROT_WRITE as u32, from(PROTECT + 1, KEY_OF_ALL), 0);
    // A file that is mapped where the kernel finds room is none of the pager's.
    filter[MAP] = load(argument(3));
    filter[MAP + 1] = has(libc::MAP_ANONYMOUS as u32, from(MAP + 1, KEY_OF_MAP), 0);
    filter[MAP + 2] = has(libc::MAP_FIXED as u32, 1, 0);
    filter[MAP + 4] = give(HOLD);
    for (at, n) in [(KEY_OF_ALL, 5), (KEY_OF_MAP, 4)] {
        filter[at] = load(argument(n));
        filter[at + 1] = equals((KEY & 0xffff_ffff) as u32, 0, 2);
        filter[at + 2] = load(argument(n) + 4);
        filter[at + 3] = equals((KEY >> 32) as u32, 1, 0);
        filter[at + 4] = give(HOLD);
    }
    filter
}
