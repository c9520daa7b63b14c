//! Requests over HTTP at a UNIX socket, which is its owner's alone, and the form of their answers.
//!
//! A file that an earlier process left is replaced; one that answers is not.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::{ErrorKind, files};
use esker_stack::served::{self, CODES};
use serde_json::{Value, json};

use crate::error::{Result, ServeError};
use crate::http::{self, Answer, Listener, Service};

/// A server at a socket, whose file goes with it.
pub struct SocketServer {
    path: PathBuf,
    _http: http::Server,
}

impl SocketServer {
    /// Answers requests of any kind at a socket; `advice` is the remedy where that is not possible.
    pub(crate) fn start(
        path: &Path,
        name: &'static str,
        requests: impl Service,
        advice: &str,
    ) -> Result<SocketServer> {
        let listener = Listener::Unix(bind(path, advice)?);
        let http = http::Server::start(listener, name, requests).map_err(|error| {
            let why = format!("{}: {error}; {advice}", path.display());
            ServeError::new(ErrorKind::Conflict, why)
        })?;
        Ok(SocketServer { path: path.to_owned(), _http: http })
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens at a path, in the place of a process that is gone; `advice` is the remedy where that is not possible.
///
/// # Errors
/// `Conflict` when a process answers there, `Exists` when it is no socket; the file system's.
pub fn bind(path: &Path, advice: &str) -> Result<UnixListener> {
    let failed = |error: io::Error| ServeError::file(path, error, advice);
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let why = format!("{}: it is no socket; {advice}", path.display());
            return Err(ServeError::new(ErrorKind::Exists, why));
        }
        // A process that is stopped may have no room.
        let is_full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if served::connect(path, Duration::ZERO).map_or_else(is_full, |_| true) {
            let why = format!("{}: a process answers here already; end it first", path.display());
            return Err(ServeError::new(ErrorKind::Conflict, why));
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

/// The answer to a request that was carried out, or refused.
pub(crate) fn answered(outcome: Result<Value>) -> Answer {
    match outcome {
        Ok(value) => json(200, &value),
        Err(refusal) => {
            let known = CODES.iter().find(|(kind, ..)| *kind == refusal.kind());
            let (code, status) = known.map_or(("IO", 500), |(_, code, status)| (*code, *status));
            refused(status, code, &refusal.to_string())
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

/// The answer to a request that was refused.
pub(crate) fn refused(status: u16, code: &str, message: &str) -> Answer {
    json(status, &json!({ "error": { "code": code, "message": message } }))
}

/// The JSON of a request's body; null of none.
pub(crate) fn parsed(body: &[u8]) -> Result<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body)
        .map_err(|error| ServeError::invalid(format!("the request's body is no JSON: {error}")))
}
