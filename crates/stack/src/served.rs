//! Pools that other processes serve (`esker pool serve`): requests at a socket, and volumes as devices.
//!
//! A volume is opened over NVMe/TCP: the server lets a host in that is made up for this device alone, and is told to
//! let go of it when the device and its queue pairs are dropped. The server forgets a host that never comes back.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, ErrorKind, Nanos};
use esker_device::Device;
use esker_nvmf::InitiatorConfig;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use crate::StackError;
use crate::pool::Held;
use crate::spec::{RemoteSpec, Spec, VolumeSpec};

/// Hosts that are made up for one device begin so.
pub const OPENER: &str = "nqn.2026-01.io.esker:open:";
/// The largest answer.
const ANSWER_MAX: usize = 256 << 20;
/// How long the end of a device waits at most: a server forgets a host by itself.
const CLOSING: Duration = Duration::from_secs(20);

/// How a client waits for a server.
#[derive(Clone, Copy)]
pub struct Patience {
    /// How long an answer may take: the space of a large volume is counted block by block.
    pub limit: Duration,
    /// How long it is waited for before somebody is told so.
    pub notice: Duration,
    /// Is called once with that sentence.
    pub tell: fn(&str),
}

impl Default for Patience {
    /// Ten minutes; after five seconds there is something to tell, and nobody to be told.
    fn default() -> Patience {
        let [limit, notice] = [600, 5].map(Duration::from_secs);
        Patience { limit, notice, tell: |_| {} }
    }
}

/// Codes of errors in answers, by kind, with the status of HTTP.
pub const CODES: [(ErrorKind, &str, u16); 10] = [
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

/// Why there is no answer that is one.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody listens at the socket.
    Absent(io::Error),
    /// The connection failed, or the bytes that came are no answer of a pool.
    Broken(ErrorKind, String),
    /// The pool refused, and has changed nothing.
    Refused(ErrorKind, String),
}

impl NoAnswer {
    /// Returns the remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            NoAnswer::Absent(_) => ErrorKind::NotFound,
            NoAnswer::Broken(kind, _) | NoAnswer::Refused(kind, _) => *kind,
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Absent(error) => error.fmt(f),
            NoAnswer::Broken(_, why) | NoAnswer::Refused(_, why) => why.fmt(f),
        }
    }
}

/// The directory of the sockets where nothing else is said: that of the system for root, or of the user.
#[must_use]
pub fn socket_dir() -> PathBuf {
    socket_dir_of(rustix::process::geteuid().as_raw())
}

/// The same of another user.
#[must_use]
pub fn socket_dir_of(user: u32) -> PathBuf {
    match user {
        0 => PathBuf::from("/run/esker"),
        _ => PathBuf::from(format!("/run/user/{user}/esker")),
    }
}

/// Asks the process that serves a pool at a socket. `key` makes a repeated change one.
///
/// # Errors
/// Nobody is there, no answer comes in time, or the pool refuses.
pub fn ask(
    socket: &Path,
    method: &str,
    url: &str,
    key: Option<&str>,
    body: &Value,
    patience: Patience,
) -> Result<Value, NoAnswer> {
    let broken = |error: io::Error| {
        let why = format!("{}: {error}; {}", socket.display(), remedy(error.kind()));
        NoAnswer::Broken(ErrorKind::from(&error), why)
    };
    let mut wait = Wait::new(socket, patience);
    let mut stream = loop {
        match connect(socket, wait.left()?) {
            Ok(stream) => break stream,
            Err(error) if is_absent(&error) => return Err(NoAnswer::Absent(error)),
            Err(error) => again(error).map_err(broken)?,
        }
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!("{method} {url} HTTP/1.0\r\n{key}Content-Length: {length}\r\n\r\n");
    let request = format!("{head}{body}").into_bytes();
    let mut sent = 0;
    while sent < request.len() {
        stream.set_write_timeout(Some(wait.left()?)).map_err(broken)?;
        match stream.write(&request[sent..]) {
            Ok(count) => sent += count,
            Err(error) => again(error).map_err(broken)?,
        }
    }
    let mut text = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        stream.set_read_timeout(Some(wait.left()?)).map_err(broken)?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&part[..count]),
            Err(error) => again(error).map_err(broken)?,
        }
        if text.len() > ANSWER_MAX {
            break; // it is none
        }
    }
    let text = String::from_utf8(text).unwrap_or_default();
    let answer = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.split_whitespace().nth(1)?.to_owned();
        Some((status, serde_json::from_str::<Value>(body).ok()?))
    });
    let Some((status, answer)) = answer else {
        let why =
            format!("{}: this is no process of Esker, or it ended; ask again", socket.display());
        return Err(NoAnswer::Broken(ErrorKind::Retry, why));
    };
    if status == "200" {
        return Ok(answer);
    }
    let error = &answer["error"];
    let code = error["code"].as_str().unwrap_or_default();
    let kind = CODES.iter().find(|(_, known, _)| *known == code).map_or(ErrorKind::Io, |it| it.0);
    let why = error["message"].as_str().unwrap_or("the request failed").to_owned();
    Err(NoAnswer::Refused(kind, why))
}

