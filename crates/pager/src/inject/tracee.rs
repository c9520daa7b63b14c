//! A thread that is stopped by `ptrace(2)`, and made to do something before it goes on.

#![allow(unsafe_code)]

use std::io;

use crate::raw::{Errno, KEY, flag};

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK` of `linux/ptrace.h`.
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
/// Bytes of the instruction that makes a system call.
const SYSCALL: u64 = 2;
/// Bytes below a stack's end that its owner may use.
const RED_ZONE: usize = 128;

/// A stopped thread. It makes its call again, and goes on, when this is dropped.
pub(super) struct Tracee {
    pid: libc::pid_t,
    /// The call that it was about to make.
    number: i64,
    before: libc::user_regs_struct,
    mask: u64,
    has_ended: bool,
}

impl Tracee {
    /// Stops a thread whose call `answer` answers: it stops then, before it does anything else.
    ///
    /// # Errors
    /// The kernel's: another one traces it, or it has ended.
    pub(super) fn stop(thread: u32, number: i64, answer: impl FnOnce()) -> io::Result<Tracee> {
        let pid = libc::pid_t::try_from(thread).map_err(io::Error::other)?;
        request(libc::PTRACE_SEIZE, pid, 0, 0)?;
        // SAFETY: plain numbers.
        let before = unsafe { std::mem::zeroed() };
        let mut tracee = Tracee { pid, number, before, mask: 0, has_ended: false };
        request(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
        answer();
        tracee.wait()?;
        tracee.before = tracee.registers()?;
        let mut mask = 0u64;
        request(GET_MASK, pid, 8, (&raw mut mask).expose_provenance())?;
        tracee.mask = mask;
        let all = !0u64;
        request(SET_MASK, pid, 8, (&raw const all).expose_provenance())?;
        Ok(tracee)
    }

    /// Maps memory in the program.
    pub(super) fn map(&mut self, size: usize) -> io::Result<usize> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        self.call(libc::SYS_mmap, [0, size, flag(access), flag(flags), KEY, 0])
    }

    /// Changes the access of memory of the program.
    pub(super) fn protect(&mut self, addr: usize, size: usize, access: i32) -> io::Result<()> {
        self.call(libc::SYS_mprotect, [addr, size, flag(access), 0, 0, KEY]).map(drop)
    }

    /// Has the thread make a system call.
    fn call(&mut self, number: i64, args: [usize; 6]) -> io::Result<usize> {
        let mut registers = self.before;
        let [a, b, c, d, e, f] = args.map(|arg| arg as u64);
        // It has just made one.
        registers.rip -= SYSCALL;
        registers.rax = number.cast_unsigned();
        registers.orig_rax = u64::MAX;
        (registers.rdi, registers.rsi, registers.rdx) = (a, b, c);
        (registers.r10, registers.r8, registers.r9) = (d, e, f);
        self.set_registers(&registers)?;
        request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)?;
        self.wait()?;
        let result = self.registers()?.rax.cast_signed();
        match usize::try_from(result) {
            Ok(value) => Ok(value),
            Err(_) => Err(Errno(i32::try_from(-result).unwrap_or(libc::EIO)).to_io()),
        }
    }

    /// Has the thread run a function with these arguments, on the stack that ends at one address. It returns to another one, and
    /// this gives its result.
    pub(super) fn run(
        &mut self,
        function: usize,
        (stack, end): (usize, usize),
        args: [usize; 3],
    ) -> io::Result<u64> {
        let mut registers = self.before;
        let top = (stack - RED_ZONE) / 16 * 16 - 8;
        request(libc::PTRACE_POKEDATA, self.pid, top, end)?;
        registers.rip = function as u64;
        registers.rsp = top as u64;
        let [a, b, c] = args.map(|arg| arg as u64);
        (registers.rdi, registers.rsi, registers.rdx) = (a, b, c);
        registers.rbp = 0;
        registers.orig_rax = u64::MAX;
        // The direction flag is clear in functions.
        registers.eflags &= !(1 << 10);
        self.set_registers(&registers)?;
        request(libc::PTRACE_CONT, self.pid, 0, 0)?;
        self.wait()?;
        let after = self.registers()?;
        if after.rip != end as u64 + 1 {
            return Err(io::Error::other(format!("the library stopped at {:#x}", after.rip)));
        }
        Ok(after.rax)
    }

    /// Waits until the thread stops.
    fn wait(&mut self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: the status is writable.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } != self.pid {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if libc::WIFSTOPPED(status) {
            return Ok(());
        }
        self.has_ended = true;
        Err(io::Error::other("it has ended"))
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let at = (&raw mut registers).expose_provenance();
        request(libc::PTRACE_GETREGS, self.pid, 0, at)?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
        let at = std::ptr::from_ref(registers).expose_provenance();
        request(libc::PTRACE_SETREGS, self.pid, 0, at)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.before.rip -= SYSCALL;
        self.before.rax = self.number.cast_unsigned();
        self.before.orig_rax = u64::MAX;
        // It may have been killed.
        let _ = self.set_registers(&self.before);
        let mask = self.mask;
        let _ = request(SET_MASK, self.pid, 8, (&raw const mask).expose_provenance());
        let _ = request(libc::PTRACE_DETACH, self.pid, 0, 0);
    }
}

/// A request of `ptrace(2)`.
fn request(request: u32, pid: libc::pid_t, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: where the data is a pointer, it is one to what the request takes.
    let result = unsafe { libc::ptrace(request, pid, addr, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
