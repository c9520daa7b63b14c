//! Requests over HTTP: on a UNIX socket, which is its owner's alone, and on request on a loopback address with a token.
//!
//! A file that an earlier process left is replaced; one that answers is not.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use esker_base::{ErrorKind, files, thread};
use esker_stack::served::{self, CODES, NoAnswer};
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response};

use super::refusal::{Answer, Refusal};
use super::served::Served;
use crate::failure::{Failure, Result};
use crate::token::Token;

/// Requests that are worked on at once.
const THREADS: usize = 4;
/// The largest body of a request.
const BODY_MAX: u64 = 1 << 20;

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
    http: Arc<tiny_http::Server>,
    /// The socket's file.
    path: Option<PathBuf>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Answers at a socket.
    pub(crate) fn start(path: &Path, served: &Arc<Served>) -> Result<Server> {
        let refused = |error: &dyn fmt::Display| {
            let why = format!("{}: {error}; choose another path with --socket", path.display());
            Failure::new(ErrorKind::Conflict, why)
        };
        let http = tiny_http::Server::from_listener(bind(path)?, None);
        let http = http.map_err(|error| refused(&error))?;
        Server::over(http, Some(path.to_owned()), served, None).map_err(|error| refused(&error))
    }

    /// Answers clients with the token at a loopback address.
    pub(crate) fn start_tcp(
        address: SocketAddr,
        token: Token,
        served: &Arc<Served>,
    ) -> Result<(Server, SocketAddr)> {
        let refused = |error: &dyn fmt::Display| {
            let why = format!("{address}: {error}; choose another address with --api");
            Failure::new(ErrorKind::Conflict, why)
        };
        if !address.ip().is_loopback() {
            let why = format!(
                "{address}: the token would be read on the way; say a loopback address, and put a proxy with TLS before it"
            );
            return Err(Failure::usage(why));
        }
        let http = tiny_http::Server::http(address).map_err(|error| refused(&error))?;
        let address = http.server_addr().to_ip().unwrap_or(address);
        let server = Server::over(http, None, served, Some(token));
        Ok((server.map_err(|error| refused(&error))?, address))
    }

    fn over(
        http: tiny_http::Server,
        path: Option<PathBuf>,
        served: &Arc<Served>,
        token: Option<Token>,
    ) -> io::Result<Server> {
        let mut server = Server { http: Arc::new(http), path, threads: Vec::new() };
        let token = Arc::new(token);
        for _ in 0..THREADS {
            let (http, served, token) = (server.http.clone(), served.clone(), token.clone());
            let work = move || {
                http.incoming_requests()
                    .for_each(|one| respond(&served, token.as_ref().as_ref(), one));
            };
            server.threads.push(thread::spawn("pool-api", work)?);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
        self.threads.iter().for_each(|_| self.http.unblock());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Listens at a path, in the place of a process that is gone.
fn bind(path: &Path) -> Result<UnixListener> {
    let failed =
        |error: io::Error| Failure::file(path, &error, "choose another path with --socket");
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let why =
                format!("{}: it is no socket; choose another path with --socket", path.display());
            return Err(Failure::new(ErrorKind::Exists, why));
        }
        if UnixStream::connect(path).is_ok() {
            let why = format!("{}: a process answers here already; end it first", path.display());
            return Err(Failure::new(ErrorKind::Conflict, why));
        }
    }
    if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty() && !it.exists()) {
        files::create_dir_all(parent).map_err(failed)?;
        fs::set_permissions(parent, Permissions::from_mode(0o700)).map_err(failed)?;
    }
    // Nobody else may connect, not even before the permissions are set.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new).map_err(failed)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)?;
    Ok(listener)
}

/// The value of a header.
fn header(request: &Request, name: &str) -> Option<String> {
    let mut headers = request.headers().iter();
    let found = headers.find(|one| one.field.as_str().as_str().eq_ignore_ascii_case(name))?;
    Some(found.value.as_str().trim().to_owned())
}

fn respond(served: &Served, token: Option<&Token>, mut request: Request) {
    let refused = |status, code: &str, message: &str| {
        (status, json!({ "error": { "code": code, "message": message } }))
    };
    let said = header(&request, "Authorization").unwrap_or_default();
    let (status, value) = if token.is_some_and(|token| !token.is_in(&said)) {
        let why = "the token is missing or wrong; send Authorization: Bearer TOKEN";
        refused(401, "DENIED", why)
    } else {
        match answer(served, &mut request) {
            Ok(value) => (200, value),
            Err(refusal) => {
                let known = CODES.iter().find(|(kind, ..)| *kind == refusal.kind);
                let (code, status) =
                    known.map_or(("IO", 500), |(_, code, status)| (*code, *status));
                refused(status, code, &refusal.message)
            }
        }
    };
    let json: Header = "Content-Type: application/json".parse().expect("a header");
    let response = Response::from_string(format!("{value}\n"));
    let _ = request.respond(response.with_status_code(status).with_header(json)); // the client is gone
}

fn answer(served: &Served, request: &mut Request) -> Answer {
    let method = request.method().as_str().to_owned();
    let url = request.url().to_owned();
    let key = header(request, "Idempotency-Key");
    let body = body(request)?;
    served.run(&method, &url, key.as_deref(), body)
}

fn body(request: &mut Request) -> Answer {
    let mut text = Vec::new();
    let read = request.as_reader().take(BODY_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| Refusal::invalid(format!("the request's body: {error}")))?;
    if text.len() as u64 > BODY_MAX {
        let why = format!("the request's body has more than {BODY_MAX} bytes; send less");
        return Err(Refusal::invalid(why));
    }
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&text)
        .map_err(|error| Refusal::invalid(format!("the request's body is no JSON: {error}")))
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
    served::ask(path, method, url, key, body).map_err(|error| {
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
