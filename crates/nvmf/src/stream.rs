//! The byte stream under a connection: a socket, encrypted or not. It never blocks.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;

use crate::socket;
use crate::tls::{Peer, Progress};

/// A byte stream.
pub(crate) enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// With TLS.
    #[cfg(feature = "tls")]
    Tls(Box<crate::tls::session::Session>),
}

impl Stream {
    /// The socket under it.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.tcp(),
        }
    }

    /// The socket, when it does not matter any more which bytes went over it.
    pub(crate) fn into_tcp(self) -> Option<TcpStream> {
        match self {
            Stream::Plain(tcp) => Some(tcp),
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.tcp().try_clone().ok(),
        }
    }

    /// Goes on with the handshake, if it has one.
    pub(crate) fn handshake(&mut self) -> io::Result<Progress> {
        match self {
            Stream::Plain(_) => Ok(Progress::Done),
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.handshake(),
        }
    }

    /// Identity of the other end, if TLS proves it.
    pub(crate) fn peer(&self) -> Option<Peer> {
        match self {
            Stream::Plain(_) => None,
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.peer(),
        }
    }

    /// Whether the socket is empty after `count` bytes were received into `room`. If it is not, or
    /// fills again, it says so.
    pub(crate) fn is_empty_after(&self, count: usize, room: usize) -> bool {
        match self {
            Stream::Plain(_) => count < room,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => false, // a record at a time: only reading tells
        }
    }

    /// Whether no more fits after `sent` bytes of `total` were taken. If more does, that is found
    /// by trying.
    pub(crate) fn is_full_after(&self, sent: usize, total: usize) -> bool {
        match self {
            Stream::Plain(_) => sent < total,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => false,
        }
    }

    /// Whether bytes wait in it that the socket knows nothing of.
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.has_pending(),
        }
    }

    /// Sends as much as fits; `Ok(None)` when nothing does.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(tcp) => socket::send(tcp, slices),
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.send(slices),
        }
    }

    /// Receives the bytes at hand; `Ok(None)` when there are none, `Ok(Some(0))` at the end.
    pub(crate) fn receive(
        &mut self,
        spaces: &mut [IoSliceMut<'_>; 2],
    ) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(tcp) => socket::receive(tcp, spaces),
            #[cfg(feature = "tls")]
            Stream::Tls(session) => session.receive(spaces),
        }
    }
}
