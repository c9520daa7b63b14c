//! The helper gives up what it does not need: capabilities, core dumps, and all system calls but a few.

#![allow(unsafe_code)]

use crate::filter::{ARCH, ARCHITECTURE, NUMBER, argument, equals, give, load};
use crate::raw::{self, Errno, flag};
use crate::uffd::MOVE;

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITIES: u32 = 0x2008_0522;
/// The calls that a greeting and an order take, those that it makes for the program, those that end the program when its pager has ended, and the end.
const ALLOWED: [i64; 15] = [
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_read,
    libc::SYS_sendto,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_mprotect,
    libc::SYS_ppoll,
    libc::SYS_write,
    libc::SYS_pidfd_send_signal,
    libc::SYS_exit_group,
];
/// Instructions of the filter.
const LENGTH: usize = 3 + ALLOWED.len() * 2 + 4 + 1;

/// Gives up all capabilities, those that a program could give, and core dumps.
pub(super) fn give_up() -> Result<(), Errno> {
    let header = [CAPABILITIES, 0];
    let none = [0u32; 6];
    let (header, none) =
        ((&raw const header).expose_provenance(), (&raw const none).expose_provenance());
    let no_core = [0u64; 2];
    let no_core = (&raw const no_core).expose_provenance();
    let (no_new, core) = (flag(libc::PR_SET_NO_NEW_PRIVS), libc::RLIMIT_CORE as usize);
    // SAFETY: each argument is as large as its call says, and lives until that returns.
    unsafe {
        raw::call(libc::SYS_capset, [header, none, 0, 0, 0, 0])?;
        raw::call(libc::SYS_prlimit64, [0, core, no_core, 0, 0, 0])?;
        raw::call(libc::SYS_prctl, [no_new, 1, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// Leaves itself the calls that are allowed, for good.
pub(super) fn enter() -> Result<(), Errno> {
    let instructions = filter();
    // `struct sock_fprog`: the count, padded, and where they are.
    let program = [LENGTH, instructions.as_ptr().expose_provenance()];
    let program = program.as_ptr().expose_provenance();
    let (mode, filter) = (flag(libc::PR_SET_SECCOMP), libc::SECCOMP_MODE_FILTER as usize);
    // SAFETY: the program is as long as it says, and lives until the call returns.
    unsafe { raw::call(libc::SYS_prctl, [mode, filter, program, 0, 0, 0]) }.map(drop)
}

/// The filter: any other call fails with `EPERM`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // numbers of calls are small
fn filter() -> [libc::sock_filter; LENGTH] {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [give(refuse); LENGTH];
    let (last, mut at) = (LENGTH - 1, 0);
    let mut push = |one: libc::sock_filter| {
        if let Some(place) = filter.get_mut(at) {
            *place = one;
        }
        at += 1;
        at
    };
    push(load(ARCH));
    push(equals(ARCHITECTURE, 0, (last - 2) as u8));
    push(load(NUMBER));
    for call in ALLOWED {
        push(equals(call as u32, 0, 1));
        push(give(libc::SECCOMP_RET_ALLOW));
    }
    push(equals(libc::SYS_ioctl as u32, 0, 3));
    push(load(argument(1)));
    push(equals(MOVE as u32, 0, 1));
    push(give(libc::SECCOMP_RET_ALLOW));
    filter
}
