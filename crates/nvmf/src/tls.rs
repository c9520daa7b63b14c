//! TLS 1.3 with pre-shared keys under a connection (NVMe/TCP Transport 1.1, 3.6.1; TP 8011, TP 8018).
//!
//! | module | content |
//! | --- | --- |
//! | [`key`] | [`TlsKey`]: configured keys, and the PSKs and identities that follow from them |
//! | `session` | one end of an encrypted connection, with the build's feature `tls` |
//! | `ffi` | the calls of OpenSSL that its crate has not, with the build's feature `tls` |
//!
//! Keys are there in every build, so that a configuration that names one is understood; without the
//! feature `tls` it is refused.

#[cfg(feature = "tls")]
mod ffi;
pub mod key;
#[cfg(feature = "tls")]
pub(crate) mod session;

pub use key::{Derivation, TlsKey};

/// Answer of a build without TLS to a configuration with it.
#[cfg(not(feature = "tls"))]
pub(crate) const NOT_BUILT: &str =
    "this program was built without TLS: build it with --features tls, which needs OpenSSL";

/// How far a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is over: the connection can be used.
    Done,
    /// It goes on when something was received.
    #[cfg(feature = "tls")]
    Reads,
    /// It goes on when something can be sent.
    #[cfg(feature = "tls")]
    Writes,
}

/// Names of the other end, from the identity of the key that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) host: String,
    pub(crate) subsystem: String,
}
