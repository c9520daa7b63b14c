//! The functions that take the place of the C library's.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use esker_pager::client::Client;
use esker_pager::raw::{self, Errno, flag};
use esker_pager::{PAGE, client};

use crate::connect;

/// Mappings from this size on are paged, in bytes.
const LEAST: usize = 64 << 10;
/// Bytes that are copied at a time when a mapping moves.
const STEP: usize = 1 << 20;

const RW: c_int = libc::PROT_READ | libc::PROT_WRITE;
/// Mappings with one of these flags are the kernel's.
const FOREIGN: c_int = libc::MAP_SHARED
    | libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_STACK
    | libc::MAP_GROWSDOWN
    | libc::MAP_HUGETLB
    | libc::MAP_LOCKED;

fn pointer(result: Result<usize, Errno>) -> *mut c_void {
    match result {
        Ok(addr) => std::ptr::with_exposed_provenance_mut(addr),
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

fn set_errno(Errno(errno): Errno) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// The region, if it has any part of a range.
fn concerned(addr: usize, size: usize) -> Option<&'static Client> {
    connect::client().filter(|client| client.overlaps(addr, size.max(1)))
}

/// The size of a range in whole pages. All of it has to be in the region.
fn whole(client: &Client, addr: usize, size: usize) -> Result<usize, Errno> {
    let invalid = Errno(libc::EINVAL);
    let size = size.checked_next_multiple_of(PAGE).ok_or(invalid)?;
    let (base, region) = client.region();
    let first = base + client::FIRST * PAGE;
    let is_inside = addr >= first && addr.saturating_add(size) <= base + region;
    if size > 0 && addr.is_multiple_of(PAGE) && is_inside { Ok(size) } else { Err(invalid) }
}

/// `mmap(2)`.
///
/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    size: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let addr = addr.expose_provenance();
    let is_anonymous = flags & libc::MAP_ANONYMOUS != 0 && flags & libc::MAP_PRIVATE != 0;
    if is_anonymous
        && flags & FOREIGN == 0
        && access == RW
        && size >= LEAST
        && let Some(client) = connect::client()
    {
        let Some(size) = size.checked_next_multiple_of(PAGE) else {
            return pointer(Err(Errno(libc::ENOMEM)));
        };
        return pointer(anywhere(client, size));
    }
    if flags & libc::MAP_FIXED != 0
        && let Some(client) = concerned(addr, size)
    {
        return pointer(replace(client, addr, size, access, is_anonymous));
    }
    let offset = usize::try_from(offset.cast_unsigned()).unwrap_or(usize::MAX);
    let args = [addr, size, flag(access), flag(flags), flag(fd), offset];
    // SAFETY: the caller's promise.
    pointer(unsafe { raw::call(libc::SYS_mmap, args) })
}

/// New memory: the kernel's in a forked child that the pager does not serve.
fn anywhere(client: &Client, size: usize) -> Result<usize, Errno> {
    match client.reserve(0, size) {
        Err(Errno(libc::ENOTCONN)) => raw::map_memory(size),
        reserved => reserved,
    }
}

/// A new private mapping over a part of the region: its content is dropped.
fn replace(
    client: &Client,
    addr: usize,
    size: usize,
    access: c_int,
    is_anonymous: bool,
) -> Result<usize, Errno> {
    let size = whole(client, addr, size)?;
    if !is_anonymous {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: whoever maps over a range needs no content of it.
    unsafe {
        client.discard(addr, size)?;
        raw::protect(addr, size, access)?;
    }
    Ok(addr)
}

/// `mmap64(2)`.
///
/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    size: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(addr, size, access, flags, fd, offset) }
}

/// `munmap(2)`.
///
/// # Safety
/// As `munmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, size: usize) -> c_int {
    let addr = addr.expose_provenance();
    let Some(client) = concerned(addr, size) else {
        // SAFETY: the caller's promise.
        return status(unsafe { raw::call(libc::SYS_munmap, [addr, size, 0, 0, 0, 0]) }.map(drop));
    };
    let release = |size| {
        // SAFETY: the caller's promise.
        unsafe { client.release(addr, size) }
    };
    status(whole(client, addr, size).and_then(release))
}