/// Whether nobody listens where a connection failed so.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
        || ErrorKind::from(error) == ErrorKind::NotFound
}

/// The remedy for a client whose connection has failed.
fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "its owner alone may ask here: ask as that user",
        _ => "ask again",
    }
}

/// A wait for a server, from the connection to the answer.
struct Wait<'a> {
    socket: &'a Path,
    patience: Patience,
    clock: Clock,
    begun: Nanos,
    is_told: bool,
}

impl Wait<'_> {
    fn new(socket: &Path, patience: Patience) -> Wait<'_> {
        let clock = Clock::real();
        Wait { socket, patience, begun: clock.now(), clock, is_told: false }
    }

    /// How long to wait until there is something to tell; an error at the limit.
    fn left(&mut self) -> Result<Duration, NoAnswer> {
        let Patience { limit, notice, tell } = self.patience;
        let waited = self.clock.now().since(self.begun);
        let at = self.socket.display();
        if waited >= limit {
            let why = format!(
                "{at}: the process that listens there has not answered for {limit:?}; is it stopped? What was asked \
                 may still be done when it goes on. Ask again, or wait longer with --timeout"
            );
            return Err(NoAnswer::Broken(ErrorKind::Retry, why));
        }
        if waited >= notice && !self.is_told {
            self.is_told = true;
            tell(&format!(
                "waiting for the process that listens at {at}: it has not answered for {notice:?}; waiting for \
                 up to {limit:?} (--timeout)"
            ));
        }
        let next = if self.is_told { limit } else { limit.min(notice) };
        Ok(next.saturating_sub(waited).max(Duration::from_millis(1)))
    }
}

/// Connects to a socket of this machine, and waits for room there: a process that does not accept its clients has
/// room for some only.
///
/// # Errors
/// The system's; `WouldBlock` when there is no room within the time.
pub fn connect(socket: &Path, within: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let stream =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let within = within.max(Duration::from_millis(1)); // zero is no limit to the system
    sockopt::set_socket_timeout(&stream, Timeout::Send, Some(within))?;
    net::connect(&stream, &address)?;
    Ok(UnixStream::from(stream))
}

/// Nothing for an error that says that time has passed.
fn again(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// A host that a server has let in for a device.
struct Lease {
    socket: PathBuf,
    url: String,
    patience: Patience,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A server that does not answer, or is not there any more, forgets the host by itself.
        let patience = Patience { limit: self.patience.limit.min(CLOSING), ..self.patience };
        let _ = ask(&self.socket, "DELETE", &self.url, None, &Value::Null, patience);
    }
}

/// Opens a volume, or a snapshot of one, of the pool that is served at a socket.
pub(crate) fn open(
    spec: &Spec,
    volume: &VolumeSpec,
    socket: &Path,
    patience: Patience,
) -> Result<Arc<dyn Device>, OpenError> {
    let failed = |error| OpenError::Stack(StackError::remote(spec, error));
    let unique = InitiatorConfig::new(vec![SocketAddr::from(([127, 0, 0, 1], 1))], OPENER, 1);
    let unique = unique.map_err(failed)?.host_nqn;
    let host = format!("{OPENER}{}", unique.rsplit(':').next().unwrap_or_default());
    let url = format!("/v1/volumes/{}/hosts", volume.name);
    let body = json!({ "nqn": host, "snapshot": volume.snapshot });
    let export = ask(socket, "POST", &url, None, &body, patience).map_err(OpenError::NoAnswer)?;
    let lease = Lease { socket: socket.to_owned(), url: format!("{url}/{host}"), patience };
    let addresses = export["addresses"].as_array();
    let addresses = addresses.into_iter().flatten().filter_map(Value::as_str);
    let hosts: Vec<String> = addresses.filter_map(reachable).collect();
    let nqn = export["nqn"].as_str().unwrap_or_default().to_owned();
    if hosts.is_empty() || nqn.is_empty() {
        let why = "its server listens at no address without TLS; add one with --listen".to_owned();
        return Err(OpenError::Stack(StackError::invalid(spec, why)));
    }
    let remote = RemoteSpec { hosts, nqn, host_nqn: Some(host), ..RemoteSpec::default() };
    let device = remote.open().map_err(failed)?;
    Ok(Held::over(Arc::new(device), Arc::new(lease), Vec::new()))
}

