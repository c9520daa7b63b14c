//! A thread that is stopped by `ptrace(2)`, and made to do something before it goes on.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use esker_base::Clock;

use crate::raw::{Errno, KEY, flag};

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK` of `linux/ptrace.h`.
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
/// Signals of what a thread does itself.
const FATAL: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
/// Bytes of the instruction that makes a system call.
const SYSCALL: u64 = 2;
/// Bytes below a stack's end that its owner may use.
const RED_ZONE: usize = 128;

/// So long a thread may take to stop, or to run a function.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK: Duration = Duration::from_micros(50);

/// A thread that is traced. Once it was stopped, it makes its call again, and goes on, when this is dropped.
pub(super) struct Tracee {
    pid: libc::pid_t,
    /// The call that it was about to make.
    number: i64,
    /// Its registers and blocked signals, once it was stopped.
    before: Option<(libc::user_regs_struct, u64)>,
    /// It is to be stopped, by a signal that has come meanwhile.
    has_stop: bool,
    has_ended: bool,
}

impl Tracee {
    /// Traces a thread.
    ///
    /// # Errors
    /// The kernel's: another one traces it, or it has ended.
    pub(super) fn seize(thread: u32, number: i64) -> io::Result<Tracee> {
        let pid = libc::pid_t::try_from(thread).map_err(io::Error::other)?;
        request(libc::PTRACE_SEIZE, pid, 0, 0)?;
        Ok(Tracee { pid, number, before: None, has_stop: false, has_ended: false })
    }

    /// Stops it in its call, which `answer` answers, before it does anything else.
    ///
    /// # Errors
    /// The kernel's; that it has ended, or does not stop.
    pub(super) fn stop(&mut self, answer: impl FnOnce()) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.pid, 0, 0)?;
        answer();
        self.wait(|status| status >> 16 == libc::PTRACE_EVENT_STOP)?;
        let registers = self.registers()?;
        let mut mask = 0u64;
        request(GET_MASK, self.pid, 8, (&raw mut mask).expose_provenance())?;
        self.before = Some((registers, mask));
        // A trap that is blocked would take its handler from the program.
        let all = !(1u64 << (libc::SIGTRAP - 1));
        request(SET_MASK, self.pid, 8, (&raw const all).expose_provenance())
    }

    /// Its registers when it was stopped.
    fn stopped(&self) -> io::Result<libc::user_regs_struct> {
        let (registers, _) = self.before.ok_or_else(|| io::Error::other("it is not stopped"))?;
        Ok(registers)
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
        let mut registers = self.stopped()?;
        let [a, b, c, d, e, f] = args.map(|arg| arg as u64);
        // It has just made one.
        registers.rip = registers.rip.wrapping_sub(SYSCALL);
        registers.rax = number.cast_unsigned();
        registers.orig_rax = u64::MAX;
        (registers.rdi, registers.rsi, registers.rdx) = (a, b, c);
        (registers.r10, registers.r8, registers.r9) = (d, e, f);
        self.set_registers(&registers)?;
        request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)?;
        self.wait(is_trap)?;
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
        let mut registers = self.stopped()?;
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
        self.wait(is_trap)?;
        let after = self.registers()?;
        if after.rip != end as u64 + 1 {
            return Err(io::Error::other(format!("the library stopped at {:#x}", after.rip)));
        }
        Ok(after.rax)
    }

    /// Waits until the thread stops as wanted. It goes on after other stops.
    fn wait(&mut self, is_wanted: impl Fn(i32) -> bool) -> io::Result<()> {
        let clock = Clock::real();
        let until = clock.now() + PATIENCE;
        loop {
            let mut status = 0;
            let flags = libc::__WALL | libc::WNOHANG;
            // SAFETY: the status is writable.
            let found = unsafe { libc::waitpid(self.pid, &raw mut status, flags) };
            match found {
                0 if clock.now() > until => {
                    return Err(io::Error::other("it does not stop"));
                }
                0 => clock.sleep(LOOK),
                pid if pid != self.pid => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                _ if !libc::WIFSTOPPED(status) => {
                    self.has_ended = true;
                    return Err(io::Error::other("it has ended"));
                }
                _ if is_wanted(status) => return Ok(()),
                _ => {
                    let signal = libc::WSTOPSIG(status);
                    let is_event = status >> 16 != 0;
                    if !is_event && FATAL.contains(&signal) {
                        return Err(io::Error::other(format!("signal {signal} in the library")));
                    }
                    self.has_stop |= signal == libc::SIGSTOP && !is_event;
                    request(libc::PTRACE_CONT, self.pid, 0, 0)?;
                }
            }
        }
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
        // It may have been killed.
        if let Some((mut registers, mask)) = self.before {
            registers.rip = registers.rip.wrapping_sub(SYSCALL);
            registers.rax = self.number.cast_unsigned();
            registers.orig_rax = u64::MAX;
            let _ = self.set_registers(&registers);
            let _ = request(SET_MASK, self.pid, 8, (&raw const mask).expose_provenance());
        } else {
            // A thread that is not stopped cannot be let go.
            let _ = request(libc::PTRACE_INTERRUPT, self.pid, 0, 0);
            let _ = self.wait(|_| true);
        }
        let signal = if self.has_stop { libc::SIGSTOP as usize } else { 0 };
        let _ = request(libc::PTRACE_DETACH, self.pid, 0, signal);
    }
}

/// Whether a thread has stopped by a trap, and by nothing that happens to traced threads.
fn is_trap(status: i32) -> bool {
    libc::WSTOPSIG(status) == libc::SIGTRAP && status >> 16 == 0
}

/// A request of `ptrace(2)`.
fn request(request: u32, pid: libc::pid_t, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: where the data is a pointer, it is one to what the request takes.
    let result = unsafe { libc::ptrace(request, pid, addr, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
