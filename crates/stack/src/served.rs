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

use esker_base::ErrorKind;
use esker_device::Device;
use esker_nvmf::InitiatorConfig;
use serde_json::{Value, json};

use crate::StackError;
use crate::pool::Held;
use crate::spec::{RemoteSpec, Spec, VolumeSpec};

/// Hosts that are made up for one device begin so.
pub const OPENER: &str = "nqn.2026-01.io.esker:open:";
/// The largest answer.
const ANSWER_MAX: u64 = 256 << 20;
/// How long an answer may take: the space of a large volume is counted block by block.
const PATIENCE: Duration = Duration::from_secs(600);

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
    let user = rustix::process::geteuid();
    match user.is_root() {
        true => PathBuf::from("/run/esker"),
        false => PathBuf::from(format!("/run/user/{}/esker", user.as_raw())),
    }
}

/// Asks the process that serves a pool at a socket. `key` makes a repeated change one.
///
/// # Errors
/// Nobody is there, no answer comes, or the pool refuses.
pub fn ask(
    socket: &Path,
    method: &str,
    url: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<Value, NoAnswer> {
    let broken = |error: io::Error| {
        let why = format!("{}: {error}; ask again", socket.display());
        NoAnswer::Broken(ErrorKind::from(&error), why)
    };
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => NoAnswer::Absent(error),
        _ => broken(error),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!("{method} {url} HTTP/1.0\r\n{key}Content-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).map_err(broken)?;
    let mut text = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut text).map_err(broken)?;
    let answer = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.split_whitespace().nth(1)?.to_owned();
        Some((status, serde_json::from_str::<Value>(body).ok()?))
    });
    let Some((status, answer)) = answer else {
        let why = format!("{}: this is no pool of Esker, or it ended; ask again", socket.display());
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

/// A host that a server has let in for a device.
struct Lease {
    socket: PathBuf,
    url: String,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A server that is not there any more forgets the host by itself.
        let _ = ask(&self.socket, "DELETE", &self.url, None, &Value::Null);
    }
}

/// Opens a volume, or a snapshot of one, of the pool that is served at a socket.
pub(crate) fn open(
    spec: &Spec,
    volume: &VolumeSpec,
    socket: &Path,
) -> Result<Arc<dyn Device>, OpenError> {
    let failed = |error| OpenError::Stack(StackError::remote(spec, error));
    let unique = InitiatorConfig::new(vec![SocketAddr::from(([127, 0, 0, 1], 1))], OPENER, 1);
    let unique = unique.map_err(failed)?.host_nqn;
    let host = format!("{OPENER}{}", unique.rsplit(':').next().unwrap_or_default());
    let url = format!("/v1/volumes/{}/hosts", volume.name);
    let body = json!({ "nqn": host, "snapshot": volume.snapshot });
    let export = ask(socket, "POST", &url, None, &body).map_err(OpenError::NoAnswer)?;
    let lease = Lease { socket: socket.to_owned(), url: format!("{url}/{host}") };
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
    use super::*;

    #[test]
    fn server_that_listens_everywhere_is_reached_here() {
        assert_eq!(reachable("0.0.0.0:4420").as_deref(), Some("127.0.0.1:4420"));
        assert_eq!(reachable("[::]:4421").as_deref(), Some("[::1]:4421"));
        assert_eq!(reachable("10.0.0.5:4420").as_deref(), Some("10.0.0.5:4420"));
        assert_eq!(reachable("nowhere"), None);
    }
}
