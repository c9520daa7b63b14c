//! The calls of OpenSSL that its crate has not: pre-shared keys of TLS 1.3 as sessions, for any hash.
//!
//! TLS libraries in Rust have no external pre-shared keys, and the crate `openssl` binds the callback for SHA-256 alone.
//! NVMe has keys for SHA-384 as well, so the three calls that take a session are bound here.
//!
//! Invariants
//! 1. The data of a callback is in the ex data of its `SSL` and lives as long.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::{LazyLock, OnceLock};

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef};
use openssl_sys::{EVP_MD, SSL, SSL_CIPHER, SSL_CTX, SSL_SESSION};

use super::key::Psk;
use crate::auth::Hash;

const TLS1_3_VERSION: c_int = 0x0304;
/// The extension pre_shared_key (RFC 8446, 4.2.11).
const PRE_SHARED_KEY: c_uint = 41;
/// Result of a callback for hellos that lets the handshake go on.
const SSL_CLIENT_HELLO_SUCCESS: c_int = 1;

type FindSession =
    unsafe extern "C" fn(*mut SSL, *const c_uchar, usize, *mut *mut SSL_SESSION) -> c_int;
type UseSession = unsafe extern "C" fn(
    *mut SSL,
    *const EVP_MD,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut SSL_SESSION,
) -> c_int;

type ClientHello = unsafe extern "C" fn(*mut SSL, *mut c_int, *mut c_void) -> c_int;

