//! The addresses that a target listens on, and the way out when the process has no descriptor left.
//!
//! A connection that cannot be accepted stays in the kernel's queue, and the poller would report it for
//! ever: the worker would do nothing but fail to accept it. So a descriptor is kept in reserve: it is
//! given up, the connection is accepted with it and closed, and the host knows. When even that fails,
//! the worker listens no more until the next tick.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, TcpStream};

use rustix::io::Errno;

use crate::socket::{Poller, Waker};
use crate::target::metrics::{self, Registry};

/// The listeners of all portals that are open.
#[derive(Default)]
pub(crate) struct Listeners {
    open: Vec<Option<TcpListener>>,
    /// The token of the first in the poller.
    first_token: u64,
    /// A descriptor in reserve.
    reserve: Option<Waker>,
    /// Whether the poller does not watch them.
    is_deaf: bool,
}

/// The descriptor in reserve is gone, or was of no use.
struct NoReserve;

impl Listeners {
    pub(crate) fn new(
        open: Vec<Option<TcpListener>>,
        first_token: u64,
        poller: &Poller,
    ) -> std::io::Result<Listeners> {
        for (listener, token) in open.iter().zip(first_token..) {
            if let Some(listener) = listener {
                listener.set_nonblocking(true)?;
                poller.add(listener, token)?;
            }
        }
        let reserve = Some(Waker::new()?);
        Ok(Listeners { open, first_token, reserve, is_deaf: false })
    }

    /// The listeners, for another worker.
    pub(crate) fn into_open(self) -> Vec<Option<TcpListener>> {
        self.open
    }

    /// The next connection through a portal, if there is one that can be accepted.
    pub(crate) fn accept(
        &mut self,
        portal: usize,
        poller: &Poller,
        metrics: &Registry,
    ) -> Option<(TcpStream, IpAddr)> {
        loop {
            match self.open[portal].as_ref()?.accept() {
                Ok((stream, peer)) => return Some((stream, peer.ip())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // Of this connection alone: it is gone before it was accepted.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    let errno = Errno::from_io_error(&error);
                    let is_full = matches!(errno, Some(Errno::MFILE | Errno::NFILE));
                    match is_full.then(|| self.refuse(portal)) {
                        Some(Ok(true)) => metrics::count(&metrics.refused),
                        Some(Ok(false)) => return None,
                        Some(Err(NoReserve)) | None => {
                            self.stop_listening(poller);
                            return None;
                        }
                    }
                }
            }
        }
    }

    /// Accepts a connection with the descriptor in reserve and closes it. Says whether there was
    /// one: without descriptors, the system says that there are none before it looks for one.
    fn refuse(&mut self, portal: usize) -> Result<bool, NoReserve> {
        drop(self.reserve.take().ok_or(NoReserve)?);
        let is_refused = match self.open[portal].as_ref().map(TcpListener::accept) {
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => Err(NoReserve),
            _ => Ok(false),
        };
        self.reserve = Waker::new().ok();
        if self.reserve.is_some() { is_refused } else { Err(NoReserve) }
    }

    fn stop_listening(&mut self, poller: &Poller) {
        self.open.iter().flatten().for_each(|listener| poller.remove(listener));
        self.is_deaf = true;
    }

    /// Listens again, if it was given up.
    pub(crate) fn listen_again(&mut self, poller: &Poller) {
        if self.reserve.is_none() {
            self.reserve = Waker::new().ok();
        }
        if !std::mem::take(&mut self.is_deaf) {
            return;
        }
        for (listener, token) in self.open.iter().zip(self.first_token..) {
            if let Some(listener) = listener
                && poller.add(listener, token).is_err()
            {
                self.is_deaf = true; // until the next tick
            }
        }
    }

    /// Listens at a portal that is new. One that cannot be watched now is so from the next tick on.
    pub(crate) fn enter(&mut self, portal: usize, listener: TcpListener, poller: &Poller) {
        while self.open.len() <= portal {
            self.open.push(None);
        }
        let token = self.first_token + u64::try_from(portal).expect("64 bits");
        let is_watched = listener.set_nonblocking(true).is_ok()
            && (self.is_deaf || poller.add(&listener, token).is_ok());
        self.open[portal] = Some(listener);
        if !is_watched {
            self.stop_listening(poller);
        }
    }

    /// Closes a portal.
    pub(crate) fn close(&mut self, portal: usize, poller: &Poller) {
        if let Some(listener) = self.open.get_mut(portal).and_then(Option::take) {
            poller.remove(&listener);
        }
    }
}
