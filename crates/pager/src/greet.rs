//! Programs that connect: whose they are, and whether they hand over what they say.
//!
//! A program may be slow, silent or hostile. So its greeting is read without waiting and without the engine's lock, within
//! a time limit, and only so many at once.

use std::io::{self, ErrorKind::NotConnected};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::{to_u64, to_usize};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::link::{Link, ProcessMemory};
use crate::protocol::{Hello, MAGIC, Request, WINDOW};
use crate::types::PAGE;
use crate::uffd::Uffd;

/// How long a program may take to say hello.
const PATIENCE: Duration = Duration::from_secs(1);
/// Programs that have connected and said nothing yet; for one more, the oldest is refused.
const MOST: usize = 1024;
/// Programs that are accepted before faults are served again.
const AT_ONCE: usize = 16;
/// Refusals are reported so far apart.
const APART: Duration = Duration::from_secs(1);

/// The number by which `epoll` tells that programs want to connect.
pub(crate) const LISTENER: u64 = 0;
/// The first number of a program that has connected, above all those of spaces.
pub(crate) const FIRST_GREETING: u64 = 1 << 40;

/// A program whose helper has introduced it.
pub(crate) struct Guest {
    pub(crate) link: Link,
    pub(crate) memory: ProcessMemory,
    /// Its process, as it calls it itself.
    pub(crate) own_pid: u64,
    pub(crate) base: usize,
    pub(crate) requests: usize,
    pub(crate) comes: Comes,
}

/// How a program comes.
pub(crate) enum Comes {
    /// By itself, with its userfaultfd.
    Alone(Uffd),
    /// As a forked child, with its token.
    Forked(u64),
}

/// A program that has connected.
struct Greeting {
    number: u64,
    stream: UnixStream,
    until: Nanos,
}

/// The socket that programs connect to, and those that have not said hello yet.
pub(crate) struct Door {
    listener: UnixListener,
    /// The kernel had no descriptor for a program; until the next tick nobody tries again.
    is_closed: bool,
    /// Bytes of a region.
    region: usize,
    greetings: Vec<Greeting>,
    next: u64,
    /// A refusal that the user has to know, and when the last one was told.
    refusal: Option<String>,
    told: Option<Nanos>,
}

impl Door {
    pub(crate) fn new(listener: UnixListener, region: usize) -> Door {
        let (greetings, next) = (Vec::new(), FIRST_GREETING);
        let (is_closed, refusal, told) = (false, None, None);
        Door { listener, is_closed, region, greetings, next, refusal, told }
    }