unsafe extern "C" {
    fn SSL_CTX_set_client_hello_cb(
        context: *mut SSL_CTX,
        callback: Option<ClientHello>,
        argument: *mut c_void,
    );
    fn SSL_client_hello_get0_ext(
        ssl: *mut SSL,
        kind: c_uint,
        out: *mut *const c_uchar,
        len: *mut usize,
    ) -> c_int;
    fn SSL_set_ciphersuites(ssl: *mut SSL, suites: *const c_char) -> c_int;
    fn SSL_set_psk_find_session_callback(ssl: *mut SSL, callback: Option<FindSession>);
    fn SSL_set_psk_use_session_callback(ssl: *mut SSL, callback: Option<UseSession>);
    fn SSL_CIPHER_find(ssl: *mut SSL, id: *const c_uchar) -> *const SSL_CIPHER;
    fn SSL_CIPHER_get_handshake_digest(cipher: *const SSL_CIPHER) -> *const EVP_MD;
    fn SSL_SESSION_new() -> *mut SSL_SESSION;
    fn SSL_SESSION_free(session: *mut SSL_SESSION);
    fn SSL_SESSION_set1_master_key(
        session: *mut SSL_SESSION,
        key: *const c_uchar,
        len: usize,
    ) -> c_int;
    fn SSL_SESSION_set_cipher(session: *mut SSL_SESSION, cipher: *const SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(session: *mut SSL_SESSION, version: c_int) -> c_int;
}

/// Finds the PSK with an identity.
pub(super) type Find = Box<dyn Fn(&str) -> Option<Psk> + Send + Sync>;

/// State of the server's callback.
struct Served {
    find: Find,
    /// The identity that was found.
    found: OnceLock<String>,
}

type Place<T> = LazyLock<Result<Index<Ssl, T>, ErrorStack>>;
static SERVED: Place<Served> = LazyLock::new(Ssl::new_ex_index);
static OFFERED: Place<Psk> = LazyLock::new(Ssl::new_ex_index);

fn place<T>(place: &'static Place<T>) -> Result<Index<Ssl, T>, ErrorStack> {
    (**place).clone()
}

/// Has servers of a context choose the suite that goes with the PSK: OpenSSL chooses the suite first,
/// and then drops PSKs that are for another hash.
pub(super) fn choose_suites(context: &mut SslContextBuilder) {
    // SAFETY: the pointer is that of a live context, the callback keeps to its contract, and has no
    // argument.
    unsafe {
        SSL_CTX_set_client_hello_cb(context.as_ptr(), Some(client_hello), std::ptr::null_mut());
    }
}

/// Has a server take the PSKs that `find` knows.
pub(super) fn serve(ssl: &mut Ssl, find: Find) -> Result<(), ErrorStack> {
    ssl.set_ex_data(place(&SERVED)?, Served { find, found: OnceLock::new() });
    // SAFETY: the pointer is that of a live SSL, and the callback keeps to its contract.
    unsafe { SSL_set_psk_find_session_callback(ssl.as_ptr(), Some(find_session)) };
    Ok(())
}

/// The identity of the PSK that a client used.
pub(super) fn found(ssl: &SslRef) -> Option<&str> {
    let served = ssl.ex_data(place(&SERVED).ok()?)?;
    served.found.get().map(String::as_str)
}

/// Has a client offer a PSK.
pub(super) fn offer(ssl: &mut Ssl, psk: Psk) -> Result<(), ErrorStack> {
    let suite = suite_of(&psk).0.to_str().expect("a name in ASCII");
    ssl.set_ciphersuites(suite)?;
    ssl.set_ex_data(place(&OFFERED)?, psk);
    // SAFETY: the pointer is that of a live SSL, and the callback keeps to its contract.
    unsafe { SSL_set_psk_use_session_callback(ssl.as_ptr(), Some(use_session)) };
    Ok(())
}

/// The cipher suite of a PSK, and its number (RFC 8446, B.4).
fn suite_of(psk: &Psk) -> (&'static CStr, [c_uchar; 2]) {
    match psk.hash {
        Hash::Sha384 => (c"TLS_AES_256_GCM_SHA384", [0x13, 0x02]),
        _ => (c"TLS_AES_128_GCM_SHA256", [0x13, 0x01]),
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

fn take_size(from: &mut &[u8]) -> Option<usize> {
    take(from, 2).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

/// The identities in the extension of a hello, as far as they can be read.
fn identities(extension: &[u8]) -> Vec<&str> {
    let (mut rest, mut found) = (extension, Vec::new());
    let Some(total) = take_size(&mut rest) else { return found };
    rest = &rest[..total.min(rest.len())];
    while let Some(identity) = take_size(&mut rest).and_then(|len| take(&mut rest, len)) {
        found.extend(std::str::from_utf8(identity).ok());
        if take(&mut rest, 4).is_none() {
            break; // the age of a ticket, which means nothing here
        }
    }
    found
}

/// A session that stands for a PSK, and its cipher suite; null when there is no memory for it, or no
/// such suite.
///
/// # Safety
/// `ssl` is live.
unsafe fn session_of(ssl: *mut SSL, psk: &Psk) -> (*mut SSL_SESSION, *const SSL_CIPHER) {
    let (_, suite) = suite_of(psk);
    // SAFETY: the SSL is live, the suite has the two bytes that are read, the key is copied, and the
    // session is freed here or belongs to the caller.
    unsafe {
        let cipher = SSL_CIPHER_find(ssl, suite.as_ptr());
        let session = SSL_SESSION_new();
        let is_made = !cipher.is_null()
            && !session.is_null()
            && SSL_SESSION_set1_master_key(session, psk.key.as_ptr(), psk.key.len()) == 1
            && SSL_SESSION_set_cipher(session, cipher) == 1
            && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
        if is_made {
            return (session, cipher);
        }
        SSL_SESSION_free(session); // null is taken
        (std::ptr::null_mut(), cipher)
    }
}

/// OpenSSL shows a server the hello of a client, before it chooses anything.
unsafe extern "C" fn client_hello(ssl: *mut SSL, _: *mut c_int, _: *mut c_void) -> c_int {
    // SAFETY: OpenSSL gives a live SSL; the extension lives as long as this call, and the name of the
    // suite for ever.
    unsafe {
        let (mut extension, mut len) = (std::ptr::null(), 0);
        if SSL_client_hello_get0_ext(ssl, PRE_SHARED_KEY, &raw mut extension, &raw mut len) != 1
            || extension.is_null()
        {
            return SSL_CLIENT_HELLO_SUCCESS; // which fails later
        }
        let extension = std::slice::from_raw_parts(extension, len);
        let served = place(&SERVED).ok().and_then(|place| SslRef::from_ptr(ssl).ex_data(place));
        let known = served.and_then(|served| {
            identities(extension).into_iter().find_map(|identity| (served.find)(identity))
        });
        if let Some(psk) = known {
            SSL_set_ciphersuites(ssl, suite_of(&psk).0.as_ptr());
        }
    }
    SSL_CLIENT_HELLO_SUCCESS
}

/// OpenSSL asks a server for the PSK with an identity; without one the handshake goes on without
/// PSKs, and fails since there is no certificate.
unsafe extern "C" fn find_session(
    ssl: *mut SSL,
    identity: *const c_uchar,
    len: usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL gives a live SSL, an identity of `len` bytes, and a place for the session, which
    // is its own from then on.
    unsafe {
        *session = std::ptr::null_mut();
        let identity = std::slice::from_raw_parts(identity, len);
        let ssl_ref = SslRef::from_ptr(ssl);
        let served = place(&SERVED).ok().and_then(|place| ssl_ref.ex_data(place));
        if let (Some(served), Ok(identity)) = (served, std::str::from_utf8(identity))
            && let Some(psk) = (served.find)(identity)
        {
            (*session, _) = session_of(ssl, &psk);
            let _ = served.found.set(psk.identity); // a second hello has the same
        }
    }
    1
}

/// OpenSSL asks a client for a PSK, for a hash or for any.
unsafe extern "C" fn use_session(
    ssl: *mut SSL,
    hash: *const EVP_MD,
    identity: *mut *const c_uchar,
    len: *mut usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL gives a live SSL and places for identity and session. The identity lives as long
    // as the SSL, in its ex data; the session is OpenSSL's from then on.
    unsafe {
        *identity = std::ptr::null();
        *len = 0;
        *session = std::ptr::null_mut();
        let psk = place(&OFFERED).ok().and_then(|place| SslRef::from_ptr(ssl).ex_data(place));
        let Some(psk) = psk else { return 1 };
        let (made, cipher) = session_of(ssl, psk);
        if made.is_null() {
            return 0;
        }
        let is_its = hash.is_null()
            || std::ptr::addr_eq(
                hash.cast::<c_void>(),
                SSL_CIPHER_get_handshake_digest(cipher).cast::<c_void>(),
            );
        if !is_its {
            SSL_SESSION_free(made);
            return 1; // the server wants a hash that this PSK is not for
        }
        *session = made;
        *identity = psk.identity.as_ptr();
        *len = psk.identity.len();
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_from_any_bytes() {
        let one = |name: &str| {
            let size = u16::try_from(name.len()).unwrap().to_be_bytes();
            [&size[..], name.as_bytes(), &[0; 4]].concat()
        };
        let both = [one("first"), one("second one")].concat();
        let size = u16::try_from(both.len()).unwrap().to_be_bytes();
        let whole = [&size[..], &both, b"binders"].concat();
        assert_eq!(identities(&whole), ["first", "second one"]);
        for at in 0..whole.len() {
            assert!(identities(&whole[..at]).len() <= 2);
        }
        assert_eq!(identities(&[0xff; 50]), Vec::<&str>::new());
    }
}
