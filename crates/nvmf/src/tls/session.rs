//! One end of an encrypted connection, over a socket that does not block.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::sync::OnceLock;

use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions,
    SslSessionCacheMode, SslStream, SslVersion,
};

use super::key::{Psk, names_of};
use super::{Peer, Progress, ffi};

/// The most that one record carries (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;

/// One end of an encrypted connection.
pub(crate) struct Session {
    stream: SslStream<TcpStream>,
    is_server: bool,
    is_done: bool,
    /// Bytes to be encrypted, together.
    gathered: Vec<u8>,
}

/// Context that all connections share: TLS 1.3 and nothing before it, PSKs with a Diffie-Hellman exchange, and
/// neither tickets nor certificates.
fn context() -> Result<&'static SslContext, ErrorStack> {
    static CONTEXT: OnceLock<Result<SslContext, ErrorStack>> = OnceLock::new();
    let make = || {
        let mut builder: SslContextBuilder = SslContext::builder(SslMethod::tls())?;
        builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        builder.set_max_proto_version(Some(SslVersion::TLS1_3))?;
        builder.set_ciphersuites("TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256")?;
        builder.set_options(SslOptions::NO_TICKET);
        // The kernel's host takes nothing but data after the handshake.
        builder.set_num_tickets(0)?;
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_mode(
            SslMode::ENABLE_PARTIAL_WRITE
                | SslMode::ACCEPT_MOVING_WRITE_BUFFER
                | SslMode::RELEASE_BUFFERS,
        );
        ffi::choose_suites(&mut builder);
        Ok(builder.build())
    };
    CONTEXT.get_or_init(make).as_ref().map_err(Clone::clone)
}

impl Session {
    /// The server's end; `find` knows the PSKs.
    pub(crate) fn server(stream: TcpStream, find: ffi::Find) -> io::Result<Session> {
        let mut ssl = Ssl::new(context()?)?;
        ffi::serve(&mut ssl, find)?;
        Session::new(ssl, stream, true)
    }

    /// The client's end, with the PSK that it offers.
    pub(crate) fn client(stream: TcpStream, psk: Psk) -> io::Result<Session> {
        let mut ssl = Ssl::new(context()?)?;
        ffi::offer(&mut ssl, psk)?;
        Session::new(ssl, stream, false)
    }

    fn new(ssl: Ssl, stream: TcpStream, is_server: bool) -> io::Result<Session> {
        let stream = SslStream::new(ssl, stream)?;
        Ok(Session { stream, is_server, is_done: false, gathered: Vec::new() })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Goes on with the handshake.
    pub(crate) fn handshake(&mut self) -> io::Result<Progress> {
        if self.is_done {
            return Ok(Progress::Done);
        }
        let done = if self.is_server { self.stream.accept() } else { self.stream.connect() };
        match done {
            Ok(()) => {
                self.is_done = true;
                Ok(Progress::Done)
            }
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Progress::Reads),
            Err(error) if error.code() == ErrorCode::WANT_WRITE => Ok(Progress::Writes),
            Err(error) => Err(failure(error)),
        }
    }

    /// Names of the host at the other end of a server's connection.
    pub(crate) fn peer(&self) -> Option<Peer> {
        ffi::found(self.stream.ssl()).and_then(names_of)
    }

    /// Whether decrypted bytes wait, of which the socket knows nothing.
    pub(crate) fn has_pending(&self) -> bool {
        self.stream.ssl().pending() > 0
    }

    /// Sends as much as fits, at most one record; `Ok(None)` when nothing does. Bytes that are not taken
    /// must come again, with the same bytes in front.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.gathered.clear();
        for slice in slices {
            let room = RECORD - self.gathered.len();
            self.gathered.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        match self.stream.ssl_write(&self.gathered) {
            Ok(count) => Ok(Some(count)),
            Err(error) => waits(error),
        }
    }

    /// Receives the bytes at hand; `Ok(None)` when there are none, `Ok(Some(0))` at the end.
    pub(crate) fn receive(
        &mut self,
        spaces: &mut [IoSliceMut<'_>; 2],
    ) -> io::Result<Option<usize>> {
        let [first, second] = spaces;
        let space = if first.is_empty() { second } else { first };
        match self.stream.ssl_read(space) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(Some(0)),
            Err(error) => waits(error),
        }
    }
}

fn waits(error: openssl::ssl::Error) -> io::Result<Option<usize>> {
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Ok(None),
        _ => Err(failure(error)),
    }
}

fn failure(error: openssl::ssl::Error) -> io::Error {
    error.into_io_error().unwrap_or_else(io::Error::other)
}