    /// Has `epoll` tell of programs that want to connect.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open(&self, epoll: &OwnedFd) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(epoll, &self.listener, data, epoll::EventFlags::IN)
    }

    /// Accepts programs, whose greetings `epoll` tells by their number.
    pub(crate) fn accept(&mut self, epoll: &OwnedFd, now: Nanos) {
        for _ in 0..AT_ONCE {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_harmless(&error) => return,
                Err(error) => {
                    // `epoll` would tell of the listener all the time.
                    self.is_closed = epoll::delete(epoll, &self.listener).is_ok();
                    self.refusal = Some(format!("no program can connect for now: {error}"));
                    return;
                }
            };
            match self.welcome(&stream, epoll) {
                Ok(()) => {
                    let (number, until) = (self.next, now + PATIENCE);
                    self.greetings.push(Greeting { number, stream, until });
                    self.next += 1;
                }
                Err(error) => self.refuse(&stream, &error),
            }
            if self.greetings.len() > MOST {
                let oldest = self.greetings.remove(0);
                self.refuse(&oldest.stream, &silent());
            }
        }
    }

    /// Looks whose the program is.
    fn welcome(&self, stream: &UnixStream, epoll: &OwnedFd) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
            let (pid, uid) = (peer.pid.as_raw_nonzero(), peer.uid.as_raw());
            return Err(io::Error::other(format!("process {pid} belongs to another user, {uid}")));
        }
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(self.next);
        Ok(epoll::add(epoll, stream, data, epoll::EventFlags::IN)?)
    }

    /// Reads the greeting of a program that has sent something. None if it is refused.
    pub(crate) fn hear(&mut self, number: u64, epoll: &OwnedFd) -> Option<Guest> {
        let at = self.greetings.iter().position(|greeting| greeting.number == number)?;
        let Greeting { stream, .. } = self.greetings.swap_remove(at);
        // From now on the stream is for orders.
        let heard = epoll::delete(epoll, &stream).map_err(io::Error::from);
        let guest = heard.and_then(|()| {
            let (hello, comes, program) = read(&stream, self.region)?;
            let (base, requests, own_pid) =
                (to_usize(hello.base), to_usize(hello.requests), hello.pid);
            let known = Link::new(stream.try_clone()?, program);
            let is_over = known.as_ref().err().is_some_and(|error| error.kind() == NotConnected);
            if is_over && matches!(comes, Comes::Forked(_)) {
                // Most children run another program at once.
                return Ok(None);
            }
            let (link, memory) = known?;
            Ok(Some(Guest { link, memory, own_pid, base, requests, comes }))
        });
        guest.unwrap_or_else(|error| {
            self.refuse(&stream, &error);
            None
        })
    }

    /// Refuses programs that have said nothing for too long, and accepts others again.
    pub(crate) fn tick(&mut self, epoll: &OwnedFd, now: Nanos) {
        self.is_closed = self.is_closed && self.open(epoll).is_err();
        while let Some(at) = self.greetings.iter().position(|greeting| greeting.until <= now) {
            let greeting = self.greetings.swap_remove(at);
            self.refuse(&greeting.stream, &silent());
        }
    }

    fn refuse(&mut self, stream: &UnixStream, error: &io::Error) {
        self.refusal = Some(format!("a program was not connected: {error}"));
        // It may have ended.
        let _ = answer(stream, 1);
    }

    /// The last refusal, at most one a second: a program that connects again and again floods no log.
    pub(crate) fn refusal(&mut self, now: Nanos) -> Option<String> {
        if self.told.is_some_and(|told| now.since(told) < APART) {
            return None;
        }
        let refusal = self.refusal.take()?;
        self.told = Some(now);
        Some(refusal)
    }
}

/// Tells a program whether it is served: 0 is yes.
fn answer(stream: &UnixStream, status: u64) -> io::Result<()> {
    rustix::io::write(stream, &status.to_ne_bytes())?;
    Ok(())
}

/// Errors of one connection, and the end of them.
fn is_harmless(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | ConnectionAborted | Interrupted)
}

fn silent() -> io::Error {
    io::Error::other("it did not say hello in time")
}

/// Reads a greeting, how its program comes, and the program's process.
fn read(stream: &UnixStream, region: usize) -> io::Result<(Hello, Comes, OwnedFd)> {
    let mut bytes = [0u8; size_of::<Hello>()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let got = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    let mut words = [0; size_of::<Hello>() / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    let [magic, pid, base, size, requests, token] = words;
    let hello = Hello { magic, pid, base, size, requests, token };
    let table = to_u64(WINDOW as usize * size_of::<Request>());
    let is_right = got.bytes == size_of::<Hello>()
        && !got.flags.contains(ReturnFlags::CTRUNC)
        && magic == MAGIC
        && size == to_u64(region)
        && base.is_multiple_of(to_u64(PAGE))
        && base.checked_add(size).is_some()
        && requests.checked_add(table).is_some();
    let mut descriptors = descriptors.into_iter();
    let (program, uffd, more) = (descriptors.next(), descriptors.next(), descriptors.next());
    match (is_right && more.is_none(), token, program, uffd) {
        (true, 0, Some(program), Some(uffd)) => {
            if !is_userfaultfd(uffd.as_fd())? {
                return Err(io::Error::other("its descriptor is no userfaultfd"));
            }
            rustix::io::ioctl_fionbio(&uffd, true)?;
            Ok((hello, Comes::Alone(Uffd::from(uffd)), program))
        }
        (true, 1.., Some(program), None) => Ok((hello, Comes::Forked(token), program)),
        _ => Err(io::Error::other("its greeting makes no sense: is its library another version?")),
    }
}

/// Whether the kernel calls a descriptor one. Messages of any other are its sender's, who could name descriptors of this
/// process in them.
fn is_userfaultfd(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    Ok(link == Path::new("anon_inode:[userfaultfd]"))
}
