//! The program's side: a region, its descriptor, doorbells, and the agent.
//!
//! Nothing here allocates, takes a lock or uses thread-local storage: it runs in programs whose
//! allocator depends on it, and in a thread that the C library does not know.

#![allow(unsafe_code)]

use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use esker_base::units::to_usize;

use crate::protocol::{
    AGENT, ANSWER_WORDS, FIRST_DOORBELL, FIRST_PAGE, GUARD, Hello, MAGIC, Request, op,
};
use crate::raw::{self, Errno, flag};
use crate::types::{PAGE, Page};
use crate::uffd::{Uffd, feature};

/// The first page of a region that programs get.
pub const FIRST: usize = FIRST_PAGE as usize;

/// Bytes of the agent's stack.
const STACK: usize = 64 << 10;
const DOORBELLS: usize = FIRST_PAGE as usize;
const ERROR_OUTPUT: usize = 2;
/// The doorbells that threads may use, as bits.
const USABLE: u64 = !0 << FIRST_DOORBELL;

/// A region of paged memory of this process.
pub struct Client {
    base: usize,
    size: usize,
    /// Its requests, one for each doorbell, in memory that is not paged.
    requests: usize,
    claimed: AtomicU64,
    serial: AtomicU64,
}

/// Opens a descriptor, with forks told if this process has the privilege for it.
///
/// # Errors
/// `EPERM` without any privilege; `EINVAL` when the kernel is too old.
pub fn open() -> Result<(Uffd, bool), Errno> {
    let features = feature::FLAG_WP | feature::THREAD_ID | feature::EXACT_ADDRESS | feature::POISON;
    match Uffd::open(features | feature::EVENT_FORK) {
        Ok(uffd) => Ok((uffd, true)),
        Err(Errno(libc::EPERM)) => Ok((Uffd::open(features)?, false)),
        Err(error) => Err(error),
    }
}

impl Client {
    /// Maps a region of `size` bytes and registers it with `uffd`. When forks are not told, a child
    /// does not get the region: it would find zeroes there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(uffd: &Uffd, size: usize, forks: bool) -> Result<Client, Errno> {
        let base = raw::map_memory(size)?;
        let requests = raw::map_memory(DOORBELLS * size_of::<Request>())?;
        if !forks {
            // SAFETY: changes nothing of this process's memory.
            unsafe { raw::advise(base, size, libc::MADV_DONTFORK)? };
        }
        // SAFETY: as above. A kernel without huge pages refuses, and that is just as well.
        let _ = unsafe { raw::advise(base, size, libc::MADV_NOHUGEPAGE) };
        uffd.register(base, size)?;
        let (claimed, serial) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Client { base, size, requests, claimed, serial })
    }

    /// The first message to the pager.
    #[must_use]
    pub fn hello(&self, pid: u32, forks: bool) -> Hello {
        Hello {
            magic: MAGIC,
            pid: u64::from(pid),
            base: self.base as u64,
            size: self.size as u64,
            requests: self.requests as u64,
            forks: u64::from(forks),
        }
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

    /// Whether any byte of a range is in the region.
    #[must_use]
    pub fn overlaps(&self, addr: usize, size: usize) -> bool {
        addr < self.base + self.size && addr.saturating_add(size) > self.base
    }

    /// Reserves memory; with an address other than 0 exactly there.
    ///
    /// # Errors
    /// `ENOMEM` when there is no room.
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
        self.ask(op::DISCARD, addr, size)?;
        // SAFETY: the caller's promise. The pager has forgotten the pages already.
        unsafe { raw::advise(addr, size, libc::MADV_DONTNEED) }.map(drop)
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
        self.ask(op::RELEASE, addr, size).map(drop)
    }

    /// Tells the pager that this process exits, and waits until it may.
    pub fn exit(&self) {
        // SAFETY: takes no arguments.
        let pid = unsafe { raw::call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0);
        // Nothing depends on the answer.
        let _ = self.ask(op::EXIT, pid, 0);
    }

    /// Asks the pager, and waits for its answer.
    fn ask(&self, op: u64, a: usize, b: usize) -> Result<u64, Errno> {
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

    /// Makes this child's copy of the region its own: to be called first in a forked child.
    pub fn after_fork(&'static self) {
        self.claimed.store(0, Ordering::Relaxed);
        for doorbell in GUARD + 1..FIRST_PAGE {
            self.drop_doorbell(doorbell);
        }
        // Without an agent the child's pages stay in memory.
        let _ = self.start_agent();
    }

    /// Starts the thread that unmaps pages for the pager.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start_agent(&'static self) -> Result<(), Errno> {
        start(agent, std::ptr::from_ref(self).expose_provenance())
    }
}

/// Ends this process when the pager ends: `socket` is connected to it, and kept by the thread that
/// waits for its end.
///
/// # Errors
/// The kernel's.
pub fn end_with(socket: i32) -> Result<(), Errno> {
    start(watch, flag(socket))
}

/// Starts a thread that runs no signal handler of the program: it has no thread-local storage of its own. It
/// keeps the mask that it is born with.
fn start(run: extern "C" fn(usize) -> !, with: usize) -> Result<(), Errno> {
    let stack = raw::map_memory(STACK)?;
    let every: u64 = !0;
    let mut before: u64 = 0;
    let mask = |new: *const u64, old: *mut u64| {
        let how = flag(libc::SIG_SETMASK);
        let (new, old) = (new.expose_provenance(), old.expose_provenance());
        // SAFETY: both point to a mask of the kernel's size, or to nothing.
        unsafe { raw::call(libc::SYS_rt_sigprocmask, [how, new, old, size_of::<u64>(), 0, 0]) }
    };
    mask(&raw const every, &raw mut before)?;
    // SAFETY: the stack is new and large enough, and the thread lives as long as the process.
    let started = unsafe { spawn(run, with, stack) };
    mask(&raw const before, std::ptr::null_mut())?;
    started
}

