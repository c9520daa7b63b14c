//! System calls by their number, without the C library in between.
//!
//! The pager works inside programs whose `mmap`, `madvise` and allocator it replaces, and in a
//! thread without thread-local storage. So its own calls go to the kernel directly: no
//! interposed function, no `errno`.

#![allow(unsafe_code)]

use std::arch::asm;

/// A word by which calls of this crate that change memory pass a [trap](crate::trap). It keeps mistakes out, nobody else:
/// a program that has it hides its memory from the pager, and has no gain of that.
pub const KEY: usize = 0x6573_6b65_725f_6b65;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The standard library's form of it.
    #[must_use]
    pub fn to_io(self) -> std::io::Error {
        std::io::Error::from_raw_os_error(self.0)
    }
}

/// Makes a system call.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As the system call's: pointers among the arguments must be valid for the kernel's accesses.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let result: i64;
    // SAFETY: the kernel's calling convention; the caller vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    outcome(result)
}

/// Makes a system call.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As the system call's: pointers among the arguments must be valid for the kernel's accesses.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let result: i64;
    // SAFETY: the kernel's calling convention; the caller vouches for the arguments.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    outcome(result)
}

/// Starts a process or thread that the C library knows nothing of, by `clone(2)` with `flags`, which include
/// `CLONE_VM`. It calls `run` with `with`, on the stack that ends at `top`. `tid` is for `CLONE_CHILD_CLEARTID`. Returns its
/// number.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The stack is large enough and for the new one alone; `run` uses no thread-local storage.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn spawn(
    run: extern "C" fn(usize) -> !,
    with: usize,
    top: usize,
    flags: usize,
    tid: usize,
) -> Result<usize, Errno> {
    let top = top - 16;
    // SAFETY: the end of the new stack. It takes both words off it.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 2]>(top).write([run as usize, with]) };
    let result: i64;
    // SAFETY: the new one gets here with its own stack, and never goes on behind the label.
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
            in("rdi") flags,
            in("rsi") top,
            in("rdx") 0,
            in("r10") tid,
            in("r8") 0,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    outcome(result)
}

/// As above.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn spawn(
    run: extern "C" fn(usize) -> !,
    with: usize,
    top: usize,
    flags: usize,
    tid: usize,
) -> Result<usize, Errno> {
    let top = top - 16;
    // SAFETY: the end of the new stack. It takes both words off it.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 2]>(top).write([run as usize, with]) };
    let result: i64;
    // SAFETY: the new one gets here with its own stack, and never goes on behind the label.
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
            inlateout("x0") flags => result,
            in("x1") top,
            in("x2") 0,
            in("x3") 0,
            in("x4") tid,
        );
    }
    outcome(result)
}

/// Meaning of a system call's result.
#[allow(clippy::cast_possible_truncation)] // error numbers are below 4096
fn outcome(result: i64) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno(-result as i32))
}

/// A system call that changes memory, with the [`KEY`].
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`call`].
pub(crate) unsafe fn call_with_key(
    number: libc::c_long,
    mut args: [usize; 6],
) -> Result<usize, Errno> {
    let place = if number == libc::SYS_mmap { 4 } else { 5 };
    args[place] = KEY;
    // SAFETY: the caller's promise. The kernel ignores that argument.
    unsafe { call(number, args) }
}

/// Maps anonymous private memory that is readable, writable and not reserved.
///
/// # Errors
/// The kernel's.
pub fn map_memory(size: usize) -> Result<usize, Errno> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let args = [0, size, flag(access), flag(flags), KEY, 0];
    // SAFETY: a new mapping at an address of the kernel's choice.
    unsafe { call(libc::SYS_mmap, args) }
}

/// Unmaps memory.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Nothing refers to the range any more.
pub unsafe fn unmap(addr: usize, size: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_munmap, [addr, size, 0, 0, 0, KEY]) }
}

/// Gives advice about memory.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Advice that drops content may only be given on a range whose content nobody needs.
pub unsafe fn advise(addr: usize, size: usize, advice: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_madvise, [addr, size, flag(advice), 0, 0, KEY]) }
}

/// Changes the protection of memory.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// No reference expects an access that is taken away.
pub unsafe fn protect(addr: usize, size: usize, access: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mprotect, [addr, size, flag(access), 0, 0, KEY]) }
}

/// Closes a file descriptor.
///
/// # Safety
/// Nobody uses the descriptor any more.
pub unsafe fn close(fd: i32) {
    // SAFETY: the caller's promise. Nothing can be done about an error.
    let _ = unsafe { call(libc::SYS_close, [flag(fd), 0, 0, 0, 0, 0]) };
}

/// A flag word or a descriptor as an argument.
#[must_use]
#[allow(clippy::cast_sign_loss)] // the kernel takes the low 32 bits
pub const fn flag(value: i32) -> usize {
    value as u32 as usize
}

/// A number other than 0 that no other process can guess.
pub(crate) fn unguessable() -> u64 {
    let mut number = 0u64;
    let args = [(&raw mut number).expose_provenance(), size_of_val(&number), 0, 0, 0, 0];
    // SAFETY: the number is writable. A kernel without randomness gives none, and only the same user could use that.
    let _ = unsafe { call(libc::SYS_getrandom, args) };
    number | 1
}
