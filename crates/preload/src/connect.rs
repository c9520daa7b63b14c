//! Finds the pager and hands over this process's region, once.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use esker_pager::client::{self, Client};
use esker_pager::raw::{self, Errno, flag};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

/// The variable in which `esker run` names the pager and the size of a region.
const VARIABLE: &[u8] = b"ESKER_PAGER=";
/// Descriptors that programs use are mostly below this one.
const HIGH: usize = 700;
/// Bytes of the environment that are looked at.
const ENVIRONMENT: usize = 1 << 20;

const NOT_YET: u8 = 0;
const UNDER_WAY: u8 = 1;
const SETTLED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_YET);
static CLIENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());
/// A forked child has its parent's region.
static FORKS: AtomicBool = AtomicBool::new(false);

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
    let socket = dial(name).map_err(|error| ("the pager is not there", error))?;
    let high = lift(socket);
    if high != socket {
        // SAFETY: opened above, and used by its other number.
        unsafe { raw::close(socket) };
    }
    introduce(high, size).map(Some)
}

fn introduce(socket: i32, size: usize) -> Result<*mut Client, Failure> {
    let (uffd, forks) = client::open().map_err(|error| ("userfaultfd is refused", error))?;
    let mapped = Client::map(&uffd, size, forks).map_err(|error| ("its region", error))?;
    FORKS.store(forks, Ordering::Relaxed);
    // SAFETY: takes no arguments.
    let pid = unsafe { raw::call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0);
    let hello = mapped.hello(u32::try_from(pid).unwrap_or(0), forks);
    greet(socket, uffd.as_fd().as_raw_fd(), &hello)
        .map_err(|error| ("the pager refused", error))?;
    let place = raw::map_memory(esker_pager::PAGE).map_err(|error| ("memory", error))?;
    let place = std::ptr::with_exposed_provenance_mut::<Client>(place);
    // SAFETY: a new page is large enough, aligned, and never unmapped.
    let client = unsafe {
        place.write(mapped);
        &*place
    };
    let started = client.start_agent().and_then(|()| client::end_with(socket));
    started.map_err(|error| ("a thread", error))?;
    if !forks {
        complain(
            "a forked child has no access to paged memory, without CAP_SYS_PTRACE",
            libc::EPERM,
        );
    }
    // The descriptor stays open: should the pager die, a fault waits for ever rather than get zeroes.
    if lift(uffd.as_fd().as_raw_fd()) == uffd.as_fd().as_raw_fd() {
        std::mem::forget(uffd);
    }
    Ok(place)
}

/// Another number for a descriptor, out of the way of the program's; the same where the limit has no room for it.
fn lift(fd: i32) -> i32 {
    let args = [flag(fd), flag(libc::F_DUPFD_CLOEXEC), HIGH, 0, 0, 0];
    // SAFETY: no memory is involved.
    let high = unsafe { raw::call(libc::SYS_fcntl, args) };
    high.ok().and_then(|high| i32::try_from(high).ok()).unwrap_or(fd)
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

/// Connects to the socket of this name in the abstract namespace.
fn dial(name: &[u8]) -> Result<i32, Errno> {
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&1u16.to_ne_bytes()); // AF_UNIX
    if name.len() > address.len() - 3 {
        return Err(Errno(libc::EINVAL));
    }
    address[3..3 + name.len()].copy_from_slice(name);
    let kind = flag(libc::SOCK_STREAM | libc::SOCK_CLOEXEC);
    // SAFETY: no memory is involved.
    let fd = unsafe { raw::call(libc::SYS_socket, [flag(libc::AF_UNIX), kind, 0, 0, 0, 0])? };
    let args = [fd, address.as_ptr().expose_provenance(), 3 + name.len(), 0, 0, 0];
    let fd = i32::try_from(fd).map_err(|_| Errno(libc::EBADF))?;
    // SAFETY: the address is as long as it says.
    match unsafe { raw::call(libc::SYS_connect, args) } {
        Ok(_) => trust(fd).map(|()| fd),
        Err(error) => Err(error),
    }
    .inspect_err(|_| {
        // SAFETY: made above.
        unsafe { raw::close(fd) };
    })
}

/// Refuses a socket of another user: anybody can take the name of a pager that has ended, and would get this process's
/// memory. Lets the pager copy pages out of it, which some systems allow to ancestors alone.
fn trust(socket: i32) -> Result<(), Errno> {
    // `struct ucred`: process, user, group.
    let (mut peer, mut size) = ([0u32; 3], 12u32);
    let (to, length) =
        (peer.as_mut_ptr().expose_provenance(), std::ptr::from_mut(&mut size).expose_provenance());
    let (level, option) = (flag(libc::SOL_SOCKET), flag(libc::SO_PEERCRED));
    // SAFETY: the credentials and their size are writable.
    unsafe { raw::call(libc::SYS_getsockopt, [flag(socket), level, option, to, length, 0])? };
    let [pid, owner, _] = peer;
    // SAFETY: takes no arguments.
    let own = unsafe { raw::call(libc::SYS_geteuid, [0; 6])? };
    if owner != 0 && owner as usize != own {
        return Err(Errno(libc::EACCES));
    }
    if pid > 0 {
        let ptracer = flag(libc::PR_SET_PTRACER);
        // SAFETY: no memory is involved. A kernel without Yama needs no leave, and refuses.
        let _ = unsafe { raw::call(libc::SYS_prctl, [ptracer, pid as usize, 0, 0, 0, 0]) };
    }
    Ok(())
}

/// A control message with one descriptor: `struct cmsghdr` and the descriptor, padded.
#[repr(C)]
struct OneDescriptor {
    length: usize,
    level: i32,
    kind: i32,
    fd: i32,
    padding: i32,
}

/// Sends the greeting with the descriptor, and waits for leave.
fn greet(socket: i32, descriptor: i32, hello: &esker_pager::protocol::Hello) -> Result<(), Errno> {
    let part = [std::ptr::from_ref(hello).expose_provenance(), size_of_val(hello)];
    let control = OneDescriptor {
        length: 20,
        level: libc::SOL_SOCKET,
        kind: libc::SCM_RIGHTS,
        fd: descriptor,
        padding: 0,
    };
    // `struct msghdr`: name, its length, parts, their count, control, its length, flags.
    let message: [usize; 7] = [
        0,
        0,
        part.as_ptr().expose_provenance(),
        1,
        std::ptr::from_ref(&control).expose_provenance(),
        size_of::<OneDescriptor>(),
        0,
    ];
    let args =
        [flag(socket), message.as_ptr().expose_provenance(), flag(libc::MSG_NOSIGNAL), 0, 0, 0];
    // SAFETY: all that the message refers to lives until the call returns.
    unsafe { raw::call(libc::SYS_sendmsg, args)? };
    let mut status = 0u64;
    let args = [flag(socket), std::ptr::from_mut(&mut status).expose_provenance(), 8, 0, 0, 0];
    // SAFETY: the status has eight bytes.
    let size = unsafe { raw::call(libc::SYS_read, args)? };
    if size == 8 && status == 0 { Ok(()) } else { Err(Errno(libc::EPROTO)) }
}

extern "C" fn in_child() {
    if !FORKS.load(Ordering::Relaxed) {
        // Its memory is the kernel's.
        CLIENT.store(std::ptr::null_mut(), Ordering::Release);
    }
    // SAFETY: null, or a client that is never freed.
    if let Some(client) = unsafe { CLIENT.load(Ordering::Acquire).as_ref() } {
        client.after_fork();
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
