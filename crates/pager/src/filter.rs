//! Filters of system calls: instructions for `seccomp(2)`.

/// The architecture's number in `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
/// The architecture's number in `linux/audit.h`.
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offset in `struct seccomp_data` of the call's number.
pub(crate) const NUMBER: u32 = 0;
/// Of the architecture.
pub(crate) const ARCH: u32 = 4;

/// Offset of the lower half of an argument, on a little-endian machine; the upper half lies behind it.
pub(crate) const fn argument(n: u32) -> u32 {
    16 + n * 8
}

/// Loads the word at an offset.
pub(crate) fn load(at: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

/// Skips `yes` instructions if the loaded word is `k`, else `no`.
pub(crate) fn equals(k: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, k)
}

/// Skips `yes` instructions if the loaded word has any bit of `k`, else `no`.
pub(crate) fn has(k: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, k)
}

/// Ends with a verdict.
pub(crate) fn give(k: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, k)
}

#[allow(clippy::cast_possible_truncation)] // codes are small
fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