/// `mremap(2)`.
///
/// # Safety
/// As `mremap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    addr: *mut c_void,
    size: usize,
    new_size: usize,
    flags: c_int,
    new_addr: *mut c_void,
) -> *mut c_void {
    let (addr, new_addr) = (addr.expose_provenance(), new_addr.expose_provenance());
    if let Some(client) = concerned(addr, size) {
        // SAFETY: the caller's promise.
        return pointer(unsafe { resize(client, addr, size, new_size, flags) });
    }
    if flags & libc::MREMAP_FIXED != 0 && concerned(new_addr, new_size).is_some() {
        return pointer(Err(Errno(libc::EINVAL)));
    }
    let args = [addr, size, new_size, flag(flags), new_addr, 0];
    // SAFETY: the caller's promise.
    pointer(unsafe { raw::call(libc::SYS_mremap, args) })
}

/// Resizes a part of the region, which stays in it.
///
/// # Safety
/// As `mremap(2)`.
unsafe fn resize(
    client: &Client,
    addr: usize,
    size: usize,
    new_size: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    let size = whole(client, addr, size)?;
    let new_size = new_size.checked_next_multiple_of(PAGE).ok_or(Errno(libc::EINVAL))?;
    if flags & !libc::MREMAP_MAYMOVE != 0 || new_size == 0 {
        return Err(Errno(libc::EINVAL));
    }
    if new_size <= size {
        if new_size < size {
            // SAFETY: the caller gives up the rest.
            unsafe { client.release(addr + new_size, size - new_size)? };
        }
        return Ok(addr);
    }
    if client.reserve(addr + size, new_size - size).is_ok() {
        return Ok(addr);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(Errno(libc::ENOMEM));
    }
    let new_addr = anywhere(client, new_size)?;
    let mut done = 0;
    while done < size {
        let step = STEP.min(size - done);
        let from = std::ptr::with_exposed_provenance::<u8>(addr + done);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(new_addr + done);
        // SAFETY: both are reserved, and do not overlap; the source is dropped once it is copied.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, step);
            client.discard(addr + done, step)?;
        }
        done += step;
    }
    // SAFETY: moved away.
    unsafe { client.release(addr, size)? };
    Ok(new_addr)
}

/// `madvise(2)`.
///
/// # Safety
/// As `madvise(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, size: usize, advice: c_int) -> c_int {
    let addr = addr.expose_provenance();
    let Some(client) = concerned(addr, size) else {
        let args = [addr, size, flag(advice), 0, 0, 0];
        // SAFETY: the caller's promise.
        return status(unsafe { raw::call(libc::SYS_madvise, args) }.map(drop));
    };
    let size = match whole(client, addr, size) {
        Ok(size) => size,
        Err(error) => return status(Err(error)),
    };
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE => {
            // SAFETY: the caller's promise.
            status(unsafe { client.discard(addr, size) })
        }
        libc::MADV_REMOVE | libc::MADV_WIPEONFORK => status(Err(Errno(libc::EINVAL))),
        libc::MADV_DONTFORK | libc::MADV_DOFORK => {
            // SAFETY: the caller's promise.
            status(unsafe { raw::advise(addr, size, advice) }.map(drop))
        }
        // Hints, which the pager follows by what it sees.
        _ => 0,
    }
}

/// `mlock(2)`: paged memory cannot be locked.
///
/// # Safety
/// As `mlock(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, size: usize) -> c_int {
    let addr = addr.expose_provenance();
    if concerned(addr, size).is_some() {
        return status(Err(Errno(libc::ENOMEM)));
    }
    // SAFETY: the caller's promise.
    status(unsafe { raw::call(libc::SYS_mlock, [addr, size, 0, 0, 0, 0]) }.map(drop))
}

/// `mlockall(2)`: refused where memory is paged.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if connect::client().is_some() {
        return status(Err(Errno(libc::ENOMEM)));
    }
    // SAFETY: no memory is involved.
    status(unsafe { raw::call(libc::SYS_mlockall, [flag(flags), 0, 0, 0, 0, 0]) }.map(drop))
}
