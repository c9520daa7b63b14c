//! Requests over HTTP: on a socket, and on request on a loopback address with a token.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::route::Serves;
use crate::error::{Result, ServeError};
use crate::http::{self, Answer, Head, Service};
use crate::socket::{SocketServer, answered, parsed, refused, unheard};
use crate::token::Token;

/// Answers at a socket; `advice` is the remedy where that is not possible.
pub(crate) fn at_socket<S: Serves>(
    path: &Path,
    name: &'static str,
    served: &Arc<S>,
    advice: &str,
) -> Result<SocketServer> {
    let requests = Requests { served: served.clone(), token: None };
    SocketServer::start(path, name, requests, advice)
}

/// Answers clients with the token at a loopback address.
pub(crate) fn at_address<S: Serves>(
    address: SocketAddr,
    token: Token,
    served: &Arc<S>,
) -> Result<(http::Server, SocketAddr)> {
    if !address.ip().is_loopback() {
        let why = format!(
            "{address}: the token would be read on the way; say a loopback address, and put a proxy with TLS before it"
        );
        return Err(ServeError::invalid(why));
    }
    let requests = Requests { served: served.clone(), token: Some(token) };
    http::Server::start_at(address, "--api", requests)
}

/// Requests to a server.
struct Requests<S> {
    served: Arc<S>,
    token: Option<Token>,
}

impl<S: Serves> Service for Requests<S> {
    const BODY_MAX: usize = 1 << 20;

    fn admit(&self, head: &Head) -> Result<(), Answer> {
        let said = head.header("Authorization").unwrap_or_default();
        if self.token.as_ref().is_some_and(|token| !token.is_in(&said)) {
            let why = "the token is missing or wrong; send Authorization: Bearer TOKEN";
            return Err(refused(401, "DENIED", why));
        }
        Ok(())
    }

    fn answer(&self, head: &Head, body: &[u8]) -> Answer {
        let key = head.header("Idempotency-Key");
        let run = |body| self.served.run_request(head.method(), head.url(), key.as_deref(), body);
        answered(parsed(body).and_then(run))
    }

    fn error(&self, status: u16, why: &str) -> Answer {
        unheard(status, why)
    }
}
