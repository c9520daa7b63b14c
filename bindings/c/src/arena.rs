//! Paged memory: an arena has a fast part, which is never paged, and a slow one, which is paged to a device.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use esker_device::Create;
use esker_pager::{Arena as PagedArena, Mode, Options};
use esker_stack::{Spec, Stack};

use crate::border::{Handle, free, give, the};

/// A thread of the arena serves faults.
pub const ESKER_HANDLER: c_int = 0;
/// The thread that faults serves the fault, from a handler of SIGBUS. That is faster; system calls on pages that are not
/// in memory fail with EFAULT, no thread may block SIGBUS, and children have no slow part.
pub const ESKER_SIGNAL: c_int = 1;

/// Paged memory: a fast part, which is never paged, and a slow one, which is paged to a device. docs/memory.md says what is
/// not safe.
pub struct Arena;

impl Handle for Arena {
    type Of = PagedArena;
    const TAG: u64 = u64::from_le_bytes(*b"esk.aren");
    const NAME: &'static str = "esker_arena";
    const INHERITED: bool = true;
}

/// Opens an arena over a device specification, which must be there and is overwritten. `budget` is the memory for the slow
/// part, `slow` the most of it that can be reserved, `fast` the size of the fast part, all in bytes; `mode` is `ESKER_HANDLER`
/// or `ESKER_SIGNAL`. NULL when it fails; then `why` holds the reason, cut to `why_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_arena_open(
    device: *const c_char,
    budget: usize,
    slow: usize,
    fast: usize,
    mode: c_int,
    why: *mut c_char,
    why_size: usize,
) -> *mut Arena {
    let options =
        Options { budget_bytes: budget, slow_bytes: slow, read_ahead: true, compress: true };
    let opened = if device.is_null() {
        Err("the device is NULL: name one, such as a file".to_owned())
    } else {
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(device) }.to_string_lossy();
        // A panic must not cross into C.
        std::panic::catch_unwind(|| open(&text, options, fast, mode))
            .unwrap_or_else(|_| Err("a fault of esker's own: its message is on stderr".to_owned()))
    };
    match opened {
        Ok(arena) => give(arena),
        Err(message) => {
            let size = message.len().min(why_size.saturating_sub(1));
            if why_size > 0 && !why.is_null() {
                // SAFETY: writable for more than `size` bytes by the caller's promise.
                unsafe {
                    why.cast::<u8>().copy_from_nonoverlapping(message.as_ptr(), size);
                    why.add(size).write(0);
                }
            }
            std::ptr::null_mut()
        }
    }
}

fn open(text: &str, options: Options, fast: usize, mode: c_int) -> Result<PagedArena, String> {
    let mode = match mode {
        ESKER_HANDLER => Mode::Handler,
        ESKER_SIGNAL => Mode::Signal,
        other => return Err(format!("{other} is no mode: use ESKER_HANDLER or ESKER_SIGNAL")),
    };
    let spec = text.parse::<Spec>().map_err(|error| error.to_string())?;
    let opened = Stack::new().open(&spec, Create::Never).map_err(|error| error.to_string())?;
    PagedArena::new(opened.device, options, fast, mode).map_err(|error| error.to_string())
}

/// Closes an arena. Nobody may use its memory any more. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_arena_close(arena: *mut Arena) {
    // SAFETY: null, or an arena that the caller gives up.
    unsafe { free(arena) };
}

fn address(memory: Option<NonNull<u8>>) -> *mut c_void {
    memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// Memory of the slow part, which is paged, aligned to `alignment`, a power of two of at most 4096. NULL when it is used up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_alloc_slow(
    arena: *const Arena,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Ok(arena) = (unsafe { the(arena) }) else { return std::ptr::null_mut() };
    address(alignment.is_power_of_two().then(|| arena.allocate_slow(size, alignment)).flatten())
}

/// The same of the fast part, which is never paged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_alloc_fast(
    arena: *const Arena,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Ok(arena) = (unsafe { the(arena) }) else { return std::ptr::null_mut() };
    address(alignment.is_power_of_two().then(|| arena.allocate_fast(size, alignment)).flatten())
}

/// Frees memory of either part. 0, or -1 when it is none of the arena's. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_free(arena: *const Arena, memory: *mut c_void) -> c_int {
    let Some(memory) = NonNull::new(memory.cast()) else { return 0 };
    // SAFETY: the caller's promise.
    let Ok(arena) = (unsafe { the(arena) }) else { return -1 };
    // SAFETY: the caller's promise.
    if unsafe { arena.free(memory) } { 0 } else { -1 }
}

/// How many bytes can be used; 0 when the memory is none of the arena's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_usable_size(arena: *const Arena, memory: *mut c_void) -> usize {
    let Some(memory) = NonNull::new(memory.cast()) else { return 0 };
    // SAFETY: the caller's promise.
    let arena = unsafe { the(arena) };
    arena.ok().and_then(|arena| arena.usable_size(memory)).unwrap_or(0)
}

/// Makes whole pages of slow memory read as zeroes. 0, or -1 when they are not in the slow part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_discard(
    arena: *const Arena,
    memory: *mut c_void,
    size: usize,
) -> c_int {
    let Some(memory) = NonNull::new(memory.cast()) else { return -1 };
    // SAFETY: the caller's promise.
    let Ok(arena) = (unsafe { the(arena) }) else { return -1 };
    // SAFETY: the caller's promise.
    if unsafe { arena.discard(memory, size) }.is_ok() { 0 } else { -1 }
}
