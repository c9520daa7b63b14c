//! Requests over HTTP: on a UNIX socket, which is its owner's alone, and on request on a loopback address with a token.
//!
//! A file that an earlier process left is replaced; one that answers is not.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_base::{ErrorKind, files};
use esker_serve::http::{self, Answer, Head, Listener, Service};
use esker_serve::token::Token;
use esker_stack::served::{self, CODES, NoAnswer, Patience};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::served::Served;
use crate::failure::{Failure, Result};
use crate::stderr::tell;

/// The directory of the sockets where nothing else is said.
pub(crate) fn directory() -> PathBuf {
    let run = match rustix::process::geteuid().is_root() {
        true => None,
        false => std::env::var_os("XDG_RUNTIME_DIR"),
    };
    run.map_or_else(served::socket_dir, |run| PathBuf::from(run).join("esker"))
}

/// Where a pool is served unless something else is said.
pub(crate) fn default_path(pool: &str) -> PathBuf {
    directory().join(format!("{pool}.sock"))
}

/// Answers until it is dropped.
pub(crate) struct Server {
    /// The socket's file.
    path: Option<PathBuf>,
    _http: http::Server,
}

impl Server {
    /// Answers at a socket.
    pub(crate) fn start(path: &Path, served: &Arc<Served>) -> Result<Server> {
        let requests = Requests { served: served.clone(), token: None };
        Server::answering(path, "pool-socket", requests, "choose another path with --socket")
    }

    /// Answers requests of any kind at a socket; `advice` is the remedy where that is not possible.
    pub(crate) fn answering(
        path: &Path,
        name: &'static str,
        requests: impl Service,
        advice: &str,
    ) -> Result<Server> {
        let listener = Listener::Unix(bind(path, advice)?);
        let http = http::Server::start(listener, name, requests).map_err(|error| {
            let why = format!("{}: {error}; {advice}", path.display());
            Failure::new(ErrorKind::Conflict, why)
        })?;
        Ok(Server { path: Some(path.to_owned()), _http: http })
    }

    /// Answers clients with the token at a loopback address.
    pub(crate) fn start_tcp(
        address: SocketAddr,
        token: Token,
        served: &Arc<Served>,
    ) -> Result<(Server, SocketAddr)> {
        if !address.ip().is_loopback() {
            let why = format!(
                "{address}: the token would be read on the way; say a loopback address, and put a proxy with TLS before it"
            );
            return Err(Failure::usage(why));
        }
        let requests = Requests { served: served.clone(), token: Some(token) };
        let (http, address) = http::Server::start_at(address, "--api", requests)?;
        Ok((Server { path: None, _http: http }, address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens at a path, in the place of a process that is gone; `advice` is the remedy where that is not possible.
pub(crate) fn bind(path: &Path, advice: &str) -> Result<UnixListener> {
    let failed = |error: io::Error| Failure::file(path, &error, advice);
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let why = format!("{}: it is no socket; {advice}", path.display());
            return Err(Failure::new(ErrorKind::Exists, why));
        }
        // A process that is stopped may have no room.
        let is_full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if served::connect(path, Duration::ZERO).map_or_else(is_full, |_| true) {
            let why = format!("{}: a process answers here already; end it first", path.display());
            return Err(Failure::new(ErrorKind::Conflict, why));
        }
    }
    if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        files::may_create(parent).map_err(failed)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
    }
    // Nobody else may connect, not even before the permissions are set.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new).map_err(failed)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)?;
    Ok(listener)
}

/// Requests to a pool.
struct Requests {
    served: Arc<Served>,
    token: Option<Token>,
}

impl Service for Requests {
    const BODY_MAX: usize = 1 << 20;

    fn admit(&self, head: &Head) -> std::result::Result<(), Answer> {
        let said = head.header("Authorization").unwrap_or_default();
        if self.token.as_ref().is_some_and(|token| !token.is_in(&said)) {
            let why = "the token is missing or wrong; send Authorization: Bearer TOKEN";
            return Err(refused(401, "DENIED", why));
        }
        Ok(())
    }

    fn answer(&self, head: &Head, body: &[u8]) -> Answer {
        let key = head.header("Idempotency-Key");
        let run = |body| self.served.run(head.method(), head.url(), key.as_deref(), body);
        answered(parsed(body).and_then(run))
    }

    fn error(&self, status: u16, why: &str) -> Answer {
        unheard(status, why)
    }
}

/// The answer to a request that was carried out, or refused.
pub(crate) fn answered(outcome: std::result::Result<Value, Refusal>) -> Answer {
    match outcome {
        Ok(value) => json(200, &value),
        Err(refusal) => {
            let known = CODES.iter().find(|(kind, ..)| *kind == refusal.kind);
            let (code, status) = known.map_or(("IO", 500), |(_, code, status)| (*code, *status));
            refused(status, code, &refusal.message)
        }
    }
}

/// The answer where no request could be had from the client.
pub(crate) fn unheard(status: u16, why: &str) -> Answer {
    refused(status, if status < 500 { "INVALID" } else { "IO" }, why)
}

fn json(status: u16, value: &Value) -> Answer {
    Answer::new(status, "application/json", format!("{value}\n"))
}

fn refused(status: u16, code: &str, message: &str) -> Answer {
    json(status, &json!({ "error": { "code": code, "message": message } }))
}

/// The JSON of a request's body; null of none.
pub(crate) fn parsed(body: &[u8]) -> std::result::Result<Value, Refusal> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("the request's body is no JSON: {error}")))
}

/// How long this process waits for those that serve pools, if it was said.
static TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Says how long this process waits for those that serve pools.
pub(crate) fn wait_for(timeout: Duration) {
    let _ = TIMEOUT.set(timeout); // it is said once
}

/// How this process waits for those that serve pools.
pub(crate) fn patience() -> Patience {
    let usual = Patience { tell: |what| tell!("esker: {what}"), ..Patience::default() };
    TIMEOUT.get().map_or(usual, |limit| Patience { limit: *limit, ..usual })
}

/// Asks the process that serves a pool at a socket.
pub(crate) fn ask(
    pool: &str,
    path: &Path,
    method: &str,
    url: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<Value> {
    served::ask(path, method, url, key, body, patience()).map_err(|error| {
        let kind = error.kind();
        match error {
            NoAnswer::Absent(error) => {
                let why = format!(
                    "pool '{pool}' is not served at {}: {error}; start `esker pool serve {pool} --drives …`, say \
                     --socket, or name its devices with --drives",
                    path.display()
                );
                Failure::new(kind, why)
            }
            error => Failure::new(kind, error),
        }
    })
}