/// Why a volume could not be opened through a server.
pub(crate) enum OpenError {
    NoAnswer(NoAnswer),
    Stack(StackError),
}

/// An address that a server listens on, as this machine reaches it.
fn reachable(address: &str) -> Option<String> {
    let mut address: SocketAddr = address.parse().ok()?;
    if address.ip().is_unspecified() {
        let is_v4 = address.is_ipv4();
        address.set_ip(if is_v4 { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() });
    }
    Some(address.to_string())
}

#[cfg(test)]
mod tests {
    use esker_base::sync::Mutex;

    use super::*;

    /// Messages that were told, by the path of the socket, of which each test has its own.
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn told_of(socket: &Path) -> usize {
        let at = socket.display().to_string();
        TOLD.lock().iter().filter(|told| told.contains(&at)).count()
    }

    fn brief() -> Patience {
        let [limit, notice] = [300, 50].map(Duration::from_millis);
        Patience { limit, notice, tell: |what| TOLD.lock().push(what.to_owned()) }
    }

    /// A socket at which nobody accepts clients: the process is stopped.
    fn stopped(dir: &tempfile::TempDir) -> (PathBuf, rustix::fd::OwnedFd) {
        let path = dir.path().join("tank.sock");
        let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&socket, 0).unwrap();
        (path, socket)
    }

    #[test]
    fn stopped_server_is_waited_for_as_long_as_was_said_and_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _socket) = stopped(&dir);
        // The first client is let in by the system; there is no room for a later one.
        for round in 0..3 {
            let error = ask(&path, "GET", "/v1/pool", None, &Value::Null, brief()).unwrap_err();
            let said = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Retry, "{said}");
            assert!(said.contains("has not answered") && said.contains("--timeout"), "{said}");
            assert_eq!(told_of(&path), round + 1);
        }
    }

    #[test]
    fn device_whose_server_is_stopped_ends_in_time_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _socket) = stopped(&dir);
        let clock = Clock::real();
        let begun = clock.now();
        drop(Lease {
            socket: path.clone(),
            url: "/v1/volumes/v/hosts/h".to_owned(),
            patience: brief(),
        });
        assert_eq!(told_of(&path), 1);
        assert!(clock.now().since(begun) < Duration::from_secs(60));
    }

    #[test]
    fn user_that_may_not_ask_is_not_told_to_ask_again() {
        assert!(remedy(io::ErrorKind::PermissionDenied).contains("ask as that user"));
        assert_eq!(remedy(io::ErrorKind::ConnectionReset), "ask again");
    }

    #[test]
    fn server_that_is_late_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("late.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = esker_base::thread::spawn("late", move || {
            let (mut client, _) = listener.accept().unwrap();
            assert!(client.read(&mut [0; 1024]).unwrap() > 0, "the request");
            Clock::real().sleep(Duration::from_millis(200));
            client.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"a\":").unwrap();
            Clock::real().sleep(Duration::from_millis(200));
            client.write_all(b"1}").unwrap();
        });
        let patience = Patience { limit: Duration::from_secs(60), ..brief() };
        let answer = ask(&path, "GET", "/", None, &Value::Null, patience).unwrap();
        assert_eq!((answer, told_of(&path)), (json!({ "a": 1 }), 1));
        server.unwrap().join().unwrap();
    }

    #[test]
    fn server_that_listens_everywhere_is_reached_here() {
        assert_eq!(reachable("0.0.0.0:4420").as_deref(), Some("127.0.0.1:4420"));
        assert_eq!(reachable("[::]:4421").as_deref(), Some("[::1]:4421"));
        assert_eq!(reachable("10.0.0.5:4420").as_deref(), Some("10.0.0.5:4420"));
        assert_eq!(reachable("nowhere"), None);
    }
}
