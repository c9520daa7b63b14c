//! The helper: a process that shares a program's memory, and does there what a pager cannot do from outside.
//!
//! It is no thread and no child of the program, and has no descriptor, signal, terminal or privilege of it. It opens the
//! userfaultfd, introduces the program to the pager, gives up all capabilities, and is left with the few system calls
//! that it needs. It ends when the pager says so.
//!
//! Nothing here allocates, takes a lock or uses thread-local storage: the memory and the thread pointer are the
//! program's.

#![allow(unsafe_code)]

mod jail;

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use esker_base::units::to_usize;

use crate::client::{self, Client};
use crate::order::carry_out;
use crate::protocol::{Hello, HelperOrder, Outcome, WINDOW};
use crate::raw::{self, Errno, flag};
use crate::types::PAGE;
use crate::uffd::Uffd;

/// Bytes of the helper's stack.
const STACK: usize = 64 << 10;
/// How long a program that is killed may take to end, in seconds.
const FAREWELL: u64 = 1;

/// Not started.
pub(crate) const NONE: u32 = 0;
/// Not introduced yet.
pub(crate) const STARTING: u32 = 1;
/// The pager serves the program.
pub(crate) const READY: u32 = 2;

/// Why a program is not served: what was refused, and the kernel's reason.
pub(crate) type Failure = (&'static str, Errno);

/// Causes of a refusal, by the number in [`Client::failure`].
const CAUSES: [&str; 7] = [
    "a process that shares its memory is refused",
    "userfaultfd is refused",
    "its region",
    "the pager is not there",
    "the pager belongs to another user",
    "the pager refused",
    "giving up privileges is refused",
];
const CLONE: u32 = 0;
const UFFD: u32 = 1;
const REGION: u32 = 2;
const DIAL: u32 = 3;
const FOREIGN: u32 = 4;
const REFUSED: u32 = 5;
const JAIL: u32 = 6;

/// A cause, and the kernel's reason.
type Refusal = (u32, Errno);

/// Flags of the helper: no `CLONE_FILES`, `CLONE_FS`, `CLONE_SIGHAND` or `CLONE_THREAD`. Tracers of the program are not told
/// of it.
const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_UNTRACED | libc::CLONE_CHILD_CLEARTID;
/// Flags of its parent, which ends at once, so that no program that waits for its children waits for it. It sends no
/// signal at its end.
const PARENT_FLAGS: i32 = libc::CLONE_VM | libc::CLONE_UNTRACED | libc::CLONE_VFORK;

/// Starts the helper of this process. [`Client::await_helper`] waits until it has introduced the program.
pub(crate) fn start(client: &'static Client) {
    client.program.store(getpid(), Ordering::Relaxed);
    client.state.store(STARTING, Ordering::Release);
    if let Err(error) = start_process(client) {
        client.failure.store(pack((CLONE, error)), Ordering::Relaxed);
        client.state.store(NONE, Ordering::Release);
    }
}

fn start_process(client: &'static Client) -> Result<(), Errno> {
    let stack = match client.stack.load(Ordering::Relaxed) {
        0 => raw::map_memory(STACK)?,
        stack => stack,
    };
    client.stack.store(stack, Ordering::Relaxed);
    let every: u64 = !0;
    let mut before: u64 = 0;
    let mask = |new: *const u64, old: *mut u64| {
        let how = flag(libc::SIG_SETMASK);
        let (new, old) = (new.expose_provenance(), old.expose_provenance());
        // SAFETY: both point to a mask of the kernel's size, or to nothing.
        unsafe { raw::call(libc::SYS_rt_sigprocmask, [how, new, old, size_of::<u64>(), 0, 0]) }
    };
    mask(&raw const every, &raw mut before)?;
    let with = std::ptr::from_ref(client).expose_provenance();
    // SAFETY: half of the stack is for this process alone, and `begin` uses no thread-local storage.
    let parent = unsafe { raw::spawn(begin, with, stack + STACK, flag(PARENT_FLAGS), 0) };
    let mut status = 0i32;
    let to = (&raw mut status).expose_provenance();
    // SAFETY: the status is writable. Another thread may have waited for it.
    let _ = parent
        .map(|pid| unsafe { raw::call(libc::SYS_wait4, [pid, to, flag(libc::__WALL), 0, 0, 0]) });
    if libc::WIFSIGNALED(status) {
        // A filter of the program's has killed it before it could start the helper.
        let (from, to) = (STARTING, NONE);
        let _ = client.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
    mask(&raw const before, std::ptr::null_mut())?;
    parent.map(drop)
}

/// The helper's parent.
extern "C" fn begin(with: usize) -> ! {
    // SAFETY: `start` has got it from a static reference.
    let client = unsafe { &*std::ptr::with_exposed_provenance::<Client>(with) };
    let state = client.state.as_ptr().expose_provenance();
    let top = client.stack.load(Ordering::Relaxed) + STACK / 2;
    let program = client.program.load(Ordering::Relaxed);
    let started = leave().and_then(|()| open_process(program)).and_then(|pidfd| {
        client.pidfd.store(pidfd.0, Ordering::Relaxed);
        // SAFETY: the other half of the stack is for the helper alone, and `help` uses no thread-local storage. The memory
        // of the state lives as long as the helper.
        unsafe { raw::spawn(help, with, top, flag(FLAGS), state) }
    });
    if let Err(error) = started {
        client.failure.store(pack((CLONE, error)), Ordering::Relaxed);
        client.state.store(NONE, Ordering::Release);
    }
    end()
}

/// Ends this process alone. The kernel clears the helper's state and wakes who waits for it.
fn end() -> ! {
    loop {
        // SAFETY: no memory is involved.
        let _ = unsafe { raw::call_with_key(libc::SYS_exit_group, [0; 6]) };
    }
}

/// Why a program is not served.
pub(crate) fn failure(client: &Client) -> Failure {
    let packed = client.failure.load(Ordering::Relaxed);
    let errno = i32::try_from(packed & 0xffff).unwrap_or(libc::EIO);
    (CAUSES.get((packed >> 16) as usize).unwrap_or(&CAUSES[0]), Errno(errno))
}

fn pack((cause, Errno(errno)): Refusal) -> u32 {
    cause << 16 | errno.unsigned_abs()
}

fn getpid() -> u32 {
    // SAFETY: takes no arguments.
    let pid = unsafe { raw::call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0);
    u32::try_from(pid).unwrap_or(0)
}

/// The helper.
extern "C" fn help(client: usize) -> ! {
    // SAFETY: `start` has got it from a static reference.
    let client = unsafe { &*std::ptr::with_exposed_provenance::<Client>(client) };
    match introduce(client) {
        Ok(tools) => {
            client.set_ready();
            work(client, &tools);
        }
        Err(refusal) => {
            client.failure.store(pack(refusal), Ordering::Relaxed);
            // A child whose pager has ended finds zeroes; one that is not served has its content.
            if client.joins() && client.token() == 0 {
                kill(Fd(client.pidfd.load(Ordering::Relaxed)));
                client.part();
            }
        }
    }
    end()
}

/// A descriptor of the helper, which is closed by its end: the C library's `close` uses the program's thread pointer.
#[derive(Clone, Copy)]
struct Fd(i32);

impl Fd {
    /// As an argument.
    fn word(self) -> usize {
        flag(self.0)
    }
}

/// The helper's descriptors.
struct Tools {
    socket: Fd,
    uffd: ManuallyDrop<Uffd>,
    program: Fd,
    /// The pager's error output, if this is the program that the user has started.
    output: Option<Fd>,
}

/// Introduces the program to the pager.
fn introduce(client: &Client) -> Result<Tools, Refusal> {
    let program = client.program.load(Ordering::Relaxed);
    let pidfd = Fd(client.pidfd.load(Ordering::Relaxed));
    let own = if client.joins() { None } else { Some(register(client)?) };
    // The program shares this process's memory, and may soon have fewer privileges.
    jail::give_up().map_err(|error| (JAIL, error))?;
    let token = if own.is_none() { client.token() } else { 0 };
    let socket = dial(client.name()).map_err(|error| (DIAL, error))?;
    trust(socket)?;
    // From its greeting on the pager kills the program if this process ends.
    jail::enter().map_err(|error| (JAIL, error))?;
    let (base, size) = client.region();
    let hello = Hello {
        magic: crate::protocol::MAGIC,
        pid: u64::from(program),
        base: base as u64,
        size: size as u64,
        requests: client.requests() as u64,
        token,
    };
    let fds = match &own {
        Some(uffd) => [pidfd.0, uffd.as_fd().as_raw_fd()],
        None => [pidfd.0, NO_FD],
    };
    let given = match send(socket, &hello, fds).and_then(|()| receive(socket)) {
        Ok((0, given)) => given,
        Ok(_) => return Err((REFUSED, Errno(libc::EPROTO))),
        Err(error) => return Err((REFUSED, error)),
    };
    let mut given = given.into_iter().filter(|fd| *fd != NO_FD);
    let uffd = match own {
        Some(uffd) => uffd,
        None => {
            let fd = given.next().ok_or((REFUSED, Errno(libc::EPROTO)))?;
            // SAFETY: the kernel has just made it for this process.
            ManuallyDrop::new(Uffd::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        }
    };
    Ok(Tools { socket, uffd, program: pidfd, output: given.next().map(Fd) })
}

/// Leaves what it has got of the program: its session, directory and descriptors, and its name.
fn leave() -> Result<(), Errno> {
    let path = c"/".as_ptr().expose_provenance();
    let name = c"esker-helper".as_ptr().expose_provenance();
    // SAFETY: both texts end with a zero. The descriptors are copies, which nobody uses.
    unsafe {
        let _ = raw::call(libc::SYS_setsid, [0; 6]);
        let _ = raw::call(libc::SYS_chdir, [path, 0, 0, 0, 0, 0]);
        let _ = raw::call(libc::SYS_prctl, [flag(libc::PR_SET_NAME), name, 0, 0, 0, 0]);
        raw::call(libc::SYS_close_range, [0, u32::MAX as usize, 0, 0, 0, 0]).map(drop)
    }
}

/// A descriptor of the program, whose child this process is: as long as it is, the number is not another one's.
fn open_process(program: u32) -> Result<Fd, Errno> {
    // SAFETY: no memory is involved.
    let fd = unsafe { raw::call(libc::SYS_pidfd_open, [program as usize, 0, 0, 0, 0, 0]) };
    let fd = own(fd)?;
    // SAFETY: takes no arguments.
    let parent = unsafe { raw::call(libc::SYS_getppid, [0; 6]) };
    if parent == Ok(program as usize) { Ok(fd) } else { Err(Errno(libc::ESRCH)) }
}

/// Registers the region.
fn register(client: &Client) -> Result<ManuallyDrop<Uffd>, Refusal> {
    let (uffd, forks) = client::open().map_err(|error| (UFFD, error))?;
    let (uffd, (base, size)) = (ManuallyDrop::new(uffd), client.region());
    if !forks {
        client.forget_forks().map_err(|error| (REGION, error))?;
    }
    uffd.register(base, size).map_err(|error| (REGION, error))?;
    Ok(uffd)
}

/// A descriptor that a system call has made.
fn own(fd: Result<usize, Errno>) -> Result<Fd, Errno> {
    i32::try_from(fd?).map(Fd).map_err(|_| Errno(libc::EBADF))
}

/// Connects to the socket of this name in the abstract namespace.
fn dial(name: &[u8]) -> Result<Fd, Errno> {
    let mut address = [0u8; 110];
    let family = libc::AF_UNIX.to_ne_bytes();
    let parts = family.iter().take(2).chain(&[0]).chain(name);
    let length = 3 + name.len();
    address.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    let kind = flag(libc::SOCK_STREAM | libc::SOCK_CLOEXEC);
    // SAFETY: no memory is involved.
    let fd = unsafe { raw::call(libc::SYS_socket, [flag(libc::AF_UNIX), kind, 0, 0, 0, 0]) };
    let fd = own(fd)?;
    let at = address.as_ptr().expose_provenance();
    // SAFETY: the address is as long as it says.
    unsafe { raw::call(libc::SYS_connect, [fd.word(), at, length, 0, 0, 0])? };
    Ok(fd)
}

/// Refuses a socket of another user: anybody can take the name of a pager that has ended, and would get the program's
/// memory. Lets the pager read it, which some systems allow to ancestors alone.
fn trust(socket: Fd) -> Result<(), Refusal> {
    // `struct ucred`: process, user, group.
    let (mut peer, mut size) = ([0u32; 3], 12u32);
    let (to, length) =
        (peer.as_mut_ptr().expose_provenance(), std::ptr::from_mut(&mut size).expose_provenance());
    let (level, option) = (flag(libc::SOL_SOCKET), flag(libc::SO_PEERCRED));
    let args = [socket.word(), level, option, to, length, 0];
    // SAFETY: the credentials and their size are writable.
    unsafe { raw::call(libc::SYS_getsockopt, args) }.map_err(|error| (DIAL, error))?;
    let [pid, owner, _] = peer;
    // SAFETY: takes no arguments.
    let own = unsafe { raw::call(libc::SYS_geteuid, [0; 6]) };
    if owner != 0 && Ok(owner as usize) != own {
        return Err((FOREIGN, Errno(libc::EACCES)));
    }
    if pid > 0 {
        let ptracer = flag(libc::PR_SET_PTRACER);
        // SAFETY: no memory is involved. A kernel without Yama needs no leave, and refuses.
        let _ = unsafe { raw::call(libc::SYS_prctl, [ptracer, pid as usize, 0, 0, 0, 0]) };
    }
    Ok(())
}

/// A control message with up to two descriptors: `struct cmsghdr`, and they.
#[repr(C)]
struct Control {
    length: usize,
    level: i32,
    kind: i32,
    fds: [i32; 2],
}

/// Bytes of a control message before its descriptors.
const CONTROL: usize = 16;
/// No descriptor.
const NO_FD: i32 = -1;

/// `struct msghdr`: name, its length, parts, their count, control, its length, flags.
fn header(part: &[usize; 2], control: usize, size: usize) -> [usize; 7] {
    [0, 0, part.as_ptr().expose_provenance(), 1, control, size, 0]
}

/// Sends the greeting with the descriptors.
fn send(socket: Fd, hello: &Hello, fds: [i32; 2]) -> Result<(), Errno> {
    let part = [std::ptr::from_ref(hello).expose_provenance(), size_of_val(hello)];
    let (level, kind) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    let count = fds.iter().filter(|fd| **fd != NO_FD).count();
    let control = Control { length: CONTROL + 4 * count, level, kind, fds };
    let at = std::ptr::from_ref(&control).expose_provenance();
    let message = header(&part, at, size_of::<Control>());
    let at = message.as_ptr().expose_provenance();
    let args = [socket.word(), at, flag(libc::MSG_NOSIGNAL), 0, 0, 0];
    // SAFETY: all that the message refers to lives until the call returns.
    unsafe { raw::call(libc::SYS_sendmsg, args) }.map(drop)
}

/// Receives a word, and the descriptors that come with it.
fn receive(socket: Fd) -> Result<(u64, [i32; 2]), Errno> {
    let mut word = 0u64;
    let part = [(&raw mut word).expose_provenance(), size_of_val(&word)];
    let mut control = Control { length: 0, level: 0, kind: 0, fds: [NO_FD; 2] };
    let at = (&raw mut control).expose_provenance();
    let mut message = header(&part, at, size_of::<Control>());
    let at = message.as_mut_ptr().expose_provenance();
    let args = [socket.word(), at, flag(libc::MSG_CMSG_CLOEXEC), 0, 0, 0];
    // SAFETY: all that the message refers to is writable, and lives until the call returns.
    let size = unsafe { raw::call(libc::SYS_recvmsg, args)? };
    if size != 8 {
        return Err(Errno(libc::EPIPE));
    }
    let count = control.length.saturating_sub(CONTROL) / 4;
    control.fds.iter_mut().skip(count).for_each(|fd| *fd = NO_FD);
    Ok((word, control.fds))
}

/// Carries out the pager's orders until it ends.
fn work(client: &Client, tools: &Tools) {
    let window = client.region().0 + WINDOW as usize * PAGE;
    let mut order = HelperOrder::empty();
    while read(tools.socket, &mut order) {
        if order.count == HelperOrder::PART {
            client.part();
            return;
        }
        let outcome = if order.count == HelperOrder::CALL {
            let [a, b, c, d, e, f, ..] = order.pages.map(to_usize);
            // SAFETY: the program has asked for it, and its thread waits for the result.
            let made = unsafe { raw::call_with_key(order.moves.cast_signed(), [a, b, c, d, e, f]) };
            let result = made.map_or_else(|Errno(errno)| -i64::from(errno), |value| value as i64);
            Outcome { done: result.cast_unsigned(), ..Outcome::default() }
        } else {
            carry_out(&tools.uffd, window, &order)
        };
        let at = (&raw const outcome).expose_provenance();
        let args = [tools.socket.word(), at, size_of_val(&outcome), flag(libc::MSG_NOSIGNAL), 0, 0];
        // SAFETY: the outcome is readable. If it cannot be sent, the next read tells why.
        let _ = unsafe { raw::call(libc::SYS_sendto, args) };
    }
    say_farewell(tools);
    client.part();
}

/// Reads an order. False: the pager has ended.
fn read(socket: Fd, order: &mut HelperOrder) -> bool {
    let (at, mut done) = (std::ptr::from_mut(order).expose_provenance(), 0);
    while done < size_of::<HelperOrder>() {
        let args = [socket.word(), at + done, size_of::<HelperOrder>() - done, 0, 0, 0];
        // SAFETY: the rest of the order is writable, and any words are an order.
        match unsafe { raw::call(libc::SYS_read, args) } {
            Ok(0) => return false,
            Ok(more) => done += more,
            Err(Errno(libc::EINTR)) => {}
            Err(_) => return false,
        }
    }
    true
}

/// The pager was killed: so is the program, before it can take zeroes for its data.
fn say_farewell(tools: &Tools) {
    const TEXT: &[u8] =
        b"esker: the pager has ended, and with it the memory of this program, which is killed\n";
    if let Some(output) = tools.output
        && is_ready(output, libc::POLLOUT, 0)
    {
        let at = TEXT.as_ptr().expose_provenance();
        let args = [output.word(), at, TEXT.len(), 0, 0, 0];
        // SAFETY: the text is readable.
        let _ = unsafe { raw::call(libc::SYS_write, args) };
    }
    if kill(tools.program) {
        is_ready(tools.program, libc::POLLIN, FAREWELL);
    }
}

fn kill(program: Fd) -> bool {
    let args = [program.word(), flag(libc::SIGKILL), 0, 0, 0, 0];
    // SAFETY: no memory is involved.
    unsafe { raw::call(libc::SYS_pidfd_send_signal, args) }.is_ok()
}

/// Whether a descriptor becomes ready within so many seconds.
fn is_ready(fd: Fd, events: i16, seconds: u64) -> bool {
    let mut polled = libc::pollfd { fd: fd.0, events, revents: 0 };
    let span = [seconds, 0];
    let (at, span) = ((&raw mut polled).expose_provenance(), (&raw const span).expose_provenance());
    // SAFETY: one descriptor, and a time.
    let ready = unsafe { raw::call(libc::SYS_ppoll, [at, 1, span, 0, 0, 0]) };
    ready == Ok(1) && polled.revents & events != 0
}
