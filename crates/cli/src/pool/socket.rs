//! Requests over HTTP on a UNIX socket: the side that answers, and the side that asks.
//!
//! The socket is its owner's alone. A file that an earlier process left is replaced; one that answers is not.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::{ErrorKind, files, thread};
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response};

use super::routes::{Answer, Refusal, Served};
use crate::failure::{Failure, Result};

/// Requests that are worked on at once.
const THREADS: usize = 4;
/// The largest body of a request.
const BODY_MAX: u64 = 1 << 20;
/// The largest answer.
const ANSWER_MAX: u64 = 256 << 20;
/// How long an answer may take: the space of a large volume is counted block by block.
const PATIENCE: Duration = Duration::from_secs(600);

/// Codes of errors in answers, by kind, with the status of HTTP.
const CODES: [(ErrorKind, &str, u16); 10] = [
    (ErrorKind::Retry, "RETRY", 503),
    (ErrorKind::NoSpace, "NO_SPACE", 507),
    (ErrorKind::Invalid, "INVALID", 400),
    (ErrorKind::NotFound, "NOT_FOUND", 404),
    (ErrorKind::Exists, "EXISTS", 409),
    (ErrorKind::Unsupported, "UNSUPPORTED", 405),
    (ErrorKind::Corrupt, "CORRUPT", 500),
    (ErrorKind::Conflict, "CONFLICT", 409),
    (ErrorKind::Closed, "CLOSED", 503),
    (ErrorKind::Io, "IO", 500),
];

/// Where a pool is served unless something else is said.
pub(crate) fn default_path(pool: &str) -> PathBuf {
    let run = match rustix::process::geteuid().is_root() {
        true => None,
        false => std::env::var_os("XDG_RUNTIME_DIR"),
    };
    let run = run.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    run.join("esker").join(format!("{pool}.sock"))
}

/// Answers until it is dropped.
pub(crate) struct Server {
    http: Arc<tiny_http::Server>,
    path: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(path: &Path, served: &Arc<Served>) -> Result<Server> {
        let refused = |error: &dyn fmt::Display| {
            let why = format!("{}: {error}; choose another path with --socket", path.display());
            Failure::new(ErrorKind::Conflict, why)
        };
        let listener = bind(path)?;
        let http = tiny_http::Server::from_listener(listener, None);
        let http = Arc::new(http.map_err(|error| refused(&error))?);
        let mut server = Server { http, path: path.to_owned(), threads: Vec::new() };
        for _ in 0..THREADS {
            let (http, served) = (server.http.clone(), served.clone());
            let work = move || http.incoming_requests().for_each(|one| respond(&served, one));
            let thread = thread::spawn("pool-api", work);
            server.threads.push(thread.map_err(|error| refused(&error))?);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
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

fn respond(served: &Served, mut request: Request) {
    let method = request.method().as_str().to_owned();
    let path = request.url().to_owned();
    let answer = body(&mut request).and_then(|body| served.run(&method, &path, body));
    let (status, text) = match answer {
        Ok(value) => (200, value),
        Err(refusal) => {
            let known = CODES.iter().find(|(kind, ..)| *kind == refusal.kind);
            let (code, status) = known.map_or(("IO", 500), |(_, code, status)| (*code, *status));
            (status, json!({ "error": { "code": code, "message": refusal.message } }))
        }
    };
    let json: Header = "Content-Type: application/json".parse().expect("a header");
    let response = Response::from_string(format!("{text}\n"));
    let _ = request.respond(response.with_status_code(status).with_header(json)); // the client is gone
}

fn body(request: &mut Request) -> Answer {
    let invalid = |why: String| Refusal::new(ErrorKind::Invalid, why);
    let mut text = Vec::new();
    let read = request.as_reader().take(BODY_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| invalid(format!("the request's body: {error}")))?;
    if text.len() as u64 > BODY_MAX {
        return Err(invalid(format!("the request's body has more than {BODY_MAX} bytes")));
    }
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&text)
        .map_err(|error| invalid(format!("the request's body is no JSON: {error}")))
}

/// Asks the process that serves a pool at a socket.
pub(crate) fn ask(pool: &str, path: &Path, method: &str, url: &str, body: &Value) -> Result<Value> {
    let failed = |error: io::Error| {
        let why = format!(
            "pool '{pool}' is not served at {}: {error}; start `esker pool serve {pool} --drives …`, say --socket, or \
             name its devices with --drives",
            path.display()
        );
        let is_absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        let is_absent = is_absent.contains(&error.kind());
        Failure::new(if is_absent { ErrorKind::NotFound } else { ErrorKind::from(&error) }, why)
    };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!("{method} {url} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).map_err(failed)?;
    let mut text = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut text).map_err(failed)?;
    let answer = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.split_whitespace().nth(1)?.to_owned();
        Some((status, serde_json::from_str::<Value>(body).ok()?))
    });
    let Some((status, answer)) = answer else {
        let why = format!("{}: this is no pool of Esker, or it ended; ask again", path.display());
        return Err(Failure::new(ErrorKind::Retry, why));
    };
    if status == "200" {
        return Ok(answer);
    }
    let error = &answer["error"];
    let code = error["code"].as_str().unwrap_or_default();
    let kind = CODES.iter().find(|(_, known, _)| *known == code).map_or(ErrorKind::Io, |it| it.0);
    Err(Failure::new(kind, error["message"].as_str().unwrap_or("the request failed")))
}
