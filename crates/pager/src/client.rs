//! The program's side: a region, and doorbells to ask for its memory.
//!
//! Nothing here allocates, takes a lock or uses thread-local storage: it runs in programs whose
//! allocator depends on it, and in its helper.

#![allow(unsafe_code)]

mod helper;

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use esker_base::units::to_usize;

use crate::protocol::{FIRST_DOORBELL, FIRST_PAGE, GUARD, JOIN, Request, WINDOW, op};
use crate::raw::{self, Errno, flag};
use crate::types::{PAGE, Page};
use crate::uffd::{Uffd, feature};
use helper::Failure;

/// The first page of a region that programs get.
pub const FIRST: usize = FIRST_PAGE as usize;

const DOORBELLS: usize = WINDOW as usize;
/// The doorbells that threads may use, as bits.
const USABLE: u64 = !0 << FIRST_DOORBELL;
/// Bytes of a socket's name in the abstract namespace.
const NAME: usize = 107;
/// Bytes that are filled with zeroes at a time.
const STEP: usize = 1 << 20;

/// How often a thread that waits for the helper looks whether it has ended: seconds and nanoseconds.
const LOOK_AGAIN: [u64; 2] = [0, 20_000_000];

/// A region of paged memory of this process.
pub struct Client {
    base: usize,
    size: usize,
    /// Its requests, one for each doorbell, in memory that is not paged.
    requests: usize,
    claimed: AtomicU64,
    serial: AtomicU64,
    /// The pager's socket.
    name: [u8; NAME],
    named: usize,
    /// Whether children have the region.
    forks: AtomicBool,
    /// This process is a forked child.
    joins: AtomicBool,
    /// State of the helper.
    pub(crate) state: AtomicU32,
    /// Why there is none.
    pub(crate) failure: AtomicU32,
    /// The process whose helper it is.
    pub(crate) program: AtomicU32,
    /// The helper's descriptor of that process.
    pub(crate) pidfd: AtomicI32,
    /// The helper's stack, and its parent's.
    pub(crate) stack: AtomicUsize,
}

/// Opens a descriptor, with forks told if this process has the privilege for it.
///
/// # Errors
/// `EPERM` without any privilege; `EINVAL` when the kernel is too old.
pub fn open() -> Result<(Uffd, bool), Errno> {
    let features = feature::FLAG_WP
        | feature::THREAD_ID
        | feature::EXACT_ADDRESS
        | feature::EVENT_REMAP
        | feature::POISON
        | feature::MOVE;
    match Uffd::open(features | feature::EVENT_FORK) {
        Ok(uffd) => Ok((uffd, true)),
        Err(Errno(libc::EPERM)) => Ok((Uffd::open(features)?, false)),
        Err(error) => Err(error),
    }
}

impl Client {
    /// Maps a region of `size` bytes, to be served by the pager whose socket has this name.
    ///
    /// # Errors
    /// The kernel's; `ENAMETOOLONG`.
    pub fn map(size: usize, name: &[u8]) -> Result<Client, Errno> {
        let mut own = [0; NAME];
        own.get_mut(..name.len()).ok_or(Errno(libc::ENAMETOOLONG))?.copy_from_slice(name);
        let base = raw::map_memory(size)?;
        let requests = raw::map_memory(DOORBELLS * size_of::<Request>())?;
        // SAFETY: changes no content. A kernel without huge pages refuses, and that is just as well.
        let _ = unsafe { raw::advise(base, size, libc::MADV_NOHUGEPAGE) };
        Ok(Client {
            base,
            size,
            requests,
            claimed: AtomicU64::new(0),
            serial: AtomicU64::new(0),
            name: own,
            named: name.len(),
            forks: AtomicBool::new(true),
            joins: AtomicBool::new(false),
            state: AtomicU32::new(helper::NONE),
            failure: AtomicU32::new(0),
            program: AtomicU32::new(0),
            pidfd: AtomicI32::new(-1),
            stack: AtomicUsize::new(0),
        })
    }

