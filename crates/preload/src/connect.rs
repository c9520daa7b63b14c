//! Finds the pager and hands over this process's region, once.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use esker_pager::client::Client;
use esker_pager::raw::{self, Errno, flag};

/// The variable in which `esker run` names the pager and the size of a region.
const VARIABLE: &[u8] = b"ESKER_PAGER=";
/// Bytes of the environment that are looked at.
const ENVIRONMENT: usize = 1 << 20;

const NOT_YET: u8 = 0;
const UNDER_WAY: u8 = 1;
const SETTLED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_YET);
static CLIENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());

/// This process's region, if it has one. The first call connects.
pub(crate) fn client() -> Option<&'static Client> {
    if STATE.load(Ordering::Acquire) == NOT_YET {
        settle();
    }
    // SAFETY: null, or a client that is never freed.
    unsafe { CLIENT.load(Ordering::Acquire).as_ref() }
}

fn settle() {
    let (from, to) = (NOT_YET, UNDER_WAY);
    if STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    match connect() {
        Ok(Some(client)) => CLIENT.store(client, Ordering::Release),
        Ok(None) => {}
        Err((what, Errno(errno))) => complain(what, errno),
    }
    STATE.store(SETTLED, Ordering::Release);
}

/// Says that memory is not paged, and why, without the C library.
fn complain(what: &str, errno: i32) {
    let say = |text: &[u8]| {
        // SAFETY: the text is readable.
        let _ = unsafe {
            raw::call(libc::SYS_write, [2, text.as_ptr().expose_provenance(), text.len(), 0, 0, 0])
        };
    };
    let digits = [errno / 100 % 10, errno / 10 % 10, errno % 10]
        .map(|digit| b'0' + u8::try_from(digit).unwrap_or(0));
    say(b"esker: memory of this process is not paged: ");
    say(what.as_bytes());
    say(b" (os error ");
    say(&digits);
    say(b")\n");
    if errno == libc::EPERM {
        say(b"esker: run as root, give the program CAP_SYS_PTRACE, or set sysctl ");
        say(b"vm.unprivileged_userfaultfd=1\n");
    }
}

type Failure = (&'static str, Errno);

fn connect() -> Result<Option<*mut Client>, Failure> {
    let environment = raw::map_memory(ENVIRONMENT).map_err(|error| ("memory", error))?;
    let outcome = connect_as(environment);
    // SAFETY: mapped above, and nothing of it is kept.
    let _ = unsafe { raw::unmap(environment, ENVIRONMENT) };
    outcome
}

fn connect_as(environment: usize) -> Result<Option<*mut Client>, Failure> {
    // SAFETY: mapped and zeroed, for this function alone.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(
            std::ptr::with_exposed_provenance_mut::<u8>(environment),
            ENVIRONMENT,
        )
    };
    let size = read_environment(bytes).map_err(|error| ("the environment", error))?;
    let found = bytes[..size].split(|&b| b == 0).find_map(|line| line.strip_prefix(VARIABLE));
    let Some(address) = found else { return Ok(None) };
    let nonsense = ("ESKER_PAGER makes no sense", Errno(libc::EINVAL));
    let colon = address.iter().position(|&b| b == b':').ok_or(nonsense)?;
    let (name, size) = (&address[..colon], &address[colon + 1..]);
    let size = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok()).ok_or(nonsense)?;
    introduce(name, size).map(Some)
}

fn introduce(name: &[u8], size: usize) -> Result<*mut Client, Failure> {
    let mapped = Client::map(size, name).map_err(|error| ("its region", error))?;
    let place = raw::map_memory(esker_pager::PAGE).map_err(|error| ("memory", error))?;
    let place = std::ptr::with_exposed_provenance_mut::<Client>(place);
    // SAFETY: a new page is large enough, aligned, and never unmapped.
    let client = unsafe {
        place.write(mapped);
        &*place
    };
    client.attach()?;
    if !client.has_forks() {
        complain(
            "a forked child has no access to paged memory, without CAP_SYS_PTRACE",
            libc::EPERM,
        );
    }
    Ok(place)
}

fn read_environment(bytes: &mut [u8]) -> Result<usize, Errno> {
    let path = c"/proc/self/environ".as_ptr().expose_provenance();
    let args = [flag(libc::AT_FDCWD), path, flag(libc::O_RDONLY | libc::O_CLOEXEC), 0, 0, 0];
    // SAFETY: the path ends with a zero.
    let fd = unsafe { raw::call(libc::SYS_openat, args)? };
    let mut size = 0;
    loop {
        let rest = &mut bytes[size..];
        let args = [fd, rest.as_mut_ptr().expose_provenance(), rest.len(), 0, 0, 0];
        // SAFETY: the rest is writable.
        match unsafe { raw::call(libc::SYS_read, args) } {
            Ok(0) | Err(_) => break,
            Ok(more) => size += more,
        }
    }
    // SAFETY: opened above.
    unsafe { raw::close(i32::try_from(fd).unwrap_or(-1)) };
    Ok(size)
}

/// Entered by force, in a program that has not loaded this library: connects to the pager of this name, for a region of so many
/// bytes. Gives 0, or an error number.
#[unsafe(no_mangle)]
extern "C" fn esker_enter(name: *const u8, length: usize, region: usize) -> usize {
    // SAFETY: the pager has written the name.
    let name = unsafe { std::slice::from_raw_parts(name, length) };
    let (client, errno) = match introduce(name, region) {
        Ok(client) => (client, 0),
        Err((_, Errno(errno))) => (std::ptr::null_mut(), errno),
    };
    CLIENT.store(client, Ordering::Release);
    STATE.store(SETTLED, Ordering::Release);
    flag(errno)
}

/// The same in a forked child of such a program.
#[unsafe(no_mangle)]
extern "C" fn esker_enter_child() -> usize {
    in_child();
    // SAFETY: null, or a client that is never freed.
    let client = unsafe { CLIENT.load(Ordering::Acquire).as_ref() };
    let is_served = client.is_some_and(Client::await_helper);
    flag(if is_served { 0 } else { libc::ESRCH })
}

extern "C" fn in_child() {
    // SAFETY: null, or a client that is never freed.
    match unsafe { CLIENT.load(Ordering::Acquire).as_ref() } {
        Some(client) if client.has_forks() => client.after_fork(),
        // Its memory is the kernel's.
        _ => CLIENT.store(std::ptr::null_mut(), Ordering::Release),
    }
}

extern "C" fn begin() {
    if client().is_some() {
        // SAFETY: the function allocates nothing and takes no lock.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Runs at an ordinary exit.
extern "C" fn end() {
    // SAFETY: null, or a client that is never freed.
    if let Some(client) = unsafe { CLIENT.load(Ordering::Acquire).as_ref() } {
        client.exit();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
