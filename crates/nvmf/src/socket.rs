//! Sockets, as this crate uses them: never blocking on the data path, vectored, without Nagle's
//! delay, and without a signal when the peer is gone.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};

/// Slices of one write.
pub(crate) const SLICES: usize = 128;

/// Makes a socket ready for use. The system looks after peers that are gone without a word, if
/// nobody else does.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Sends as much as fits; `Ok(None)` when nothing does.
pub(crate) fn send(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    loop {
        match sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the bytes at hand; `Ok(None)` when there are none, `Ok(Some(0))` at the end.
pub(crate) fn receive(
    mut stream: &TcpStream,
    spaces: &mut [IoSliceMut<'_>; 2],
) -> io::Result<Option<usize>> {
    loop {
        let [first, second] = spaces;
        let got = if first.is_empty() { stream.read(second) } else { stream.read_vectored(spaces) };
        match got {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

/// Waits until a socket can be read (or written), or `timeout` has passed; says whether it can.
pub(crate) fn wait(stream: &TcpStream, write: bool, timeout: Duration) -> io::Result<bool> {
    let flags = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), flags)];
    match rustix::event::poll(&mut fds, Some(&timespec(timeout))) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Event that a [`Poller`] saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Many sockets at once.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll })
    }

    /// Watches `fd`, which can be read, for being readable too.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Watches for room to write as well, or no longer; reading can be left out.
    pub(crate) fn set(&self, fd: impl AsFd, token: u64, read: bool, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        Ok(epoll::modify(&self.epoll, fd, data, flags)?)
    }

    /// Watches `fd` no longer.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd); // a socket that is gone is not watched either
    }

    /// Waits for events, at most `timeout`, and appends them.
    pub(crate) fn wait(&self, ready: &mut Vec<Ready>, timeout: Duration) -> io::Result<()> {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        let events = match epoll::wait(&self.epoll, &mut events, Some(&timespec(timeout))) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let broken = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        ready.extend(events.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            Ready {
                token: data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | broken),
                writable: flags.intersects(epoll::EventFlags::OUT | broken),
            }
        }));
        Ok(())
    }
}

/// Wakes a [`Poller`] from another thread.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); // full means awake already
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// Fills `bytes` with random bits of the operating system, for secrets and identifiers.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