/// Waits until the pager has closed its end.
extern "C" fn watch(socket: usize) -> ! {
    let output = error_output();
    let mut byte = 0u8;
    let args = [socket, std::ptr::from_mut(&mut byte).expose_provenance(), 1, 0, 0, 0];
    loop {
        // SAFETY: the byte is writable.
        if unsafe { raw::call(libc::SYS_read, args) } != Err(Errno(libc::EINTR)) {
            break;
        }
    }
    say_farewell(output);
    loop {
        // SAFETY: no memory is involved.
        unsafe {
            let pid = raw::call(libc::SYS_getpid, [0; 6]).unwrap_or(0);
            let _ = raw::call(libc::SYS_kill, [pid, flag(libc::SIGKILL), 0, 0, 0, 0]);
        }
    }
}

/// The file that the error output is, by device and inode. None: it is closed.
fn error_output() -> Option<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let args = [ERROR_OUTPUT, found.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the status is writable.
    unsafe { raw::call(libc::SYS_fstat, args) }.ok()?;
    // SAFETY: the kernel has filled it.
    let found = unsafe { found.assume_init() };
    Some((found.st_dev, found.st_ino))
}

/// Says why the program ends, if that does not wait and `before` is still the error output: the program may have opened
/// another file in its place.
fn say_farewell(before: Option<(u64, u64)>) {
    const TEXT: &[u8] =
        b"esker: the pager has ended, and with it the memory of this program, which is killed\n";
    let mut polled = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let at_once = [0u64; 2];
    let (polled_at, at_once) =
        ((&raw mut polled).expose_provenance(), (&raw const at_once).expose_provenance());
    // SAFETY: one descriptor, and a time of nothing.
    let ready = unsafe { raw::call(libc::SYS_ppoll, [polled_at, 1, at_once, 0, 0, 0]) };
    if before.is_some()
        && error_output() == before
        && ready == Ok(1)
        && polled.revents & libc::POLLOUT != 0
    {
        let args = [ERROR_OUTPUT, TEXT.as_ptr().expose_provenance(), TEXT.len(), 0, 0, 0];
        // SAFETY: the text is readable.
        let _ = unsafe { raw::call(libc::SYS_write, args) };
    }
}

fn word(addr: usize) -> u64 {
    // SAFETY: in a doorbell's page, which is mapped; reading it waits for the answer.
    unsafe { std::ptr::with_exposed_provenance::<u64>(addr).read_volatile() }
}

/// Unmaps the ranges that the pager names, for ever. An empty answer means that the pager has ended and the
/// kernel gives zeroes: the region becomes unreachable before a program takes them for its data.
extern "C" fn agent(client: usize) -> ! {
    // SAFETY: `start_agent` has got it from a static reference.
    let client = unsafe { &*std::ptr::with_exposed_provenance::<Client>(client) };
    let mut ranges = [(0usize, 0usize); (ANSWER_WORDS - 2) / 2];
    loop {
        let answer = client.ring(AGENT, op::NEXT, 0, 0);
        let count = to_usize(word(answer + 8)).min(ranges.len());
        if count == 0 {
            give_up(client);
        }
        for (n, range) in ranges.iter_mut().take(count).enumerate() {
            let at = answer + 16 * (n + 1);
            *range = (to_usize(word(at)), to_usize(word(at + 8)));
        }
        client.drop_doorbell(AGENT);
        for &(addr, size) in ranges.iter().take(count) {
            // SAFETY: the pager has the content, and a reader of it faults.
            let _ = unsafe { raw::advise(addr, size, libc::MADV_DONTNEED) };
        }
    }
}

/// Makes the region unreachable and ends the agent.
fn give_up(client: &Client) -> ! {
    // SAFETY: the kernel is to end any thread that touches the region from now on.
    let _ = unsafe { raw::protect(client.base, client.size, libc::PROT_NONE) };
    loop {
        // SAFETY: ends this thread, which holds nothing.
        let _ = unsafe { raw::call(libc::SYS_exit, [0; 6]) };
    }
}

/// Starts a thread of which the C library knows nothing.
///
/// # Safety
/// `stack` is `STACK` bytes for this thread alone; `run` uses no thread-local storage.
#[cfg(target_arch = "x86_64")]
unsafe fn spawn(run: extern "C" fn(usize) -> !, with: usize, stack: usize) -> Result<(), Errno> {
    let top = stack + STACK - 16;
    // SAFETY: the end of the new thread's stack. It takes both words off it.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 2]>(top).write([run as usize, with]) };
    let result: i64;
    // SAFETY: the new thread gets here with its own stack, and never goes on behind the label.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "pop rax",
            "pop rdi",
            "xor ebp, ebp",
            "call rax",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") flag(THREAD),
            in("rsi") top,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    raw::outcome(result).map(drop)
}

/// Starts a thread of which the C library knows nothing.
///
/// # Safety
/// `stack` is `STACK` bytes for this thread alone; `run` uses no thread-local storage.
#[cfg(target_arch = "aarch64")]
unsafe fn spawn(run: extern "C" fn(usize) -> !, with: usize, stack: usize) -> Result<(), Errno> {
    let top = stack + STACK - 16;
    // SAFETY: the end of the new thread's stack. It takes both words off it.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 2]>(top).write([run as usize, with]) };
    let result: i64;
    // SAFETY: the new thread gets here with its own stack, and never goes on behind the label.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "ldp x1, x0, [sp], #16",
            "mov x29, xzr",
            "blr x1",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") flag(THREAD) => result,
            in("x1") top,
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
        );
    }
    raw::outcome(result).map(drop)
}

const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;
