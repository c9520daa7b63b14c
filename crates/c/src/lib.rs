//! `libesker.so`: paged memory for programs in C. `include/esker.h` says what each function does.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use esker_device::Create;
use esker_pager::{Arena, Mode, Options};
use esker_stack::{Spec, Stack};

/// Opens an arena.
///
/// # Safety
/// `device` is a string or null; `why` is writable for `why_size` bytes or null.
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
    let options = Options { budget_bytes: budget, slow_bytes: slow, read_ahead: true };
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
        Ok(arena) => Box::into_raw(Box::new(arena)),
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

fn open(text: &str, options: Options, fast: usize, mode: c_int) -> Result<Arena, String> {
    let mode = match mode {
        0 => Mode::Handler,
        1 => Mode::Signal,
        other => return Err(format!("{other} is no mode: use ESKER_HANDLER or ESKER_SIGNAL")),
    };
    let spec = text.parse::<Spec>().map_err(|error| error.to_string())?;
    let opened = Stack::new().open(&spec, Create::Never).map_err(|error| error.to_string())?;
    Arena::new(opened.device, options, fast, mode).map_err(|error| error.to_string())
}

/// Closes an arena.
///
/// # Safety
/// It was opened and is not closed yet, and nobody uses its memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_arena_close(arena: *mut Arena) {
    if !arena.is_null() {
        // SAFETY: made by `esker_arena_open`.
        drop(unsafe { Box::from_raw(arena) });
    }
}

fn address(memory: Option<NonNull<u8>>) -> *mut c_void {
    memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// Memory that is paged.
///
/// # Safety
/// The arena is open, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_alloc_slow(
    arena: *const Arena,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(arena) = (unsafe { arena.as_ref() }) else { return std::ptr::null_mut() };
    address(alignment.is_power_of_two().then(|| arena.allocate_slow(size, alignment)).flatten())
}

/// Memory that is never paged.
///
/// # Safety
/// The arena is open, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_alloc_fast(
    arena: *const Arena,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let Some(arena) = (unsafe { arena.as_ref() }) else { return std::ptr::null_mut() };
    address(alignment.is_power_of_two().then(|| arena.allocate_fast(size, alignment)).flatten())
}

/// Frees memory of either part.
///
/// # Safety
/// The arena is open, or null, and nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_free(arena: *const Arena, memory: *mut c_void) -> c_int {
    let Some(memory) = NonNull::new(memory.cast()) else { return 0 };
    // SAFETY: the caller's promise.
    let Some(arena) = (unsafe { arena.as_ref() }) else { return -1 };
    // SAFETY: the caller's promise.
    if unsafe { arena.free(memory) } { 0 } else { -1 }
}

/// How many bytes can be used.
///
/// # Safety
/// The arena is open, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_usable_size(arena: *const Arena, memory: *mut c_void) -> usize {
    let Some(memory) = NonNull::new(memory.cast()) else { return 0 };
    // SAFETY: the caller's promise.
    let arena = unsafe { arena.as_ref() };
    arena.and_then(|arena| arena.usable_size(memory)).unwrap_or(0)
}

/// Makes whole pages of slow memory read as zeroes.
///
/// # Safety
/// The arena is open, or null, and nobody needs the content.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_discard(
    arena: *const Arena,
    memory: *mut c_void,
    size: usize,
) -> c_int {
    let Some(memory) = NonNull::new(memory.cast()) else { return -1 };
    // SAFETY: the caller's promise.
    let Some(arena) = (unsafe { arena.as_ref() }) else { return -1 };
    // SAFETY: the caller's promise.
    if unsafe { arena.discard(memory, size) }.is_ok() { 0 } else { -1 }
}
