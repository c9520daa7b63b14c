//! userfaultfd: the ioctls of `linux/userfaultfd.h`, each as one function.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::raw::{self, Errno, flag};
use crate::types::PAGE;

const API: usize = 0xc018_aa3f;
const REGISTER: usize = 0xc020_aa00;
pub(crate) const WAKE: usize = 0x8010_aa02;
pub(crate) const COPY: usize = 0xc028_aa03;
pub(crate) const MOVE: usize = 0xc028_aa05;
pub(crate) const WRITE_PROTECT: usize = 0xc018_aa06;
pub(crate) const POISON: usize = 0xc020_aa08;

const API_VERSION: u64 = 0xaa;
const REGISTER_MISSING: u64 = 1;
const REGISTER_WP: u64 = 2;
const COPY_WP: u64 = 2;
const WP_ON: u64 = 1;

/// Features that are asked for when a descriptor is opened.
pub mod feature {
    /// Faults by writes to protected pages are told apart.
    pub const FLAG_WP: u64 = 1;
    /// A fork is told, and the child's memory is served too.
    pub const EVENT_FORK: u64 = 1 << 1;
    /// A mapping that moves is told, and stays registered.
    pub const EVENT_REMAP: u64 = 1 << 2;
    /// Faults become a signal of the faulting thread.
    pub const SIGBUS: u64 = 1 << 7;
    /// A fault names its thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// A fault names its address to the byte.
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    /// Pages can be poisoned.
    pub const POISON: u64 = 1 << 14;
    /// Pages can be moved.
    pub const MOVE: u64 = 1 << 16;
}

/// Message of a descriptor.
#[derive(Debug)]
pub enum Message {
    /// A thread waits for a page.
    Fault {
        /// Where.
        addr: usize,
        /// Whether it wants to write.
        write: bool,
        /// Whether the page is there and write-protected.
        protected: bool,
        /// The thread.
        thread: u32,
    },
    /// The process has forked; the descriptor is that of the child's memory.
    Fork(Uffd),
    /// A mapping has moved.
    Remap {
        /// Where it was.
        from: usize,
        /// Where it is.
        to: usize,
        /// Its bytes.
        size: usize,
    },
    /// Something that was not asked for.
    Other(u8),
}

/// A userfaultfd descriptor.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    /// The model that takes the kernel's place in tests of all orders.
    #[cfg(test)]
    pub(crate) model: Option<std::sync::Arc<crate::tests::model::Model>>,
}