    /// Has the pager serve the region, by a helper.
    ///
    /// # Errors
    /// What was refused, and the kernel's reason.
    pub fn attach(&'static self) -> Result<(), Failure> {
        helper::start(self);
        if self.await_helper() { Ok(()) } else { Err(helper::failure(self)) }
    }

    /// Whether a forked child has the region.
    #[must_use]
    pub fn has_forks(&self) -> bool {
        self.forks.load(Ordering::Relaxed)
    }

    /// Keeps the region from children, which would find zeroes there: their forks are not told.
    pub(crate) fn forget_forks(&self) -> Result<(), Errno> {
        self.forks.store(false, Ordering::Relaxed);
        // SAFETY: changes nothing of this process's memory.
        unsafe { raw::advise(self.base, self.size, libc::MADV_DONTFORK) }.map(drop)
    }

    /// Where the region begins, and its size in bytes.
    #[must_use]
    pub fn region(&self) -> (usize, usize) {
        (self.base, self.size)
    }

    /// Where requests lie.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.name.get(..self.named).unwrap_or_default()
    }

    /// Whether this process is a forked child.
    pub(crate) fn joins(&self) -> bool {
        self.joins.load(Ordering::Relaxed)
    }

    /// Whether any byte of a range is in the region.
    #[must_use]
    pub fn overlaps(&self, addr: usize, size: usize) -> bool {
        addr < self.base + self.size && addr.saturating_add(size) > self.base
    }

    /// Reserves memory; with an address other than 0 exactly there.
    ///
    /// # Errors
    /// `ENOMEM` when there is no room; `ENOTCONN` when this process is not served.
    pub fn reserve(&self, addr: usize, size: usize) -> Result<usize, Errno> {
        let value = self.ask(op::RESERVE, addr, size)?;
        Ok(to_usize(value))
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not in the region.
    ///
    /// # Safety
    /// Nobody needs the content.
    pub unsafe fn discard(&self, addr: usize, size: usize) -> Result<(), Errno> {
        match self.ask(op::DISCARD, addr, size) {
            // SAFETY: the caller's promise. The pager has forgotten the pages already.
            Ok(_) => unsafe { raw::advise(addr, size, libc::MADV_DONTNEED) }.map(drop),
            Err(Errno(libc::ENOTCONN)) => {
                for at in (addr..addr + size).step_by(STEP) {
                    let to = std::ptr::with_exposed_provenance_mut::<u8>(at);
                    // SAFETY: the caller's promise, and the range is mapped.
                    unsafe { to.write_bytes(0, STEP.min(addr + size - at)) };
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the reservation of a range.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not in the region.
    ///
    /// # Safety
    /// Nobody refers to the range any more.
    pub unsafe fn release(&self, addr: usize, size: usize) -> Result<(), Errno> {
        // Before another thread can get it.
        // SAFETY: the caller's promise.
        unsafe {
            self.discard(addr, size)?;
            raw::protect(addr, size, libc::PROT_READ | libc::PROT_WRITE)?;
        }
        match self.ask(op::RELEASE, addr, size) {
            Ok(_) | Err(Errno(libc::ENOTCONN)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells the pager that this process exits, and waits until it may.
    pub fn exit(&self) {
        if self.state.load(Ordering::Acquire) != helper::READY {
            // A forked child that ends at once.
            return;
        }
        // SAFETY: takes no arguments.
        let pid = unsafe { raw::call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0);
        // Nothing depends on the answer.
        let _ = self.ask(op::EXIT, pid, 0);
    }

    /// Asks the pager, and waits for its answer.
    fn ask(&self, op: u64, a: usize, b: usize) -> Result<u64, Errno> {
        if !self.await_helper() {
            return Err(Errno(libc::ENOTCONN));
        }
        let doorbell = self.claim();
        let answer = self.ring(doorbell, op, a, b);
        let (status, value) = (word(answer), word(answer + 8));
        self.drop_doorbell(doorbell);
        self.claimed.fetch_and(!(1 << doorbell), Ordering::Release);
        match i32::try_from(status) {
            Ok(0) => Ok(value),
            Ok(errno) => Err(Errno(errno)),
            Err(_) => Err(Errno(libc::EIO)),
        }
    }

    /// Waits until the helper has introduced this process. False: it could not.
    pub fn await_helper(&self) -> bool {
        let state = self.state.as_ptr().expose_provenance();
        loop {
            match self.state.load(Ordering::Acquire) {
                helper::READY => return true,
                helper::STARTING => {}
                _ => return false,
            }
            // Not private: at the helper's end the kernel wakes by the other kind, and one thread alone.
            let span = LOOK_AGAIN;
            let span = (&raw const span).expose_provenance();
            let args = [state, flag(libc::FUTEX_WAIT), helper::STARTING as usize, span, 0, 0];
            // SAFETY: a word of this process, and a time. Why it returns is seen above.
            let _ = unsafe { raw::call(libc::SYS_futex, args) };
        }
    }

    /// The helper has introduced this process.
    pub(crate) fn set_ready(&self) {
        self.state.store(helper::READY, Ordering::Release);
        let state = self.state.as_ptr().expose_provenance();
        let args = [state, flag(libc::FUTEX_WAKE), i32::MAX as usize, 0, 0, 0];
        // SAFETY: as above.
        let _ = unsafe { raw::call(libc::SYS_futex, args) };
    }

    fn claim(&self) -> Page {
        loop {
            let claimed = self.claimed.load(Ordering::Relaxed);
            let free = !claimed & USABLE;
            if free == 0 {
                // SAFETY: takes no arguments.
                let _ = unsafe { raw::call(libc::SYS_sched_yield, [0; 6]) };
                continue;
            }
            let doorbell = free.trailing_zeros();
            let more = claimed | 1 << doorbell;
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            if self.claimed.compare_exchange_weak(claimed, more, taken, failed).is_ok() {
                return doorbell;
            }
        }
    }

    /// Writes a request, rings, and gives the address of the answer.
    fn ring(&self, doorbell: Page, op: u64, a: usize, b: usize) -> usize {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let request = Request { serial, op, a: a as u64, b: b as u64 };
        let slot = self.requests + doorbell as usize * size_of::<Request>();
        // SAFETY: the doorbell is claimed, so nobody else uses its request's place, which is mapped.
        unsafe { std::ptr::with_exposed_provenance_mut::<Request>(slot).write_volatile(request) };
        fence(Ordering::SeqCst);
        self.base + doorbell as usize * PAGE
    }

    fn drop_doorbell(&self, doorbell: Page) {
        let addr = self.base + doorbell as usize * PAGE;
        // SAFETY: an answer that has been read. It cannot fail: the page is mapped.
        let _ = unsafe { raw::advise(addr, PAGE, libc::MADV_DONTNEED) };
    }

    /// The token of a forked child.
    pub(crate) fn token(&self) -> u64 {
        let token = word(self.base + JOIN as usize * PAGE + 8);
        self.drop_doorbell(JOIN);
        token
    }

    /// Makes this child's copy of the region its own: to be called first in a forked child. Its helper introduces it
    /// meanwhile.
    pub fn after_fork(&'static self) {
        self.claimed.store(0, Ordering::Relaxed);
        self.joins.store(true, Ordering::Relaxed);
        let first = self.base + (GUARD as usize + 1) * PAGE;
        // SAFETY: doorbells, of which nobody waits for one in this child. It cannot fail: the pages are mapped.
        let _ = unsafe { raw::advise(first, (DOORBELLS - 1) * PAGE, libc::MADV_DONTNEED) };
        helper::start(self);
    }

    /// Makes the region unreachable: the kernel is to end any thread that touches it from now on.
    pub(crate) fn part(&self) {
        // SAFETY: as said.
        let _ = unsafe { raw::protect(self.base, self.size, libc::PROT_NONE) };
    }
}

fn word(addr: usize) -> u64 {
    // SAFETY: in a doorbell's page, which is mapped; reading it waits for the answer.
    unsafe { std::ptr::with_exposed_provenance::<u64>(addr).read_volatile() }
}