impl From<OwnedFd> for Uffd {
    fn from(fd: OwnedFd) -> Uffd {
        Uffd {
            fd,
            #[cfg(test)]
            model: None,
        }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Uffd {
    /// Opens a descriptor for the memory of this process, with `features`.
    ///
    /// # Errors
    /// `EPERM` without the privilege, `EINVAL` for a feature that the kernel has not got.
    pub fn open(features: u64) -> Result<Uffd, Errno> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { raw::call(libc::SYS_userfaultfd, [flag(flags), 0, 0, 0, 0, 0])? };
        let fd = i32::try_from(fd).map_err(|_| Errno(libc::EBADF))?;
        // SAFETY: the kernel has just made it for us.
        let uffd = Uffd::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut api = [API_VERSION, features, 0];
        uffd.control(API, &mut api)?;
        Ok(uffd)
    }

    /// Tells of missing pages and of writes to protected ones in a range.
    ///
    /// # Errors
    /// `EBUSY` when another descriptor has part of the range.
    pub fn register(&self, addr: usize, size: usize) -> Result<(), Errno> {
        self.control(REGISTER, &mut [word(addr), word(size), REGISTER_MISSING | REGISTER_WP, 0])
    }

    /// Makes a range of missing pages appear with the content at `source`, write-protected or not,
    /// and wakes the threads that wait for it. Returns the bytes that were done, and why no more.
    ///
    /// # Safety
    /// `source` is readable for `size` bytes, or the kernel gives `EFAULT`; it is no memory that
    /// this descriptor serves.
    pub unsafe fn copy(
        &self,
        addr: usize,
        source: usize,
        size: usize,
        protected: bool,
    ) -> (usize, Option<Errno>) {
        let mode = if protected { COPY_WP } else { 0 };
        let mut args = [word(addr), word(source), word(size), mode, 0];
        let result = self.control(COPY, &mut args);
        done(result, args[4])
    }

    /// Moves pages of this process to a range of it that is registered and has none, in one step that no thread sees
    /// half done. Returns the bytes that were moved, and why no more.
    ///
    /// # Errors
    /// `EBUSY`: the kernel has pinned the page, or has shared it with a forked child. `ENOENT`: it is not there. `EINVAL`: its memory may not
    /// be written.
    pub(crate) fn move_pages(&self, to: usize, from: usize, size: usize) -> (usize, Option<Errno>) {
        let mut args = [word(to), word(from), word(size), 0, 0];
        let result = self.control(MOVE, &mut args);
        done(result, args[4])
    }

    /// Protects the pages of a range that are there against writes.
    ///
    /// # Errors
    /// `EAGAIN` while the process forks, `ESRCH` when it has ended.
    pub fn protect(&self, addr: usize, size: usize) -> Result<(), Errno> {
        self.control(WRITE_PROTECT, &mut [word(addr), word(size), WP_ON])
    }

    /// Lets the pages of a range be written, and wakes the threads that wait for that.
    ///
    /// # Errors
    /// As [`Uffd::protect`].
    pub fn unprotect(&self, addr: usize, size: usize) -> Result<(), Errno> {
        self.control(WRITE_PROTECT, &mut [word(addr), word(size), 0])
    }

    /// Whether the memory is still there.
    #[must_use]
    pub fn is_alive(&self, guard: usize) -> bool {
        self.protect(guard, PAGE) != Err(Errno(libc::ESRCH))
    }

    /// Makes missing pages such that a thread that touches them gets `SIGBUS`.
    ///
    /// # Errors
    /// `EEXIST` when the page is there.
    pub fn poison(&self, addr: usize, size: usize) -> Result<(), Errno> {
        self.control(POISON, &mut [word(addr), word(size), 0, 0])
    }

    /// Wakes the threads that wait for a page of a range, to look again.
    pub fn wake(&self, addr: usize, size: usize) {
        // It fails only for ranges that make no sense.
        let _ = self.control(WAKE, &mut [word(addr), word(size)]);
    }

    /// Reads messages; none are left when fewer than `most` come.
    pub fn read(&self, most: usize, mut each: impl FnMut(Message)) -> usize {
        const SIZE: usize = 32;
        let mut bytes = [0u8; SIZE * 16];
        let size = most.min(16) * SIZE;
        let args = [flag(self.fd.as_raw_fd()), bytes.as_mut_ptr().addr(), size, 0, 0, 0];
        // SAFETY: the buffer is at least `size` bytes long.
        let Ok(size) = (unsafe { raw::call(libc::SYS_read, args) }) else { return 0 };
        for message in bytes[..size].as_chunks::<SIZE>().0 {
            each(decode(message));
        }
        size / SIZE
    }

    fn control(&self, request: usize, args: &mut [u64]) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(model) = &self.model {
            return model.control(request, args);
        }
        let args = [flag(self.fd.as_raw_fd()), request, args.as_mut_ptr().addr(), 0, 0, 0];
        // SAFETY: the argument is as large as the request says; each caller passes its size.
        unsafe { raw::call(libc::SYS_ioctl, args) }.map(drop)
    }
}

fn decode(message: &[u8; 32]) -> Message {
    let u64_at = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().expect("8 bytes"));
    let u32_at = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().expect("4 bytes"));
    match message[0] {
        0x12 => Message::Fault {
            addr: esker_base::units::to_usize(u64_at(16)),
            write: u64_at(8) & 1 != 0,
            protected: u64_at(8) & 2 != 0,
            thread: u32_at(24),
        },
        0x13 => {
            let fd = i32::from_ne_bytes(message[8..12].try_into().expect("4 bytes"));
            // SAFETY: the kernel made the descriptor for the reader of this message.
            Message::Fork(Uffd::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        }
        0x14 => {
            let at = |at| esker_base::units::to_usize(u64_at(at));
            Message::Remap { from: at(8), to: at(16), size: at(24) }
        }
        other => Message::Other(other),
    }
}

/// The last field of a request that can be done in part holds the bytes done, or an error.
fn done(result: Result<(), Errno>, field: u64) -> (usize, Option<Errno>) {
    let signed = field.cast_signed();
    let bytes = usize::try_from(signed).unwrap_or(0);
    (bytes, result.err())
}

const fn word(value: usize) -> u64 {
    value as u64
}
